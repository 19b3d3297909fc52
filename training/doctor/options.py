"""The thresholds of the doctor. They are no options of a job: a job learns the same whatever they are."""

from __future__ import annotations

from typing import Any

from training.config import Group, option
from training.words import _


def _share(default: float, *, title: str, help: str) -> Any:
    return option(default, title=title, help=help, gt=0, le=1)


def _times(default: float, *, title: str, help: str) -> Any:
    return option(default, title=title, help=help, gt=1, le=1000)


class DoctorOptions(Group):
    """When an advisory is given. Shares go from 0 to 1."""

    window: int = option(
        5,
        title=_("Window"),
        help=_("Steps over which figures are averaged before they are judged."),
        unit=_("steps"),
        ge=2,
        le=20,
    )
    long_window: int = option(
        50,
        title=_("Long window"),
        help=_("Steps over which a condition must last where a few steps are no alarm."),
        unit=_("steps"),
        ge=10,
        le=64,
    )
    calm: int = option(
        10,
        title=_("Calm"),
        help=_("An advisory is over after so many steps without its cause."),
        unit=_("steps"),
        ge=1,
        le=1000,
    )
    no_spread_share: float = _share(
        0.85,
        title=_("Zero-variance groups"),
        help=_("Share of groups with equal rewards."),
    )
    no_spread_long: float = _share(
        0.5,
        title=_("Zero-variance groups for long"),
        help=_("The same share over the long window."),
    )
    part_share: float = _share(
        0.8,
        title=_("One part dominates the reward"),
        help=_("Share of the variance of all reward parts that a part about form has."),
    )
    wasted_share: float = _share(
        0.25,
        title=_("Share of time without signal"),
        help=_("Share of the run's time that went into rollouts which nothing is learned from."),
    )
    wasted_hours: float = option(
        1.0,
        title=_("Hours without signal"),
        help=_("Less time than this is not reported."),
        unit=_("hours"),
        gt=0,
        le=10_000,
    )
    phantom_share: float = _share(
        0.6,
        title=_("Phantom groups"),
        help=_("Share of groups whose rewards differ although all outcomes are the same."),
    )
    inverted_share: float = _share(
        0.1,
        title=_("Inverted groups"),
        help=_("Share of the groups with mixed outcomes in which an unsolved rollout earns the most."),
    )
    reward_gain: float = option(
        0.5,
        title=_("Rise of the reward"),
        help=_("Rise of the reward, in standard deviations within groups, from which success is compared with it."),
        gt=0,
        le=10,
    )
    success_gain: float = option(
        0.02, title=_("Rise of success"), help=_("A rise of success that counts as one."), ge=0, le=1
    )
    collapse_share: float = _share(
        0.5,
        title=_("Collapse"),
        help=_("Share of its best level that success, or the reward, has lost."),
    )
    entropy_ratio: float = _share(
        0.3,
        title=_("Fall of the entropy"),
        help=_("Remaining share of the entropy of 10 steps before."),
    )
    entropy_floor: float = _share(
        0.1,
        title=_("Remaining entropy"),
        help=_("Remaining share of the entropy of the run's first tenth."),
    )
    kl_ratio: float = _times(
        10.0,
        title=_("KL spike"),
        help=_("How many times the KL divergence of the steps before."),
    )
    kl_floor: float = option(
        0.1,
        title=_("Least KL of a spike"),
        help=_("Below it a KL divergence is no spike."),
        unit=_("nats"),
        gt=0,
        le=100,
    )
    kl_ceiling: float = option(
        1.0,
        title=_("Highest KL"),
        help=_("Mean KL divergence from the reference model that is too far, however slowly it was reached."),
        unit=_("nats"),
        gt=0,
        le=1000,
    )
    gradient_ratio: float = _times(
        10.0,
        title=_("Gradient spike"),
        help=_("How many times the gradient norm of the steps before."),
    )
    clip_share: float = _share(
        0.3,
        title=_("Clipped tokens"),
        help=_("Share of tokens that were clipped."),
    )
    length_ratio: float = _times(
        2.0,
        title=_("Growth of the length"),
        help=_("How many times the length of 10 steps before."),
    )
    length_drift: float = _times(
        2.5,
        title=_("Growth of the length since the beginning"),
        help=_("How many times the length of the run's first tenth, while success has not risen."),
    )
    truncated_share: float = _share(
        0.5,
        title=_("Truncated rollouts"),
        help=_("Share of rollouts that a limit cut off."),
    )
    truncated_long: float = _share(
        0.2,
        title=_("Truncated rollouts for long"),
        help=_("The same share over the long window."),
    )
    truncated_rise: float = _share(
        0.3,
        title=_("Rise of truncation"),
        help=_("How much the share rose within 10 steps, or since the run's first tenth."),
    )
    repetition: float = _share(
        0.5,
        title=_("Repetition"),
        help=_("A rollout repeats itself from this share of repeated 4-grams on."),
    )
    repetition_share: float = _share(
        0.2,
        title=_("Repeating rollouts"),
        help=_("Share of rollouts that repeat themselves."),
    )
    loop_share: float = _share(
        0.2,
        title=_("Looping rollouts"),
        help=_("Share of rollouts that make one call again and again, and do not solve the task."),
    )
    format_rise: float = _share(
        0.2,
        title=_("Rise of parse errors"),
        help=_(
            "How much the share of rollouts with calls that cannot be read rose within 10 steps, or since the run's "
            "first tenth."
        ),
    )
    tool_failure_share: float = _share(
        0.5,
        title=_("Failed tool calls"),
        help=_("Share of tool calls that were answered by an error."),
    )
    tool_failure_rise: float = _share(
        0.3,
        title=_("Rise of failed tool calls"),
        help=_("How much that share rose within 10 steps, or since the run's first tenth."),
    )
    judge_failure_share: float = _share(
        0.1,
        title=_("Failed judge requests"),
        help=_("Share of requests that no judge answered."),
    )
    excluded_share: float = _share(
        0.1,
        title=_("Excluded rollouts"),
        help=_("Share of rollouts that failed outside the policy."),
    )
    excluded_gap: float = _share(
        0.2,
        title=_("Harder tasks lost"),
        help=_("How much lower success is in the groups that lost rollouts than in the others."),
    )
    stall_ratio: float = _times(
        5.0,
        title=_("Stall"),
        help=_("How many times the usual duration of a step."),
    )
    slow_ratio: float = _times(
        2.0,
        title=_("Steps grow slow"),
        help=_("How many times the duration of the run's first tenth."),
    )
    stall_s: float = option(
        60.0, title=_("Shortest stall"), help=_("A shorter step is no stall."), unit=_("seconds"), gt=0, le=86_400
    )
    idle_share: float = _share(
        0.5,
        title=_("Idle device"),
        help=_("A device that works for a smaller share of the time is idle."),
    )
    gap_mean: float = option(
        0.05,
        title=_("Mean sampler gap"),
        help=_("Mean difference between the sampler's log-probabilities and the trainer's."),
        unit=_("nats"),
        gt=0,
        le=10,
    )
    gap_max: float = option(
        1.0,
        title=_("Largest sampler gap"),
        help=_("Largest difference between the sampler's log-probabilities and the trainer's in its check."),
        unit=_("nats"),
        gt=0,
        le=100,
    )
    no_effect_kl: float = option(
        1e-6,
        title=_("Least KL"),
        help=_("Weights that learn leave the reference model further than this within 10 steps."),
        unit=_("nats"),
        ge=0,
        le=1,
    )
