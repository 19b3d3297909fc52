"""The five components of multi-turn tool calling."""

from __future__ import annotations

from training.rewards.base import Component, Example
from training.rewards.samples import played, says, tool
from training.rewards.tool_calling import formulas, spans
from training.words import _

SOURCE = "multi-turn tool calling (huangweiding/demo), `reward_functions.py`"

_ASKED = "What is 25 * 37 + 128? Calculate it"
GOOD = played(_ASKED, says("Let me see.", "calculator"), tool("1053"), says("25 * 37 + 128 is 1053, as you asked."))
UNKNOWN = played(_ASKED, says("", "abacus"), tool("Error: unknown tool: abacus"), says("It is about 1000 I think."))
MISSING = played(_ASKED, says("", "calculator"), tool("错误: 缺少表达式参数"), says("It is about 1000 I think."))
GUESSED = played(_ASKED, says("1053"))
GREETED = played("Hello", says("Hello, how can I help you today?"))
CHINESE = played(
    "北京今天的天气怎么样？",
    says("", "weather"),
    tool("北京在今天的天气：温度15°C，天气晴朗"),
    says("北京今天天气晴朗，15度。"),
)

TOOL_CALLING = (
    Component(
        "tool_call_correctness",
        _("Tool call correctness"),
        _("Calls that the tools accepted."),
        formulas.tool_call_correctness,
        formulas.CorrectnessParams,
        0.30,
        spans=spans.calls,
        source=SOURCE,
        formula="mean over calls: 1 worked; 0.3 wrong arguments; 0.1 unknown tool; else 0. 0.5 without a call",
        examples=(
            Example("one call that worked", GOOD, 1.0),
            Example("an unknown tool", UNKNOWN, 0.1),
            Example("a missing argument", MISSING, 0.3),
            Example("no call", GUESSED, 0.5),
        ),
    ),
    Component(
        "tool_necessity",
        _("Tool necessity"),
        _("Tools called when the question needs one, and only then."),
        formulas.tool_necessity,
        formulas.NecessityParams,
        0.20,
        spans=spans.necessity,
        source=SOURCE,
        formula="1 needed and used, or neither; 0.3 needed and unused; 0.7 unneeded with a long answer, else 0.4",
        examples=(
            Example("needed and used", GOOD, 1.0),
            Example("needed and unused", GUESSED, 0.3),
            Example("neither", GREETED, 1.0),
        ),
    ),
    Component(
        "result_use",
        _("Use of results"),
        _("The final answer uses what the tools returned."),
        formulas.result_use,
        formulas.ResultUseParams,
        0.20,
        spans=spans.results,
        source=f"{SOURCE}; differs: Chinese results are looked for by pieces of their text",
        formula="mean over results: 1 taken up; else 0.7 for a long answer, 0.3; failed: 0.5 told; 0.5 for none",
        examples=(
            Example("the result is told", GOOD, 1.0),
            Example("no result", GUESSED, 0.5),
            Example("Chinese, by pieces", CHINESE, 1.0),
            Example("Chinese, the seed's rule", CHINESE, 0.3, {"words": "literal"}),
        ),
    ),
    Component(
        "final_answer",
        _("Final answer"),
        _("Length of the answer and its similarity to the question."),
        formulas.final_answer,
        formulas.FinalAnswerParams,
        0.20,
        spans=spans.results,
        source=f"{SOURCE}; differs: Chinese text is compared by pieces",
        formula="0.5, + 0.2 for 20 to 500 characters, − 0.2 below, + 0.3 · share of the question's words, "
        "+ 0.1 for each result taken up; 0.1 below 5 characters",
        examples=(
            Example("4 of 7 words recur, one result", GOOD, 0.5 + 0.2 + 0.3 * 4 / 7 + 0.1),
            Example("four characters", GUESSED, 0.1),
            Example("one word of one", GREETED, 1.0),
        ),
    ),
    Component(
        "coherence",
        _("Coherence"),
        _("Turns contain text, and calls lead to an answer."),
        formulas.coherence,
        formulas.CoherenceParams,
        0.10,
        source=SOURCE,
        formula="0.5 + 0.3 · share of turns with text + 0.1 for each call followed by text; 0.8 for one turn",
        examples=(
            Example("text, call, text", GOOD, 0.9),
            Example("a call without text, then text", UNKNOWN, 0.75),
            Example("one turn", GUESSED, 0.8),
        ),
    ),
)
