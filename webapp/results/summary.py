"""The summary of an ended run: its most important figures and what to try next, for the head of its page, the API and
the command line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.translation import gettext as _

from training.config import JobConfig
from training.evaluation import ALPHA, Z_ALPHA, share_interval
from training.metrics import METRICS
from webapp.common.text import duration, figure, percent, translated
from webapp.engine.services import GoingOn, whole_checkpoints
from webapp.launch.learned import Overlap, overlap_of_held_out
from webapp.results.lineage import Score
from webapp.results.views import RunModel, model_of_run
from webapp.runs.advisories.selectors import AdvisoryView, advisories_of
from webapp.runs.config import config_of
from webapp.runs.metrics.selectors import Ends, Spent, Taken, taken
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint
from webapp.runs.states import TERMINAL, RunState

# --- Figures --------------------------------------------------------------------------------------------------------
# The most important figures of an ended run: first and last means, the best step, held-out success, the cost.

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


# --- Advice ---------------------------------------------------------------------------------------------------------
# What to try next: plain rules over the doctor's open advisories and the run's own figures, each with one button.
#
# A rule says what was seen and opens a form or a page. It promises no result.

MOST = 4
SOLVED, HARDLY = 0.95, 0.02
"""Success at the end from which tasks are too easy, and up to which there is little to learn from."""
MOSTLY, SELDOM = 0.8, 0.2
RISE = 0.02
"""By how much the last tenth of the steps is above the one before it where success still rises."""
FALL = 0.1
"""By how much success at the end is below its best where going back is proposed."""
LAB = frozenset({"shaping_above_outcome", "over_optimisation"})
SLOWER = frozenset({"collapse", "no_gradient", "kl_spike", "gradient_spike", "clip_share", "entropy_fall"})


class Advice(NamedTuple):
    """One thing to try: why, and the button that begins it."""

    code: str
    sentence: str
    label: str
    url: str


@dataclass(frozen=True)
class Seen:
    """The facts that the rules read.

    ``clone`` and ``branch`` are the addresses of a new run with this one's options and of a child that continues it,
    ``evaluate`` that of an evaluation, ``model`` the name of the run's model in a config; empty where the reader may
    not, or nothing is there.
    """

    run: Run
    ways: dict[str, Ends]
    best: Best | None
    held_out: HeldOut | None
    advisories: Sequence[AdvisoryView]
    clone: str = ""
    branch: str = ""
    evaluate: str = ""
    model: str = ""

    @property
    def success(self) -> Ends | None:
        """Success over the run, where its tasks have verdicts."""
        return self.ways.get(SUCCESS)

    def page(self, name: str, **query: object) -> str:
        """A page of the run's project."""
        found = reverse(name, args=[self.run.project.slug])
        return f"{found}?{urlencode(query)}" if query else found


def advice_of(seen: Seen) -> list[Advice]:
    """Up to ``MOST`` things to try, those of advisories first; none twice, and none without a button."""
    found: dict[str, Advice] = {}
    for each in (*_advice_on_advisories(seen), *_advice_on_figures(seen)):
        if each.url and each.url not in {other.url for other in found.values()}:
            found.setdefault(each.code, each)
    return list(found.values())[:MOST]


def _advice_on_advisories(seen: Seen) -> Iterator[Advice]:
    for item in seen.advisories:
        made = _advice_for_advisory(seen, item)
        if made is not None:
            yield made


def _advice_for_advisory(seen: Seen, item: AdvisoryView) -> Advice | None:
    if item.code in LAB:
        url = seen.page("lab", run=seen.run.pk)
        why = _("The reward pays for something other than the outcome: try other weights on these rollouts.")
        return Advice("lab", why, _("Open in the lab"), url)
    if item.code == "no_spread":
        return _advice_on_zero_variance(seen)
    if item.code == "phantom_share" and seen.run.method.gradient != "ppo":
        why = _("Groups with equal outcomes teach only form: learn from groups with both outcomes only.")
        return Advice("outcome", why, _("Clone with this change"), _with_change(seen.clone, "outcome"))
    if item.code == "truncation":
        why = _("Rollouts were cut off: give a turn and an episode twice as many tokens.")
        return Advice("room", why, _("Clone with this change"), _with_change(seen.clone, "room"))
    if item.code in SLOWER and not (item.code == "entropy_fall" and _all_solved(seen)):
        return _slower_advice(seen, item)
    return None


def _advice_on_zero_variance(seen: Seen) -> Advice | None:
    """Advice for groups of zero variance: their tasks are too easy, too hard, or the variance is 0 by chance."""
    share = seen.success.after if seen.success else None
    if share is not None and share >= MOSTLY:
        return _harder_advice(seen, _("Zero-variance groups, most of them solved: harder tasks teach more."))
    if share is not None and share <= SELDOM:
        return _easier_advice(
            seen, _("Zero-variance groups, few of them solved: begin with easier tasks or a warm-up.")
        )
    why = _("Zero-variance groups teach nothing: draw other tasks for them.")
    return Advice("refill", why, _("Clone with this change"), _with_change(seen.clone, "refill"))


def _slower_advice(seen: Seen, item: AdvisoryView) -> Advice:
    why = _("%(title)s: try half the learning rate.") % {"title": item.title}
    if item.before is not None and seen.branch:
        url = f"{seen.branch}&{urlencode({'checkpoint': item.before.pk, 'change': 'slower'})}"
        return Advice("slower", why, _("Roll back to step %(step)s") % {"step": item.before.step}, url)
    return Advice("slower", why, _("Clone with this change"), _with_change(seen.clone, "slower"))


def _advice_on_figures(seen: Seen) -> Iterator[Advice]:
    yield from _advice_on_success(seen)
    yield from _advice_on_best_step(seen)
    if seen.run.method.learns_from in ("demonstrations", "preferences") and seen.model and seen.clone:
        why = _("Its model can begin a run that learns from rewarded rollouts.")
        yield Advice("train", why, _("Train from it"), seen.page("run-new", model=seen.model))
    if seen.ways and seen.run.method.learns_from == "rollouts" and (seen.held_out is None or seen.held_out.trained_on):
        yield from _advice_on_held_out(seen)
    if seen.success is not None and seen.success.after < SOLVED:
        last = max(1, seen.success.last - seen.success.part + 1)
        url = reverse("run-rollouts", args=[seen.run.project.slug, seen.run.pk])
        why = _("%(share)s of the last rollouts did not solve their task: read why.")
        query = f"{url}?outcome=failed&outcome=partly&step_from={last}"
        sentence = why % {"share": percent(round(1 - seen.success.after, 3))}
        yield Advice("failed", sentence, _("Why did these fail?"), query)


def _advice_on_success(seen: Seen) -> Iterator[Advice]:
    way = seen.success
    if way is None or way.total < 2:
        return
    if _all_solved(seen):
        why = _("%(share)s were solved at the end: harder tasks teach more.") % {"share": percent(way.after)}
        yield _harder_advice(seen, why)
    elif max(way.before, way.after) <= HARDLY:
        why = _("Hardly any task was solved, so there was little to learn from: begin with easier tasks or a warm-up.")
        yield _easier_advice(seen, why)
    elif seen.branch and _did_all_steps(seen.run):
        yield from _advice_on_rise(seen, way)


def _advice_on_rise(seen: Seen, way: Ends) -> Iterator[Advice]:
    """Advice if success still rises, by more than chance for this many rollouts; none where their number is unknown."""
    config = config_of(seen.run)
    tries = way.part * config.rollouts_per_step if config is not None else 0
    if way.late is None or not tries or way.after - way.late < max(RISE, _chance_gap(way.late, way.after, tries)):
        return
    why = _(
        "Success was still rising: %(late)s, then %(after)s in the last tenth of the steps (%(n)s rollouts each, "
        "95%%: ± %(chance)s)."
    )
    chance = percent(_chance_gap(way.late, way.after, tries))
    sentence = why % {"late": percent(way.late), "after": percent(way.after), "n": f"{tries:,}", "chance": chance}
    yield Advice("longer", sentence, _("Train on from its end"), seen.branch)


def _chance_gap(before: float, after: float, tries: int) -> float:
    """The largest difference by chance of two shares over ``tries`` rollouts, in 95% of cases (normal
    approximation)."""
    spread: float = sum(share * (1 - share) for share in (before, after)) / tries
    return Z_ALPHA * spread**0.5


def _advice_on_best_step(seen: Seen) -> Iterator[Advice]:
    """Advice where the end is worse than the best step, and the best step's checkpoint is there."""
    best, way = seen.best, seen.success or seen.ways.get(REWARD)
    if best is None or way is None or best.held_out or best.checkpoint is None or best.checkpoint.final:
        return
    worse = best.value - way.after >= FALL if seen.success else way.after < way.before < best.value
    if worse and seen.branch and not (seen.success and _by_chance(best, way)):
        shown = percent if seen.success else figure
        why = _("The end is worse than step %(step)s: %(best)s, then %(after)s. Go back, with half the learning rate.")
        sentence = why % {"step": best.step, "best": shown(best.value), "after": shown(way.after)}
        url = f"{seen.branch}&{urlencode({'checkpoint': best.checkpoint.pk, 'change': 'slower'})}"
        yield Advice("back", sentence, _("Roll back to step %(step)s") % {"step": best.checkpoint.step}, url)


def _by_chance(best: Best, way: Ends) -> bool:
    """Whether the end may be as good as the best step: normal approximation, the level shared by all means that the
    best one is the highest of. False where the number of their rollouts is unknown."""
    if not best.tries:
        return False
    tries = best.tries // best.window
    spread: float = sum(
        share * (1 - share) / (steps * tries) for share, steps in ((best.value, best.window), (way.after, way.part))
    )
    limit: float = NormalDist().inv_cdf(1 - ALPHA / 2 / best.of) * spread**0.5
    return best.value - way.after <= limit


def _advice_on_held_out(seen: Seen) -> Iterator[Advice]:
    if seen.evaluate:
        why = _("No tasks were held out, so these figures are of tasks that it learned from: evaluate it on others.")
        yield Advice("evaluate", why, _("Evaluate"), seen.evaluate)
    else:
        why = _("No tasks were held out, so these figures are of tasks that it learned from: hold some out next time.")
        yield Advice("held-out", why, _("Clone with held-out tasks"), _with_change(seen.clone, "held-out"))


def _harder_advice(seen: Seen, why: str) -> Advice:
    return Advice("harder", why, _("Clone, and choose harder tasks"), seen.clone)


def _easier_advice(seen: Seen, why: str) -> Advice:
    return Advice("easier", why, _("Clone, and choose easier tasks"), seen.clone)


def _all_solved(seen: Seen) -> bool:
    return seen.success is not None and seen.success.after >= SOLVED


def _did_all_steps(run: Run) -> bool:
    """Whether it did all its steps: one that ended early is resumed and needs no child."""
    return run.state == RunState.SUCCEEDED


def _with_change(address: str, change: str) -> str:
    return f"{address}&{urlencode({'change': change})}" if address else ""


# --- Summary --------------------------------------------------------------------------------------------------------
# The summary of an ended run: for the head of its page, the API and the command line.

ENDED = frozenset({*TERMINAL, RunState.PAUSED})


class Summary(NamedTuple):
    """The results of a run. ``advisories`` are the open ones, the gravest first."""

    gains: list[Gain]
    best: Best | None
    held_out: HeldOut | None
    cost: Cost
    made: RunModel | None
    advisories: Sequence[AdvisoryView]
    advice: list[Advice]


def summary_of(
    run: Run,
    *,
    editor: bool,
    made: RunModel | None,
    going_on: GoingOn,
    advisories: Sequence[AdvisoryView],
    checkpoints: Sequence[Checkpoint],
) -> Summary:
    """The summary, from rows that a page has read anyway, with one more query."""
    ways, spent = taken_by(run)
    best = best_of(run, ways, checkpoints)
    held_out = held_out_of(run, made.score if made else None)
    still = [item for item in advisories if item.open]
    new = reverse("run-new", args=[run.project.slug])
    known = editor and not run.imported_from  # else its config is not known
    seen = Seen(
        run=run,
        ways=ways,
        best=best,
        held_out=held_out,
        advisories=still,
        clone=f"{new}?{urlencode({'from': run.pk})}" if known else "",
        branch=f"{new}?{urlencode({'resume': run.pk})}" if known and going_on.branch_point is not None else "",
        model=_model_reference(run, made),
        evaluate=made.evaluate_url if made is not None and editor else "",
    )
    return Summary(gains_of(ways), best, held_out, cost_of(run, spent), made, still, advice_of(seen))


def _model_reference(run: Run, made: RunModel | None) -> str:
    if made is None:
        return ""
    return made.model.reference if made.model is not None else run.reference


def summary_read(run: Run, *, editor: bool) -> Summary:
    """The summary of a run, when nothing else of it was read before."""
    points = whole_checkpoints(run)
    return summary_of(
        run,
        editor=editor,
        made=model_of_run(run, points),
        going_on=GoingOn(run, points),
        advisories=advisories_of(run, points),
        checkpoints=points,
    )
