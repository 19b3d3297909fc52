"""The card of a run's training devices: a lane for each, of its last steps side by side, and a sentence that answers.

A step is as wide as the device that took longest for it. A lane is cut into ``COLUMNS`` pieces of the same width, each
in the colour of the phase that fills most of it, so a lane is a path for each phase however many spans it has. Of more
than ``MOST_LANES`` devices those of one host share a lane.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_GET

from training.lanes import LaneStep, worked
from webapp.common.text import duration
from webapp.runs.metrics.devices import Device, answer_of, devices_of, phase_names, title_of, whole_percent
from webapp.runs.models import Run
from webapp.runs.records.selectors import own_run
from webapp.site.run_pages.parts import ORDER

COLUMNS, WIDTH = 500, 1000
MOST_LANES = 16


class Path(NamedTuple):
    """All of one phase in a lane, as an SVG path in thousandths of its length; ``text`` says how much that is."""

    phase: str
    d: str
    text: str


class Row(NamedTuple):
    """A lane. ``figures`` are what its driver measured, in words; ``shares`` the cells of the table."""

    name: str
    figures: str
    paths: list[Path]
    work: str
    shares: list[str]


class Legend(NamedTuple):
    """A phase and its share of the time of all devices."""

    phase: str
    name: str
    share: str


class Card(NamedTuple):
    """The card. The lanes begin with step ``first``, end with ``last`` and are ``seconds`` long, in words; ``borders``
    is a path between the steps. ``more`` hosts have no lane."""

    answer: str
    rows: list[Row]
    legend: list[Legend]
    borders: str
    first: int
    last: int
    seconds: str
    more: int


def has_card(run: Run) -> bool:
    """Whether devices of the run could have been recorded: it trains, and here."""
    return run.method.trains and not run.imported_from


def card_of(run: Run) -> Card | None:
    """The card; ``None`` where nothing was recorded."""
    found = devices_of(run)
    if found is None:
        return None
    lanes = [(title_of(each), [each]) for each in found.devices]
    if len(lanes) > MOST_LANES:
        lanes = [_of_host(host, list(own)) for host, own in groupby(found.devices, lambda each: each.host)]
    seconds, begins = _axis(found.devices)
    scale = WIDTH / seconds if seconds else 0.0
    spent = _spent(found.devices)
    phases = [phase for phase in ORDER if spent[phase]]
    names = phase_names()
    rows = [_row(name, own, phases, names, scale, begins) for name, own in lanes[:MOST_LANES]]
    whole = spent.total()
    legend = [Legend(phase, names[phase], whole_percent(spent[phase] / whole)) for phase in phases]
    borders = "".join(f"M{begin * scale:.1f} 0v10" for begin in list(begins.values())[1:])
    more = max(0, len(lanes) - MOST_LANES)
    return Card(answer_of(found), rows, legend, borders, found.first, found.last, duration(seconds), more)


def _of_host(host: str, devices: list[Device]) -> tuple[str, list[Device]]:
    n = len(devices)
    return f"{host} · {ngettext('%(n)s device', '%(n)s devices', n) % {'n': n}}", devices


def _spent(devices: Sequence[Device]) -> Counter[str]:
    found: Counter[str] = Counter()
    for each in devices:
        for step in each.steps:
            found.update(step.phases)
    return found


def _axis(devices: Sequence[Device]) -> tuple[float, dict[int, float]]:
    """How many seconds the axis has, and at which of them each step begins."""
    longest: dict[int, float] = {}
    for each in devices:
        for step in each.steps:
            longest[step.step] = max(longest.get(step.step, 0.0), step.seconds)
    at, begins = 0.0, dict[int, float]()
    for number in sorted(longest):
        begins[number] = at
        at += longest[number]
    return at, begins


def _row(
    name: str,
    devices: Sequence[Device],
    phases: Sequence[str],
    names: dict[str, str],
    scale: float,
    begins: dict[int, float],
) -> Row:
    steps = [step for each in devices for step in each.steps]
    spent = _spent(devices)
    shares = {phase: whole_percent(spent[phase] / spent.total()) if spent[phase] else "–" for phase in phases}
    drawn = _drawn(_columns(steps, scale, begins))
    paths = [Path(phase, drawn[phase], f"{names[phase]} {shares[phase]}") for phase in phases if phase in drawn]
    work = worked([step.use for step in steps])
    return Row(name, _measured(steps), paths, whole_percent(work.share) if work else "–", list(shares.values()))


def _columns(steps: Iterable[LaneStep], scale: float, begins: dict[int, float]) -> list[dict[str, float]]:
    """How much of each column each phase fills."""
    columns: list[dict[str, float]] = [{} for _column in range(COLUMNS)]
    wide = WIDTH / COLUMNS
    for step in steps:
        for span in step.spans:
            begin, end = ((begins[step.step] + at) * scale / wide for at in (span.begin, span.end))
            for column in range(int(begin), min(COLUMNS, int(end) + 1)):
                if (filled := min(end, column + 1) - max(begin, column)) > 0:
                    columns[column][span.phase] = columns[column].get(span.phase, 0.0) + filled
    return columns


def _drawn(columns: Sequence[dict[str, float]]) -> dict[str, str]:
    """The path of each phase: a rectangle for each stretch of columns that it fills most of."""
    paths: dict[str, str] = {}
    wide = WIDTH // COLUMNS
    for phase, begin, count in _stretches([max(each, key=each.__getitem__, default="") for each in columns]):
        if phase:
            paths[phase] = paths.get(phase, "") + f"M{begin * wide} 0h{count * wide}v10h-{count * wide}z"
    return paths


def _stretches(phases: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    begin = 0
    for phase, same in groupby(phases):
        count = sum(1 for _one in same)
        yield phase, begin, count
        begin += count


def _measured(steps: Sequence[LaneStep]) -> str:
    """What the driver measured: “41% busy · 40.1 GiB · 312 W”, without what it does not report."""
    known = [(step.busy, step.seconds) for step in steps if step.busy is not None]
    powers = [step.power_w for step in steps if step.power_w is not None]
    memory = max((step.memory for step in steps if step.memory is not None), default=None)
    parts = []
    if seconds := sum(took for _busy, took in known):
        parts.append(_("%(share)s busy") % {"share": whole_percent(sum(busy * took for busy, took in known) / seconds)})
    parts += [f"{memory / (1 << 30):.1f} GiB"] if memory is not None else []
    parts += [f"{sum(powers) / len(powers):.0f} W"] if powers else []
    return " · ".join(parts)


@login_required
@require_GET
def run_devices(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The card of the run page; an open page asks again when a step has ended."""
    project, run = own_run(request, slug, pk)
    context = {"project": project, "run": run, "card": card_of(run), "fresh": True}
    return render(request, "runs/_devices.html", context)
