"""Drawing tasks by their own pass rate, and what a run remembers of its tasks for that."""

from __future__ import annotations

import hashlib
import heapq
import math
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from training.algorithms.job import Job
from training.config import DataConfig, JobConfig, RewardComponent
from training.data.identity import identity_of
from training.data.reader import load_rows
from training.data.schema import Row
from training.errors import ConfigError, DataError, TemplateError
from training.evaluation.figures import DRAWN_TASKS
from training.rewards.custom import refuse_custom
from training.rewards.scoring import components_of, form_components, require_one_meaning, validate_components
from training.rollout.figures import outcomes_of
from training.rollout.rewinding import mix_seed
from training.rollout.tokens import Template
from training.rollout.trajectory import Rollout

# Drawing tasks by their own pass rate: the arithmetic, without a trainer.
#
# 1. A rollout of a task has an *outcome* x from 0 to 1. What is known of a task is n, S = Σx and Q = Σx², and a prior
#    of m rollouts, half of them solved: N = n + m, S' = S + m/2, Q' = Q + m/2.
# 2. A task is worth drawing by L = (N·Q' − S'²) / (N·(N + 1)), the variance of an outcome that is expected after what
#    was seen. Outcomes of 0 and 1 make it the mean of p(1 − p) under Beta(m/2 + solved, m/2 + failed), which is αβ /
#    ((α + β)(α + β + 1)). For others it is the posterior mean of the variance under a Dirichlet process whose base is
#    that prior (Ferguson 1973), so that a task which always earns 0.5 is not worth more than one that always earns 1.
#    It is never 0.
# 3. Evidence fades: after h samplings a rollout counts half, n, S and Q alike.
# 4. The chance of a task is (1 − u)·L / ΣL + u / K, with K tasks and the share u that stays even. The tasks of a
#    sampling are different ones, drawn one after another by these chances without being put back (Efraimidis and
#    Spirakis 2006, *Weighted random sampling with a reservoir*): the largest log(r) / chance of uniform r. Where a
#    sampling wants more tasks than there are, all of them come before any comes again.
#
# p(1 − p) as what a task can teach: Foster et al. 2025, *Learning to Reason at the Frontier of Learnability*. The Beta
# posterior whose counts fade: Qu et al. 2025, *Can Prompt Difficulty be Online Predicted for Accelerating RL Finetuning
# of Reasoning Models?*; they draw from it at random, and here its mean is taken.

SOLVED, HOPELESS = 0.9, 0.1
"""A task whose expected outcome is at least, or at most, so much is believed solved, or hopeless."""


class Evidence(NamedTuple):
    """The evidence on a task: how many ``rollouts``, the ``total`` of their outcomes and of their ``squares``, each as
    it counted right after the ``sampling``-th sampling, from 1."""

    rollouts: float
    total: float
    squares: float
    sampling: int


NONE = Evidence(0.0, 0.0, 0.0, 0)


def faded(evidence: Evidence, sampling: int, half_life: int) -> Evidence:
    """The evidence as it counts after the ``sampling``-th sampling. ``half_life`` in samplings; 0 never fades."""
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


# What a run remembers of its tasks, and the tasks that it draws by it (``data.draw``: *pass_rate*).
#
# 1. Evidence of a sampling counts from the moment the trainer takes it. A sampling's tasks are drawn right before it
#    begins: the next one once the last was taken, and with ``rollout.max_staleness`` s, sampling k once k − s was. They
#    are noted as *planned* until they are taken.
# 2. A checkpoint holds the memory and what is planned as they were at its border, in ``tasks.json``. A run that
#    continues from there plays the planned tasks, and so draws what it would have drawn without the break.
# 3. Tasks are known by what they ask and expect (``training/data/identity.py``), so evidence outlives a change of
#    stage, another order of the rows and another spelling of them; rows that ask the same are counted apart, by their
#    order. A change of stage drops what is planned, and the range of the rewards, which are another stage's.
# 4. The tasks of a refill are those that were drawn after the sampling's own, by the same chances.
# 5. An outcome is the environment's verdict where a group has any, else the reward between the lowest and the highest
#    that the run has seen. Excluded rollouts are no evidence. Those of groups that gave their place to others are.

TASKS_NAME = "tasks.json"
_DRAWS = -2
"""Keeps the seeds of draws apart from those of refills and of rollouts."""


class Memory(BaseModel):
    """Evidence by task. ``samplings`` counts those that were taken, in all attempts and stages of the run; ``stage`` is
    the one that they were last taken in; ``low`` and ``high`` are of its rewards; ``planned`` has the tasks of steps
    that were begun."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    version: int = Field(1, ge=1, le=1)
    samplings: int = Field(0, ge=0)
    stage: str = ""
    low: float | None = None
    high: float | None = None
    tasks: dict[str, Evidence] = {}
    planned: dict[int, list[str]] = {}

    def write(self, folder: Path) -> None:
        """Put it into a checkpoint."""
        (folder / TASKS_NAME).write_text(self.model_dump_json(), encoding="utf-8")

    def copied(self) -> Memory:
        """As it is now; the evidence of one task never changes in place."""
        return self.model_copy(update={"tasks": dict(self.tasks), "planned": dict(self.planned)})


def read_memory(folder: Path) -> Memory | None:
    """The memory of a checkpoint; ``None`` where it holds nothing of this version."""
    try:
        return Memory.model_validate_json((folder / TASKS_NAME).read_bytes())
    except (OSError, ValidationError):
        return None


def keys_of(rows: Sequence[Row]) -> list[str]:
    """A name for each row that is the same in another order, spelling or version of the dataset."""
    seen: Counter[str] = Counter()
    found = []
    for row in rows:
        numbers = "/".join(map(str, identity_of(row)))
        name = hashlib.blake2b(numbers.encode(), digest_size=12).hexdigest()
        found.append(f"{name}.{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found


class Drawing:
    """Draws the tasks of each sampling, and learns how they went. Not thread-safe: the trainer's thread alone asks."""

    def __init__(
        self, options: DataConfig, rows: Sequence[Row], places: Sequence[int], seed: int, memory: Memory | None = None
    ) -> None:
        """``places`` of ``rows`` may be drawn. ``memory`` is that of the stage that continues (``entered``)."""
        self._options, self._seed = options, seed
        names = keys_of(rows)
        self._keys = {place: names[place] for place in places}
        self._places = {name: place for place, name in self._keys.items()}
        self.memory = memory or Memory()

    @property
    def known(self) -> int:
        """How many of the tasks there is evidence of."""
        return sum(name in self.memory.tasks for name in self._places)

    def tasks_of(self, step: int, count: int, spare: int = 0) -> list[int]:
        """The places of ``count`` tasks that are played for ``step``: drawn now, or when they were first asked for.
        ``spare`` more are drawn after them, for groups that give up their place (``spare_of``)."""
        memory, options = self.memory, self._options
        planned = memory.planned.get(step)
        if planned is None or len(planned) != count + spare or any(name not in self._places for name in planned):
            names = list(self._places)
            worths = [worth(self._evidence(name), options.draw_prior) for name in names]
            by, seed = chances(worths, options.draw_even_share), mix_seed(self._seed, step, _DRAWS)
            planned = [names[number] for number in drawn(by, count + spare, seed)]
            memory.planned[step] = planned
        return [self._places[name] for name in planned[:count]]

    def spare_of(self, step: int, count: int) -> list[int]:
        """The places that were drawn after the ``count`` tasks of a step, which was not taken yet."""
        return [self._places[name] for name in self.memory.planned[step][count:]]

    def took(self, step: int, played: Sequence[Rollout]) -> dict[str, float]:
        """The trainer has taken the sampling of ``step``, with all that was ``played`` for it. Returns the figures."""
        memory = self.memory
        memory.planned.pop(step, None)
        memory.samplings += 1
        groups: dict[int, list[Rollout]] = {}
        for rollout in played:
            groups.setdefault(rollout.row, []).append(rollout)
        new = sum(self._keys[place] not in memory.tasks for place in groups)
        self._widen(list(groups.values()))
        for place, members in groups.items():
            if found := self._outcomes(members):
                name = self._keys[place]
                before = memory.tasks.get(name, NONE)
                memory.tasks[name] = added(before, found, memory.samplings, self._options.draw_half_life)
        return self._figures(new / len(groups) if groups else None)

    def _figures(self, new: float | None) -> dict[str, float]:
        means = [expected(self._evidence(name), self._options.draw_prior) for name in self._places]
        figures = {
            "tasks/drawn_distinct": float(self.known),
            "tasks/solved_share": sum(mean >= SOLVED for mean in means) / len(means),
            "tasks/hopeless_share": sum(mean <= HOPELESS for mean in means) / len(means),
        }
        return figures if new is None else figures | {"tasks/new_share": new}

    def _evidence(self, name: str) -> Evidence:
        memory = self.memory
        found = memory.tasks.get(name)
        return NONE if found is None else faded(found, memory.samplings, self._options.draw_half_life)

    def _widen(self, groups: Sequence[Sequence[Rollout]]) -> None:
        """Take the rewards that serve as outcomes into the range of those that were seen."""
        memory = self.memory
        values = [value for members in groups if not outcomes_of(members) for value in _rewards(members)]
        known = [value for value in (memory.low, memory.high) if value is not None]
        if values:
            memory.low, memory.high = min([*values, *known]), max([*values, *known])

    def _outcomes(self, members: Sequence[Rollout]) -> list[float]:
        if verdicts := outcomes_of(members):
            return [scaled(verdict, 0.0, 1.0) for verdict in verdicts]
        memory = self.memory
        if memory.low is None or memory.high is None:
            return []
        return [scaled(value, memory.low, memory.high) for value in _rewards(members)]


def entered(memory: Memory | None, stage: str) -> Memory | None:
    """A checkpoint's memory where its run continues in ``stage``, which may be another one."""
    if memory is None or memory.stage == stage:
        return memory
    return memory.model_copy(update={"stage": stage, "low": None, "high": None, "planned": {}})


def _rewards(members: Sequence[Rollout]) -> list[float]:
    return [rollout.reward for rollout in members if rollout.parts is not None and rollout.reward is not None]
