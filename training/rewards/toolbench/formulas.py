"""The formulas of the three versions of ToolBench's reward, over what ``reading`` found."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from training.rewards.base import Episode, Params
from training.rewards.toolbench.reading import BETWEEN, ending, form_of, read
from training.words import _


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
    """A bonus that grows with every token, as soon as one of the two words stands anywhere."""
    said = episode.policy_messages
    if not any(turn.tool_calls or "Thought:" in turn.content or "Action:" in turn.content for turn in said):
        return 0.0
    if episode.tokens is not None:
        return params.per_token * episode.tokens
    return params.per_token * sum(len(turn.content) for turn in said) / params.chars_per_token


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
