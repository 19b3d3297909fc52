"""BFCL multi-turn as EnvTuning rewards it. The environment is the truth; codes are recomputed where it said nothing."""

from __future__ import annotations

from collections.abc import Callable

from training.config import RewardComponent
from training.rewards.base import Component, Episode, Example, Params
from training.rewards.bfcl import spans
from training.rewards.bfcl.codes import codes_of, from_codes
from training.rewards.samples import played, says, user
from training.words import _

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
        spans=spans.form,
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
        spans=spans.calls,
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
        spans=spans.both,
        source=f"{SOURCE}, `format_reward`",
        formula="(1 if anything was called, else 0) · (format + tool calls)",
        examples=(
            Example("codes −1 1 −1 1", GOOD, 2.0),
            Example("`ls` for ever", LOOP, 2.0),
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
            Example("a transcript alone does not tell", SEEN, None),
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
            Example("a transcript alone does not tell", SEEN, None),
        ),
    ),
)
STAGE_1_SPEC = [RewardComponent(name="bfcl_stage_1", weight=1.0)]
STAGE_3_SPEC = [RewardComponent(name="bfcl_progress_reached", weight=1.0)]
