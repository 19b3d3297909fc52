"""The rollouts of the newest step, as the run page shows them first: a dot each, and the slowest of those in flight.

``static/js/lib/flight.js`` draws the same with the same texts, so that nothing moves when the page begins live updates.
It has the marks and limits from here (``paint``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.db.models import F, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from training.config import JobConfig, name_in
from webapp.common.strings import run_words
from webapp.common.text import clean_text, duration, figure, finite
from webapp.common.words import Outcome, failure
from webapp.reading.groups import expected_answers
from webapp.runs.config import config_at
from webapp.runs.models import Run
from webapp.runs.records.selectors import own_run
from webapp.runs.rollouts.models import Rollout, RolloutStatus, Turn
from webapp.runs.rollouts.selectors import last_words, newest_rollouts
from webapp.runs.states import LEASED, TERMINAL, RunState

SLOWEST = 3
SLOW_S = 60
REWARD_STEPS = 6
MARKS = {Outcome.SOLVED: "✓", Outcome.PARTLY: "~", Outcome.FAILED: "✗"}
SIZES = {"small": 192, "middle": 64}
"""The size of dots where there are more than so many; others are large."""


class Dot(NamedTuple):
    """One rollout of the step; one that has not begun has no ``rollout``."""

    key: str
    status: str
    words: str
    mark: str = ""
    rollout: Rollout | None = None
    reward_step: int | None = None


class Group(NamedTuple):
    """The dots of one task."""

    number: int
    name: str
    dots: list[Dot]


class Slow(NamedTuple):
    """One of the rollouts that have been played for longest, or an empty line, which may say that there is none."""

    about: str = ""
    rollout: Rollout | None = None
    title: str = ""
    age: str = ""
    old: bool = False


class Box(NamedTuple):
    """Groups that are drawn together: ``shape`` names them, ``size`` is that of their dots."""

    groups: list[Group]
    shape: str
    size: str


class Flight(NamedTuple):
    """The contents of the card. ``extra`` holds the groups of refills, where the run's config allows any.

    ``slowest`` is empty where nothing can be in flight any more.
    """

    step: str
    ended: str
    grid: Box
    extra: Box | None
    slowest: list[Slow]


@dataclass(frozen=True)
class _Last:
    """The last turn of a rollout in flight: who spoke, and which tool was called last."""

    role: str
    tool: str


def flight_of(run: Run, *, seen: bool = True) -> Flight | None:
    """The card of a run that plays, else ``None``; of one that is not ``seen`` at first only the places."""
    if not run.method.plays or run.imported_from:
        return None
    config, rollouts = config_at(run, run.step + 1), newest_rollouts(run, None) if seen else []
    turns = last_turns(rollouts) if run.state in LEASED else {}
    phase = run.phase if run.state == RunState.RUNNING else ""
    words = _Words(turns, phase)
    groups = _drawn_groups(rollouts, config, words)
    own = len(_group_sizes([], config)) if config is not None and config.rollout.refill_rounds else None
    ended = sum(rollout.status != RolloutStatus.RUNNING for rollout in rollouts)
    count = sum(len(group.dots) for group in groups)
    return Flight(
        step=words.say("flight.step_done" if count == ended else "step_number", n=rollouts[0].step) if rollouts else "",
        ended=f"{ended} / {count}" if count else "",
        grid=_box_of(group for group in groups if own is None or group.number < own),
        extra=_box_of(group for group in groups if group.number >= own) if own is not None else None,
        slowest=[] if run.state in TERMINAL else _slowest_lines(rollouts, environment_of(config), words),
    )


def paint() -> dict[str, Any]:
    """What the page's script needs in order to draw the card as it is drawn here: marks by outcome, sizes of dots, and
    after how many seconds a rollout is slow."""
    return {"marks": {str(outcome): mark for outcome, mark in MARKS.items()}, "sizes": SIZES, "slow_after": SLOW_S}


def environment_of(config: JobConfig | None) -> str:
    """The environment that the rollouts are played in, as the config names it; empty without one."""
    name = name_in("environment", config.environment.name) if config is not None else ""
    return "" if name == "none" else name


def last_turns(rollouts: Iterable[Rollout]) -> dict[Any, _Last]:
    """The last turn of each rollout in flight that has one."""
    flying = [rollout.pk for rollout in rollouts if rollout.status == RolloutStatus.RUNNING]
    if not flying:
        return {}
    newest = Turn.objects.filter(rollout__in=flying).order_by("rollout", "-number").distinct("rollout")
    found = newest.values_list("rollout", F("messages__0__role"), F("messages__0__tool_calls"))
    return {pk: _Last(str(_json_part(role)), _last_tool(_json_part(calls))) for pk, role, calls in found}


def _json_part(value: Any) -> Any:
    """A part of a JSON column, which a query into the column returns as text."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _last_tool(calls: Any) -> str:
    return clean_text(str(calls[-1].get("name") or "")) if isinstance(calls, list) and calls else ""


class _Words:
    """The texts of a rollout, as in ``flight.js``."""

    def __init__(self, turns: Mapping[Any, _Last], phase: str) -> None:
        self._turns, self._phase, self._said = turns, phase, run_words()

    def say(self, key: str, **values: Any) -> str:
        text = self._said[key]
        for name, value in values.items():
            text = text.replace("{" + name + "}", clean_text(str(value)))
        return text

    def state(self, rollout: Rollout) -> str:
        scored = rollout.status == RolloutStatus.RUNNING and self._phase == "scoring"
        return "scoring" if scored else str(rollout.status)

    def turn(self, rollout: Rollout) -> int:
        """The turn that is being played; ``turns`` counts the policy's."""
        last = self._turns.get(rollout.pk)
        return rollout.turns + (last is None or last.role != "assistant")

    def waits(self, rollout: Rollout) -> str:
        last = self._turns.get(rollout.pk)
        if self._phase == "scoring":
            return self.say("flight.scoring")
        if last is None:
            return self.say("flight.begins")
        if last.role != "assistant":
            return self.say("flight.writes")
        return self.say("flight.tool", name=last.tool) if last.tool else self.say("flight.answer")

    def playing(self, rollout: Rollout) -> list[str]:
        return [self.say("turn", n=self.turn(rollout)), self.waits(rollout)]

    def of(self, rollout: Rollout) -> str:
        name = name_of(rollout)
        if rollout.status == RolloutStatus.RUNNING:
            return " · ".join([name, *self.playing(rollout)])
        turns = self.say("one_turn") if rollout.turns == 1 else self.say("turns", n=rollout.turns)
        parts = [name, self._end_text(rollout), turns]
        if (reward := finite(rollout.reward)) is not None:
            parts.append(f"{self.say('reward')} {score(reward)}")
        return " · ".join(parts)

    def _end_text(self, rollout: Rollout) -> str:
        known = failure(rollout.error)
        if known is not None:
            return known.title
        word = self.say(f"outcome.{rollout.outcome}")
        return f"{word} · {self.say('truncated')}" if rollout.truncated else word

    def mark(self, rollout: Rollout) -> str:
        if rollout.status == RolloutStatus.RUNNING:
            return "" if self._phase == "scoring" else str(self.turn(rollout))
        return MARKS.get(Outcome(rollout.outcome), "")


def name_of(rollout: Rollout) -> str:
    """The rollout's name: its place in the step."""
    return f"{rollout.group}.{clean_text(rollout.policy) or rollout.index}"


def score(value: float) -> str:
    """A reward with two decimals, as ``format.js`` writes it."""
    if abs(value) >= 1000:
        return figure(value)
    text = f"{abs(value):.2f}"
    return f"−{text}" if value < 0 and text != "0.00" else text


def _group_sizes(rollouts: list[Rollout], config: JobConfig | None) -> dict[int, int]:
    """How many rollouts each group of the step has: those of the config, and further ones that came."""
    size = config.group_size if config is not None else 0
    groups = -(-config.rollouts_per_step // size) if config is not None and size else 0
    places = dict.fromkeys(range(groups), size)
    for rollout in rollouts:
        places[rollout.group] = max(places.get(rollout.group, size), rollout.index + 1)
    return dict(sorted(places.items()))


def _drawn_groups(rollouts: list[Rollout], config: JobConfig | None, words: _Words) -> list[Group]:
    known = {(rollout.group, rollout.index): rollout for rollout in rollouts}
    rewards = [reward for rollout in rollouts if (reward := finite(rollout.reward)) is not None]
    low, high = min([0.0, *rewards]), max([1.0, *rewards])

    def dot(group: int, index: int) -> Dot:
        key, rollout = f"{group}.{index}", known.get((group, index))
        if rollout is None:
            return Dot(key, "waiting", f"{key} · {words.say('flight.waiting')}")
        reward = finite(rollout.reward)
        place = None if reward is None else int((reward - low) / (high - low) * REWARD_STEPS)
        step = None if place is None else max(0, min(REWARD_STEPS - 1, place))
        return Dot(key, words.state(rollout), words.of(rollout), words.mark(rollout), rollout, step)

    places = _group_sizes(rollouts, config)
    return [
        Group(group, words.say("group", n=group), [dot(group, index) for index in range(count)])
        for group, count in places.items()
    ]


def _box_of(groups: Iterable[Group]) -> Box:
    found = list(groups)
    count = sum(len(group.dots) for group in found)
    size = next((name for name, above in SIZES.items() if count > above), "large")
    return Box(found, ",".join(f"{group.number}:{len(group.dots)}" for group in found), size)


def _slowest_lines(rollouts: list[Rollout], environment: str, words: _Words) -> list[Slow]:
    now = timezone.now()
    flying = [rollout for rollout in rollouts if rollout.status == RolloutStatus.RUNNING]
    flying.sort(key=lambda rollout: rollout.started_at)
    lines = []
    for rollout in flying[:SLOWEST]:
        seconds = max(0, int((now - rollout.started_at).total_seconds()))
        about = " · ".join(filter(None, [environment, *words.playing(rollout)]))
        title = " · ".join(filter(None, [name_of(rollout), clean_text(rollout.task)]))
        lines.append(Slow(about, rollout, title, duration(seconds), seconds > SLOW_S))
    if not lines:
        lines.append(Slow(words.say("flight.none" if rollouts else "flight.nothing")))
    return lines + [Slow()] * (SLOWEST - len(lines))


# The newest text of a run next to its rollouts in flight: the last words of the rollout that ended last.

ENDED = (RolloutStatus.COMPLETED, RolloutStatus.TRUNCATED)


class Said(NamedTuple):
    """What a rollout said last. ``words`` are empty where its model wrote only calls; ``expected`` where its task names
    no answer. ``flying``: none has ended yet, and this one is the furthest."""

    rollout: Rollout
    words: str
    expected: str
    flying: bool


def newest_said(run: Run) -> Said | None:
    """The newest text; ``None`` before any rollout has a turn of its model."""
    rollout = next(_newest(run), None)
    if rollout is None:
        return None
    rollout.run = run  # else it would be read again
    flying = rollout.status == RolloutStatus.RUNNING
    words, expected = last_words([rollout.pk]), expected_answers([rollout])
    return Said(rollout, words.get(rollout.pk, ""), expected.get(rollout.pk, ""), flying)


def _newest(run: Run) -> Iterator[Rollout]:
    """The rollout that ended last; while none has ended, the one in flight with the most turns."""
    played: QuerySet[Rollout] = Rollout.objects.filter(run=run, held_out=False)
    yield from played.filter(status__in=ENDED).order_by("-step", F("finished_at").desc(nulls_last=True), "-seq")[:1]
    yield from played.filter(status=RolloutStatus.RUNNING, turns__gt=0).order_by("-step", "-turns", "group", "index")[
        :1
    ]


@login_required
@require_GET
def run_said(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The newest text again, when an open page heard that another rollout has ended."""
    project, run = own_run(request, slug, pk)
    return render(request, "runs/_said.html", {"project": project, "run": run, "said": newest_said(run)})
