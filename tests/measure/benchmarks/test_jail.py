"""What the jail does before a program runs, and the outcomes it reports; test_sandbox.py runs programs."""

import struct

import pytest

from murmura.measure.benchmarks import jail

TEST = "def check(candidate):\n    assert candidate(2) == 4\n"


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("def f(x):\n    return x * x\n", "right"),
        ("def f(x):\n    return x\n", "wrong"),
        ("def f(x):\n    raise MemoryError\n", "out of memory"),
        ("def f(x):\n    raise KeyboardInterrupt\n", "ended early"),
        ("def f(x):\n    raise GeneratorExit\n", "error"),
        ("def f(x) return", "not Python"),
    ],
)
def test_outcomes(program, told):
    assert jail.outcome(program, TEST, "f") == told


def answered(machine, call, arguments=()):
    """What the kernel would make of a call, by the classic BPF of the filter."""
    code = [struct.unpack("HBBI", one) for one in jail._filter(*jail._MACHINES[machine])]
    data = {0: call, 4: jail._MACHINES[machine][0]} | {16 + 8 * k: value for k, value in enumerate(arguments)}
    place, held = 0, 0
    while True:
        operation, if_so, if_not, operand = code[place]
        place += 1
        match operation:
            case jail._LOAD:
                held = data.get(operand, 0)
            case jail._EQUAL:
                place += if_so if held == operand else if_not
            case jail._ANY_BIT:
                place += if_so if held & operand else if_not
            case jail._RETURN:
                return operand


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_lets_through_what_is_needed_and_nothing_that_writes_or_talks(machine):
    _, needed, (opening, opening_at, controlling, device) = jail._MACHINES[machine]
    assert all(answered(machine, number) == jail._ALLOW for number in needed.values())
    for call, flags in ((opening, 1), (opening_at, 2)):
        if call is not None:
            arguments = [0] * flags
            assert answered(machine, call, [*arguments, 0o2000000]) == jail._ALLOW  # O_CLOEXEC
            for writing in (0o1, 0o2, 0o100, 0o1000):
                assert answered(machine, call, [*arguments, writing]) == jail._FAIL | 13
    assert answered(machine, controlling, (0, 1)) == jail._ALLOW
    assert answered(machine, controlling, (0, 8)) == jail._FAIL | 1  # F_SETOWN
    assert answered(machine, device, (0, 0x5401)) == jail._FAIL | 25
    free = set(range(600)) - {*needed.values(), opening, opening_at, controlling, device}
    assert {answered(machine, number) for number in free} == {jail._FAIL | 38}
    forbidden = {"x86_64": (41, 42, 56, 57, 59, 62, 87, 101, 425), "aarch64": (198, 203, 220, 221, 129, 35, 117, 425)}
    assert free.issuperset(forbidden[machine])  # socket, connect, clone, fork, execve, kill, unlink, ptrace, io_uring
    assert answered(machine, 0x40000000 + needed["read"]) == jail._FAIL | 38  # x32


def test_calls_of_another_machine_end_the_process(monkeypatch):
    monkeypatch.setitem(jail._MACHINES, "x86_64", (1, *jail._MACHINES["x86_64"][1:]))
    code = [struct.unpack("HBBI", one) for one in jail._filter(*jail._MACHINES["x86_64"])]
    assert code[:3] == [(jail._LOAD, 0, 0, 4), (jail._EQUAL, 1, 0, 1), (jail._RETURN, 0, 0, jail._KILL)]
