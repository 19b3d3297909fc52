"""Staying with runs until they end."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from tiltyard_client import show
from tiltyard_client.api import Json, Tiltyard
from tiltyard_client.base import NOT_SUCCEEDED, print_json


def follow(site: Tiltyard, run: Json, watch: bool, as_json: bool) -> None:
    """Say what was launched and, with ``watch``, stay until it ends."""
    if not watch:
        told = f"{run['name']}: {show.state(run['state'])} {site.url}{run['url']}"
        return print_json(run) if as_json else print(told)
    last = stay(site, [run], as_json)[0]
    if as_json:
        print_json(last)
    else:
        show.run(last, site.url)
    leave_unless_succeeded([last])


def stay(site: Tiltyard, runs: Sequence[Json], as_json: bool) -> list[Json]:
    """The runs once all have ended or paused, with a bar for each meanwhile."""
    quiet = as_json or not sys.stdout.isatty()
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
    )
    ended = []
    with Progress(*columns, TimeRemainingColumn(), disable=quiet) as progress:
        bars = [progress.add_task(_title(run, runs), total=run["total_steps"] or None) for run in runs]
        for bar, run in zip(bars, runs, strict=True):
            last = run
            for last in site.watch(run["id"]):
                title = _title(last, runs)
                progress.update(bar, completed=last["step"], total=last["total_steps"] or None, description=title)
                if quiet and not as_json:
                    print(title, f"{last['step']}/{last['total_steps']}", flush=True)
            ended.append(last)
    return ended


def _title(run: Json, among: Sequence[Json]) -> str:
    return show.status(run) if len(among) == 1 else f"{run['name']}: {show.status(run)}"


def leave_unless_succeeded(runs: Sequence[Json]) -> None:
    """Exit code 5 where one of them did not succeed."""
    if any(run["state"] != "succeeded" for run in runs):
        raise typer.Exit(NOT_SUCCEEDED)
