import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmura import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (999.6, "1.00 kB"),
        (1_500_000, "1.50 MB"),
        (29_491_200, "29.5 MB"),
        (999_499_999, "999 MB"),
        (999_500_000, "1.00 GB"),
        (1_650_000_000, "1.65 GB"),
        (5e16, "50000 TB"),
    ],
)
def test_size(value, text):
    assert units.size(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.42, "0.42 s"),
        (0.996, "1.0 s"),
        (12.34, "12.3 s"),
        (99.96, "1 min 40 s"),
        (245, "4 min 05 s"),
        (3599.7, "1 h 00 min"),
        (3725, "1 h 02 min"),
    ],
)
def test_duration(value, text):
    assert units.duration(value) == text


def test_differences_show_their_sign_and_zero_shows_none():
    assert [units.signed(v) for v in (0.0304, -0.004, 0.0, -0.0001, 0.0001)] == ["+0.030", "−0.004", "0.000"] + [
        "0.000"
    ] * 2
    assert units.decimal(-0.00001) == "0.000"


@given(st.floats(1e-6, 1e5), st.integers(1, 5))
def test_a_bound_is_never_rounded_down(value, digits):
    shown = float(units.bound(value, digits))
    assert value * (1 - 1e-11) <= shown <= value + 1.001 * 10**-digits


@given(st.floats(1e6, 1e300))
def test_nor_is_a_large_one(value):
    shown = units.bound(value)
    assert value <= float(shown) <= value * 1.0101 and len(shown) <= len("1.00e300")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("50MB", 50_000_000),
        ("1.5 kB", 1500),
        ("2gb", 2 * 10**9),
        ("1TB", 10**12),
        ("77", 77),
        ("5 B", 5),
        (77, 77),
        (None, None),
    ],
)
def test_sizes_are_read_with_their_unit(text, number):
    assert units.bytes_of(text) == number


@pytest.mark.parametrize(
    "text", ["", "MB", "5 apples", "inf", "nan", "0.4", "1.0001 kB", "50M", "1e3", "1_0", "-5", "9" * 19, "٣"]
)
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match="say a whole number of bytes"):
        units.bytes_of(text)


def test_bounds():
    assert [units.bound(v) for v in (7.9991, 8.0, 0.0004, 1.2, float("inf"))] == [
        "8.000",
        "8.000",
        "0.001",
        "1.200",
        "∞",
    ]
    large = (999999.4, 1e6, 1_000_001.0, 999_999_999.0, 5000000013420000256.0)
    assert [units.bound(v) for v in large] == ["999999.400", "1.00e6", "1.01e6", "1.00e9", "5.01e18"]


def test_counts():
    assert units.count(12345) == "12,345"
    assert units.count(2.5) == "2.5"


def test_several():
    assert [units.several(number, "run") for number in (0, 1, 2000)] == ["0 runs", "1 run", "2000 runs"]


def test_listing():
    assert [units.listing(list(names)) for names in ("a", "ab", "abc")] == ["a", "a and b", "a, b and c"]
    assert [units.listing(list(names), 2) for names in ("ab", "abcde")] == ["a and b", "a, b and 3 more"]


@pytest.mark.parametrize(
    ("first", "second", "texts"),
    [
        (0.9, 1.0, ("0.9", "1")),
        (1.0000042, 1.0, ("1.000004", "1")),
        (1.0, 1.0, ("1", "1")),
        (float("nan"), 11.3, ("nan", "11.3")),
        (1 - 2**-53, 1.0, ("0.9999999999999999", "1")),
    ],
)
def test_figures_that_differ_are_told_apart(first, second, texts):
    assert units.told_apart(first, second) == texts
