"""The benchmarks run, on a tiny model, and print their ratios; how fast anything is, no test asks."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

import murmura

pytestmark = pytest.mark.slow

BENCH = Path(__file__).parents[1] / "bench"
ON_A_TINY_MODEL = {
    "digests.py": "--only dpfedavg/po*rolora",
    "cohort.py": "--random tiny --repeats 1 --ways b,c --sites 3 --length 16",
    "scoring.py": "--random tiny --repeats 1 --length 16 --adapted 1-1",
    "attention.py": "--random tiny --repeats 1 --steps 1 --rounds 1 --length 16",
    "sites.py": "--model tiny --many 200 --few 100 --rounds 1",
    "sites.py --method pretext": "--model tiny --many 600 --few 200 --rounds 1",
    "dp.py": "--random tiny --repeats 1 --steps 2 --length 16",
    "lpfl.py": "--random tiny --repeats 1 --texts 12 --steps 2 --length 64",
    "feddca.py": "--random tiny --repeats 1 --pool 3000 --width 16 --sites 3 --clusters 3 --records 40 --domain 300 "
    "--texts 12 --cores 1",
    "secure_sum.py": "--sites 4 --votes 30 --update 200 --many 150 --measured 1",
    "writing.py": "--random tiny --repeats 1 --texts 6 --batches 3 --ways g,m,s,p,f",
}


def python(program, *arguments):
    """What a program printed, which must end well."""
    done = ended(program, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def ended(program, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(Path(murmura.__file__).parents[1])}
    command = [sys.executable, str(program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240)


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What benchmarks print, by program; their processes are forks of one, which saves most of the time."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # whose other processes may have some of these tests, too
        root = root.parent
    file, told = root / "benchmarks.json", root / "benchmarks.printed.json"
    with FileLock(f"{file}.lock"):
        if not told.exists():
            file.write_text(json.dumps([f"{program} {more}".split() for program, more in ON_A_TINY_MODEL.items()]))
            told.write_text(python(Path(__file__).with_name("forked_bench.py"), file))
    ended = json.loads(told.read_text())
    assert [status for _, status in ended] == [0] * len(ended), ended
    return {program: text for program, (text, _) in zip(ON_A_TINY_MODEL, ended, strict=True)}


@pytest.fixture
def work(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("work")


def test_secure_sum_compares_bytes_with_the_vector_in_clear(printed):
    """Four sites send 224 + 4·115 bytes each beside their vector, and a word that says that it is there."""
    printed = printed["secure_sum.py"]
    votes, update = (8 * 31 + 684) / 240, (4 * 201 + 684) / 800
    assert re.findall(r"^a site sends (\S+) times", printed, re.MULTILINE) == [f"{votes:.2f}", f"{update:.2f}"]
    assert len(re.findall(r"^Murmura +\d+\.\d ms a site \(keys", printed, re.MULTILINE)) == 2


def test_attention_of_short_texts_is_measured(printed):
    printed = printed["attention.py"]
    assert re.search(r"\(m\) against \(p\) +\d+\.\d+x faster +\d+\.\d+x memory", printed)
    assert re.search(r"what \(m\) and \(p\) learnt: largest difference \S+ of the largest value", printed)


def test_cohort_measures_and_compares(printed):
    printed = printed["cohort.py"]
    assert re.search(r"\(c\) against \(b\) +\d+\.\d+x faster +\d+\.\d+x faster +\d+\.\d+x memory", printed)
    far = re.search(r"what \(c\) and \(b\) learnt: largest difference (\S+) of the largest value, the same", printed)
    assert far, printed
    assert float(far[1]) < 1e-4


def test_without_flower_its_way_is_left_out_and_named(monkeypatch, capsys, work):
    ways = importlib.import_module("ways")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert ways.available(["a", "b", "c"], "flwr", "a", "Flower", "pip install it") == ["b", "c"]
    assert capsys.readouterr().out == "left out: (a), since Flower is not installed. pip install it\n"
    assert ways.available(["b", "c"], "flwr", "a", "Flower", "pip install it") == ["b", "c"]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("value", "told"), [(2.002e-3, "1.0e-03"), (float("nan"), "nan")])
def test_ways_that_differ_are_an_error(capsys, work, tmp_path, value, told):
    import torch
    from safetensors.torch import save_file

    ways = importlib.import_module("ways")
    for way, found in (("b", 2e-3), ("c", value)):
        (tmp_path / way).mkdir()
        save_file({"x": torch.tensor([0.0, found])}, tmp_path / way / "found.safetensors")
    assert ways.print_differences(tmp_path, {"steps": ("c", "b")}, strict=True) == 1
    assert capsys.readouterr().out == f"steps: largest difference {told} of the largest value, NOT the same\n"
    assert ways.print_differences(tmp_path, {"steps": ("c", "b")}, strict=False) == 0


def test_a_gradient_of_next_to_nothing_makes_no_step(work):
    """What rounding does to a gradient, its sign included, is far below what ways may differ by."""
    import torch

    steps = []
    for rounding in (-1e-8, 1e-8):
        weight = torch.zeros(2, requires_grad=True)
        weight.grad = torch.tensor([1e-2, 0.0]) + rounding
        torch.optim.AdamW([weight], lr=1e-3, eps=work.EPS, weight_decay=0.0).step()
        steps.append(weight.detach())
    ways = importlib.import_module("ways")
    assert (steps[0] - steps[1]).abs().max() < ways.SAME * steps[0].abs().max()


def test_a_program_that_fails_is_an_error_with_its_last_words(work, tmp_path):
    measure = importlib.import_module("measure")
    with pytest.raises(measure.ProgramFailedError, match="out of luck"):
        measure.measure([sys.executable, "-c", "raise SystemExit('out of luck')"], {}, tmp_path / "log")


def test_memory_is_that_of_all_processes(work, tmp_path):
    measure = importlib.import_module("measure")
    hold = "import time; x = bytearray(60_000_000); x[::4096] = b'1' * len(x[::4096]); time.sleep(1.5)"
    both = f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {hold!r}]); {hold}; p.wait()"
    cost = measure.measure([sys.executable, "-c", both], {}, tmp_path / "log")
    assert cost.wall > 1.5
    assert cost.memory > (120e6 if measure.HAS_PSS else 60e6)


def test_half_labelled_and_the_same_each_time(work):
    half = work.Work("", 9, "cpu", "float32", tokens_per_pass=1, cores=1, batch=2, length=6, labelled_half=True)
    records = half.records(0)
    assert (half.labels(records) == -100).tolist() == [[True] * 3 + [False] * 3] * 2
    assert records.tolist() == half.records(0).tolist() != half.records(1).tolist()


@pytest.mark.parametrize("hidden", [128, 100])
def test_a_wider_shape_keeps_its_proportions(work, hidden):
    shapes = importlib.import_module("shapes")
    if hidden % 32:
        with pytest.raises(ValueError, match="multiple of 32"):
            shapes.shape("tiny", hidden=hidden)
    else:
        assert shapes.shape("tiny", layers=3, hidden=hidden) == shapes.Shape(3, 128, 256, 8, 4, 512)


EACH = r"^(-?\d+\.\d) kB a site more, and -?\d+\.\d ms$"


def test_memory_grows_by_less_than_a_third_of_an_adapter_with_each_site_that_trains(printed, work):
    """What a run keeps of a site is its records and what is noted of it. Of 100 sites more, adapters that were kept
    would take 46 MB. (With fewer than these some 20 MB are not in use yet, however many sites there are.)"""
    assert re.search(r"peak memory of 200 sites / 100 sites: \d+\.\d\d", printed["sites.py"])
    each = float(re.search(EACH, printed["sites.py"], re.MULTILINE)[1])
    assert each < importlib.import_module("sites").adapter_bytes("tiny") / 3e3


def test_memory_grows_by_a_few_kilobytes_with_each_site_that_votes(printed):
    assert float(re.search(EACH, printed["sites.py --method pretext"], re.MULTILINE)[1]) < 40


def test_secure_sum_compares_few_neighbours_with_all(printed):
    found = re.findall(
        r"^ +(\d+) neighbours: .* ([\d,]+) bytes up, ([\d,]+) down$", printed["secure_sum.py"], re.MULTILINE
    )
    assert [row[0] for row in found] == ["108", "149"] * 2
    assert (
        found[1][2] == f"{150 * 306:,}"
        and len(re.findall(r"^all / few: ", printed["secure_sum.py"], re.MULTILINE)) == 2
    )


def test_dp_measures_and_compares(printed):
    printed = printed["dp.py"]
    assert re.search(r"\(m\) against \(h\) +\d+\.\d+x faster +\d+\.\d+x memory", printed)
    assert re.search(r"\(m\) against \(n\) +\d+\.\d+x the time +\d+\.\d+x memory", printed)
    same = r"clipped steps of \(m\) and \([hg]\): largest difference \S+ of the largest value, the same"
    assert len(re.findall(same, printed)) == 2


def test_lpfl_measures_and_compares(printed):
    printed = printed["lpfl.py"]
    assert re.search(r"\(a\) against \(p\) +\d+\.\d+x the time +\d+\.\d+x memory", printed)
    assert re.search(r"\(s\) against \(l\) +\d+\.\d+x the time +\d+\.\d+x memory", printed)
    assert re.search(r"soft labels of \(a\) and \(p\): largest difference \S+ of the largest value, the same", printed)


def test_writing_measures_and_compares(printed):
    printed = printed["writing.py"]
    for pair in ("(m) against (g)", "(f) against (p)"):
        assert re.search(re.escape(pair) + r" +\d+\.\d+x faster +\d+\.\d+x memory", printed)
        assert f"texts of {pair.replace(' against ', ' that are ')}'s, token for token: 6 of 6" in printed
    assert re.search(r"\(s\) Murmura, sampled +\d+\.\d", printed)


def test_feddca_measures_and_compares(printed):
    printed = printed["feddca.py"]
    for pair in (r"\(m\) against \(s\)", r"\(m\) against \(f\)"):
        assert re.search(pair + r" +\d+\.\d+x faster +\d+\.\d+x memory", printed)
    for pair in (r"\(m\) against \(b\)", r"\(c\) against \(p\)", r"\(e\) against \(l\)"):
        assert re.search(pair + r" +\d+\.\d+x the time +\d+\.\d+x memory", printed)
    assert "what (m) and (s) found: largest difference 0.0e+00 of the largest value, the same" in printed
    assert len(re.findall(r"found: largest difference \S+ of the largest value, the same", printed)) == 3


def test_digests_repeat_themselves_and_name_what_differs(printed, tmp_path):
    """In another process, noise that protects included, which would differ each time."""
    lines, before = printed["digests.py"].splitlines(), tmp_path / "before.txt"
    assert len(lines) == 4 and not any(line.startswith(("refused", "failed")) for line in lines)
    before.write_text("\n".join([*lines[1:], "refused".ljust(64) + lines[0][64:]]))
    done = ended(BENCH / "digests.py", *ON_A_TINY_MODEL["digests.py"].split(), "--compare", before)
    assert (done.returncode, done.stderr.splitlines()[-2:]) == (1, ["4 lines, 1 differ", lines[0][66:]])


def test_make_bench_runs_what_the_readme_names():
    readme, makefile = ((BENCH.parent / name).read_text(encoding="utf-8") for name in ("docs/speed.md", "Makefile"))
    named = set(re.findall(r"`python (bench/.+?)`", readme))
    [recipe] = re.findall(r"(?m)^bench:.*\n((?:\t.+\n)+)", makefile)
    assert named and named <= set(re.findall(r"python (bench/.+)", recipe))
    assert {line.split()[0] for line in named} == set(re.findall(r"python (bench/\S+\.py)", recipe))
