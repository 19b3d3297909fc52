"""Components for any task: the answer against the row's, budgets, repetition and language."""

from __future__ import annotations

from training.rewards.base import Component, Example
from training.rewards.general import answers, shape, spans
from training.rewards.samples import played, says, tool
from training.words import _

SOURCE = "Tiltyard"
_ROW = {"answer": "1,053"}
SAID = played("q", says("The answer is 1053."), row=_ROW)
EXACT = played("q", says("Answer:  1,053 "), row=_ROW)
LIST = played("q", says("paris"), row={"answer": ["Paris", "the city of Paris"]})
WRONG = played("q", says("12 or 13"), row=_ROW)
NO_TRUTH = played("q", says("1053"))
JSON = played("q", says('```json\n{"city": "Rome", "days": 3}\n```'))
NO_JSON = played("q", says('{"city": "Rome", "days": "three"}'))
_SCHEMA = '{"type": "object", "required": ["city"], "properties": {"days": {"type": "integer"}}}'
CALLS = played("q", *[part for _turn in range(6) for part in (says("", "ls"), tool("a"))], says("done"))
MIXED = played("q", says("你好 world 世界"))
AGAIN = played("q", says("a b c d a b c d a b c d"))

GENERAL = (
    Component(
        "exact_match",
        _("Exact match"),
        _("The final answer equals the row's answer, ignoring white space."),
        answers.exact_match,
        answers.ExactParams,
        spans=spans.answer,
        source=SOURCE,
        formula="1 if equal, else 0",
        examples=(
            Example("after a marker", EXACT, 1.0, {"marker": "Answer:"}),
            Example("without it", EXACT, 0.0),
            Example("any of a list", LIST, 1.0),
            Example("capitals count", LIST, 0.0, {"ignore_case": False}),
            Example("no answer in the row", NO_TRUTH, None),
        ),
    ),
    Component(
        "math_answer",
        _("Mathematical answer"),
        _("The text claims the row's answer, however it is written: numbers, fractions, LaTeX, units, sets."),
        answers.math_answer,
        answers.MatchParams,
        spans=spans.answer,
        source="Tiltyard; Math-Verify 0.9 (Kydlíček: Math-Verify, 2025) decides on expressions",
        formula="1 if the one answer that the text asserts has the right value, else 0: also for several, or if denied",
        examples=(
            Example("1053 for 1,053", SAID, 1.0),
            Example("two numbers", WRONG, 0.0),
            Example("denied", played("q", says("The answer is definitely not 1053."), row=_ROW), 0.0),
            Example("a fraction", played("q", says("\\boxed{\\frac{2}{4}}"), row={"answer": "0.5"}), 1.0),
            Example("another unit", played("q", says("5 feet"), row={"answer": "5 meters"}), 0.0),
            Example("the same length", played("q", says("It is 500 cm."), row={"answer": "5 meters"}), 1.0),
            Example("no answer in the row", NO_TRUTH, None),
        ),
    ),
    Component(
        "numeric_match",
        _("Numeric match"),
        _("The last number of the final answer is the row's number."),
        answers.numeric_match,
        answers.NumericParams,
        spans=spans.number,
        source=SOURCE,
        formula="1 if |last number − right number| ≤ tolerance, else 0",
        warning=_(
            "The last number counts, also where the text denies it or names several: `math_answer` looks at that."
        ),
        examples=(
            Example("1053 for 1,053", SAID, 1.0),
            Example("another number", WRONG, 0.0),
            Example("no number", played("q", says("many"), row=_ROW), 0.0),
            Example("no answer in the row", NO_TRUTH, None),
        ),
    ),
    Component(
        "regex_match",
        _("Pattern match"),
        _("The final answer matches a regular expression."),
        answers.regex_match,
        answers.RegexParams,
        spans=spans.pattern,
        source=SOURCE,
        formula="1 if the pattern is found, else 0; missing after a second",
        examples=(
            Example("found", SAID, 1.0, {"pattern": r"\d{4}"}),
            Example("not the whole text", SAID, 0.0, {"pattern": r"\d{4}", "whole": True}),
            Example("no pattern", SAID, None),
        ),
    ),
    Component(
        "json_schema_match",
        _("JSON schema match"),
        _("The final answer is JSON that a schema accepts."),
        answers.json_schema_match,
        answers.SchemaParams,
        spans=spans.answer,
        source=SOURCE,
        formula="1 if it is valid (JSON Schema 2020-12), else 0",
        examples=(
            Example("in a code fence", JSON, 1.0, {"json_schema": _SCHEMA}),
            Example("a text for a number", NO_JSON, 0.0, {"json_schema": _SCHEMA}),
            Example("no JSON", SAID, 0.0),
        ),
    ),
    Component(
        "length_budget",
        _("Length budget"),
        _("The text is neither too short nor too long."),
        shape.length_budget,
        shape.LengthBudgetParams,
        source=SOURCE,
        formula="1 within the bounds; length / lower bound below; in a straight line to 0 above",
        examples=(
            Example("within", SAID, 1.0),
            Example("half way to nothing", played("q", says("x" * 1500)), 0.5),
            Example("no answer", played("q"), 0.0),
        ),
    ),
    Component(
        "tool_call_budget",
        _("Tool call budget"),
        _("No more calls than needed."),
        shape.tool_call_budget,
        shape.CallBudgetParams,
        source=SOURCE,
        formula="max(0, 1 − penalty · calls above the budget)",
        examples=(Example("six calls", CALLS, 0.5), Example("no call", SAID, 1.0)),
        warning=_("Calling nothing at all is worth 1: use it together with an outcome, or behind a gate."),
    ),
    Component(
        "repetition",
        _("No repetition"),
        _("The text does not repeat itself."),
        shape.repetition,
        shape.RepetitionParams,
        source=SOURCE,
        formula="different pieces of n words / pieces of n words",
        examples=(Example("a b c d three times", AGAIN, 4 / 9), Example("nothing repeated", SAID, 1.0)),
    ),
    Component(
        "language",
        _("Language"),
        _("The text is in the wanted language, Chinese or English."),
        shape.language,
        shape.LanguageParams,
        source=SOURCE,
        formula="Chinese characters / (Chinese characters + English words), or the other way round",
        examples=(
            Example("4 characters, 1 word", MIXED, 0.8),
            Example("the same in English", MIXED, 0.2, {"language": "en"}),
            Example("digits only", played("q", says("1053")), 0.0),
        ),
    ),
)
