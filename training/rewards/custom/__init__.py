"""A reward that a team writes in Python. It runs in a process that can only compute (``training/sandbox``).

Off unless the operator switches it on: a process without ``TILTYARD_CUSTOM_REWARDS`` refuses the whole run, in a
sentence. A failure of the code excludes the rollout: missing, never 0.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from training.config import RewardComponent
from training.errors import ConfigError, CustomRewardFault, RewardTimeout, TiltyardError
from training.rewards.base import Component, Episode
from training.rewards.custom.episode import CustomParams, plain_episode
from training.sandbox.pool import pool
from training.sandbox.problems import Problem, SandboxProblem
from training.sandbox.process import Answer, Limits
from training.words import _, sentence

CUSTOM = "custom_python"
SWITCH_VARIABLE = "TILTYARD_CUSTOM_REWARDS"
LATE = frozenset({"time", "busy"})


def switched_on() -> bool:
    """Whether this process may run custom code: its operator, or its supervisor, said so."""
    return os.environ.get(SWITCH_VARIABLE, "").strip().lower() in {"1", "true", "yes", "on"}


def refuse_custom(components: Sequence[RewardComponent]) -> None:
    """Raise ``ConfigError`` when a list has custom code and this process may not run any."""
    names = [part.name for part in components if part.registered == CUSTOM]
    if names and not switched_on():
        raise ConfigError(
            f"`{names[0]}` is custom Python, and custom rewards are switched off here.",
            option="rewards.components",
            hint=f"An administrator switches them on ({SWITCH_VARIABLE}, docs/custom-rewards.md).",
        )


def custom_python(episode: Episode, params: CustomParams) -> float:
    """The number that the code returns. Raises typed reward errors that name what happened."""
    if not switched_on():
        raise CustomRewardFault(_("Custom rewards are switched off here."))
    try:
        answer = pool.call(params.code, Limits(seconds=params.limit_s), plain_episode(episode))
        return in_range(answer, params).value
    except SandboxProblem as exc:
        raise fault(exc.problem) from exc


def in_range(answer: Answer, params: CustomParams) -> Answer:
    """The answer, if it is in the range that its author promised. Raises ``SandboxProblem``."""
    low, high = params.low, params.high
    if (low is not None and answer.value < low) or (high is not None and answer.value > high):
        raise SandboxProblem(Problem("range", f"{answer.value:g}"))
    return answer


def fault(problem: Problem) -> TiltyardError:
    """A sandbox's problem in the words of rewards."""
    kind = RewardTimeout if problem.kind in LATE else CustomRewardFault
    words = problem.sentence
    if problem.line:
        words = sentence(_("{problem} (line {line})"), problem=words, line=problem.line)
    failed = sentence(_("The custom reward failed. {problem}"), problem=words)
    return kind(failed, hint=_("Fix its code; the page of the reward tests it."))


CUSTOM_FAMILY = (
    Component(
        CUSTOM,
        _("Custom Python"),
        _("A number that your own code computes from the finished rollout, in a sandbox."),
        custom_python,
        CustomParams,
        low=float("-inf"),
        high=float("inf"),
        source="Tiltyard; docs/custom-rewards.md",
        formula="whatever the code says; missing when it fails, is late or leaves its range",
        warning=_("This is code execution. It is off until the operator and an administrator enable it."),
        outside=True,
    ),
)
