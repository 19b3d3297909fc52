"""A healthy run made of facts, and one fault of each kind that begins at a step of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from training.doctor.digest import RolloutFact, StepFacts
from training.lanes import DeviceUse

BEGIN = 30
STEPS = 60
GROUPS, SIZE = 8, 4
Fault = Callable[[StepFacts], StepFacts]


def healthy_step(step: int, draw: random.Random) -> StepFacts:
    """Success climbs from 0.3 to 0.6; every figure wavers by a tenth or so."""

    def about(value: float, share: float = 0.1) -> float:
        return value * (1 + draw.uniform(-share, share))

    chance = 0.3 + 0.3 * step / STEPS
    rollouts = []
    for group in range(GROUPS):
        lucky = draw.randrange(SIZE)  # most groups have both outcomes
        for index in range(SIZE):
            success = float(draw.random() < chance or index == lucky)
            rollouts.append(
                RolloutFact(
                    name=f"s{step}-g{group}-i{index}",
                    group=group,
                    reward=0.6 * success + draw.uniform(0.1, 0.3),
                    success=success,
                    tokens=draw.randrange(40, 80),
                    turns=2,
                    seconds=draw.uniform(1, 2),
                    parse_errors=int(draw.random() < 0.05),
                    calls=2,
                    failed_calls=int(draw.random() < 0.1),
                    repetition=draw.uniform(0, 0.1),
                    loops=False,
                )
            )
    metrics = {
        "reward": sum(each.reward or 0 for each in rollouts) / len(rollouts),
        "reward_std": about(0.25),
        "rollouts/task_success": sum(each.success or 0 for each in rollouts) / len(rollouts),
        "groups/zero_variance_share": 0.125 * draw.randrange(3),
        "rollouts/truncated_share": about(0.05),
        "rollouts/excluded_share": 0.0,
        "kl": about(0.0005 * step),
        "entropy": about(0.6 - 0.003 * step),
        "grad_norm": about(0.4, 0.4),
        "learning_rate": 1e-5,
        "clip_ratio/region_mean": about(0.02),
        "completions/mean_length": about(60 + 0.3 * step),
        "judge/requests": 32.0,
        "judge/failures": float(draw.random() < 0.2),
        "sampling/logprob_gap_max": about(1e-4),
        "sampling/sampling_logp_difference/mean": about(1e-3),
        "timing/step": about(20, 0.3),
        "value/explained_variance": 0.5,
        "rollouts/calls_mean": 2.0,
        "advantages/zero_share": 0.1,
        "completions/repeated_share": 0.05,
    }
    if step % 2 == 0:
        metrics["heldout/success"] = min(1.0, about(chance, 0.05))
    return StepFacts(step, metrics, tuple(rollouts))


def healthy(seed: int = 1, steps: int = STEPS) -> Iterator[StepFacts]:
    draw = random.Random(seed)
    return (healthy_step(step, draw) for step in range(1, steps + 1))


def planted(fault: Fault, seed: int = 1, begin: int = BEGIN) -> Iterator[StepFacts]:
    """The healthy run until ``begin``, from which on each step has the fault."""
    return (facts if facts.step < begin else fault(facts) for facts in healthy(seed))


def curve(name: str, value: Callable[[StepFacts], float]) -> Fault:
    return lambda facts: replace(facts, metrics={**facts.metrics, name: value(facts)})


def each(change: Callable[[RolloutFact], RolloutFact]) -> Fault:
    return lambda facts: replace(facts, rollouts=tuple(change(one) for one in facts.rollouts))


def _index(one: RolloutFact) -> int:
    return int(one.name.rsplit("i", 1)[1])


def _hard_tasks_lost(facts: StepFacts) -> StepFacts:
    """Of two groups a rollout is lost, and what is left of them fails."""

    def change(one: RolloutFact) -> RolloutFact:
        if one.group > 1:
            return replace(one, success=1.0 if _index(one) else 0.0)
        return replace(one, excluded=True, reward=None, success=None) if not _index(one) else replace(one, success=0.0)

    return each(change)(facts)


def _paid_for_form(facts: StepFacts) -> StepFacts:
    """Rewards rise by a fiftieth each step; success on held-out tasks stays where it was."""
    gone = facts.step - BEGIN
    metrics = {**facts.metrics, "reward": facts.metrics["reward"] + 0.05 * gone}
    if "heldout/success" in metrics:
        metrics["heldout/success"] = 0.44
    return replace(facts, metrics=metrics)


def _destroyed(facts: StepFacts) -> StepFacts:
    """What a learning rate of 1 leaves: every rollout says one token until it is cut off."""
    metrics = {"grad_norm": 0.0, "entropy": 0.0, "groups/zero_variance_share": 1.0, "rollouts/truncated_share": 1.0}
    return replace(facts, metrics={**facts.metrics, **metrics})


def _waiting_device(facts: StepFacts) -> StepFacts:
    """A device that waits for environments most of the time."""
    spent = {"generation": 3.0, "environment": 14.0, "training": 3.0}
    return replace(facts, devices=[DeviceUse("node", "0", 20.0, None, spent)])


FAULTS: dict[str, Fault] = {
    "device_idle": _waiting_device,
    "no_spread": curve("groups/zero_variance_share", lambda _: 0.9),
    "phantom_share": each(lambda one: replace(one, success=0.0 if one.group else one.success)),
    "shaping_above_outcome": each(
        lambda one: replace(one, reward=1.0 if one.success == 0 and one.group < 6 else one.reward)
    ),
    "over_optimisation": _paid_for_form,
    "collapse": curve("rollouts/task_success", lambda _: 0.1),
    "entropy_fall": curve("entropy", lambda facts: 0.5 * 0.6 ** (facts.step - BEGIN)),
    "no_effect": curve("learning_rate", lambda _: 0.0),
    "kl_spike": curve("kl", lambda facts: 3.0 if facts.step == BEGIN + 1 else 0.02),
    "gradient_spike": curve("grad_norm", lambda facts: 40.0 if facts.step == BEGIN + 2 else 0.4),
    "no_gradient": _destroyed,
    "clip_share": curve("clip_ratio/region_mean", lambda _: 0.4),
    "logprob_gap": curve("sampling/sampling_logp_difference/mean", lambda _: 0.2),
    "length_explosion": curve("completions/mean_length", lambda facts: 70 * 1.2 ** (facts.step - BEGIN)),
    "truncation": curve("rollouts/truncated_share", lambda _: 0.6),
    "repetition": each(lambda one: replace(one, repetition=0.8 if _index(one) < 2 else one.repetition)),
    "looping": each(lambda one: replace(one, loops=True, success=0.0 if _index(one) < 2 else one.success)),
    "format_decay": each(lambda one: replace(one, parse_errors=int(_index(one) < 2))),
    "tool_failures": each(lambda one: replace(one, failed_calls=1 if _index(one) else 2)),
    "judge_failures": curve("judge/failures", lambda _: 16.0),
    "excluded_share": curve("rollouts/excluded_share", lambda _: 0.2),
    "excluded_bias": _hard_tasks_lost,
    "zero_advantages": curve("advantages/zero_share", lambda _: 0.9),
    "no_calls": curve("rollouts/calls_mean", lambda _: 0.0),
    "kl_drift": curve("kl", lambda _: 1.2),
    "critic_blind": curve("value/explained_variance", lambda _: -0.1),
    "repeated_text": curve("completions/repeated_share", lambda _: 0.3),
    "stall": curve("timing/step", lambda facts: 400.0 if facts.step == BEGIN + 3 else 20.0),
}
OTHER_WAYS: dict[str, list[Fault]] = {
    "no_effect": [
        curve("grad_norm", lambda _: 0.0),
        curve("kl", lambda _: 1e-9),
    ],
    "entropy_fall": [curve("entropy", lambda _: 0.04)],
    "truncation": [curve("rollouts/truncated_share", lambda _: 0.4)],
    "tool_failures": [each(lambda one: replace(one, failed_calls=int(_index(one) < 3) if one.group < 5 else 1))],
    "logprob_gap": [curve("sampling/logprob_gap_max", lambda _: 1.5)],
}
"""A fault that its rule finds by another of its halves."""
