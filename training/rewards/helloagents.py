"""HelloAgents' three rewards for arithmetic problems, by their published formulas (facts only; nothing is copied).

Length and step rewards hold the accuracy in them, as published. The published length rule exists in three
versions that disagree; each has a name here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import Field

from training.config import RewardComponent
from training.rewards.base import Component, Episode, Example, Params, Span, played, says
from training.rewards.text import first_number, last_number_at, last_said, numbers, piece
from training.rows import TRUTH_FIELDS, row_value
from training.words import _

# The number that a solution ends in, and its steps.

MAX_STEPS_SHOWN = 50


def found_number(episode: Episode, marks: Sequence[re.Pattern[str]], max_chars: int) -> list[Span]:
    """The text behind the first known mark, else the last number of the last line that has any."""
    last = last_said(episode)
    if last is None:
        return []
    place, text, note = last[0], last[1].content, _("the number that is compared")
    skipped = max(0, len(text) - max_chars)
    text = text[skipped:]
    for mark in marks:
        if match := mark.search(text):
            return piece(place, skipped + match.start(1), skipped + match.end(1), note)
    end = len(text)
    for line in reversed(text.splitlines(keepends=True)):
        end -= len(line)
        if at := last_number_at(line):
            return piece(place, skipped + end + at[0], skipped + end + at[1], note)
    return []


def steps(episode: Episode, markers: re.Pattern[str] | None, max_chars: int) -> list[Span]:
    """The step marks, or the lines that end in a break where there are no marks to look for."""
    last = last_said(episode)
    if last is None:
        return []
    place, text = last[0], last[1].content[:max_chars]
    found = _lines(text) if markers is None else ((match.start(), match.end()) for match in markers.finditer(text))
    spans: list[Span] = []
    for start, end in found:
        if len(spans) == MAX_STEPS_SHOWN:
            break
        spans += piece(place, start, end, _("a step"))
    return spans


def _lines(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield start, end + 1
        start = end + 1


SOURCE = "HelloAgents v0.2.5, RLTrainingTool"
MAX_CHARS = 100_000
MAX_STEPS = 10_000
# Longer texts without a mark are no numbers.
MAX_TRUTH_CHARS = 64
_MARKS = (
    re.compile(r"Final Answer:[ \t]*([^\n]+)", re.IGNORECASE),
    re.compile(r"####[ \t]*([^\n]+)"),
    re.compile(r"答案是?[：: \t]*([^\n]+)"),
    re.compile(r"Therefore,?[ \t]*(?:the answer is)?[ \t]*([^\n]+)", re.IGNORECASE),
)
_STEPS = re.compile(
    r"第\s{0,4}[\d一二三四五六七八九十]{1,4}\s{0,4}步|\bStep \d{1,4}|^[ \t]{0,16}\d{1,3}[.、)]", re.M | re.I
)


class AccuracyParams(Params):
    """Where the right answer is, and how close is right."""

    truth_field: str = Field(
        "",
        title=_("Answer field"),
        description=_("Path of the right answer in the row, such as `extra_info.answer`. Empty tries the usual ones."),
        max_length=200,
        pattern=r"^[^\x00-\x1f]*$",
    )
    tolerance: float = Field(
        1e-4, title=_("Tolerance"), description=_("Difference below which two numbers are the same."), ge=0, le=1e6
    )


class LengthParams(AccuracyParams):
    """Parameters of ``helloagents_length``."""

    formula: Literal["code", "guide", "tool"] = Field(
        "code",
        title=_("Formula"),
        description=_("Which of the three published rules deducts for length."),
        json_schema_extra={
            "choices": {
                "code": _("above the limit: r − w · (length − limit) / limit, not below 0"),
                "guide": _("always: r − w · length"),
                "tool": _("always: r − w · length / limit"),
            }
        },
    )
    penalty_weight: float = Field(
        0.001, title=_("Penalty weight"), description=_("w of the formula."), ge=0, le=10, allow_inf_nan=False
    )
    max_length: int = Field(
        1024, title=_("Length limit"), description=_("Limit of the formula, in characters."), ge=1, le=1_000_000
    )


class StepParams(AccuracyParams):
    """Parameters of ``helloagents_step``."""

    count: Literal["lines", "markers"] = Field(
        "lines",
        title=_("Steps are"),
        description=_("What counts as a step."),
        json_schema_extra={
            "choices": {
                "lines": _("line breaks (published code)"),
                "markers": _("Step N, 第N步 and N. (published guide)"),
            }
        },
    )
    step_bonus: float = Field(0.1, title=_("Step bonus"), description=_("Added for each step."), ge=0, le=1)
    max_bonus: float = Field(0.5, title=_("Bonus limit"), description=_("Maximum that steps can add."), ge=0, le=10)


def accuracy(episode: Episode, params: AccuracyParams) -> float | None:
    """1 when the extracted number is the right one, else 0; ``None`` where the row has no right answer."""
    truth = _truth(episode.row, params.truth_field)
    if truth is None:
        return None
    found = extract(_text(episode))
    return 0.0 if found is None else float(abs(found - truth) < max(params.tolerance, 1e-12))


def length_penalty(episode: Episode, params: LengthParams) -> float | None:
    """The accuracy less what the length costs."""
    right = accuracy(episode, params)
    if right is None:
        return None
    length = len(_text(episode))
    if params.formula == "guide":
        return right - params.penalty_weight * length
    if params.formula == "tool":
        return right - params.penalty_weight * length / params.max_length
    if length <= params.max_length:
        return right
    return max(0.0, right - params.penalty_weight * (length - params.max_length) / params.max_length)


def step(episode: Episode, params: StepParams) -> float | None:
    """The accuracy and a bonus for steps."""
    right = accuracy(episode, params)
    if right is None:
        return None
    text = _text(episode)
    steps = text.count("\n") if params.count == "lines" else sum(1 for _found in _STEPS.finditer(text[:MAX_CHARS]))
    return right + min(params.step_bonus * min(steps, MAX_STEPS), params.max_bonus)


def extract(text: str) -> float | None:
    """The number that a solution ends in: after a known mark, else the last one of the last line that has any."""
    text = text[-MAX_CHARS:]
    for mark in _MARKS:
        found = mark.search(text)
        if found is not None:
            return first_number(re.sub("[,$%]", "", found[1]))
    for line in reversed(text.splitlines()):
        if seen := numbers(line):
            return seen[-1]
    return None


def accuracy_spans(episode: Episode, params: AccuracyParams) -> list[Span]:
    """The number that is compared."""
    return found_number(episode, _MARKS, MAX_CHARS)


def step_spans(episode: Episode, params: StepParams) -> list[Span]:
    """The number that is compared, and the steps."""
    markers = None if params.count == "lines" else _STEPS
    return accuracy_spans(episode, params) + steps(episode, markers, MAX_CHARS)


def _text(episode: Episode) -> str:
    turns = episode.policy_messages
    return turns[-1].content if turns else ""


def _truth(row: dict[str, Any], path: str) -> float | None:
    for field in (path,) if path else TRUTH_FIELDS:
        value = row_value(row, field)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
        if isinstance(value, str) and ("####" in value or len(value) <= MAX_TRUTH_CHARS):
            number = first_number(re.sub("[,$%]", "", value.rpartition("####")[2]))
            if number is not None:
                return number
    return None


_ROW = {"answer": "Natalia sold 48/2 = <<48/2=24>>24 clips in May.\n#### 72"}
RIGHT = played("How many clips?", says("48/2 is 24.\n48 + 24 is 72.\n\nFinal Answer: 72"), row=_ROW)
WRONG = played("How many clips?", says("It is 71"), row=_ROW)
LONG = played("q", says("x" * 2031 + " Final Answer: 72"), row=_ROW)
NO_TRUTH = played("q", says("Final Answer: 72"))

HELLOAGENTS = (
    Component(
        "helloagents_accuracy",
        _("Answer accuracy"),
        _("Whether the number that the solution ends in is the right one."),
        accuracy,
        AccuracyParams,
        spans=accuracy_spans,
        source=SOURCE,
        formula="1 if |found − right| < tolerance, else 0; found after Final Answer:, ####, 答案是, Therefore, "
        "else the last number",
        warning=_("As published: a number that the text denies counts, too. `math_answer` reads what is claimed."),
        examples=(
            Example("Final Answer: 72", RIGHT, 1.0),
            Example("a wrong number", WRONG, 0.0),
            Example("#### $1,053.00", played("q", says("#### $1,053.00"), row={"ground_truth": "1053"}), 1.0),
            Example("答案是72", played("q", says("所以答案是72。"), row=_ROW), 1.0),
            Example(
                "the last number of the last line with one", played("q", says("1\n70 + 2 = 72\nyes"), row=_ROW), 1.0
            ),
            Example("no right answer in the row", NO_TRUTH, None),
        ),
    ),
    Component(
        "helloagents_length",
        _("Accuracy less length"),
        _("The accuracy, less for long solutions by one of the three published formulas."),
        length_penalty,
        LengthParams,
        default_weight=0.5,
        source=f"{SOURCE}; the code, the guide and the tool's own text give three formulas",
        formula="code: max(0, r − w · (length − limit) / limit) above the limit; guide: r − w · length; "
        "tool: r − w · length / limit",
        examples=(
            Example("short enough", RIGHT, 1.0),
            Example("2,048 characters, code", LONG, 1 - 0.001 * 1024 / 1024, {"formula": "code"}),
            Example("2,048 characters, guide", LONG, 1 - 0.001 * 2048, {"formula": "guide"}),
            Example("2,048 characters, tool", LONG, 1 - 0.001 * 2, {"formula": "tool"}),
            Example("no right answer in the row", NO_TRUTH, None),
        ),
        low=0.0,
    ),
    Component(
        "helloagents_step",
        _("Accuracy and steps"),
        _("The accuracy, and a bonus for each step of the solution up to a limit."),
        step,
        StepParams,
        default_weight=0.3,
        high=1.5,
        spans=step_spans,
        source=f"{SOURCE}; the code counts line breaks, the guide counts step marks",
        formula="r + min(step_bonus · steps, max_bonus)",
        examples=(
            Example("three line breaks", RIGHT, 1.3),
            Example("wrong in one line", WRONG, 0.0),
            Example("20 empty lines", played("q", says("\n" * 20 + "71"), row=_ROW), 0.5),
            Example("two marks", played("q", says("Step 1: a\nStep 2: 72"), row=_ROW), 1.2, {"count": "markers"}),
        ),
        warning=_("Empty lines pay: counted by line breaks, steps need no content."),
    ),
)
COMBINED_SPEC = [
    RewardComponent(name="helloagents_accuracy", weight=1.0),
    RewardComponent(name="helloagents_length", weight=0.5, params={"max_length": 200}),
    RewardComponent(name="helloagents_step", weight=0.3),
]
