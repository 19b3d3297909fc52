"""Each kind of fault by value, and that a module with all of its faults behaves as it did until one is on."""

from __future__ import annotations

import asyncio
import os
from typing import Any, NoReturn

import pytest
from asgiref.sync import sync_to_async

from tests.faults import switch
from tests.faults.planting import Fault, plant
from tests.faults.run import chosen
from tests.mutants.forks import fresh_pools, judged


def changes(line: str) -> list[tuple[str, str, str]]:
    _text, found = plant(f"def f(a, b):\n    {line}\n", "m.py", 0)
    return [(one.kind, one.was, one.now) for one in found]


@pytest.mark.parametrize(
    ("line", "kind", "variants"),
    [
        ("return a < b", "limit", ["a <= b"]),
        ("return 0 < a <= b", "limit", ["0 <= a <= b", "0 < a < b"]),
        ("return a is not None", "equal", ["a is None"]),
        ("return a and b", "part", ["b", "a"]),
        ("return a or b()", "part", ["b()", "a"]),
        ("return max(a)", "extreme", ["min(a)"]),
        ("return a[0]", "extreme", ["a[-1]"]),
        ("return a[:b]", "limit", ["a[:b + 1]"]),
        ("return a.first()", "extreme", ["a.last()"]),
        ("return sorted(a)", "order", ["sorted(a, reverse=not False)"]),
        ("return a.order_by('-b', 'c')", "order", ["a.order_by('b', 'c')", "a.order_by('-b', '-c')"]),
        ("return a.filter(b=b, c=1)", "query", ["a.filter(c=1)", "a.filter(b=b)"]),
        ("return a + b", "arithmetic", ["a - b"]),
        ("return 2", "number", ["3"]),
    ],
)
def test_a_value_has_these_faults(line: str, kind: str, variants: list[str]) -> None:
    was = line.removeprefix("return ")
    assert changes(line) == [(kind, was, now) for now in variants]


def test_statements_may_be_dropped_and_guards_taken_for_either() -> None:
    assert changes("a.b = 1") == [("drop", "a.b = 1", "")]
    assert changes("a[0] += b") == [("drop", "a[0] += b", "")]
    assert changes("a.save()") == [("drop", "a.save()", "")]
    assert [now for kind, _was, now in changes("if a(): return b") if kind == "guard"] == ["False", "True"]


@pytest.mark.parametrize(
    "line",
    [
        "a = b",
        "return f'{a < 3}'",
        "raise ValueError(a + b)",
        "logger.info('x')",
        "return a.filter(b=1)",
        "return 'x' + b",
        "return a[b]",
        "return (c := a) and c",
        "return 1",
    ],
)
def test_what_has_no_fault(line: str) -> None:
    assert changes(line) == []


def test_only_functions_have_faults_and_their_places_are_named() -> None:
    head = '"""D."""\nfrom __future__ import annotations\nN = 3 + 4\n'
    text = f"{head}class C:\n    n = 5\n\n    def m(self, k=6):\n        return 7\n"
    planted, found = plant(text, "webapp/m.py", 10)
    assert found == [Fault(10, "webapp/m.py", 8, "C.m", "number", "7", "8")]
    assert planted.splitlines()[:3] == [
        '"""D."""',
        "from __future__ import annotations",
        "from tests.faults.switch import fault as _fault",
    ]


def test_one_fault_at_a_time_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(switch.VARIABLE, "-1")
    monkeypatch.setattr(switch, "_on", switch.NONE)
    monkeypatch.setattr(switch, "reached", set())
    text = "def f(found, most):\n    found.sort()\n    return [one for one in found if 0 < one <= most][:2]\n"
    planted, found = plant(text, "m.py", 0)
    names: dict[str, Any] = {}
    exec(compile(planted, "m.py", "exec"), names)  # noqa: S102 - the code that was planted above

    def answer(number: int) -> list[int]:
        switch.turn_on(number)
        return list(names["f"]([3, 0, 2, 1], 2))

    assert answer(switch.NONE) == [1, 2] and switch.reached == {one.number for one in found}
    by_change = {(one.was, one.now): answer(one.number) for one in found}
    assert by_change["0 < one <= most", "0 <= one <= most"] == [0, 1]
    assert by_change["0 < one <= most", "0 < one < most"] == [1]
    assert by_change["found.sort()", ""] == [2, 1]


def test_a_sample_is_of_each_module_and_stays_the_same() -> None:
    groups = [[Fault(at, name, 1, "f", kind, "", "") for at, kind in enumerate(["limit", "drop"] * 5)] for name in "ab"]
    drawn = chosen(groups, {"limit"}, 3, 7)
    assert [one.path for one in drawn] == ["a"] * 3 + ["b"] * 3 and {one.kind for one in drawn} == {"limit"}
    assert drawn == chosen(groups, {"limit"}, 3, 7) != chosen(groups, {"limit"}, 3, 8)
    assert len(chosen(groups, {"limit", "drop"}, 10, 7)) == 20


def test_a_fork_has_the_thread_that_async_tests_ask_the_database_in() -> None:
    """It waited until its limit of time, which counted as a fault that was noticed."""

    def ask() -> int:
        return asyncio.run(sync_to_async(lambda: 3)())

    def fork() -> NoReturn:
        fresh_pools()
        os._exit(ask())

    assert ask() == 3 == judged(fork, 20)
