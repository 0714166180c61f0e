"""What goes through the wire encoding comes out as it was; what is damaged does not come out at all."""

import errno
import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError

from murmura.errors import RunError
from murmura.federation.wire.messages import Ask, decode, digest, encode, field_sizes, size, write

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
names = st.text(max_size=8).filter(lambda name: "\x1f" not in name)
inner_names = st.text(max_size=8)  # a tensor's own name may hold anything
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def tensors(draw):
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    values = torch.randn(shape, generator=torch.Generator().manual_seed(draw(st.integers(0, 99)))) * 100
    return values.to(draw(st.sampled_from(DTYPES)))


payloads = st.dictionaries(
    names, tensors() | json_values | st.dictionaries(inner_names, tensors(), max_size=3), max_size=4
)


def same(first, second):
    if isinstance(first, torch.Tensor):
        return isinstance(second, torch.Tensor) and first.dtype == second.dtype and torch.equal(first, second)
    if isinstance(first, dict):
        alike = isinstance(second, dict) and first.keys() == second.keys()
        return alike and all(same(first[name], second[name]) for name in first)
    return type(first) is type(second) and first == second


@given(payloads)
def test_everything_comes_back(payload):
    back = decode(encode(payload))
    assert same(back, payload)
    assert size(back) == size(payload)


def test_empty_things_come_back():
    payload = {"state": {}, "list": [], "none": None, "no": False, "zero": 0, "text": "", "tensor": torch.zeros(0)}
    assert same(decode(encode(payload)), payload)
    assert decode(encode({})) == {}


def test_names_may_hold_separators_and_any_script():
    payload = {"store.β/x y": {"a\x1fb/c.d": torch.ones(2), "": torch.zeros(1)}, "größe": "äöü 漢字 \u2028"}
    assert same(decode(encode(payload)), payload)
    with pytest.raises(RunError, match="holds the separator"):
        encode({"a\x1fb": torch.ones(2)})


def test_nothing_crosses_by_reference():
    state, listed = {"w": torch.ones(2)}, [1, [2]]
    back = decode(encode({"state": state, "list": listed}))
    back["state"]["w"].zero_()
    back["list"][1].append(3)
    assert state["w"].tolist() == [1, 1]
    assert listed == [1, [2]]


def test_fields_may_share_tensors():
    whole = torch.arange(6.0)
    views = {"a": whole[:4].view(2, 2), "b": whole[4:]}
    leaf = whole.clone().requires_grad_()
    payload = {"adapter": views, "start": views, "flat": whole, "turned": views["a"].T, "leaf": leaf}
    back = decode(encode(payload))
    assert torch.equal(back["turned"], views["a"].T)
    assert torch.equal(back["start"]["b"], whole[4:])
    assert not back["leaf"].requires_grad


def test_a_file_holds_what_the_buffer_does_and_nobody_else_may_read_it(tmp_path):
    weights = torch.arange(6.0).reshape(2, 3)
    payload = {"same": {"w": weights, "part": weights[1:], "across": weights.T}, "again": {"w": weights}, "round": 3}
    write(payload, tmp_path / "part.safetensors")
    assert (tmp_path / "part.safetensors").read_bytes() == encode(payload)
    assert same(decode(encode(payload)), payload)
    assert (tmp_path / "part.safetensors").stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_written_says_why(tmp_path):
    with pytest.raises(FileNotFoundError, match="No such file or directory"):
        write({"w": torch.ones(2)}, tmp_path / "none" / "part.safetensors")
    with pytest.raises(RunError, match="neither tensors nor JSON"):
        write({"w": torch.ones(2), "odd": object()}, tmp_path / "part.safetensors")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("told", "number", "why"),
    [
        ("Error while serializing: I/O error: No space left (os error 28)", errno.ENOSPC, "No space left on device"),
        ("no such dtype", errno.EIO, "no such dtype"),
    ],
)
def test_what_safetensors_says_is_told_as_the_system_s_error(tmp_path, monkeypatch, told, number, why):
    def refusing(*_):
        raise SafetensorError(told)

    monkeypatch.setattr("safetensors.torch.save_file", refusing)
    with pytest.raises(OSError) as raised:
        write({"w": torch.ones(2)}, tmp_path / "part.safetensors")
    assert (raised.value.errno, raised.value.strerror) == (number, why)


@pytest.mark.parametrize(
    "value", [{"a": torch.ones(1), "b": 3}, [torch.ones(1)], {"a": {"b": torch.ones(1)}}, {1, 2}, b"x"]
)
def test_what_is_neither_tensors_nor_json_is_refused(value):
    for function in (encode, size):
        with pytest.raises(RunError, match="neither tensors nor JSON"):
            function({"field": value})


PAYLOAD = {"adapter": {"w": torch.randn(3, 4), "v": torch.ones(2)}, "rank": torch.tensor(3), "loss": 0.25}


@given(st.integers(0, 10_000))
def test_a_buffer_that_is_cut_short_is_refused(cut):
    buffer = encode(PAYLOAD)
    with pytest.raises(RunError, match="damaged"):
        decode(buffer[: cut % len(buffer)])


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_changed_byte_gives_no_other_error(place, change):
    buffer = bytearray(encode(PAYLOAD))
    buffer[place % len(buffer)] ^= change
    try:
        decode(bytes(buffer))
    except RunError as error:
        assert "damaged" in str(error)


EMPTY = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}


def header(value):
    text = json.dumps(value).encode()
    return len(text).to_bytes(8, "little") + text


@pytest.mark.parametrize(
    "buffer",
    [
        b"",
        b"\0" * 8,
        b"\xff" * 40,
        header([]),
        header({}),
        header({"__metadata__": {}}),
        header({"__metadata__": {"json": "["}}),
        header({"__metadata__": {"json": "3"}}) + b"x",
        header({"__metadata__": {"json": '{"a": 3}'}, "a\x1fb": EMPTY}),
        header({"__metadata__": {"json": '{"a": {"c": 3}}'}, "a\x1fb": EMPTY}),
        header({"__metadata__": {"json": '{"a": 3}'}, "a": EMPTY}),
        header({"__metadata__": {"json": "{}"}, "a": EMPTY, "a\x1fb": EMPTY}),
    ],
)
def test_what_encode_never_made_is_refused(buffer):
    with pytest.raises(RunError, match="damaged"):
        decode(buffer)


def test_sizes():
    payload = {"adapter": {"w": torch.zeros(3, 4)}, "mask": torch.zeros(5, dtype=torch.bool), "count": 12}
    assert field_sizes(payload) == {"adapter": 48, "mask": 5, "count": len('{"count": 12}')}
    assert size(payload) == 48 + 5 + len('{"count": 12}')
    assert size({"adapter": {}}) == len('{"adapter": {}}')
    assert size({}) == 0


def test_what_one_site_receives():
    ask = Ask("train", 1, {"lr": 0.1, "beta": 1}, {"a": {"lr": 0.2, "records": 3}})
    assert ask.payload("a") == {"lr": 0.2, "beta": 1, "records": 3}
    assert ask.payload("b") == {"lr": 0.1, "beta": 1}


def test_a_digest_is_of_what_is_in_a_message_and_not_of_how_it_came():
    payload = {"lr": 0.5, "adapter": {"b": torch.ones(2), "a": torch.zeros(3)}, "votes": torch.tensor(1), "x": {"k": 1}}
    assert digest(decode(encode(payload))) == digest(dict(reversed(payload.items()))) == digest(payload)
    changed = [
        {**payload, "lr": 0.25},
        {**payload, "adapter": {"b": torch.ones(2), "a": torch.tensor([0, 0, 1e-30])}},
        {**payload, "votes": torch.tensor([1])},
        {**payload, "votes": torch.tensor(1.0)},
        {**payload, "y": None},
        {name: value for name, value in payload.items() if name != "x"},
    ]
    assert len({digest(one) for one in [payload, *changed]}) == 7
