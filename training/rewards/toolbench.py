"""ToolBench RL: the rewards of its first, middle and latest version, and the judge's pass reward."""

from __future__ import annotations

import math
from typing import Any

from pydantic import Field

from training.config import RewardComponent
from training.errors import RewardFault
from training.rewards import toolbench_episode
from training.rewards.base import Component, Episode, Example, Params, played, says, tool, user
from training.rewards.judge import JudgeParams, judged
from training.rewards.toolbench_episode import BETWEEN, ending, form_of, read
from training.words import _

# The formulas of the three versions of ToolBench's reward, over what ``reading`` found.


def _number_field(default: float, title: str, help: str) -> Any:
    return Field(default, title=title, description=help, ge=-10, le=10, allow_inf_nan=False)


class FunctionCallParams(Params):
    """Parameters of ``toolbench_function_call``."""

    call_bonus: float = _number_field(0.1, _("Call bonus"), _("Added for each call that worked."))
    error_penalty: float = _number_field(-0.5, _("Error penalty"), _("Added for each call that failed; below 0."))


class FinishParams(Params):
    """Parameters of ``toolbench_finish``."""

    finish_bonus: float = _number_field(0.5, _("Finish bonus"), _("Value of an episode that ends with an answer."))
    give_up_share: float = _number_field(0.5, _("Giving up"), _("Share of the bonus for giving up."))
    other_share: float = _number_field(0.3, _("Other ending"), _("Share of the bonus for any other Finish."))


class TokenBonusParams(Params):
    """Parameters of ``toolbench_token_bonus``."""

    per_token: float = _number_field(0.01, _("Per token"), _("Added for each token that the model wrote."))
    chars_per_token: float = Field(
        4.0,
        title=_("Characters per token"),
        description=_("Assumed length of a token where tokens were not counted, in characters."),
        ge=0.5,
        le=20,
    )


class CallShareParams(Params):
    """Parameters of ``toolbench_call_share``."""

    single_turn_score: float = _number_field(
        0.0, _("Single turn"), _("Value of an episode with one turn; the published code divides by zero there.")
    )


class FinishMiddleParams(FinishParams):
    """Parameters of ``toolbench_finish_share``."""

    finish_bonus: float = _number_field(1.0, _("Finish bonus"), _("Value of an episode that ends with an answer."))


class LatestTurnParams(Params):
    """Parameters of ``toolbench_turns``."""

    call_bonus: float = _number_field(0.1, _("Call bonus"), _("Added for each turn whose call worked."))
    error_penalty: float = _number_field(-0.1, _("Error penalty"), _("Added for each turn whose call failed; below 0."))
    invalid_penalty: float = _number_field(
        -0.2, _("Invalid penalty"), _("Added for each turn without a readable call; below 0.")
    )


class LatestFinishParams(Params):
    """Parameters of ``toolbench_last_turn``."""

    finish_bonus: float = _number_field(0.2, _("Finish bonus"), _("Value of an episode whose last turn is a Finish."))
    no_finish_penalty: float = _number_field(
        -0.5, _("No finish"), _("Value of an episode that ends otherwise; below 0.")
    )


def seed_format(episode: Episode, params: Params) -> float:
    """How well the response was written: all turns are one text, in which the first action counts."""
    return form_of(BETWEEN.join(turn.text for turn in read(episode)))


def function_call(episode: Episode, params: FunctionCallParams) -> float:
    """A sum over calls; without one it is 0."""
    turns = read(episode)
    worked, failed = sum(turn.worked for turn in turns), sum(turn.failed for turn in turns)
    return params.call_bonus * worked + params.error_penalty * failed


def finish(episode: Episode, params: FinishParams) -> float:
    """The bonus, or its share by how the episode ended."""
    shares = {"answer": 1.0, "give_up": params.give_up_share, "other": params.other_share, None: 0.0}
    return params.finish_bonus * shares[ending(read(episode))]


def token_bonus(episode: Episode, params: TokenBonusParams) -> float:
    """A bonus that grows with every token, as soon as one of the two words occurs anywhere."""
    turns = episode.policy_messages
    if not any(turn.tool_calls or "Thought:" in turn.content or "Action:" in turn.content for turn in turns):
        return 0.0
    if episode.tokens is not None:
        return params.per_token * episode.tokens
    return params.per_token * sum(len(turn.content) for turn in turns) / params.chars_per_token


def valid_turns(episode: Episode, params: Params) -> float:
    """Share of turns with a readable action."""
    turns = read(episode)
    return sum(turn.valid for turn in turns) / len(turns) if turns else 0.0


def call_share(episode: Episode, params: CallShareParams) -> float:
    """Share of the turns before the last that led to no error."""
    turns = read(episode)
    if len(turns) < 2:
        return params.single_turn_score
    return 1 - sum(turn.failed > 0 for turn in turns) / (len(turns) - 1)


def latest_turns(episode: Episode, params: LatestTurnParams) -> float:
    """A sum over all turns but the last."""
    total = 0.0
    for turn in read(episode)[:-1]:
        if not turn.valid:
            total += params.invalid_penalty
        else:
            total += params.error_penalty if turn.failed else params.call_bonus
    return total


def last_turn(episode: Episode, params: LatestFinishParams) -> float:
    """Whether the last turn is a Finish."""
    turns = read(episode)
    finished = bool(turns) and turns[-1].ending is not None
    return params.finish_bonus if finished else params.no_finish_penalty


# ToolBench's pass reward: whether a judge says that the query was solved.

RUBRIC = (
    "Decide whether the assistant solved the user's query. Solved: the final answer gives all that was asked for, and "
    "it follows from the results of the calls. Partially Solved: it gives a part, or it cannot be told. Unsolved: "
    "it gives nothing of it, or what the results do not support."
)
FORM = '{"reason": "<one sentence>", "label": "Solved" | "Partially Solved" | "Unsolved"}'


class PassParams(JudgeParams):
    """Parameters of ``toolbench_pass``."""

    partial_score: float = Field(
        0.5, title=_("Partially solved"), description=_("Value of a query solved in part, or unsure."), ge=0, le=1
    )


def pass_reward(episode: Episode, params: PassParams) -> float:
    """The judge's verdict. An episode that did not end with an answer is unsolved, and no judge is asked."""
    if ending(read(episode)) in (None, "give_up"):
        return 0.0

    def value(verdict: dict[str, Any]) -> float:
        values = {
            "solved": 1.0,
            "partially solved": params.partial_score,
            "unsure": params.partial_score,
            "unsolved": 0.0,
        }
        label = str(verdict.get("label")).strip().casefold()
        if label not in values:
            raise RewardFault("The judge gave none of the three labels.")
        return values[label]

    return judged(episode, params, RUBRIC, FORM, value, scale=(params.partial_score,))


TOOLBENCH_PASS = Component(
    "toolbench_pass",
    _("ToolBench pass"),
    _("Whether a judge says that the query was solved."),
    pass_reward,
    PassParams,
    default_weight=0.4,
    source="ToolBench RL, latest version (reward server); differs: a judge that fails is missing, there it is 0",
    formula="1 solved; 0.5 partially solved or unsure; 0 unsolved, or not ended with an answer",
    examples=(Example("no Finish", played("q", says("hello")), 0.0),),
    outside=True,
)


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
        seed_format,
        default_weight=0.1,
        spans=toolbench_episode.form,
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
        function_call,
        FunctionCallParams,
        default_weight=0.2,
        low=-math.inf,
        high=math.inf,
        spans=toolbench_episode.calls,
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
        finish,
        FinishParams,
        default_weight=0.3,
        high=0.5,
        spans=toolbench_episode.finish,
        source=SEED,
        formula="finish_bonus · (1 for give_answer, give_up_share for give_up_and_restart, other_share for others, 0 "
        "without Finish)",
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
        token_bonus,
        TokenBonusParams,
        default_weight=0.0,
        high=math.inf,
        spans=toolbench_episode.tokens,
        source=f"{SEED}, `format_reward_per_token`",
        formula="per_token · tokens, if Thought: or Action: occurs anywhere, else 0",
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
        valid_turns,
        default_weight=0.1,
        spans=toolbench_episode.valid,
        source=MIDDLE,
        formula="valid turns / turns",
        examples=(Example("both", PERFECT, 1.0), Example("one of two", WORDS, 0.5), Example("none", SILENT, 0.0)),
    ),
    Component(
        "toolbench_call_share",
        _("ToolBench call share"),
        _("How few of the turns led to an API error; the last one is taken to be the Finish."),
        call_share,
        CallShareParams,
        default_weight=0.2,
        low=-1.0,
        spans=toolbench_episode.calls,
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
        finish,
        FinishMiddleParams,
        default_weight=0.3,
        spans=toolbench_episode.finish,
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
        latest_turns,
        LatestTurnParams,
        low=-math.inf,
        high=math.inf,
        spans=toolbench_episode.calls_before_last,
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
        last_turn,
        LatestFinishParams,
        low=-0.5,
        high=0.2,
        spans=toolbench_episode.last_turn,
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
