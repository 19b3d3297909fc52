"""Staying with runs until they end: why each waits, its steps and evaluations, and its outcome."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Sequence

import typer
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from tiltyard_client import show
from tiltyard_client.api import ENDED, Refused, Tiltyard, Unreachable
from tiltyard_client.base import NOT_SUCCEEDED, print_json
from tiltyard_client.connection import Json
from tiltyard_client.words import gettext as _
from tiltyard_client.words import ngettext

QUEUED_S = 5
"""How often the place of a queued run is asked for."""
MOVED_S, MOVED_SHARE = 60.0, 0.2
"""A start that is expected by so much earlier or later is news: seconds, or a share of the wait."""
SUCCESS = "rollouts/task_success"


def follow(site: Tiltyard, launched: Json, watch: bool, as_json: bool) -> None:
    """Say what was launched and, with ``watch``, stay until it ends."""
    if not watch:
        line = f"{launched['name']}: {show.state(launched['state'])} {site.url}{launched['url']}"
        return print_json(launched) if as_json else print(line)
    last = stay(site, [launched], as_json)[0]
    if as_json:
        print_json(last)
    else:
        show.run(site.run(last["id"]), site.url)
    leave_unless_succeeded([last])


def stay(site: Tiltyard, runs: Sequence[Json], as_json: bool) -> list[Json]:
    """The runs once all have ended or paused. Meanwhile a line for each change, and in a terminal a bar for each."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
    )
    ended, silent = [], as_json or not sys.stdout.isatty()
    with Progress(*columns, TimeRemainingColumn(), console=show.console, disable=silent) as progress:
        bars = [progress.add_task(run["name"], total=run["total_steps"] or None) for run in runs]
        for bar, run in zip(bars, runs, strict=True):
            course = Course(site, "" if len(runs) == 1 else run["name"])
            last = run
            for last in site.watch(run["id"], queued_s=QUEUED_S):
                progress.update(bar, completed=last["step"], total=last["total_steps"] or None)
                for line in () if as_json else course.lines(last):
                    show.console.print(line, markup=False, soft_wrap=True)
            ended.append(last)
    return ended


def leave_unless_succeeded(runs: Sequence[Json]) -> None:
    """Exit code 5 where one of them did not succeed."""
    if any(run["state"] != "succeeded" for run in runs):
        raise typer.Exit(NOT_SUCCEEDED)


class Course:
    """What to say of a run as it changes, once each. ``name`` begins each line where several runs are watched."""

    def __init__(self, site: Tiltyard, name: str = "") -> None:
        self._site, self._name = site, name
        self._state = ""
        self._wait: tuple[object, ...] = ()
        self._start: float | None = None
        self._step = self._evaluated = 0

    def lines(self, run: Json) -> list[str]:
        """The lines about what has changed since the last look."""
        state, figures = self._state_lines(run), [*self._step_lines(run), *self._evaluation_lines(run)]
        found = [*figures, *state] if run["state"] in ENDED else [*state, *figures]
        return [f"{time.strftime('%H:%M:%S')} {self._name} {line}".replace("  ", " ") for line in found]

    def _state_lines(self, run: Json) -> list[str]:
        """Why it waits, or another state than before."""
        if run["state"] == "queued":
            with contextlib.suppress(Unreachable, Refused):  # the next look says so, if it lasts
                run = run | {"queue": self._site.run(run["id"]).get("queue")}
        queue = run.get("queue")
        text = show.status(run) if not queue else f"{show.state('queued')}: {_queue_text(queue)}"
        now = show.status(run) if not queue else "queued"
        if now == self._state and not (queue and self._has_moved(queue)):
            return []
        self._state = now
        if queue:
            self._note_wait(queue)
        return [text]

    def _has_moved(self, queue: Json) -> bool:
        """Whether it waits for another reason or at another place, or is expected to start at another time."""
        if _reason(queue) != self._wait:
            return True
        seconds = queue["seconds"]
        if seconds is None or self._start is None:
            return (seconds is None) != (self._start is None)
        moved = abs(time.monotonic() + seconds - self._start)
        return bool(moved > max(MOVED_S, MOVED_SHARE * seconds))

    def _note_wait(self, queue: Json) -> None:
        self._wait = _reason(queue)
        self._start = None if queue["seconds"] is None else time.monotonic() + queue["seconds"]

    def _step_lines(self, run: Json) -> list[str]:
        step = run["step"]
        if step <= self._step:
            self._step = step  # fewer: an attempt that began again
            return []
        self._step = step
        figures: dict[str, float] = {}
        with contextlib.suppress(Unreachable, Refused):
            figures = self._site.figures(run["id"], step, SUCCESS)
        parts = [_("step {step} of {total}").format(step=step, total=run["total_steps"])]
        if SUCCESS in figures:
            parts.append(_("success {value}").format(value=f"{100 * figures[SUCCESS]:.3g}%"))
        if run["last_reward"] is not None:
            parts.append(_("reward {value}").format(value=f"{run['last_reward']:.4g}"))
        if run["eta_seconds"]:
            parts.append(_("about {time} left").format(time=_duration(run["eta_seconds"])))
        return [" · ".join(parts)]

    def _evaluation_lines(self, run: Json) -> list[str]:
        """The newest evaluation on held-out tasks, with its interval and how many tasks they are."""
        held = (run.get("health") or {}).get("held_out") or {}
        newest = held.get("newest")
        if newest is None or newest["step"] == self._evaluated:
            return []
        self._evaluated = newest["step"]
        shown = show.interval("success", newest | {"value": newest["success"]})
        parts = [_("held out after step {step}: success {value}").format(step=newest["step"], value=shown)]
        if tasks := held.get("tasks"):
            parts.append(ngettext("{n} task", "{n} tasks", tasks).format(n=tasks))
        return [" · ".join(parts)]


def _reason(queue: Json) -> tuple[object, ...]:
    """What a wait is for: what is the same while only time passes."""
    holders = sorted(f"{each['worker']} {each['run_id']} {each['ending']}" for each in queue["holders"])
    return (queue["why"], queue["place"], queue["ahead"], queue["waits_for"], *holders)


def _queue_text(queue: Json) -> str:
    return " ".join([queue["title"], *(line["text"] for line in queue["lines"])])


def _duration(seconds: float) -> str:
    if seconds < 60:
        return _("{n} s").format(n=max(1, round(seconds)))
    if seconds < 3600:
        return _("{n} min").format(n=round(seconds / 60))
    return _("{hours} h {minutes} min").format(hours=int(seconds // 3600), minutes=int(seconds % 3600 // 60))
