"""BFCL multi-turn as EnvTuning rewards it. The environment is the truth; codes are recomputed where it said nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from training.config import RewardComponent
from training.rewards.base import Component, Episode, Example, Params, Span, played, says, user
from training.rewards.text import placed_turns, whole
from training.rewards.turns import Turn, turns_of
from training.words import _

# The codes of a BFCL episode: −1 a call, −2 a failed call, −3 an unreadable reply, 0 or 1 a turn's score.
#
# Recorded codes are in the row under ``user_turn_rewards``, verl's name. Without them the environment's replies show
# which rounds were calls, failures and unreadable; which turns were solved they do not show.

CALL, FAILED_CALL, UNREADABLE = -1, -2, -3
Codes = Sequence[float | None]

RESULTS_MARK = "Execution results:"
FAILED_PREFIX = "Error during execution:"
# Results of calls that were not run, because the turn was over.
NOT_RUN = ("Not executed.", "The turn is over:")
MAX_CHARS = 65_536


def codes_of(episode: Episode) -> Codes:
    """One code a round; ``None`` is a round that ended a turn with an unknown score."""
    recorded = episode.row.get("user_turn_rewards")
    if isinstance(recorded, list) and all(isinstance(code, (int, float)) for code in recorded):
        return recorded
    return [_code(turn) for turn in turns_of(episode)]


def from_codes(codes: Codes, turns: int | None) -> dict[str, float]:
    """Every part by name that the codes give; ``turns`` is how many the whole task has, where that is known."""
    called, failed = codes.count(CALL), codes.count(FAILED_CALL)
    parts = {
        "format_reward": (len(codes) - codes.count(UNREADABLE)) / len(codes) if codes else 0.0,
        "tool_call_reward": called / (called + failed) if called + failed else 0.0,
        "is_tool_call": float(called + failed > 0),
    }
    scores = [code for code in codes if code is not None and code >= 0]
    if len(scores) < sum(code is None or code >= 0 for code in codes):
        return parts
    if codes:
        parts["progress_reached"] = sum(scores) / len(scores) if scores else 0.0
    if codes and turns:
        parts["progress_all"] = sum(scores) / turns
        parts["task_success"] = float(sum(scores) == turns)
    return parts


def _code(turn: Turn) -> float | None:
    if not turn.answers:
        return None
    first = turn.answers[0]
    text = first.content[:MAX_CHARS].lstrip()
    if first.role == "tool" and first.tool_call_id and turn.said.tool_calls:
        results = [answer.content for answer in turn.answers if answer.role == "tool" and answer.tool_call_id]
        complaint = turn.answers[-1].content if not turn.answers[-1].tool_call_id else ""
        if results[0].startswith(NOT_RUN):
            return UNREADABLE if complaint.startswith("Error:") else None
        return FAILED_CALL if any(result.startswith(FAILED_PREFIX) for result in results) else CALL
    if RESULTS_MARK in text[:200]:
        return FAILED_CALL if _any_failed(text.split(RESULTS_MARK, 1)[1]) else CALL
    return UNREADABLE if text.startswith("Error:") else None


def _any_failed(text: str) -> bool:
    """Whether one of the listed results is a failure; of a broken list, whether it reads like one."""
    try:
        results = json.JSONDecoder().raw_decode(text.lstrip())[0]
    except (ValueError, RecursionError):
        return f'"{FAILED_PREFIX}' in text
    return isinstance(results, list) and any(str(item).startswith(FAILED_PREFIX) for item in results)


# Which rounds BFCL's format and tool calls come from, by their codes.

_CALLS = {CALL: _("a call that worked"), FAILED_CALL: _("a call that failed")}
_BROKEN = {UNREADABLE: _("the format is broken")}
_KEPT = _("the format is kept")


def form(episode: Episode, params: Params) -> list[Span]:
    """All rounds, by whether they kept the format."""
    return _spans(episode, _BROKEN, _KEPT)


def calls(episode: Episode, params: Params) -> list[Span]:
    """The rounds that were calls."""
    return _spans(episode, _CALLS, "")


def both(episode: Episode, params: Params) -> list[Span]:
    """All rounds, by what the first stage pays for them."""
    return _spans(episode, {**_CALLS, **_BROKEN}, _KEPT)


def _spans(episode: Episode, notes: Mapping[int, str], other: str) -> list[Span]:
    """One span a round. Recorded codes that are not one a round do not show where they come from."""
    turns, codes = list(placed_turns(episode)), codes_of(episode)
    if len(turns) != len(codes):
        return []
    noted = [
        (place, other if code is None else notes.get(int(code), other))
        for (place, _turn), code in zip(turns, codes, strict=True)
    ]
    return [whole(place, note) for place, note in noted if note]


SOURCE = "EnvTuning (AWorld-RL), reward manager `bfcl`"


def _part(name: str) -> Callable[[Episode, Params], float | None]:
    """The environment's part, else the one that the recorded or visible codes give; ``None`` where neither does."""

    def score(episode: Episode, params: Params) -> float | None:
        if name in episode.env_parts:
            return episode.env_parts[name]
        return from_codes(codes_of(episode), _turns(episode)).get(name)

    return score


def stage_1(episode: Episode, params: Params) -> float | None:
    """Upstream's first stage: form and calls, as long as anything is called at all."""
    called = _part("is_tool_call")(episode, params)
    form, calls = _part("format_reward")(episode, params), _part("tool_call_reward")(episode, params)
    return None if called is None or form is None or calls is None else called * (form + calls)


def _turns(episode: Episode) -> int | None:
    """How many turns the whole task has, where its row says so."""
    truth = episode.row.get("ground_truth")
    if truth is None and isinstance(episode.row.get("reward_model"), dict):
        truth = episode.row["reward_model"].get("ground_truth")
    return len(truth) if isinstance(truth, list) and truth else None


_RESULTS = "Here are the function's execution results. Execution results:"
_THINK = "<think>a</think>"
_CALL = f'{_THINK}<tool_call>{{"name": "ls", "arguments": {{}}}}</tool_call>'
_FAILED = f'{_RESULTS}["Error during execution: no such file"]'


def _coded(*codes: float, turns: int = 2) -> Episode:
    return played("q", says("a"), row={"user_turn_rewards": list(codes), "ground_truth": [[]] * turns})


GOOD = _coded(-1, 1, -1, 1)
CUT = _coded(-1, 1, turns=4)
MIXED = _coded(-3, -2, -1, 0, -1, 1)
SEEN = played(
    "q",
    says("no tags"),
    user("Error: Missing <think></think> tags"),
    says(_CALL),
    user(_RESULTS + '["a"]'),
    says(_CALL),
    user(_FAILED),
    says(f"{_THINK}<answer>b</answer>"),
)
LOOP = played("q", *[message for _turn in range(5) for message in (says(_CALL), user(_RESULTS + '["a"]'))])
REPORTED = played("q", says("a"), env_parts={"progress_reached": 0.5, "progress_all": 0.25, "task_success": 0.0})

BFCL = (
    Component(
        "bfcl_format",
        _("BFCL format"),
        _("Share of rounds in the right format."),
        _part("format_reward"),
        spans=form,
        source=SOURCE,
        formula="(rounds − rounds with code −3) / rounds",
        examples=(
            Example("codes −1 1 −1 1", GOOD, 1.0),
            Example("codes −3 −2 −1 0 −1 1", MIXED, 5 / 6),
            Example("read from the transcript", SEEN, 0.75),
            Example("nothing was said", played("q"), 0.0),
        ),
    ),
    Component(
        "bfcl_tool_calls",
        _("BFCL tool calls"),
        _("Share of calls that ran without an error."),
        _part("tool_call_reward"),
        spans=calls,
        source=SOURCE,
        formula="rounds with code −1 / rounds with code −1 or −2; 0 without a call",
        examples=(
            Example("codes −3 −2 −1 0 −1 1", MIXED, 2 / 3),
            Example("read from the transcript", SEEN, 0.5),
            Example("no call", played("q", says(f"{_THINK}<answer>b</answer>")), 0.0),
        ),
    ),
    Component(
        "bfcl_stage_1",
        _("BFCL stage 1"),
        _("The first stage's score: format and tool calls together, from 0 to 2."),
        stage_1,
        high=2.0,
        spans=both,
        source=f"{SOURCE}, `format_reward`",
        formula="(1 if anything was called, else 0) · (format + tool calls)",
        examples=(
            Example("codes −1 1 −1 1", GOOD, 2.0),
            Example("`ls` without end", LOOP, 2.0),
            Example("an answer only", played("q", says(f"{_THINK}<answer>b</answer>")), 0.0),
        ),
        warning=_("Calling `ls` without end earns the full 2: this says nothing about the task."),
    ),
    Component(
        "bfcl_progress_reached",
        _("BFCL progress, turns reached"),
        _("Share of the turns that were reached and solved: the published score."),
        _part("progress_reached"),
        source=f"{SOURCE}, `bfcl_reward`",
        formula="mean of the 0/1 codes",
        examples=(
            Example("codes −1 1 −1 1", GOOD, 1.0),
            Example("cut off after one of four turns", CUT, 1.0),
            Example("the environment says so", REPORTED, 0.5),
            Example("a transcript alone does not show it", SEEN, None),
        ),
        warning=_("An episode cut off after one solved turn scores 1.0. Prefer the progress over all turns."),
    ),
    Component(
        "bfcl_progress_all",
        _("BFCL progress, all turns"),
        _("Share of all turns of the task that were solved."),
        _part("progress_all"),
        source="Tiltyard; differs from EnvTuning: turns that were not reached count as unsolved",
        formula="sum of the 0/1 codes / turns of the task",
        examples=(
            Example("cut off after one of four turns", CUT, 0.25),
            Example("the environment says so", REPORTED, 0.25),
        ),
    ),
    Component(
        "bfcl_task_success",
        _("BFCL task success"),
        _("1 when every turn of the task is solved."),
        _part("task_success"),
        source="BFCL multi-turn checker",
        formula="1 if all turns have code 1, else 0",
        examples=(
            Example("codes −1 1 −1 1", GOOD, 1.0),
            Example("cut off after one of four turns", CUT, 0.0),
            Example("a transcript alone does not show it", SEEN, None),
        ),
    ),
)
STAGE_1_SPEC = [RewardComponent(name="bfcl_stage_1", weight=1.0)]
STAGE_3_SPEC = [RewardComponent(name="bfcl_progress_reached", weight=1.0)]
