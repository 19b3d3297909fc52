"""ToolBench RL: the rewards of its first, middle and latest version, and the judge's pass reward."""

from __future__ import annotations

import math
from typing import Any

from training.config import RewardComponent
from training.rewards.base import Component, Example
from training.rewards.samples import played, says, tool, user
from training.rewards.toolbench import formulas, spans
from training.rewards.toolbench.judged import TOOLBENCH_PASS
from training.words import _

SEED = "ToolBench RL, seed version (`toolbench_reward.py`)"
MIDDLE = "ToolBench RL, middle version (`toolbench_reward.py`)"
LATEST = "ToolBench RL, latest version (`toolbench_reward.py` at HEAD)"

_OK, _BAD = '{"error": "", "response": "42"}', '{"error": "API call failed with status 500", "response": ""}'
_CALL = 'Thought: look it up\nAction: search_for_web\nAction Input: {"q": "x"}'
_GIVE = 'Thought: done\nAction: Finish\nAction Input: {"return_type": "give_answer", "final_answer": "42"}'
_GIVE_UP = 'Thought: no\nAction: Finish\nAction Input: {"return_type": "give_up_and_restart"}'
_OTHER = "Thought: done\nAction: Finish\nAction Input: {}"

PERFECT = played("q", says(_CALL), user(f"\n\nObservation: {_OK}\n\n"), says(_GIVE))
FAILED = played("q", says(_CALL), user(f"\n\nObservation: {_BAD}\n\n"), says(_GIVE_UP))
NATIVE = played("q", says("", "search"), tool(_OK), says("", "search"), tool(_BAD), says("", "Finish"))
BROKEN = played(
    "q", says('Thought: a\nAction: b\nAction Input: {"q": '), user("Please check the Action and Action Input format")
)
WORDS = played("q", says("Thought: I wonder"), user("Please provide Thought, Action, and Action Input"), says(_OTHER))
SILENT = played("q", says("hello"))
LATE = played("q", says("hello"), user("Please provide Thought, Action, and Action Input"), says(_CALL))
THOUGHT = played("q", says("Thought: I wonder"))

TOOLBENCH = (
    Component(
        "toolbench_format",
        _("ToolBench format"),
        _("How well the turns keep to Thought, Action and Action Input; the first action counts."),
        formulas.seed_format,
        default_weight=0.1,
        spans=spans.form,
        source=SEED,
        formula=(
            "over the text of all turns, at the first of each word: 1 in order with valid JSON; 0.5 JSON invalid; "
            "0.2 only Thought or Action; else 0"
        ),
        examples=(
            Example("one perfect call", PERFECT, 1.0),
            Example("the JSON is cut off", BROKEN, 0.5),
            Example("only a Thought", THOUGHT, 0.2),
            Example("a Thought alone, then an action", WORDS, 1.0),
            Example("words, then a call", LATE, 1.0),
            Example("neither", SILENT, 0.0),
            Example("calls that are calls", NATIVE, 1.0),
        ),
    ),
    Component(
        "toolbench_function_call",
        _("ToolBench function calls"),
        _("A bonus for each call that worked and a penalty for each that failed."),
        formulas.function_call,
        formulas.FunctionCallParams,
        default_weight=0.2,
        low=-math.inf,
        high=math.inf,
        spans=spans.calls,
        source=SEED,
        formula="Σ over calls: call_bonus, or error_penalty for a failed one; Finish is none of them",
        examples=(
            Example("one perfect call", PERFECT, 0.1),
            Example("one failed call", FAILED, -0.5),
            Example("one of each", NATIVE, -0.4),
            Example("no call", SILENT, 0.0),
            Example("half the penalty", FAILED, -0.25, {"error_penalty": -0.25}),
        ),
        warning=_("It is a sum, so calling a working tool again and again pays."),
    ),
    Component(
        "toolbench_finish",
        _("ToolBench finish"),
        _("Whether the episode ends with Finish, and how."),
        formulas.finish,
        formulas.FinishParams,
        default_weight=0.3,
        high=0.5,
        spans=spans.finish,
        source=SEED,
        formula="finish_bonus · (1 give_answer; give_up_share give_up_and_restart; other_share otherwise; 0 no Finish)",
        examples=(
            Example("an answer", PERFECT, 0.5),
            Example("giving up", FAILED, 0.25),
            Example("neither", WORDS, 0.15),
            Example("no Finish", SILENT, 0.0),
        ),
    ),
    Component(
        "toolbench_token_bonus",
        _("ToolBench token bonus"),
        _("The original bonus for every token of a text that contains Thought: or Action:."),
        formulas.token_bonus,
        formulas.TokenBonusParams,
        default_weight=0.0,
        high=math.inf,
        spans=spans.tokens,
        source=f"{SEED}, `format_reward_per_token`",
        formula="per_token · tokens, if Thought: or Action: stands anywhere, else 0",
        examples=(
            Example("500 tokens and one word", played("q", says("Action: " + "x" * 1992)), 5.0),
            Example("counted tokens", played("q", says("Action: a"), tokens=30), 0.3),
            Example("without the words", SILENT, 0.0),
        ),
        warning=_(
            "Off by default: 500 tokens are worth 5 whatever they say; all other parts together are worth "
            "about 0.3. A policy learns to write on and on."
        ),
    ),
    Component(
        "toolbench_valid_turns",
        _("ToolBench valid turns"),
        _("Share of turns with a readable action."),
        formulas.valid_turns,
        default_weight=0.1,
        spans=spans.valid,
        source=MIDDLE,
        formula="valid turns / turns",
        examples=(Example("both", PERFECT, 1.0), Example("one of two", WORDS, 0.5), Example("none", SILENT, 0.0)),
    ),
    Component(
        "toolbench_call_share",
        _("ToolBench call share"),
        _("How few of the turns led to an API error; the last one is taken to be the Finish."),
        formulas.call_share,
        formulas.CallShareParams,
        default_weight=0.2,
        low=-1.0,
        spans=spans.calls,
        source=MIDDLE,
        formula="1 − turns with an error / (turns − 1); single_turn_score for one turn",
        examples=(
            Example("no error", PERFECT, 1.0),
            Example("the only call failed", FAILED, 0.0),
            Example("one of two", NATIVE, 0.5),
            Example("both of two", played("q", says(_CALL), user(_BAD), says(_CALL), user(_BAD)), -1.0),
            Example("one turn", SILENT, 0.0),
        ),
    ),
    Component(
        "toolbench_finish_share",
        _("ToolBench ending"),
        _("How the episode ended, from 0 to 1."),
        formulas.finish,
        formulas.FinishMiddleParams,
        default_weight=0.3,
        spans=spans.finish,
        source=MIDDLE,
        formula="1 give_answer; 0.5 give_up_and_restart; 0.3 otherwise; 0 no Finish",
        examples=(
            Example("an answer", PERFECT, 1.0),
            Example("giving up", FAILED, 0.5),
            Example("neither", WORDS, 0.3),
            Example("no Finish", SILENT, 0.0),
        ),
    ),
    Component(
        "toolbench_turns",
        _("ToolBench turns"),
        _("A value for each turn before the last: its call worked, failed, or could not be read."),
        formulas.latest_turns,
        formulas.LatestTurnParams,
        low=-math.inf,
        high=math.inf,
        spans=spans.calls_before_last,
        source=LATEST,
        formula="Σ over all turns but the last: 0.1 valid and no API error; −0.1 API error; −0.2 invalid",
        examples=(
            Example("one perfect call", PERFECT, 0.1),
            Example("one failed call", FAILED, -0.1),
            Example("one unreadable turn", WORDS, -0.2),
            Example("one turn only", SILENT, 0.0),
        ),
        warning=_("It is a sum, so calling a working tool again and again pays."),
    ),
    Component(
        "toolbench_last_turn",
        _("ToolBench last turn"),
        _("Whether the last turn is a Finish."),
        formulas.last_turn,
        formulas.LatestFinishParams,
        low=-0.5,
        high=0.2,
        spans=spans.last_turn,
        source=LATEST,
        formula="0.2 if the last turn is a Finish, else −0.5",
        examples=(Example("it is", PERFECT, 0.2), Example("it is not", SILENT, -0.5)),
    ),
    TOOLBENCH_PASS,
)


def _spec(**weights: float) -> list[RewardComponent]:
    return [RewardComponent(name=f"toolbench_{name}", weight=weight) for name, weight in weights.items()]


SEED_SPEC = _spec(format=0.1, function_call=0.2, finish=0.3)
MIDDLE_SPEC = _spec(valid_turns=0.1, call_share=0.2, finish_share=0.3)
LATEST_SPEC = _spec(turns=1.0, last_turn=1.0)
"""Without its pass reward: that needs a judge, see ``latest_spec``."""


def latest_spec(judge: dict[str, Any] | None = None) -> list[RewardComponent]:
    """The latest version: with a judge's parameters also its pass reward, which is added with weight 1."""
    passed = [] if judge is None else [RewardComponent(name="toolbench_pass", weight=1.0, params=judge)]
    return [*LATEST_SPEC, *passed]
