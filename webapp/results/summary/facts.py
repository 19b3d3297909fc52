"""The most important figures of an ended run: first and last means, the best step, held-out success, the cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from training.config import JobConfig
from training.metrics import METRICS
from training.shares import share_interval
from webapp.common.text import duration, figure, percent, translated
from webapp.launch.learned import Overlap, overlap_of_held_out
from webapp.results.model_pages.scores import Score
from webapp.runs.config import config_of
from webapp.runs.metrics.selectors import Ends, Spent, Taken, taken
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint

SUCCESS, REWARD, LENGTH, EXCLUDED = "rollouts/task_success", "reward", "completions/mean_length", "excluded_share"
FOLLOWED = {
    "rollouts": (SUCCESS, REWARD),
    "preferences": ("rewards/accuracies", "loss"),
    "demonstrations": ("heldout/loss", "mean_token_accuracy", "loss"),
}
"""The followed figures, from the first steps to the last, by what a method learns from; the main one first."""
SPENT = (LENGTH, f"rollouts/{EXCLUDED}", "judge/requests", "judge/cost")
SHOWN = {"figure": figure, "percent": percent, "duration": duration}


class Gain(NamedTuple):
    """The change of a figure: means of the first and of the last ``steps`` of the ``of`` steps that have it. ``before``
    is ``None`` where only one step has it."""

    name: str
    title: str
    before: float | None
    after: float
    steps: int
    of: int

    @property
    def texts(self) -> tuple[str, str]:
        """Both means as a page shows them."""
        shown = SHOWN[METRICS[self.name].form]
        return shown(self.before), shown(self.after)


class Best(NamedTuple):
    """The best step: by success on held-out tasks, else by the mean of success (of the reward where the tasks have no
    verdict) over ``window`` steps that it ends, the highest of ``of`` such means. ``checkpoint`` is the whole one
    nearest to it. ``tries``: the rollouts, or the held-out tasks, that a success is the share of, with its 95%
    interval; 0 and ``None`` where that is not known."""

    step: int
    value: float
    metric: str
    window: int
    checkpoint: Checkpoint | None
    of: int = 1
    tries: int = 0
    low: float | None = None
    high: float | None = None

    @property
    def kept(self) -> bool:
        """Whether the checkpoint was saved within the window that the figure is the mean of."""
        found = self.checkpoint
        return found is not None and self.step - self.window < found.step <= self.step

    @property
    def held_out(self) -> bool:
        """Whether it was chosen by held-out tasks."""
        return self.metric == "heldout/success"

    @property
    def text(self) -> str:
        """Its value as a page writes it."""
        return SHOWN[METRICS[self.metric].form](self.value)


class HeldOut(NamedTuple):
    """Success on tasks that were not learned from, with its interval over ``tasks``: of the run's evaluation after
    ``step``, or of another run that evaluated its model. ``overlap`` says how many of them were learned from after
    all, by the run or by those that it began with."""

    success: float
    low: float | None
    high: float | None
    tasks: int
    step: int | None = None
    run: Run | None = None
    overlap: Overlap = Overlap()

    @property
    def trained_on(self) -> bool:
        """Whether any of these tasks was learned from after all."""
        return self.overlap.learned

    @property
    def texts(self) -> tuple[str, str, str]:
        """The value and the ends of its interval as a page writes them."""
        return percent(self.success), percent(self.low), percent(self.high)


class Cost(NamedTuple):
    """The cost of the run. ``tokens``: about how many the model sampled; ``None`` where they were not counted."""

    device: str
    device_seconds: float | None
    attempts: int
    tokens: float | None
    judge_requests: float | None
    judge_cost: float | None


def taken_by(run: Run) -> Taken:
    """The followed figures of a run that trains, in their order, and the cost of any run."""
    names = FOLLOWED.get(run.method.learns_from, ())
    found = taken(run, names, SPENT)
    return found._replace(ends={name: found.ends[name] for name in names if name in found.ends})


def gains_of(ways: dict[str, Ends]) -> list[Gain]:
    """The followed figures as a page shows them."""
    return [
        Gain(
            name, translated(METRICS[name].title), way.before if way.total > 1 else None, way.after, way.part, way.total
        )
        for name, way in ways.items()
    ]


def best_of(run: Run, ways: dict[str, Ends], checkpoints: Sequence[Checkpoint]) -> Best | None:
    """The best step of a run that learns from rollouts, and the checkpoint that has its weights, or nearly."""
    found: dict[str, Any] | None = (run.health.get("held_out") or {}).get("best")
    if found is not None:
        tasks = (run.health.get("held_out") or {}).get("tasks") or 0
        return Best(
            found["step"], found["success"], "heldout/success", 1, nearest(checkpoints, found["step"]),
            tries=tasks, low=found.get("low"), high=found.get("high"),
        )  # fmt: skip
    name = next((name for name in (SUCCESS, REWARD) if name in ways), None)
    if name is None or run.method.learns_from != "rollouts":
        return None
    way = ways[name]
    best = Best(
        way.best_step, way.best, name, way.window, nearest(checkpoints, way.best_step), way.total - way.window + 1
    )
    tries = way.window * rollouts_of_step(run) if name == SUCCESS else 0
    if not tries:
        return best
    low, high = share_interval(min(tries, round(way.best * tries)), tries)
    return best._replace(tries=tries, low=low, high=high)


def rollouts_of_step(run: Run) -> int:
    """The rollouts that each step's figures are of; 0 where that is not known, or stages differ in it."""
    config = config_of(run)
    sizes = {course.rollouts_per_step for course in config.courses} if config is not None else set()
    return sizes.pop() if len(sizes) == 1 and not run.imported_from else 0


def nearest(checkpoints: Sequence[Checkpoint], step: int) -> Checkpoint | None:
    """Of whole checkpoints the nearest to a step: of equally near ones the finished model, then the later."""
    return min(checkpoints, key=lambda item: (abs(item.step - step), not item.final, -item.step), default=None)


def held_out_of(run: Run, score: Score | None) -> HeldOut | None:
    """The run's own evaluation of its best step, else what another run found of its model; ``None``: it was not
    evaluated."""
    known = run.health.get("held_out") or {}
    own = known.get("best") or known.get("newest")
    if own is not None:
        return HeldOut(
            own["success"], own["low"], own["high"], known.get("tasks") or 0, step=own["step"],
            overlap=overlap_of_held_out(run),
        )  # fmt: skip
    found = score.report.figures.get("success") if score is not None else None
    if score is None or found is None or found.value is None:
        return None
    return HeldOut(
        found.value, found.low, found.high, found.tasks, run=score.run, overlap=score.overlap
    )  # fmt: skip


def cost_of(run: Run, spent: Spent) -> Cost:
    """The cost of the run, as far as it was counted."""
    config = config_of(run)

    def total(name: str) -> float | None:
        return spent.sums[name][0] if name in spent.sums else None

    seconds = None if run.imported_from else spent.device_seconds  # files of other trainers do not have it
    return Cost(
        spent.device, seconds, run.attempt, _tokens_sampled(spent, config), total("judge/requests"),
        total("judge/cost"),
    )  # fmt: skip


def _tokens_sampled(spent: Spent, config: JobConfig | None) -> float | None:
    """Mean length × rollouts of a step, less those that were excluded; ``None`` where stages have steps of different
    sizes."""
    sizes = {course.rollouts_per_step for course in config.courses} if config is not None else set()
    if LENGTH not in spent.sums or len(sizes) != 1:
        return None
    lost, steps = spent.sums.get(f"rollouts/{EXCLUDED}", (0.0, 1))
    return spent.sums[LENGTH][0] * sizes.pop() * (1 - lost / steps)
