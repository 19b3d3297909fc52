"""What to try next: plain rules over the doctor's open advisories and the run's own figures, each with one button.

A rule says what was seen and opens a form or a page. It promises no result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.translation import gettext as _

from training.evaluation import ALPHA, Z_ALPHA
from webapp.common.text import figure, percent
from webapp.results.summary.facts import REWARD, SUCCESS, Best, HeldOut
from webapp.runs.advisories.selectors import AdvisoryView
from webapp.runs.config import config_of
from webapp.runs.metrics.selectors import Ends
from webapp.runs.models import Run
from webapp.runs.states import RunState

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
    """What the rules read. ``clone`` and ``branch`` are the addresses of a new run with this one's options and of a
    child that continues it, ``evaluate`` that of an evaluation, ``model`` how a config names what the run left;
    empty where the reader may not, or nothing is there."""

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
        said = why % {"share": percent(round(1 - seen.success.after, 3))}
        yield Advice("failed", said, _("Why did these fail?"), query)


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
    said = why % {"late": percent(way.late), "after": percent(way.after), "n": f"{tries:,}", "chance": chance}
    yield Advice("longer", said, _("Train on from its end"), seen.branch)


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
        said = why % {"step": best.step, "best": shown(best.value), "after": shown(way.after)}
        url = f"{seen.branch}&{urlencode({'checkpoint': best.checkpoint.pk, 'change': 'slower'})}"
        yield Advice("back", said, _("Roll back to step %(step)s") % {"step": best.checkpoint.step}, url)


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
