"""Staying with a run until it ends."""

from __future__ import annotations

import sys

import typer
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from tiltyard_client import show
from tiltyard_client.api import Json, Tiltyard
from tiltyard_client.base import NOT_SUCCEEDED, print_json


def follow(site: Tiltyard, run: Json, watch: bool, as_json: bool) -> None:
    """Say what was launched and, with ``watch``, stay until it ends."""
    if not watch:
        return print_json(run) if as_json else print(f"{run['name']}: {run['state']} {site.url}{run['url']}")
    quiet = as_json or not sys.stdout.isatty()
    last = run
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
    )
    with Progress(*columns, TimeRemainingColumn(), disable=quiet) as progress:
        bar = progress.add_task(run["name"], total=run["total_steps"] or None)
        for last in site.watch(run["id"]):
            progress.update(
                bar, completed=last["step"], total=last["total_steps"] or None, description=show.status(last)
            )
            if quiet and not as_json:
                print(show.status(last), f"{last['step']}/{last['total_steps']}", flush=True)
    if as_json:
        print_json(last)
    else:
        show.run(last, site.url)
    if last["state"] != "succeeded":
        raise typer.Exit(NOT_SUCCEEDED)
