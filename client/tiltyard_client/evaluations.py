"""``tiltyard evaluate`` and ``tiltyard compare``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated

import typer
from rich.progress import Progress

from tiltyard_client import completing, show
from tiltyard_client.api import Json, Tiltyard
from tiltyard_client.base import (
    MISUSED,
    NOT_SUCCEEDED,
    REFUSED,
    AsJson,
    Project,
    Watch,
    confirm,
    end,
    errors,
    print_json,
    site_of,
)
from tiltyard_client.watching import follow
from tiltyard_client.words import gettext as _

# Waiting until recorded rollouts are scored by a spec.


def rescored(site: Tiltyard, runs: Sequence[str], spec: str, found: Json, *, yes: bool, quiet: bool) -> Json:
    """The comparison once a worker has computed what its evaluations have not recorded of the spec."""
    if not spec:
        end(_("--rescore needs --spec: which spec shall score the rollouts?"), MISUSED)
    offer = found.get("to_score")
    if offer is None:  # nothing lacks
        return found
    if offer["refusal"]:
        end(offer["refusal"], REFUSED)
    if offer["asks"]:
        confirm(_("{asks} Continue?").format(asks=offer["asks"]), yes)
    begun = site.rescore(runs, spec, confirmed=bool(offer["asks"]))
    last = begun
    with Progress(console=errors, disable=quiet) as progress:
        bar = progress.add_task(_("rollouts scored"), total=None)
        for last in site.watch_rescoring(begun["id"]):
            progress.update(bar, completed=last["done"], total=last["total"] or None)
    if last["state"] != "done":
        end(last["error"] or _("The scoring was cancelled; what was scored is kept."), NOT_SUCCEEDED)
    return site.compare(runs, spec)


def evaluate(
    model: Annotated[
        str, typer.Argument(help="A run whose model it is, or model:NAME.", autocompletion=completing.runs)
    ],
    like: Annotated[
        str, typer.Option(help="Run whose dataset, environment and rewards are used; else those of the model's run.")
    ] = "",
    dataset: Annotated[str, typer.Option(help="NAME or NAME@VERSION instead of that run's.")] = "",
    training_data: Annotated[
        bool, typer.Option("--training-data", help="Play the tasks that it learned from, on purpose.")
    ] = False,
    environment: Annotated[str, typer.Option(help="NAME instead of that run's.")] = "",
    reward: Annotated[str, typer.Option(help="NAME or NAME@VERSION instead of that run's.")] = "",
    tasks: Annotated[int, typer.Option(min=0, help="Tasks to play; 0 for all.")] = 0,
    tries: Annotated[int, typer.Option(min=1, help="Tries of each task.")] = 4,
    temperature: Annotated[float | None, typer.Option(min=0, help="0 takes the likeliest token.")] = None,
    seed: Annotated[int, typer.Option(help="The same for all that shall be compared.")] = 42,
    name: Annotated[str, typer.Option(help="Else the model's name and -evaluate.")] = "",
    project: Project = "",
    watch: Watch = False,
    as_json: AsJson = False,
) -> None:
    """Play every task equally often and score it, so that models can be compared task by task."""
    source = model if model.startswith(("model:", "run:")) or model == "starter" else f"run:{model}"
    plain = source.partition(":")[2] or source
    if dataset and training_data:
        raise typer.BadParameter(_("--dataset and --training-data are two sets of tasks: choose one."))
    with site_of(project) as site:
        origin = like or (plain if source.startswith("run:") else "")
        config: Json = site.run(origin)["config"] if origin else {}
        kind = config.get("kind", "grpo") if origin else "evaluate"
        config = {key: config[key] for key in ("data", "environment", "rewards", "rollout") if key in config}
        config |= {"kind": "evaluate", "model": {"source": source}, "evaluate": {"tasks": tasks}, "run": {"seed": seed}}
        for group, option, word, value in (
            ("data", "train", "dataset", dataset),
            ("environment", "name", "environment", environment),
            ("rewards", "spec", "reward", reward),
        ):
            if value:
                config[group] = config.get(group, {}) | {option: f"{word}:{value}"}
        if reward:
            config["rewards"]["components"] = []
        config["rollout"] = config.get("rollout", {}) | {"num_generations": tries}
        if temperature is not None:
            config["rollout"]["temperature"] = temperature
        if kind not in PLAYS_ONLY and not (dataset or training_data):
            _learned_from(config.get("data", {}).get("train", ""), origin)
        _too_many(site, config.get("data", {}).get("train", ""), tasks)
        follow(site, site.launch(name or f"{plain}-evaluate", config=config), watch, as_json)


def _learned_from(data: str, origin: str) -> None:
    """Say that an evaluation plays the tasks of a run that trained on them."""
    if data:
        words = _(
            "These are the tasks that {run} learned from ({data}): success on them is no held-out success. --dataset "
            "NAME plays others, --training-data plays these."
        )
        typer.echo(words.format(run=origin, data=data.removeprefix("dataset:")), err=True)


def _too_many(site: Tiltyard, data: str, tasks: int) -> None:
    """Say that a dataset has fewer tasks than were asked for."""
    name, at, version = data.removeprefix("dataset:").partition("@")
    if not (name and tasks):
        return
    found = [item for item in site.datasets(name=name) if item["state"] == "ready"]
    ready = [item for item in found if not at or str(item["version"]) == version]
    if ready and ready[0]["rows"] < tasks:
        words = _("{data} has {rows} tasks, and {tasks} were asked for: all {rows} are played.")
        typer.echo(words.format(data=data.removeprefix("dataset:"), rows=ready[0]["rows"], tasks=tasks), err=True)


PLAYS_ONLY = ("evaluate", "sample")
"""Kinds of runs that learn from nothing."""


class Days(StrEnum):
    """How long a link may open a report."""

    day = "1"
    week = "7"
    month = "30"
    quarter = "90"


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(help="Two to eight evaluations, or runs that held out tasks.", autocompletion=completing.runs),
    ],
    spec: Annotated[
        str, typer.Option(help="What rewards are weighed by: reward:NAME@VERSION, or a run of these.")
    ] = "",
    rescore: Annotated[
        bool,
        typer.Option("--rescore", help="Compute what was not recorded of --spec from the transcripts, and wait."),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="With --rescore: do not ask before judges are called.")
    ] = False,
    save: Annotated[str, typer.Option(metavar="NAME", help="Keep the comparison under this name.")] = "",
    share: Annotated[
        Days | None,
        typer.Option(metavar="DAYS", help="Make a link that opens its report without an account: 1, 7, 30 or 90 days."),
    ] = None,
    project: Project = "",
    as_json: AsJson = False,
) -> None:
    """Which is better, by how much, and is the difference certain?"""
    with site_of(project) as site:
        ids = {name: site.run(name)["id"] for name in runs}
        weighed = ids.get(spec, spec)
        found = site.compare(list(ids.values()), weighed)
        if rescore:
            found = rescored(site, list(ids.values()), weighed, found, yes=yes, quiet=as_json)
        name = save or f"{' - '.join(runs)[:60]} {datetime.now():%m%d-%H%M%S}"
        kept = _kept(site, name, list(ids.values()), weighed, share) if save or share else {}
    if as_json:
        return print_json(found | kept)
    show.comparison(found)
    if kept:
        print(_("Saved as {name}.").format(name=kept["saved"]["name"]))
    if "link" in kept:
        until = kept["link"]["expires_at"][:10]
        print(_("Anyone with this link sees its report until {day}. It is shown only once:").format(day=until))
        print(kept["link"]["url"])


def _kept(site: Tiltyard, name: str, runs: list[str], spec: str, days: Days | None) -> Json:
    """The comparison saved and, with ``days``, shared: ``saved`` and ``link`` as the server answered."""
    saved = site.comparison_save(name, runs, spec)
    if days is None:
        return {"saved": saved}
    return {"saved": saved, "link": site.comparison_share(saved["id"], int(days.value))}
