"""One step as a few numbers: what is kept of it, however many rollouts it had."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from training.doctor.options import DoctorOptions
from training.lanes import DeviceUse, worked

# --- Facts ----------------------------------------------------------------------------------------------------------
# What the doctor gets of one step: its figures, and a few facts of each rollout.

NGRAM = 4
MIN_NGRAMS = 16
MAX_CHARS = 20_000
_WORD = re.compile(r"[\u3400-\u9fff]|\w+|[^\w\s]")


@dataclass(frozen=True)
class RolloutFact:
    """One rollout. What was not counted is ``None``.

    ``success`` is what judges the task itself, 0 to 1 and solved from 1. ``repetition`` is the share of its word
    4-grams that occurred before in the same text; ``loops``: most of its calls are one and the same.
    """

    name: str
    group: int
    reward: float | None = None
    success: float | None = None
    tokens: int = 0
    turns: int = 0
    seconds: float = 0.0
    truncated: bool = False
    excluded: bool = False
    parse_errors: int = 0
    calls: int | None = None
    failed_calls: int | None = None
    repetition: float | None = None
    loops: bool | None = None

    @property
    def counts(self) -> bool:
        """Whether something is learned from it."""
        return not self.excluded and self.reward is not None and math.isfinite(self.reward)


@dataclass(frozen=True)
class StepFacts:
    """One finished step. Figures that are not finite say nothing. A new ``stage`` has new tasks: nothing before it
    is compared with what follows. ``devices`` are what each device did; the times of an ``unusual`` step, the first of
    an attempt or one that was held, say nothing about others."""

    step: int
    metrics: Mapping[str, float]
    rollouts: Sequence[RolloutFact] = field(default_factory=tuple)
    stage: int = 1
    devices: Sequence[DeviceUse] = ()
    unusual: bool = False


def repetition(text: str) -> float | None:
    """The share of word 4-grams that the text had before (0 to 1); ``None`` where it has fewer than 16."""
    words = _WORD.findall(text[:MAX_CHARS])
    seen = Counter(tuple(words[place : place + NGRAM]) for place in range(len(words) - NGRAM + 1))
    total = seen.total()
    return None if total < MIN_NGRAMS else 1 - len(seen) / total


EVIDENCE = 3
EQUAL = 1e-6
SOLVED = 1 - 1e-9
KEPT = (
    "reward",
    "reward_std",
    "kl",
    "entropy",
    "grad_norm",
    "learning_rate",
    "clip_ratio/region_mean",
    "completions/mean_length",
    "completions/repeated_share",
    "rollouts/task_success",
    "rollouts/truncated_share",
    "rollouts/excluded_share",
    "rollouts/calls_mean",
    "groups/zero_variance_share",
    "advantages/zero_share",
    "heldout/success",
    "value/explained_variance",
    "judge/requests",
    "judge/failures",
    "sampling/logprob_gap_max",
    "sampling/sampling_logp_difference/mean",
    "timing/step",
)
"""The metrics that a detector looks at, besides the parts of the reward."""
PARTS = "rewards/"
PART_MEAN = re.compile(r"rewards/([^/]+)/mean")
PART = re.compile(rf"{PART_MEAN.pattern}|rewards/[^/]+/std")
MOST_PARTS, MOST_DEVICES = 32, 64
SHARES = {
    "tool_failure_share": ("failed_calls", "calls"),
    "unread_share": ("unread", "kept"),
}
"""Shares of our own counts that are followed over the whole run."""


@dataclass(frozen=True)
class Digest:
    """``figures`` by name: metrics as they are, and our own counts of rollouts and groups without a slash.

    ``witnesses``: up to three rollouts that show what a count is about. ``devices``: those that worked least.
    """

    step: int
    figures: dict[str, float]
    witnesses: dict[str, list[str]] = field(default_factory=dict)
    devices: list[DeviceUse] = field(default_factory=list)


def digest_of(facts: StepFacts, options: DoctorOptions) -> Digest:
    """The digest of a step."""
    parts = [name for name in sorted(facts.metrics) if PART.fullmatch(name)][:MOST_PARTS]
    found = {name: facts.metrics[name] for name in (*KEPT, *parts) if name in facts.metrics}
    digest = Digest(facts.step, {name: value for name, value in found.items() if math.isfinite(value)})
    if facts.rollouts:
        _rollouts(digest, facts.rollouts, options)
        _groups(digest, facts.rollouts)
    if facts.devices and facts.unusual:
        digest.figures["devices_left_out"] = 1
    elif facts.devices:
        digest.devices.extend(sorted(facts.devices, key=_work)[:MOST_DEVICES])
    return digest


def _work(use: DeviceUse) -> float:
    found = worked([use])
    return 1.0 if found is None else found.share


def _rollouts(digest: Digest, rollouts: Sequence[RolloutFact], options: DoctorOptions) -> None:
    kept = [rollout for rollout in rollouts if rollout.counts]
    digest.figures.update({"rollouts": len(rollouts), "kept": len(kept)})
    _count(digest, "excluded", rollouts, lambda it: it.excluded)
    _count(digest, "truncated", kept, lambda it: it.truncated)
    _count(digest, "unread", kept, lambda it: it.parse_errors > 0)
    texts = [rollout for rollout in kept if rollout.repetition is not None]
    digest.figures["texts"] = len(texts)
    _count(digest, "repeating", texts, lambda it: (it.repetition or 0.0) >= options.repetition)
    acting = [rollout for rollout in kept if rollout.loops is not None]
    digest.figures["acting"] = len(acting)
    _count(digest, "looping", acting, lambda it: bool(it.loops) and not solved(it))
    counted = [rollout for rollout in rollouts if rollout.calls is not None and rollout.failed_calls is not None]
    digest.figures["calls"] = sum(rollout.calls or 0 for rollout in counted)
    digest.figures["failed_calls"] = sum(rollout.failed_calls or 0 for rollout in counted)
    _witness(digest, "failed_calls", (rollout for rollout in counted if rollout.failed_calls))
    _witness(digest, "longest", sorted(kept, key=lambda it: -it.tokens))
    _witness(digest, "slowest", sorted(rollouts, key=lambda it: -it.seconds))
    judged = [rollout.success for rollout in kept if rollout.success is not None]
    if judged:
        digest.figures["success"] = sum(judged) / len(judged)
        _witness(digest, "paid", sorted((it for it in kept if not solved(it)), key=lambda it: -(it.reward or 0.0)))
        _witness(digest, "failed", (it for it in kept if not solved(it)))


def _groups(digest: Digest, rollouts: Sequence[RolloutFact]) -> None:
    members: dict[int, list[RolloutFact]] = {}
    for rollout in rollouts:
        members.setdefault(rollout.group, []).append(rollout)
    counts = dict.fromkeys(("groups", "flat", "phantom", "mixed", "inverted"), 0)
    lost: list[float] = []
    whole: list[float] = []
    for group in members.values():
        kept = [rollout for rollout in group if rollout.counts]
        (lost if len(kept) < len(group) else whole).extend(it.success for it in kept if it.success is not None)
        if len(kept) >= 2:
            counts["groups"] += 1
            kind = kind_of(kept)
            for name in kind:
                counts[name] += 1
                _witness(digest, name, kept if name != "inverted" else _best_first(kept))
    digest.figures.update(counts)
    for name, values in (("lost", lost), ("whole", whole)):
        digest.figures.update({f"{name}_tries": len(values), f"{name}_solved": sum(values)})


def kind_of(group: Sequence[RolloutFact]) -> list[str]:
    """What a group of at least two rollouts with rewards is.

    ``flat``: equal rewards. ``phantom``: rewards differ although all outcomes are the same. ``mixed``: outcomes differ,
    and then ``inverted``: one with a worse outcome has the highest reward.
    """
    rewards = [rollout.reward or 0.0 for rollout in group]
    outcomes = [rollout.success for rollout in group if rollout.success is not None]
    flat = max(rewards) - min(rewards) <= EQUAL
    if flat or len(outcomes) < len(group):
        return ["flat"] if flat else []
    best = max(outcomes)
    if best - min(outcomes) <= EQUAL:
        return ["phantom"]
    top = max(reward for reward, outcome in zip(rewards, outcomes, strict=True) if outcome >= best - EQUAL)
    return ["mixed", "inverted"] if max(rewards) > top + EQUAL else ["mixed"]


def solved(rollout: RolloutFact) -> bool:
    """Whether the task is known to be solved."""
    return rollout.success is not None and rollout.success >= SOLVED


def _best_first(group: Sequence[RolloutFact]) -> list[RolloutFact]:
    return sorted(group, key=lambda it: -(it.reward or 0.0))


def _count(digest: Digest, name: str, rollouts: Iterable[RolloutFact], test: Callable[[RolloutFact], bool]) -> None:
    found = [rollout for rollout in rollouts if test(rollout)]
    digest.figures[name] = len(found)
    _witness(digest, name, found)


def _witness(digest: Digest, name: str, rollouts: Iterable[RolloutFact]) -> None:
    if name not in digest.witnesses:
        names = [rollout.name for _place, rollout in zip(range(EVIDENCE), rollouts, strict=False)]
        if names:
            digest.witnesses[name] = names
