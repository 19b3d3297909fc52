"""Drawing tasks by their own pass rate: the arithmetic, without a trainer.

1. A rollout of a task has an *outcome* x from 0 to 1. What is known of a task is n, S = Σx and Q = Σx², and a prior of
   m rollouts, half of them solved: N = n + m, S' = S + m/2, Q' = Q + m/2.
2. A task is worth drawing by L = (N·Q' − S'²) / (N·(N + 1)), the variance of an outcome that is expected after what was
   seen. Outcomes of 0 and 1 make it the mean of p(1 − p) under Beta(m/2 + solved, m/2 + failed), which is
   αβ / ((α + β)(α + β + 1)); for others it is the posterior mean of the variance under a Dirichlet process whose base
   is that prior (Ferguson 1973), so that a task which always earns 0.5 is not worth more than one that always earns 1.
   It is never 0.
3. Evidence fades: after h samplings a rollout counts half, n, S and Q alike.
4. The chance of a task is (1 − u)·L / ΣL + u / K, with K tasks and the share u that stays even. The tasks of a sampling
   are different ones, drawn one after another by these chances without being put back (Efraimidis and Spirakis 2006,
   *Weighted random sampling with a reservoir*): the largest log(r) / chance of uniform r. Where a sampling wants more
   tasks than there are, all of them come before any comes again.

p(1 − p) as what a task can teach: Foster et al. 2025, *Learning to Reason at the Frontier of Learnability*. The Beta
posterior whose counts fade: Qu et al. 2025, *Can Prompt Difficulty be Online Predicted for Accelerating RL Finetuning
of Reasoning Models?*; they draw from it at random, and here its mean is taken.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from training.algorithms.job import Job
from training.config import JobConfig, RewardComponent
from training.data.reader import load_rows
from training.data.schema import Row
from training.errors import ConfigError, DataError, TemplateError
from training.evaluation.suites import DRAWN_TASKS
from training.rewards.custom import refuse_custom
from training.rewards.registry import components_of, form_components, require_one_meaning
from training.rewards.scoring import validate_components
from training.rollout.tokens import Template

SOLVED, HOPELESS = 0.9, 0.1
"""A task whose expected outcome is at least, or at most, so much is believed solved, or hopeless."""


class Evidence(NamedTuple):
    """What is known of a task: how many ``rollouts``, the ``total`` of their outcomes and of their ``squares``, each as
    it counted right after the ``sampling``-th sampling, from 1."""

    rollouts: float
    total: float
    squares: float
    sampling: int


NONE = Evidence(0.0, 0.0, 0.0, 0)


def faded(evidence: Evidence, sampling: int, half_life: int) -> Evidence:
    """What the evidence counts after the ``sampling``-th sampling. ``half_life`` in samplings; 0 never fades."""
    kept = 0.5 ** ((sampling - evidence.sampling) / half_life) if half_life else 1.0
    return Evidence(evidence.rollouts * kept, evidence.total * kept, evidence.squares * kept, sampling)


def added(evidence: Evidence, outcomes: Sequence[float], sampling: int, half_life: int) -> Evidence:
    """The evidence with the outcomes, each from 0 to 1, of rollouts of the ``sampling``-th sampling."""
    before = faded(evidence, sampling, half_life)
    squares = sum(outcome * outcome for outcome in outcomes)
    return Evidence(before.rollouts + len(outcomes), before.total + sum(outcomes), before.squares + squares, sampling)


def expected(evidence: Evidence, prior: float) -> float:
    """The outcome that is expected of a task, from 0 to 1. ``prior`` in rollouts, above 0."""
    return (evidence.total + prior / 2) / (evidence.rollouts + prior)


def worth(evidence: Evidence, prior: float) -> float:
    """The variance that is expected of an outcome: above 0, at most 0.25."""
    count, total, squares = evidence.rollouts + prior, evidence.total + prior / 2, evidence.squares + prior / 2
    return (count * squares - total * total) / (count * (count + 1))


def scaled(value: float, low: float, high: float) -> float:
    """A reward as an outcome: 0 for the lowest, 1 for the highest; 0 where all are equal."""
    return min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.0


def chances(worths: Sequence[float], even_share: float) -> list[float]:
    """The chance of each task to be drawn first. They add up to 1."""
    total, even = sum(worths), even_share / len(worths)
    return [(1 - even_share) * each / total + even for each in worths]


def drawn(by: Sequence[float], count: int, seed: int) -> list[int]:
    """``count`` places of ``by``, the chances, in the order in which they are drawn: the same for the same seed."""
    rng = random.Random(seed)  # noqa: S311 - draws tasks
    found: list[int] = []
    while len(found) < count:
        keys = [math.log(1.0 - rng.random()) / chance for chance in by]  # 1 − r is never 0
        wanted = min(count - len(found), len(by))
        found += heapq.nlargest(wanted, range(len(by)), key=keys.__getitem__)
    return found


# --- Tasks ----------------------------------------------------------------------------------------------------------
# What is played and what it is scored by: the same for jobs that train on rollouts and for jobs that only sample.


def reward_components(config: JobConfig) -> list[RewardComponent]:
    """The configured components or the default ones. Raises ``ConfigError`` when one is unknown or wrong."""
    parts = config.courses if config.mix.parts else [config]
    for number, part in enumerate(parts):
        components = part.rewards.components or form_components()
        refuse_custom(components)
        if problems := validate_components(components):
            raise ConfigError(problems[0], option=f"{_below(config, number)}rewards.components")
    require_one_meaning(config)
    return components_of(parts)


def _below(config: JobConfig, number: int) -> str:
    return f"mix.parts.{number}." if config.mix.parts else ""


def task_rows(config: JobConfig) -> list[Row]:
    """The rows to play. Without a dataset a job that only samples gets empty ones: the environment draws its tasks."""
    if config.draws_tasks:
        drawn = config.evaluate.tasks or DRAWN_TASKS
        count = drawn if config.method.evaluates else config.rollout.prompts_per_step * config.run.max_steps
        return [Row(messages=[]) for _ in range(count)]
    if not config.data.train:
        raise ConfigError("a run needs a dataset.", option="data.train", hint="Set data.train to a JSONL file.")
    return load_rows(Path(config.data.train), config.data.max_rows)


def playable(job: Job, rows: list[Row], template: Template) -> list[int]:
    """Places of the rows that can be played; what is left out is logged. Raises ``DataError`` when none can."""
    kept = short_prompts(rows, template, job.config.rollout.max_prompt_tokens)
    if dropped := len(rows) - len(kept):
        job.log(f"{dropped} rows are left out: their prompts exceed rollout.max_prompt_tokens.", "warning")
    return kept


def short_prompts(rows: list[Row], template: Template, limit: int) -> list[int]:
    """Indices of the rows whose own prompt fits. Tools that come from the environment are counted at play.

    Raises ``DataError`` when none fits.
    """
    kept: list[int] = []
    for index, row in enumerate(rows):
        # A token is at least one byte of text, so short texts need not be tokenised to know that they fit.
        size = sum(len(message.content.encode()) + 32 for message in row.messages)
        try:
            fits = (size < limit and not row.tools) or len(template.prompt_ids(row.messages, row.tools)) <= limit
        except TemplateError:
            fits = False
        if fits:
            kept.append(index)
    if not kept:
        raise DataError("No row fits rollout.max_prompt_tokens.", hint="Raise the limit or shorten the rows.")
    return kept
