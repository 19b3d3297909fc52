"""The stages of a run, one after the other, and the parts of a mix, played next to each other."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from math import lcm
from pathlib import Path
from typing import Literal, NamedTuple

from training.algorithms.checkpoints import StageMark, stage_of
from training.algorithms.drawing import reward_components, task_rows
from training.algorithms.job import Job, checkpoint_step, row_order
from training.config import JobConfig, RewardComponent, Stage
from training.data.schema import Row
from training.errors import ConfigError, TiltyardError
from training.evaluation.figures import Report
from training.journal import StageStarted
from training.policy.engine import Engine
from training.rollout.players import Part, make_players
from training.rollout.scoring import Scorer
from training.rollout.tokens import ChatTemplate
from training.words import _, sentence

# The parts of a job: kinds of tasks that are played side by side, and how the groups of a run are dealt over them.
#
# 1. The rows of the parts follow each other; a row's place among all of them says which part it is of. A job
#    without a mix is one segment without a name.
# 2. Groups are dealt one after the other: after any number ``h`` of them a part of share ``w`` has had ``h × w``, give
#    or take less than one. So a sampling of few groups gives each part its share too, over the samplings.
# 3. Each part goes through its own tasks in the order in which a run of it alone would.
#
# Both follow from config and rows alone, so a run that continues finds its place.


class Segment(NamedTuple):
    """The rows from ``begin`` up to ``end`` (exclusive): those of one part of a mix, or all of a job without one.

    ``config`` is that of the part as a job by itself, ``components`` are what scores its rollouts. ``weight`` over the
    sum of all weights is its share of the groups.
    """

    name: str
    config: JobConfig
    components: list[RewardComponent]
    weight: float
    begin: int
    end: int

    def own(self, places: Iterable[int]) -> list[int]:
        """Those of the places that are this part's."""
        return [place for place in places if self.begin <= place < self.end]


def segments_of(
    config: JobConfig,
    rows_of: Callable[[JobConfig], list[Row]],
    scored_by: Callable[[JobConfig], list[RewardComponent]],
) -> tuple[list[Segment], list[Row]]:
    """The parts of a job and the rows of all of them, one part's after the other's."""
    if not config.mix.parts:
        rows = rows_of(config)
        return [Segment("", config, scored_by(config), 1.0, 0, len(rows))], rows
    found: list[Segment] = []
    rows = []
    for part, job in zip(config.mix.parts, config.courses, strict=True):
        own = rows_of(job)
        found.append(Segment(part.name, job, scored_by(job), part.weight, len(rows), len(rows) + len(own)))
        rows = [*rows, *own]
    return found, rows


@contextmanager
def named(part: str) -> Iterator[None]:
    """Whose data is wrong: a run that mixes several has to say it."""
    try:
        yield
    except TiltyardError as error:
        if part:
            error.message = sentence(_("Part {part}: {text}"), part=part, text=error.message)
        raise


def dealt(weights: Sequence[float], count: int) -> list[int]:
    """Which part each of ``count`` groups is of, so that every part has its share of any first ``h`` of them, give or
    take less than one group.

    The ``k``-th group of a part of share ``w`` comes after ``(k - 1) / w`` groups and at the latest as number
    ``k / w``, rounded up. Of the parts that may come, the one whose latest number is the lowest does (these are the
    windows of Baruah et al. 1996, *Proportionate progress*, where the earliest deadline first meets all of them). Parts
    of weight 0 get none. Counted in whole numbers, so that no rounding ever decides.
    """
    exact = [Fraction(str(weight)) for weight in weights]
    scale = lcm(*(weight.denominator for weight in exact))
    shares = [int(weight * scale) for weight in exact]
    whole, had, order = sum(shares), [0] * len(shares), []
    for number in range(1, count + 1):
        chosen = -1
        for part, share in enumerate(shares):
            if had[part] * whole < number * share and (
                chosen < 0 or (had[part] + 1) * shares[chosen] < (had[chosen] + 1) * share
            ):
                chosen = part
        had[chosen] += 1
        order.append(chosen)
    return order


def order_of(segments: Sequence[Segment], places: Sequence[int], count: int, seed: int) -> list[int]:
    """The places of ``count`` groups' rows in order; ``places`` are all that are played.

    Raises ``ConfigError`` where a part that has a share has no row to play.
    """
    parts = dealt([segment.weight for segment in segments], count)
    own = [segment.own(places) for segment in segments]
    for segment, found in zip(segments, own, strict=True):
        if segment.weight and not found:
            raise ConfigError(f"Part {segment.name} has no task to learn from.", option="mix.parts")
    orders = [
        iter(row_order(len(found), parts.count(number), seed=seed, shuffle=segment.config.data.shuffle))
        for number, (segment, found) in enumerate(zip(segments, own, strict=True))
    ]
    return [own[part][next(orders[part])] for part in parts]


def parts_of(
    segments: Sequence[Segment],
    played_as: Callable[[JobConfig], JobConfig],
    scorer_of: Callable[[list[RewardComponent]], Scorer],
    engine: Engine,
    template: ChatTemplate,
) -> tuple[Part, list[Part]]:
    """The first of a job's parts, and all of them; none where the job has no mix. ``played_as`` gives the config that a
    part is played with."""
    configs = [played_as(segment.config) for segment in segments]
    players = make_players(configs, engine, template)
    parts = [
        Part(segment.name, segment.begin, config, player, scorer_of(segment.components))
        for segment, config, player in zip(segments, configs, players, strict=True)
    ]
    return parts[0], parts if len(parts) > 1 else []


# The stages of a run: which one is trained, when it ends, and where a run that continues finds its own.
#
# 1. Each stage is trained by a trainer of its own, made with the stage's options. It continues from the checkpoint that
#    the stage before it left: the weights, the optimiser's moments, the place in the schedule and the random states. So
#    a change of stage and a resume are one thing, and a stage may change all that a trainer is made with.
# 2. A stage ends at a border of the sampling (``training/algorithms/saving.py``): at the first one from ``until_step``
#    on, or where a held-out figure was reached in so many evaluations in a row. The evaluation before the first step
#    does not count, and one without a figure changes nothing. A stage that ends always leaves a checkpoint.
# 3. A checkpoint says in its manifest which stage trained it, when that began, how many evaluations in a row reached
#    the figure, and whether it ended there. A run that continues reads it: the journal may be another run's.
# 4. A run whose config has changed since finds its stage by name; else, and where the checkpoint names none, by step.

Why = Literal["first", "resumed", "steps", "figure"]


class StageProgress:
    """What a job trains, one after the other, and what of it now: its stages, or the one course of a job without any.

    ``config`` is that of the whole job, ``checkpoint`` the one to continue from. ``job.config`` and ``job.stage`` are
    those of the stage that is trained now.
    """

    def __init__(self, job: Job, checkpoint: Path | None) -> None:
        """Enter the stage that the checkpoint leaves off in. Raises ``ConfigError`` and ``DataError`` for any stage."""
        self.job, self.config, self.checkpoint = job, job.config, checkpoint
        self._courses = job.config.courses
        self._rows: dict[tuple[str, int], list[Row]] = {}
        mixed = bool(self.config.mix.parts)
        for course in [self.config] if mixed else self._courses:
            reward_components(course)
        for name, course in self.config.named_courses.items():  # what is wrong with the last one is said at first
            with named(name if mixed else ""):
                self._rows_of(course)
        self.why: Why = "resumed" if checkpoint is not None else "first"
        if self.stages:
            step = checkpoint_step(checkpoint)
            self._enter(self._resumed_stage(step, stage_of(checkpoint) if checkpoint is not None else None))

    @property
    def stages(self) -> list[Stage]:
        """The stages; none where the job has but one course."""
        return self.config.stages

    def parts(self) -> tuple[list[Segment], list[Row]]:
        """What is trained now: the parts of a mix, or all of the stage or the job as one, and the rows of all of
        them."""
        return segments_of(self.job.config, self._rows_of, reward_components)

    @property
    def step(self) -> int:
        """The step after which the course is trained on."""
        return checkpoint_step(self.checkpoint)

    @property
    def last_step(self) -> int:
        """The last step that the course may have, whatever is evaluated."""
        last, mark = self.config.run.max_steps, self.job.stage
        return (self.stages[mark.number - 1].until_step or last) if mark is not None else last

    @property
    def all_rows(self) -> list[Row]:
        """The rows of every stage: a starter has to know all their words."""
        return [row for rows in self._rows.values() for row in rows]

    @property
    def other_rows(self) -> list[Row]:
        """The rows of the other stages' datasets."""
        own = _rows_key(self.job.config)
        return [row for place, rows in self._rows.items() if place != own for row in rows]

    def started(self, rows: int, device: str) -> None:
        """Announce what is trained now, on ``rows`` rows: the run if this is its first course, and the stage."""
        job, mark = self.job, self.job.stage
        if job.begun is None:
            job.started(rows, device, checkpoint_step(self.checkpoint))
        if mark is not None:
            job.journal.write(
                StageStarted(
                    stage=mark.number,
                    of=len(self.stages),
                    name=mark.name,
                    began=mark.began,
                    step=job.step,
                    rows=rows,
                    why=self.why,
                )
            )

    def enters_next(self) -> bool:
        """Whether another stage follows, which is entered then; where the run is over, logs what it left out."""
        job, mark = self.job, self.job.stage
        if mark is None:
            return False
        if not mark.ended:
            if left := self.stages[mark.number :]:
                names = ", ".join(stage.name for stage in left)
                job.log(f"The run ended in stage {mark.name}; not reached: {names}.", "warning")
            return False
        self.why = "figure" if mark.reached(self.stages[mark.number - 1].until) else "steps"
        self.checkpoint = job.run_dir / job.saved
        self._enter(self._next(mark.number, job.step))
        _free_memory()
        return True

    def _enter(self, mark: StageMark) -> None:
        self.job.stage, self.job.config = mark, self._courses[mark.number - 1]

    def _resumed_stage(self, step: int, mark: StageMark | None) -> StageMark:
        """The stage that continues after ``step`` of a checkpoint with this mark."""
        names = [stage.name for stage in self.stages]
        if mark is None or mark.name not in names:
            return self._next(0, step)
        number = names.index(mark.name) + 1
        if (mark.ended and number < len(names)) or self._is_past(number, step):
            return self._next(number, step)
        return mark.model_copy(update={"number": number, "ended": False})

    def _next(self, number: int, step: int) -> StageMark:
        """The stage after ``number`` that is not past at ``step``."""
        number += 1
        while self._is_past(number, step):
            number += 1
        return StageMark(number=number, name=self.stages[number - 1].name, began=step)

    def _is_past(self, number: int, step: int) -> bool:
        end = self.stages[number - 1].until_step
        return number < len(self.stages) and end is not None and step >= end

    def _rows_of(self, course: JobConfig) -> list[Row]:
        place = _rows_key(course)
        if place not in self._rows:
            self._rows[place] = task_rows(course)
        return self._rows[place]


def _rows_key(config: JobConfig) -> tuple[str, int]:
    return config.data.train, config.data.max_rows


class StageEnd:
    """Knows when the stage that a job trains now has ended; without stages, never."""

    def __init__(self, job: Job, stages: list[Stage]) -> None:
        self._mark, self._last_step = job.stage, job.config.run.max_steps
        self._stage = stages[self._mark.number - 1] if self._mark is not None else None

    def evaluated(self, report: Report) -> None:
        """Held-out tasks were played with the weights as they are."""
        goal = self._stage.until if self._stage is not None else None
        if self._mark is None or goal is None:
            return
        figure = report.figures.get(goal.figure)
        if figure is not None and figure.value is not None:
            self._mark.streak = self._mark.streak + 1 if figure.value >= goal.at_least else 0

    def reached(self, step: int) -> bool:
        """Whether the stage ends at ``step``, a border of the sampling; it is marked as ended then."""
        mark, stage = self._mark, self._stage
        if mark is None or stage is None or step >= self._last_step:
            return False
        mark.ended = mark.reached(stage.until) or (stage.until_step is not None and step >= stage.until_step)
        return mark.ended


def _free_memory() -> None:
    """Let go of the last trainer's weights before the next one's are loaded: both hold themselves in circles."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
