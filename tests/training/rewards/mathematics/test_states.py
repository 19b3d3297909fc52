"""Answers as models write them: no wrong one is accepted, and of the right ones none is refused."""

from __future__ import annotations

import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import pytest

from tests.training.rewards.mathematics.answers import RIGHT, WRONG
from training.errors import RewardFault
from training.rewards.base import played, says
from training.rewards.general import MatchParams, math_answer
from training.rewards.mathematics import equal
from training.rewards.mathematics.equal import MAX_CHARS, answer_in, bare, boxes_in, claims_of, states, value_of
from training.sandbox.problems import Problem, SandboxProblem
from training.sandbox.process import Limits, Pool, Worker

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize(("truth", "text"), RIGHT)
def test_a_right_answer_is_accepted(truth: str, text: str) -> None:
    assert states(text, truth)


@pytest.mark.parametrize(("truth", "text"), WRONG)
def test_a_wrong_answer_is_refused(truth: str, text: str) -> None:
    assert not states(text, truth)


@pytest.mark.parametrize(
    "text", ["", "   \n\t ", "\\boxed{}", "Answer:", "<answer></answer>", "<think>42", "####", "."]
)
def test_nothing_claims_nothing(text: str) -> None:
    assert not states(text, "42") and not states(text, "")


@pytest.mark.parametrize(
    ("text", "number", "percent"),
    [
        ("1,053", Fraction(1053), False),
        ("-1 1/2", Fraction(-3, 2), False),
        ("3\\frac{1}{2}", Fraction(7, 2), False),
        ("\\frac12", Fraction(1, 2), False),
        ("1.2 \\times 10^{-3}", Fraction(12, 10000), False),
        ("0,125", Fraction(1, 8), False),
        ("12.5%", Fraction(25, 2), True),
        ("3万", Fraction(30000), False),
    ],
)
def test_a_number_is_read_exactly(text: str, number: Fraction, percent: bool) -> None:
    found = value_of(bare(text))
    assert found is not None and (found.number, found.percent) == (number, percent)


@pytest.mark.parametrize("text", ["1/0", "4 2", "1e101", "12 or 13", "one", "1.2.3", "5 and"])
def test_what_is_no_single_number(text: str) -> None:
    assert value_of(text) is None


def test_a_decimal_may_be_cut_only_where_no_decimal_is_exact() -> None:
    assert not states("0.33333", "1/3") and states("0.333333", "1/3") and states("0.3333333333", "1/3")
    assert not states("0.4999999999", "1/2") and not states("1999999.99", "2000000")


def test_the_outermost_boxes_that_are_closed() -> None:
    assert [
        a[slice(*box)] for a in ["x \\boxed{\\frac{1}{2}} \\boxed{ \\fbox{3} } \\boxed{4"] for box in boxes_in(a)
    ] == [
        "\\boxed{\\frac{1}{2}}",
        "\\boxed{ \\fbox{3} }",
    ]
    assert answer_in("We add 2.\n#### 5").strip() == "5" and answer_in("so \\boxed{1} and \\boxed{-2}.") == "1, -2"


def test_only_the_end_of_a_long_text_is_read() -> None:
    assert not claims_of("The answer is 42." + " " * MAX_CHARS)
    assert states("x " * MAX_CHARS + "The answer is 42.", "42")


def test_the_component_takes_any_answer_of_a_list_and_says_nothing_without_one() -> None:
    params = MatchParams(truth_field="gold")
    right = played("q", says("The answer is 1/2."), row={"gold": ["7", 0.5]})
    assert math_answer(right, params) == 1.0
    assert math_answer(played("q", says("x"), row={}), params) is None
    assert math_answer(played("q", says("1"), row={"gold": True}), params) is None
    assert (
        math_answer(
            played("q", says("Answer> 1 or 2. 7"), row={"gold": 7}), MatchParams(truth_field="gold", marker="2.")
        )
        == 1.0
    )


HOSTILE = ["9^{9^{9^{9}}}", "\\sum_{i=1}^{10^{12}} i^{i}", "2^{2^{2^{2^{2^{2}}}}}", "(" * 60, "\\sqrt{" * 60 + "}" * 60]


def test_a_hostile_answer_is_refused_in_bounded_time_and_the_next_one_is_read() -> None:
    for text in HOSTILE:
        began = time.monotonic()
        assert not states(f"\\boxed{{{text}}}", "x+7")
        assert time.monotonic() - began < 60  # a time limit of 2 s, and a new worker on a busy machine
    assert states("\\boxed{(x+1)^2}", "x^2+2x+1")


@pytest.mark.parametrize(
    ("kind", "outside"), [("unavailable", True), ("busy", True), ("time", False), ("memory", False)]
)
def test_where_there_is_no_sandbox_the_value_is_missing(
    monkeypatch: pytest.MonkeyPatch, kind: str, outside: bool
) -> None:
    def fails(*_arguments: object) -> None:
        raise SandboxProblem(Problem(kind, "1"))

    monkeypatch.setattr(equal.pool, "call", fails)
    equal._computed.cache_clear()
    if outside:
        with pytest.raises(RewardFault, match="The answers cannot be compared"):
            states("\\boxed{x+1}", "1+x")
    else:
        assert not states("\\boxed{x+1}", "1+x")
    equal._computed.cache_clear()
    assert states("\\boxed{7}", "7")  # a number needs no sandbox


def test_a_worker_with_a_library_may_import_that_one_alone() -> None:
    worker = Worker("import sympy\ndef reward(pair): return 1", Limits(4.0, 1024), equal.LIBRARY)
    with pytest.raises(SandboxProblem, match="import sympy"):
        worker.call({})
    worker.kill()
    with pytest.raises(SandboxProblem, match=r"import training\.rewards"):
        Pool().call(equal.CODE, Limits(4.0, 256), {"said": "x", "truth": "x"})


PROGRAM = """
import sys
from training.rewards.mathematics import inside
inside.warm()
before = set(sys.modules)
for said, truth in inside.WARM[::-1]:
    inside.same(truth, said)
for said, truth in PAIRS:
    inside.same(said, truth)
print(sorted(set(sys.modules) - before))
"""


def test_nothing_is_left_to_load_once_the_process_is_confined() -> None:
    """A module that is loaded at first use cannot be: the answer would be refused without a word."""
    pairs = [(bare(text), bare(truth)) for truth, text in RIGHT + WRONG if len(text) < 60]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("PAIRS", repr(pairs))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "[]\n", done.stderr
