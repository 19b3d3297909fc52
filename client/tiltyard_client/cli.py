"""``tiltyard``: what a person does in the browser, from a terminal."""

from __future__ import annotations

import contextlib
import json
import locale
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from tiltyard_client import settings, show
from tiltyard_client.api import Json, LoginNeeded, Refused, Tiltyard, Unreachable

REFUSED, UNREACHABLE, LOGIN, NOT_SUCCEEDED = 1, 3, 4, 5
app = typer.Typer(no_args_is_help=True, help="Tiltyard from the command line.", pretty_exceptions_enable=False)
run_app = typer.Typer(no_args_is_help=True, help="Launch, watch and end runs.")
dataset_app = typer.Typer(no_args_is_help=True, help="Datasets.")
model_app = typer.Typer(no_args_is_help=True, help="Models.")
project_app = typer.Typer(no_args_is_help=True, help="Projects.")
app.add_typer(run_app, name="run")
app.add_typer(dataset_app, name="dataset")
app.add_typer(model_app, name="model")
app.add_typer(project_app, name="project")
errors = Console(stderr=True, highlight=False)

AsJson = Annotated[bool, typer.Option("--json", help="Print what the server answered, as JSON, and nothing else.")]
Project = Annotated[str, typer.Option("--project", "-p", help="The project's slug; else that of the login.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Stay until the run ends. Ctrl-C leaves it running.")]
RunName = Annotated[str, typer.Argument(help="The run's name or id.")]


@contextlib.contextmanager
def site_of(project: str = "") -> Iterator[Tiltyard]:
    """The site of the login. Whatever goes wrong inside ends the command with a sentence and an exit code."""
    place = settings.place(project)
    if not place.url or not place.token:
        _end("Log in first: tiltyard login http://your-site", LOGIN)
    language = (locale.getlocale()[0] or "").replace("_", "-")
    site = Tiltyard(place.url, place.token, place.project, language=language)
    try:
        yield site
    except LoginNeeded:
        _end(f"{place.url} does not take this token (any more). Make another one there, then: tiltyard login", LOGIN)
    except Refused as exc:
        for item in exc.detail:
            if item.get("path") and item.get("message"):
                errors.print(f"[bold]{item['path']}[/]: {item['message']} {item.get('hint') or ''}".strip())
        _end(exc.message or exc.code, REFUSED)
    except Unreachable as exc:
        _end(str(exc), UNREACHABLE)
    except OSError as exc:
        _end(f"{exc.strerror or exc}: {exc.filename or ''}".rstrip(": "), REFUSED)
    except KeyboardInterrupt:
        _end("Left; what was started on the site goes on there.", 130)
    finally:
        site.close()


def _end(text: str, code: int) -> NoReturn:
    errors.print(text, style="red", markup=False)
    raise typer.Exit(code)


def _progress(*, quiet: bool) -> Progress:
    """A bar of bytes on the error output, so that what is printed can be piped."""
    return Progress(*Progress.get_default_columns(), DownloadColumn(), console=errors, disable=quiet)


def _print(found: Any) -> None:
    print(json.dumps(found, ensure_ascii=False, indent=1))


# --- Login ----------------------------------------------------------------------------------------------------------
@app.command()
def login(
    url: Annotated[str, typer.Argument(help="Address of the site, such as http://127.0.0.1:8000.")],
    token: Annotated[str, typer.Option(envvar="TILTYARD_TOKEN", help="Asked for where it is left out.")] = "",
    project: Project = "",
) -> None:
    """Remember a site, a token and a project for later commands."""
    text = token or (typer.prompt("Token", hide_input=True) if sys.stdin.isatty() else sys.stdin.readline())
    if not text.strip():
        _end("No token was given.", LOGIN)
    place = settings.Place(url.rstrip("/"), text.strip(), project)
    site = Tiltyard(place.url, place.token)
    try:
        me, projects = site.me(), [item["slug"] for item in site.projects()]
    except LoginNeeded:
        _end("The site does not take this token.", LOGIN)
    except (Refused, Unreachable) as exc:
        _end(str(exc), UNREACHABLE)
    finally:
        site.close()
    if project and project not in projects:
        _end(f"There is no project {project!r} for you. There are: {', '.join(projects) or 'none'}.", REFUSED)
    chosen = project or (projects[0] if len(projects) == 1 else "")
    kept = settings.store(place._replace(project=chosen))
    print(f"Logged in as {me['username']}" + (f", project {chosen}" if chosen else "") + f". Kept in {kept}.")


@app.command("token")
def token_shown(as_json: AsJson = False) -> None:
    """Who you are here, and what your token may do."""
    with site_of() as site:
        me = site.me()
    if as_json:
        return _print(me)
    token = me["token"] or {}
    show.pairs(
        {
            "site": site.url,
            "you": me["username"],
            "token": token.get("name", "–"),
            "may": token.get("role", "–"),
            "only in": token.get("project") or "all your projects",
            "until": (token.get("expires_at") or "no limit")[:10],
        }
    )


@project_app.command("list")
def project_list(as_json: AsJson = False) -> None:
    """The projects that you may see."""
    with site_of() as site:
        rows = site.projects()
    _print(rows) if as_json else show.table(rows, {"slug": "project", "name": "name", "team": "team"})


# --- Runs -----------------------------------------------------------------------------------------------------------
@run_app.command("list")
def run_list(
    project: Project = "",
    state: Annotated[str, typer.Option(help="Such as running, succeeded, or active.")] = "",
    kind: Annotated[str, typer.Option(help="grpo, sft, sample or evaluate.")] = "",
    as_json: AsJson = False,
) -> None:
    """Runs of the project, newest first."""
    with site_of(project) as site:
        rows = site.runs(state=state, kind=kind)
    _print(rows) if as_json else show.runs(rows)


@run_app.command("show")
def run_show(run: RunName, project: Project = "", as_json: AsJson = False) -> None:
    """One run."""
    with site_of(project) as site:
        found = site.run(run)
    _print(found) if as_json else show.run(found, site.url)


@run_app.command("launch")
def run_launch(
    file: Annotated[Path, typer.Option("--file", "-f", help="The job as YAML.", exists=True, dir_okay=False)],
    name: Annotated[str, typer.Option(help="Else the file's name and the time.")] = "",
    project: Project = "",
    watch: Watch = False,
    as_json: AsJson = False,
) -> None:
    """Launch a job."""
    with site_of(project) as site:
        text = file.read_text(encoding="utf-8")
        made = site.launch(name or f"{file.stem}-{datetime.now():%m%d-%H%M%S}", yaml=text)
        _follow(site, made, watch, as_json)


@run_app.command("clone")
def run_clone(
    run: RunName,
    name: Annotated[str, typer.Option(help="Name of the new run.")],
    change: Annotated[
        list[str] | None, typer.Option("--set", help="An option that is another one, such as optim.learning_rate=1e-5.")
    ] = None,
    project: Project = "",
    watch: Watch = False,
    as_json: AsJson = False,
) -> None:
    """Launch a run again, with some options changed."""
    with site_of(project) as site:
        config = changed(site.run(run)["config"], change or [])
        _follow(site, site.launch(name, config=config), watch, as_json)


@run_app.command("watch")
def run_watch(run: RunName, project: Project = "", as_json: AsJson = False) -> None:
    """Stay until the run ends. Exit code 5 where it does not succeed."""
    with site_of(project) as site:
        _follow(site, site.run(run), True, as_json)


def _act(run: str, act: str, project: str, as_json: bool) -> None:
    with site_of(project) as site:
        found = site.act(site.run(run)["id"], act)
    _print(found) if as_json else print(f"{found['name']}: {found['state']}")


@run_app.command("stop")
def run_stop(run: RunName, project: Project = "", as_json: AsJson = False) -> None:
    """Stop a run; it saves first."""
    _act(run, "stop", project, as_json)


@run_app.command("pause")
def run_pause(run: RunName, project: Project = "", as_json: AsJson = False) -> None:
    """Pause a run: it saves and gives its device back."""
    _act(run, "pause", project, as_json)


@run_app.command("resume")
def run_resume(run: RunName, project: Project = "", as_json: AsJson = False) -> None:
    """Queue a run again from its newest whole checkpoint."""
    _act(run, "resume", project, as_json)


def _follow(site: Tiltyard, run: Json, watch: bool, as_json: bool) -> None:
    """Say what was launched and, with ``watch``, stay until it ends."""
    if not watch:
        return _print(run) if as_json else print(f"{run['name']}: {run['state']} {site.url}{run['url']}")
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
        _print(last)
    else:
        show.run(last, site.url)
    if last["state"] != "succeeded":
        raise typer.Exit(NOT_SUCCEEDED)


def changed(config: Json, changes: list[str]) -> Json:
    """The config with ``group.option=value`` put into it; values are JSON, else text."""
    made: Json = json.loads(json.dumps(config))
    for change in changes:
        path, equals, text = change.partition("=")
        group, _dot, option = path.strip().partition(".")
        if not equals or not group:
            raise Refused(400, "bad_option", f"Write group.option=value, not {change!r}.")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        if option:
            made.setdefault(group, {})[option] = value
        else:
            made[group] = value
    return made


# --- Evaluation -----------------------------------------------------------------------------------------------------
@app.command()
def evaluate(
    model: Annotated[str, typer.Argument(help="A run whose model it is, or model:NAME.")],
    like: Annotated[
        str, typer.Option(help="Run whose dataset, environment and rewards are used; else those of the model's run.")
    ] = "",
    dataset: Annotated[str, typer.Option(help="NAME or NAME@VERSION in place of that run's.")] = "",
    environment: Annotated[str, typer.Option(help="NAME in place of that run's.")] = "",
    reward: Annotated[str, typer.Option(help="NAME or NAME@VERSION in place of that run's.")] = "",
    tasks: Annotated[int, typer.Option(min=0, help="Tasks to play; 0 for all.")] = 0,
    tries: Annotated[int, typer.Option(min=1, help="Tries of each task.")] = 4,
    temperature: Annotated[float | None, typer.Option(min=0)] = None,
    seed: Annotated[int, typer.Option(help="The same for all that shall be compared.")] = 42,
    name: Annotated[str, typer.Option(help="Else the model's name and -evaluate.")] = "",
    project: Project = "",
    watch: Watch = False,
    as_json: AsJson = False,
) -> None:
    """Play every task equally often and score it, so that models can be compared task by task."""
    source = model if model.startswith(("model:", "run:")) or model == "starter" else f"run:{model}"
    plain = source.partition(":")[2] or source
    with site_of(project) as site:
        origin = like or (plain if source.startswith("run:") else "")
        config: Json = site.run(origin)["config"] if origin else {}
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
        _follow(site, site.launch(name or f"{plain}-evaluate", config=config), watch, as_json)


@app.command()
def compare(
    runs: Annotated[list[str], typer.Argument(help="Two to eight evaluations, by name or id.")],
    spec: Annotated[
        str, typer.Option(help="What rewards are weighed by: reward:NAME@VERSION, or a run of these.")
    ] = "",
    project: Project = "",
    as_json: AsJson = False,
) -> None:
    """Which is better, by how much, and can it be told?"""
    with site_of(project) as site:
        ids = {name: site.run(name)["id"] for name in runs}
        found = site.compare(list(ids.values()), ids.get(spec, spec))
    _print(found) if as_json else show.comparison(found)


# --- Data and models ------------------------------------------------------------------------------------------------
@dataset_app.command("list")
def dataset_list(project: Project = "", as_json: AsJson = False) -> None:
    """All versions of all datasets, newest first."""
    with site_of(project) as site:
        rows = site.datasets()
    columns = {
        "reference": "dataset",
        "state": "state",
        "rows": "rows",
        "bad_rows": "bad rows",
        "created_at": "uploaded",
    }
    _print(rows) if as_json else show.table(rows, columns)


@dataset_app.command("upload")
def dataset_upload(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False)],
    name: Annotated[str, typer.Option(help="Else the file's name.")] = "",
    project: Project = "",
    wait: Annotated[bool, typer.Option(help="Stay until it is checked.")] = True,
    as_json: AsJson = False,
) -> None:
    """Upload a file as the next version of a dataset."""
    with site_of(project) as site, _progress(quiet=as_json) as progress:
        with progress.open(file, "rb", description=file.name) as source:
            made = site.upload(source, file.name, name or file.stem)  # type: ignore[arg-type]
        checked = progress.add_task("checking", total=None, visible=wait)
        while wait and made["state"] == "checking":
            progress.update(checked, advance=1)
            show.pause()
            made = site.dataset(made["id"])
    if as_json:
        _print(made)
    else:
        print(f"{made['reference']}: {made['state']}, {made['rows']} rows, {made['bad_rows']} bad")
    if wait and made["state"] != "ready":
        raise typer.Exit(REFUSED)


@model_app.command("list")
def model_list(project: Project = "", as_json: AsJson = False) -> None:
    """The registered models, newest first."""
    with site_of(project) as site:
        rows = site.models()
    columns = {"reference": "model", "kind": "weights", "step": "step", "bytes": "bytes", "created_at": "registered"}
    _print(rows) if as_json else show.table(rows, columns)


@model_app.command("download")
def model_download(
    model: Annotated[str, typer.Argument(help="The model's name.")],
    to: Annotated[Path | None, typer.Option(help="A folder; else one of the model's name here.")] = None,
    adapter: Annotated[bool, typer.Option("--adapter", help="Only the LoRA adapter.")] = False,
    project: Project = "",
    as_json: AsJson = False,
) -> None:
    """Download a model's files and prove each by its hash."""
    with site_of(project) as site:
        name = model.removeprefix("model:")
        found = next((row for row in site.models() if row["name"] == name), None)
        if found is None:
            raise Refused(404, "not_found", f"There is no model {name!r} in {site.project}.")
        target = to or Path(name.replace("/", "-"))
        with _progress(quiet=as_json) as progress:
            bar = progress.add_task(name, total=None)
            part = "adapter" if adapter else "model"
            files = site.download(
                found["id"],
                target,
                part=part,
                seen=lambda done, total: progress.update(bar, completed=done, total=total),
            )
    if as_json:
        _print({"folder": str(target), "files": [str(path) for path in files]})
    else:
        print(f"{len(files)} files in {target}, each as it was sent.")


def main() -> None:
    """The entry point of ``tiltyard``."""
    app()
