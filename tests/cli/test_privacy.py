import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from murmura.cli import MISTAKE, app
from murmura.privacy import accounting, curve
from murmura.privacy.clipping import BatchClipping
from murmura.privacy.curve import Curve
from murmura.privacy.journal import Journal
from murmura.privacy.mechanisms.banded import BandedNoise
from murmura.privacy.mechanisms.gaussian import GaussianNoise
from murmura.privacy.mechanisms.tree import TreeNoise
from murmura.privacy.run_ledgers import note, read
from murmura.privacy.samplers import FixedSizeSampling, MinSeparation, OncePerTree
from murmura.runs.folder import RunFolder
from murmura.runs.names import CAVEATS, ID
from murmura.units import bound
from tests.privacy.folders import run_folder
from tests.privacy.plans import RECORDS, SITES, of_group

ELEVEN = ("--steps", "11", "--delta", "3e-6")
FIFTY = ("--steps", "50", "--delta", "1e-5", "--sampling-rate", "0.04")
TREES = ("epsilon", "--noise-multiplier", "1", *ELEVEN, "--restart-every", "4")


@pytest.fixture
def invoke():
    return lambda *words: CliRunner().invoke(app, ["privacy", *words])


@pytest.fixture
def coarse(monkeypatch):
    """A curve is as coarse as in other folders' tests."""
    monkeypatch.setattr(curve, "_EPSILONS", curve._EPSILONS[::10])


exact = pytest.mark.usefixtures("last_digits")


@exact
def test_epsilon_of_eleven_rounds(invoke):
    done = invoke("epsilon", "--noise-multiplier", "11.3", *ELEVEN)
    assert done.stdout.splitlines() == [
        "zero-out; every unit in every step; steps: 11; δ = 3e-06",
        "RDP    ε 1.2875",
        "PLD    ε 1.1890",
        "exact  ε 1.1890   (tightest)",
        "An attack that is wrong about 1 % of those who were not there finds at most 2.2 % of those who were.",
        "An attack that is wrong about 0.1 % of those who were not there finds at most 0.3 % of those who were.",
    ]


@exact
def test_noise_for_eleven_rounds(invoke):
    done = invoke("noise", "--epsilon", "1.29", *ELEVEN)
    assert done.stdout.splitlines() == [
        "zero-out; every unit in every step; steps: 11; δ = 3e-06",
        "RDP    noise multiplier 11.280",
        "PLD    noise multiplier 10.486",
        "exact  noise multiplier 10.486   (tightest)",
    ]


@exact
def test_votes(invoke):
    """Eleven rounds of at most 8 votes a site: one closed form, and integer noise at whole orders."""
    whole = ("epsilon", "--noise-multiplier", "11.3", *ELEVEN, "--votes", "8")
    assert invoke(*whole).stdout.splitlines()[:4] == [
        "zero-out; every unit in every step; at most 8 votes a site; steps: 11; δ = 3e-06",
        "RDP    ε 1.2875",
        "PLD    ε 1.1890",
        "exact  ε 1.1890   (tightest)",
    ]
    assert invoke(*whole, "--noise", "skellam").stdout.splitlines()[:3] == [
        "zero-out; every unit in every step; at most 8 votes a site; Skellam noise 11.3 norms; steps: 11; δ = 3e-06",
        "RDP    ε 1.2877",
        "An attack that is wrong about 1 % of those who were not there finds at most 2.4 % of those who were.",
    ]
    shares = invoke(*whole, "--noise", "discrete-gaussian", "--shares", "1250").stdout.splitlines()
    assert "; discrete Gaussian noise 11.3 norms in 1250 shares; " in shares[0] and shares[1] == "RDP    ε 1.2876"


def test_noise_for_votes(invoke):
    needed = ("noise", "--epsilon", "7.58", *ELEVEN, "--votes", "8", "--json", "--noise")
    head, line = invoke("noise", "--epsilon", "1.29", *ELEVEN, "--votes", "8", "--noise", "skellam").stdout.splitlines()
    assert "; at most 8 votes a site; Skellam noise; steps: 11; " in head and line == "RDP    noise multiplier 11.281"
    found = {kind: json.loads(invoke(*needed, kind).stdout) for kind in ("skellam", "discrete-gaussian")}
    assert found["skellam"]["noise"] == {"kind": "skellam", "std": 0.0}
    assert found["skellam"]["noise_multiplier"] == {"rdp": pytest.approx(2.32228, abs=1e-5)}
    assert found["discrete-gaussian"]["noise_multiplier"] == {"rdp": pytest.approx(2.31903, abs=1e-5)}


@exact
def test_with_sampling_the_second_line_is_of_the_privacy_loss_distribution(invoke):
    head, renyi, numeric, *_ = invoke("epsilon", "--noise-multiplier", "2", *FIFTY).stdout.splitlines()
    assert "Poisson sampling at rate 0.04" in head
    assert renyi == "RDP    ε 0.6954"  # 0.69531, rounded up
    assert numeric == "PLD    ε 0.6145   (tightest)"


@exact
def test_what_an_accountant_left_out_stands_beside_its_figure(invoke):
    words = ("epsilon", "--noise-multiplier", "2", *FIFTY, "--adjacency", "replace-one")
    _, renyi, numeric, *_ = invoke(*words).stdout.splitlines()
    assert renyi == "RDP    ε 57.3017   (without amplification by sampling: RDP does not support it under replace-one)"
    assert numeric == "PLD    ε 1.0753   (tightest)"
    told = json.loads(invoke(*words, "--json").stdout)
    assert told["notes"] == {"rdp": "without amplification by sampling: RDP does not support it under replace-one"}
    assert told["adjacency"] == "replace-one"


@exact
def test_epsilon_for_machines(invoke):
    told = json.loads(invoke("epsilon", "--noise-multiplier", "11.3", *ELEVEN, "--json").stdout)
    epsilon, curve, caught = told.pop("epsilon"), told.pop("curve"), told.pop("true_positives")
    assert told == {
        "steps": 11,
        "delta": 3e-6,
        "adjacency": "zero-out",
        "notes": {},
        "noise_multiplier": 11.3,
        "also": {},
        "sampler": {"kind": "full"},
        "clipping": {"kind": "example", "norm": 1.0, "groups": 1},
        "noise": {"kind": "gaussian", "std": 11.3},
    }
    exact = pytest.approx(1.18896, abs=1e-4)
    assert epsilon == {"rdp": pytest.approx(1.28748, abs=1e-5), "pld": exact, "exact": exact}
    assert [one["delta"] for one in curve][:2] == [0.1, 0.01] and curve[4]["epsilon"] == pytest.approx(1.1049, abs=1e-4)
    assert 0.0021 < caught["0.001"] < 0.0031


@pytest.mark.slow
@pytest.mark.parametrize(("words", "names"), [(ELEVEN, ["rdp", "pld", "exact"]), (FIFTY, ["rdp", "pld"])])
def test_noise_for_machines_is_that_of_the_epsilon_that_was_asked_for(invoke, coarse, words, names):
    told = json.loads(invoke("noise", "--epsilon", "2", *words, "--json").stdout)
    assert told["epsilon"] == 2.0 and list(told["noise_multiplier"]) == names
    noise = str(told["noise_multiplier"][names[1]])
    again = json.loads(invoke("epsilon", "--noise-multiplier", noise, *words, "--json").stdout)
    assert again["epsilon"][names[1]] == pytest.approx(2.0, rel=1e-3)


def test_no_noise_is_an_infinite_epsilon(invoke):
    words = ("epsilon", "--noise-multiplier", "0", *ELEVEN)
    lines = invoke(*words).stdout.splitlines()
    assert lines[1:4] == ["RDP    ε ∞", "PLD    ε ∞", "exact  ε ∞"] and "finds at most 100 %" in lines[4]
    assert json.loads(invoke(*words, "--json").stdout)["epsilon"] == {"rdp": None, "pld": None, "exact": None}


@pytest.mark.parametrize("noise", ["1e-9", "1e-200"])
def test_next_to_no_noise_is_an_infinite_epsilon_too(invoke, noise):
    done = invoke("epsilon", "--noise-multiplier", noise, *FIFTY)
    assert done.exit_code == 0, done.output
    line = done.stdout.splitlines()[2]
    assert line == "PLD    ε ∞   (too little noise for a bound to be computed)"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("noise", "--epsilon", "0", *ELEVEN), "ε = 0.0. Ask for a positive ε"),
        (("noise", "--epsilon", "-2", *ELEVEN), "ε = -2.0. Ask for a positive ε"),
        (("noise", "--epsilon", "2", "--steps", "11", "--delta", "1"), "δ = 1.0. δ lies between 0 and 1"),
        (("noise", "--epsilon", "2", "--steps", "0", "--delta", "0.1"), "steps = 0. Give a whole number"),
        (("epsilon", "--noise-multiplier", "-1", *ELEVEN), "the noise multiplier is -1.0. Give a finite number"),
        (("epsilon", "--noise-multiplier", "1", *ELEVEN, "--sampling-rate", "1.1"), "sampling rate = 1.1. A sampling"),
        (("epsilon", "--noise-multiplier", "1", *ELEVEN, "--batch", "4"), "--batch needs --of, the number of units it"),
        (("epsilon", "--noise-multiplier", "1", *ELEVEN, "--of", "4"), "--of needs --batch, the number of units that"),
        (
            ("epsilon", "--noise-multiplier", "1", *FIFTY, "--batch", "4", "--of", "9"),
            "--sampling-rate and --batch exclude",
        ),
        (("epsilon", "--noise-multiplier", "1", *ELEVEN, "--once"), "--once needs --restart-every, the steps of"),
        (("epsilon", "--noise-multiplier", "1", *FIFTY, "--restart-every", "5"), "ε of tree noise is not known with"),
        (
            (*TREES, "--clipping", "batch"),
            "trees and bands do not go with --clipping batch or --tensor-groups. With --restart-every",
        ),
        ((*TREES, "--tensor-groups", "2"), "trees and bands do not go with --clipping batch or"),
        ((*TREES, "--once", "--sampling-rate", "0.1"), "--once does not go with --sampling-rate or --batch. Each unit"),
        ((*TREES, "--once", "--batch", "4", "--of", "9"), "--once does not go with"),
        ((*TREES, "--shape", "0"), "--shape needs --chosen-among, the mean of what it describes. Give both"),
        ((*TREES, "--votes", "8"), "--votes does not go with --clipping batch, --tensor-groups, --restart-every or"),
        (("noise", "--epsilon", "1", *ELEVEN, "--noise", "skellam"), "--noise skellam needs --votes, the votes"),
        (("noise", "--epsilon", "1", *ELEVEN, "--votes", "8", "--shares", "9"), "--shares is for --noise discrete"),
        (
            ("noise", "--epsilon", "1", *ELEVEN, "--votes", "8", "--noise", "discrete-gaussian", "--shares", "0"),
            "discrete Gaussian noise of 0 sites. Give a whole number",
        ),
        (("spent", "runs", "--shape", "0"), "--shape needs --chosen-among"),
        (("epsilon", "--noise-multiplier", "1", *ELEVEN, "--group", "0"), "a group of 0. A group has"),
        (("epsilon", "--noise-multiplier", "1", *ELEVEN, "--sampling-rate", "0"), "sampling rate = 0.0. A sampling"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_change(invoke, words, told):
    done = invoke(*words)
    assert done.exit_code == MISTAKE
    assert done.stderr.startswith(told) and done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_epsilon_needs_no_torch():
    code = (
        "import sys\nfrom murmura.cli import app\nfrom murmura.privacy import accounting\naccounting._GRID *= 10\n"
        "app(['privacy', 'noise', '--epsilon', '2', '--steps', '5', '--delta', '1e-5'], standalone_mode=False)\n"
        "sys.exit('torch was loaded' if 'torch' in sys.modules else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def told(invoke, *words):
    return json.loads(invoke("epsilon", *words, "--json").stdout)


def test_every_kind_of_plan_is_the_one_that_training_follows(invoke, monkeypatch):
    """Each option against the plan that a run would have. An accountant or two will do, and no curve."""
    plain = Curve.of(SITES.event(), SITES.adjacency)
    monkeypatch.setattr(Curve, "of", lambda *_: plain)
    monkeypatch.setattr(accounting, "ACCOUNTANTS", ("rdp", "exact"))
    noise = ("--noise-multiplier", "2", "--steps", "50", "--delta", "1e-5")
    fixed = replace(RECORDS, sampler=FixedSizeSampling(4, 100))
    batch = replace(RECORDS, clipping=BatchClipping(1.5, 2))
    cases = {
        ("--batch", "4", "--of", "100"): fixed,
        ("--batch", "4", "--of", "100", "--adjacency", "replace-one"): replace(fixed, adjacency="replace-one"),
        ("--sampling-rate", "0.04", "--clipping", "batch", "--tensor-groups", "2"): batch,
    }
    for words, plan in cases.items():
        found = told(invoke, *noise, *words)
        assert found["epsilon"] == {"rdp": pytest.approx(plan.epsilon(accountant="rdp").value, rel=1e-6)}
        assert (found["adjacency"], found["sampler"]) == (plan.adjacency, plan.sampler.to_json())
        assert found["clipping"] == {**plan.clipping.to_json(), "norm": 1.0}
    tree = replace(SITES, noise=TreeNoise(2.0, 10), steps=50, delta=1e-5)
    assert told(invoke, *noise, "--restart-every", "10")["epsilon"]["exact"] == tree.epsilon().value
    once = replace(tree, sampler=OncePerTree(1))
    assert told(invoke, *noise, "--restart-every", "10", "--once")["epsilon"]["exact"] == once.epsilon().value


def test_noise_for_trees(invoke):
    found = invoke("noise", "--epsilon", "2", *ELEVEN, "--restart-every", "4", "--json")
    std = json.loads(found.stdout)["noise_multiplier"]["exact"]
    assert replace(SITES, noise=TreeNoise(std, 4)).epsilon().value == pytest.approx(2.0, rel=1e-5)


@exact
def test_a_group_and_a_choice_among_runs_and_the_whole_curve(invoke):
    lines = invoke(
        "epsilon", "--noise-multiplier", "11.3", *ELEVEN, "--group", "3", "--chosen-among", "10", "--curve"
    ).stdout.splitlines()
    three = bound(replace(SITES, noise=GaussianNoise(11.3 / 3)).epsilon().value, 4)
    assert f"any 3 units together: ε {three}, δ = 3e-06 (zero-out, exact)" in lines
    assert any(line.startswith("chosen among 10 runs on average: ε ") for line in lines)
    assert "δ = 1e-05  ε 1.1049" in lines and len([line for line in lines if line.startswith("δ")]) == 10


# ---- spent -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def twice(tmp_path):
    """Two runs that share the records of one site; those of the others differ."""
    plans = {"cardiology": RECORDS, "skin": RECORDS}
    first = run_folder(tmp_path / "1", {"cardiology": "x", "skin": "y"}, plans)
    second = run_folder(tmp_path / "2", {"cardiology": "x", "skin": "z"}, plans)
    return [str(first), str(second)]


def test_what_two_runs_have_spent_together(invoke, twice):
    done = invoke("spent", *twice)
    both = "\n".join(done.stdout.splitlines()[:2])
    epsilon = bound(replace(RECORDS, steps=100).epsilon().value, 4)
    assert both == f"{twice[0]}: cardiology; {twice[1]}: cardiology\n  record: ε {epsilon}, " + (
        f"δ = 1e-05 ({RECORDS.adjacency}, pld); 2 runs together"
    )
    alone = bound(RECORDS.epsilon().value, 4)
    assert f"{twice[0]}: skin\n  record: ε {alone}" in done.stdout and f"{twice[1]}: skin\n" in done.stdout
    assert f"may overlap. A record that was at one site of every run: ε at most {epsilon}" in done.stdout


def test_what_a_run_was_chosen_by_is_counted_unasked_and_wherever_it_is(invoke, twice):
    for place, run in enumerate(twice):
        (Path(run) / ID).write_text(f"run {place}")
    both = invoke("spent", *twice).stdout
    note(Path(twice[1]), [read(Path(twice[0]))])
    assert "2 runs together" in both and invoke("spent", *twice).stdout == both
    assert sorted(invoke("spent", twice[1]).stdout.replace(";", "").split()) == sorted(both.replace(";", "").split())
    Path(twice[0]).rename(Path(twice[0]).with_name("elsewhere"))
    assert "2 runs together" in invoke("spent", twice[1]).stdout


def test_what_stands_beside_the_epsilon_of_a_run_stands_beside_their_sum(invoke, twice):
    said = Journal(RunFolder(Path(twice[1])).journal(CAVEATS))
    said.append({"said": "δ = 0.9 is of no use."})
    done = invoke("spent", *twice).stdout.splitlines()
    beside = f"  {twice[1]}: δ = 0.9 is of no use."
    assert done[2] == beside and done.count(beside) == 2  # of the site that both have, and of its own other
    [both, *_] = json.loads(invoke("spent", *twice, "--json").stdout)["totals"]
    assert both["remarks"] == [beside.strip()]


def test_a_run_without_privacy_is_told(invoke, twice, tmp_path):
    plain = str(run_folder(tmp_path / "3", {"cardiology": "other"}))
    done = invoke("spent", twice[0], plain)
    assert f"{plain}: cardiology\n  record: no ε; {plain} used these records, and promised no privacy" in done.stdout
    assert "A record that was at one site of every run: ε none, since a run has none" in done.stdout


def test_runs_whose_sites_are_elsewhere_are_told(invoke, tmp_path):
    """Their server has one ledger for all sites, and none of the sites' folders."""
    runs = [str(run_folder(tmp_path / name, {}, whole=SITES)) for name in "12"]
    done = invoke("spent", *runs).stdout
    two = bound(replace(SITES, steps=22).epsilon().value, 4)
    assert done.startswith(f"{runs[0]}: every site; {runs[1]}: every site\n  site: ε {two}, δ = 3e-06")
    assert "2 runs together" in done and f"the sites of {runs[1]} are elsewhere: counted as if" in done
    [told] = json.loads(invoke("spent", *runs, "--json").stdout)["totals"]
    assert told["runs"] == 2 and told["members"][1] == {"run": runs[1], "site": "every site"}


def test_one_run_says_nothing_of_overlaps(invoke, twice):
    done = invoke("spent", twice[0])
    assert done.stdout.splitlines()[0] == f"{twice[0]}: cardiology, skin" and "overlap" not in done.stdout
    assert "; 1 run" in done.stdout


def test_what_was_spent_for_machines(invoke, twice):
    told = json.loads(invoke("spent", *twice, "--json", "--delta", "1e-4").stdout)
    assert told["totals"][0]["members"] == [{"run": run, "site": "cardiology"} for run in twice]
    assert told["totals"][0]["epsilon"] == pytest.approx(replace(RECORDS, steps=100, delta=1e-4).epsilon().value, 1e-4)
    assert told["anywhere"]["record"]["delta"] == 1e-4 and told["totals"][0]["refused"] is None


def test_a_run_that_was_chosen_among_others(invoke, twice):
    plain = json.loads(invoke("spent", twice[0], "--json").stdout)["totals"][0]["epsilon"]
    chosen = json.loads(invoke("spent", twice[0], "--json", "--chosen-among", "20").stdout)["totals"][0]["epsilon"]
    assert chosen > 1.5 * plain


def test_banded_noise(invoke):
    plan = replace(SITES, sampler=MinSeparation(1, 5), noise=BandedNoise(6.0, 4), steps=20, delta=1e-5)
    words = ("--steps", "20", "--delta", "1e-5", "--bands", "4")
    done = invoke("epsilon", "--noise-multiplier", "6", *words, "--apart", "5").stdout
    assert "each again after 5 steps at the soonest" in done and "banded noise 6 norms, 4 bands" in done
    assert f"exact  ε {bound(plan.epsilon().value, 4)}" in done
    assert "separation = 0" in invoke("epsilon", "--noise-multiplier", "6", *words, "--apart", "0").stderr
    needed = invoke("noise", "--epsilon", "2", *words, "--apart", "5").stdout
    assert f"exact  noise multiplier {bound(plan.calibrated(2.0).noise.std)}" in needed
    soonest = invoke("epsilon", "--noise-multiplier", "6", *words).stdout  # as soon as the bands allow
    assert f"ε {bound(replace(plan, sampler=MinSeparation(1, 4)).epsilon().value, 4)}" in soonest


def test_what_was_spent_of_several_together(invoke, tmp_path):
    run = str(run_folder(tmp_path / "4", {"cardiology": "x"}, whole=SITES))
    three = bound(of_group(SITES, 3).value, 4)
    assert f"  any 3 sites together: ε {three}, δ = 3e-06" in invoke("spent", run, "--group", "3").stdout
    told = json.loads(invoke("spent", run, "--group", "3", "--json").stdout)
    assert told["group"] == 3 and bound(told["totals"][0]["epsilon"], 4) == three


def test_a_ledger_without_noise_has_no_bound_and_is_valid_json(invoke, tmp_path):
    bare = replace(RECORDS, noise=GaussianNoise(0.0))
    folder = str(run_folder(tmp_path / "1", {"a": "x"}, {"a": bare}))
    assert "record: ε ∞" in invoke("spent", folder).stdout
    assert json.loads(invoke("spent", folder, "--json").stdout)["totals"][0]["epsilon"] is None


@pytest.mark.parametrize("words", [["nowhere"], [".", "--delta", "2"], [".", "--chosen-among", "0"]])
def test_what_cannot_be_asked_of_runs_is_said(invoke, words, tmp_path, monkeypatch):
    monkeypatch.chdir(run_folder(tmp_path / "1", {"a": "x"}, {"a": RECORDS}))
    done = invoke("spent", *words)
    assert done.exit_code == MISTAKE and done.stderr and done.stdout == ""


@pytest.mark.parametrize("noise", ["0", "1e-9", "0.05", "11.3"])
@pytest.mark.parametrize("rate", ["1", "0.1"])
def test_json_is_such_that_any_reader_takes_it(invoke, coarse, noise, rate):
    """Python alone takes the tokens NaN and Infinity (RFC 8259, section 6)."""
    found = invoke("epsilon", "--noise-multiplier", noise, *ELEVEN, "--sampling-rate", rate, "--json")
    assert found.exit_code == 0
    json.loads(found.stdout, parse_constant=lambda token: pytest.fail(f"{token} is no JSON"))
    assert "Warning" not in found.stderr
