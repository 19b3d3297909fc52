"""What BFCL's own checker says of an episode: the figure that papers print.

The turn manager scores each turn as it ends; BFCL instead carries out everything that the model called, turn by turn
and beside the ground truth, and an entry is correct when every turn that has a ground truth passes. A call in a turn
that wants none is carried out too: what it changed shows at the next turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from envs.bfcl.calls import Call
from envs.bfcl.execution import Toolbox, contains, same_state
from envs.bfcl.tasks import Task

ErrorType = Literal[
    "", "force_terminated", "empty_turn_model_response", "instance_state_mismatch", "execution_response_mismatch"
]
ERROR_TYPES: tuple[ErrorType, ...] = (
    "force_terminated",
    "empty_turn_model_response",
    "instance_state_mismatch",
    "execution_response_mismatch",
)
VALID, ERROR = "bfcl_valid", "bfcl_error/"
Step = Sequence[Call]


def error_of(task: Task, turns: Sequence[Sequence[Step]], *, forced: bool) -> ErrorType:
    """Why the entry is wrong, "" where it is right. ``turns`` holds the calls of each message of each turn.

    ``forced``: a turn was ended by its limit of attempts, or the episode before its last turn.
    """
    if forced or len(turns) != len(task.turns):
        return "force_terminated"
    model, truth = (Toolbox(task.configs, task.classes, long_context=task.long_context) for _ in range(2))
    seen: list[str] = []
    for steps, turn in zip(turns, task.turns, strict=True):
        called = [call for step in steps for call in step]
        seen += [result for step in steps for result in model.run(step)]
        wanted = truth.run(turn.truth)
        if not turn.truth:
            continue
        if not called:
            return "empty_turn_model_response"
        if not same_state(model, truth):
            return "instance_state_mismatch"
        if not contains(seen, wanted):
            return "execution_response_mismatch"
    return ""


def official_parts(error: ErrorType) -> dict[str, float]:
    """The verdict as reward parts: whether the entry is valid, and 1 for the error that it ended with."""
    return {VALID: float(not error)} | ({ERROR + error: 1.0} if error else {})


# --- Rewards --------------------------------------------------------------------------------------------------------
# Rewards from the codes of an episode: −1 call, −2 failed call, −3 unreadable reply, 0 or 1 a turn's score.

CALL, FAILED_CALL, UNREADABLE = -1, -2, -3


def reward_parts(codes: Sequence[int], turns: int) -> dict[str, float]:
    """Every part by name, each from 0 to 1.

    ``progress_reached`` is upstream's score: the mean over the turns that were reached, so that an episode cut after
    one good turn has 1.0. ``progress_all`` divides by all turns. Upstream's stage-1 score, from 0 to 2, is
    ``is_tool_call * (format_reward + tool_call_reward)``.
    """
    scores = [code for code in codes if code >= 0]
    called, failed = codes.count(CALL), codes.count(FAILED_CALL)
    passed = sum(scores)
    return {
        "progress_reached": passed / len(scores) if scores else 0.0,
        "progress_all": passed / turns,
        "format_reward": (len(codes) - codes.count(UNREADABLE)) / len(codes) if codes else 0.0,
        "tool_call_reward": called / (called + failed) if called + failed else 0.0,
        "is_tool_call": float(called + failed > 0),
        "task_success": float(passed == turns),
    }
