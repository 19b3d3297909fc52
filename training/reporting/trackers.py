"""The trackers, each through its own package: our names, our steps, one run there for all attempts here.

Transformers' callbacks are not used: they need a trainer, which sampling and evaluation have not, put ``train/``
before every name, log the trainer's arguments in place of our options, and count steps of their own.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from training.config import JobConfig, TrackerName
from training.event_files import EventFile
from training.journal import JOURNAL_NAME, Metrics, RunFinished, RunStarted, parse_event

# The metrics of a run, read from its journals while they grow.

FOLDER_NAME = "reports"
_WANTED = (b'"type":"metrics"', b'"type":"run_started"', b'"type":"run_finished"')
_HEAD_BYTES = 200  # a line's type is before this


class Figures(NamedTuple):
    """The figures of one step; ``at`` is in seconds since 1970."""

    step: int
    at: float
    values: dict[str, float]


class Feed:
    """Figures that a tracker has not got, in the order in which they were written.

    Nothing comes before the attempt's own ``run_started``: only it says from which step on things are trained again.
    ``from_step`` is that step, ``ended`` the outcome once there is one. With ``again`` the tracker can take back what
    earlier attempts reported beyond ``from_step``; without, the first word on a step is kept.
    """

    def __init__(self, run_dir: Path, attempt: int, earlier: Sequence[Path], reported: int, *, again: bool) -> None:
        self.from_step: int | None = None
        self.ended = ""
        self._path, self._attempt, self._earlier = run_dir / JOURNAL_NAME, attempt, earlier
        self._reported, self._again, self._offset = reported, again, 0
        self._before: list[Figures] = []

    def new(self) -> Iterator[Figures]:
        """The figures written since the last call; call it again and again."""
        for event in self._events():
            if isinstance(event, RunStarted):
                if event.attempt == self._attempt:
                    yield from self._missed_figures(event.from_step)
            elif isinstance(event, RunFinished):
                self.ended = event.status if self.from_step is not None else ""
            elif self.from_step is None:
                self._before.append(_figures(event))
            elif event.step > self._reported:
                yield _figures(event)

    def _missed_figures(self, from_step: int) -> Iterator[Figures]:
        """The figures that earlier attempts could not report; steps that they lost are trained again."""
        self.from_step = from_step
        if self._again:
            self._reported = min(self._reported, from_step)
        lines = (event for folder in self._earlier for event in _read_events(folder / JOURNAL_NAME, 0)[0])
        found = [_figures(event) for event in lines if isinstance(event, Metrics)] + self._before
        newest = {figures.step: figures for figures in found if self._reported < figures.step <= from_step}
        self._before = []
        for step in sorted(newest):
            yield newest[step]

    def _events(self) -> list[Metrics | RunStarted | RunFinished]:
        found, self._offset = _read_events(self._path, self._offset)
        return found


def _figures(event: Metrics) -> Figures:
    return Figures(event.step, event.t, event.values)


def _read_events(path: Path, offset: int) -> tuple[list[Metrics | RunStarted | RunFinished], int]:
    """The events of interest in the whole lines after ``offset``, and where the next one begins."""
    found: list[Metrics | RunStarted | RunFinished] = []
    with suppress(FileNotFoundError), open(path, "rb") as file:
        file.seek(offset)
        while (line := file.readline()).endswith(b"\n"):
            offset += len(line)
            if any(mark in line[:_HEAD_BYTES] for mark in _WANTED):
                with suppress(ValueError):
                    event = parse_event(line)
                    if isinstance(event, Metrics | RunStarted | RunFinished):
                        found.append(event)
    return found, offset


def reported_before(tracker: str, folders: Sequence[Path]) -> int:
    """The last step that a tracker got in any of these attempts; 0 where it got none."""
    return max((_mark(folder / FOLDER_NAME / f"{tracker}.json") for folder in folders), default=0)


def _mark(path: Path) -> int:
    try:
        step = json.loads(path.read_text(encoding="utf-8"))["step"]
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    return step if isinstance(step, int) else 0


def keep_mark(tracker: str, run_dir: Path, step: int) -> None:
    """Remember that a tracker got ``step``, next to the journal."""
    path = run_dir / FOLDER_NAME / f"{tracker}.json"
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"step": step}), encoding="utf-8")
    part.replace(path)


MAX_TEXT_CHARS = 200
INIT_S = 60.0
SHORT_ID = 8


class Identity(NamedTuple):
    """Which run it is, there as here. ``folder`` is the run's own: that of its first attempt."""

    run: str
    name: str
    project: str
    tags: list[str]
    options: dict[str, str | int | float | bool]
    folder: Path
    from_step: int
    attempt: int

    @property
    def resumed(self) -> bool:
        """Whether an earlier attempt may have reported already."""
        return self.attempt > 1


class Reporter(Protocol):
    """One tracker. Any exception means that it could not be reached, and is tried again."""

    AGAIN: bool
    """Whether steps that are trained again may take the place of what was reported before."""

    def open(self, identity: Identity) -> str:
        """Begin the run there, or continue it; its address for people, if it has one."""

    def log(self, figures: Figures) -> None:
        """Tell the figures of one step."""

    def close(self, outcome: str) -> None:
        """See everything out; ``outcome`` is the status of ``run_finished``, or "" where there was none."""


def shown_options(config: JobConfig) -> dict[str, str | int | float | bool]:
    """The options of the run that mean something elsewhere: no paths, no addresses, no long texts."""
    found: dict[str, str | int | float | bool] = {"kind": config.kind}
    for group in config.method.groups:
        if group != "report":
            values = getattr(config, group).model_dump(mode="json")
            found |= {f"{group}.{name}": value for name, value in values.items() if _may_be_sent(value)}
    scored = [
        part for job in (config, *(config.courses if config.mix.parts else ())) for part in job.rewards.components
    ]
    found |= {f"rewards.{part.name}": part.weight for part in scored}
    return found


def _may_be_sent(value: object) -> bool:
    if isinstance(value, str):
        return 0 < len(value) <= MAX_TEXT_CHARS and not value.startswith(("/", ".", "~")) and "://" not in value
    return isinstance(value, bool | int | float)


class TensorBoard:
    """Event files of our own writing, so that nothing need be installed.

    They are in the run's folder, or in one of its own under TENSORBOARD_LOGGING_DIR.
    """

    AGAIN = True

    def open(self, identity: Identity) -> str:
        """One file an attempt; TensorBoard forgets what an earlier one holds of steps that are trained again."""
        folder, now = self._folder(identity), time.time()
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"events.out.tfevents.{int(now):010d}.attempt-{identity.attempt}"
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - closed by close()
        self._events = EventFile(self._file, now)
        if identity.resumed:
            self._events.restart(identity.from_step + 1, now)
        return ""

    def _folder(self, identity: Identity) -> Path:
        root = os.environ.get("TENSORBOARD_LOGGING_DIR", "")
        if not root:
            return identity.folder / FOLDER_NAME / "tensorboard"
        plain = re.sub(r"[^A-Za-z0-9_]+", "-", f"{identity.project}-{identity.name}").strip("-")[:100]
        here, end = Path(root).expanduser(), f"-{identity.run[:SHORT_ID]}"
        return next(here.glob(f"*{end}"), here / f"{plain}{end}")

    def log(self, figures: Figures) -> None:
        """One event with the time of the step."""
        self._events.scalars(figures.step, figures.at, figures.values)

    def close(self, outcome: str) -> None:
        """Close the file."""
        self._file.close()


class Wandb:
    """Weights & Biases. Where steps come late, its own clock is the time of the report."""

    AGAIN = False

    def open(self, identity: Identity) -> str:
        """The run there has our run's id."""
        wandb: Any = import_module("wandb")
        folder = identity.folder / FOLDER_NAME
        settings = wandb.Settings(
            console="off",
            disable_git=True,
            disable_code=True,
            x_disable_meta=True,
            silent=True,
            init_timeout=INIT_S,
            host="tiltyard",
        )
        self._run = wandb.init(
            project=identity.project,
            name=identity.name,
            id=identity.run,
            resume="allow",
            tags=[tag[:64] for tag in identity.tags],
            config=identity.options,
            allow_val_change=True,
            dir=str(folder),
            settings=settings,
        )
        self._last = -1
        return str(self._run.url or "")

    def log(self, figures: Figures) -> None:
        """Later words on a step, as an evaluation has on its cost, go to the summary: a row is written once."""
        if figures.step <= self._last:
            self._run.summary.update(figures.values)
            return
        self._run.log(figures.values, step=figures.step, commit=True)
        self._last = figures.step

    def close(self, outcome: str) -> None:
        """Wait until all is sent."""
        self._run.finish(exit_code=0 if outcome == "succeeded" else 1)


class MLflow:
    """MLflow, over its client: what fails is seen here, and each figure has the time of its step."""

    AGAIN = False
    TAG = "tiltyard.run"

    def open(self, identity: Identity) -> str:
        """The run there is found by a tag that holds our run's id: MLflow makes its ids itself."""
        os.environ.update(MLFLOW_HTTP_REQUEST_TIMEOUT="20", MLFLOW_HTTP_REQUEST_MAX_RETRIES="1")
        mlflow: Any = import_module("mlflow")
        self._entities: Any = import_module("mlflow.entities")
        self._client = mlflow.MlflowClient()
        experiment = self._client.get_experiment_by_name(identity.project)
        place = experiment.experiment_id if experiment else self._client.create_experiment(identity.project)
        wanted = f"tags.`{self.TAG}` = '{identity.run}'"
        found = self._client.search_runs([place], wanted, max_results=1)
        if found:
            self._id = found[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
            return ""
        tags = {self.TAG: identity.run, **{tag[:250]: "" for tag in identity.tags}}
        self._id = self._client.create_run(place, tags=tags, run_name=identity.name).info.run_id
        params = [self._entities.Param(name, str(value)) for name, value in identity.options.items()]
        for start in range(0, len(params), 100):  # as many as it takes at once
            self._client.log_batch(self._id, params=params[start : start + 100], synchronous=True)
        return ""

    def log(self, figures: Figures) -> None:
        """All figures of a step at once."""
        at = int(figures.at * 1000)
        metrics = [
            self._entities.Metric(re.sub(r"[^\w\-. :/]", "_", name, flags=re.ASCII), value, at, figures.step)
            for name, value in figures.values.items()
        ]
        for start in range(0, len(metrics), 500):
            self._client.log_batch(self._id, metrics=metrics[start : start + 500], synchronous=True)

    def close(self, outcome: str) -> None:
        """A run that may be resumed was killed, in MLflow's words."""
        status = {"succeeded": "FINISHED", "failed": "FAILED"}.get(outcome, "KILLED")
        self._client.set_terminated(self._id, status=status)


class Trackio:
    """Trackio knows runs by their names, so ours ends in the run's id."""

    AGAIN = False

    def open(self, identity: Identity) -> str:
        """Local files, a Space or a server, as its variables say."""
        trackio: Any = import_module("trackio")
        self._run = trackio.init(
            project=identity.project,
            name=f"{identity.name}-{identity.run[:SHORT_ID]}",
            config=identity.options | {f"tag.{tag}": True for tag in identity.tags},
            resume="allow" if identity.resumed else "never",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
        self._finish = trackio.finish
        return ""

    def log(self, figures: Figures) -> None:
        """It has no word for NaN and infinities."""
        self._run.log(finite(figures.values), step=figures.step)

    def close(self, outcome: str) -> None:
        """Wait until all is sent."""
        self._finish()


class SwanLab:
    """SwanLab, in the cloud or in files."""

    AGAIN = False

    def open(self, identity: Identity) -> str:
        """The run there has our run's id."""
        swanlab: Any = import_module("swanlab")
        self._run = swanlab.init(
            project=identity.project,
            name=identity.name,
            id=identity.run,
            resume="allow",
            tags=identity.tags,
            config=identity.options,
            log_dir=str(identity.folder / FOLDER_NAME),
        )
        with suppress(AttributeError, ValueError):  # offline it has none
            return str(self._run.url or "")
        return ""

    def log(self, figures: Figures) -> None:
        """It has no word for NaN and infinities."""
        self._run.log(finite(figures.values), step=figures.step)

    def close(self, outcome: str) -> None:
        """Wait until all is sent."""
        self._run.finish("success" if outcome == "succeeded" else "aborted")


def finite(values: dict[str, float]) -> dict[str, float]:
    """The figures without NaN and infinities."""
    return {name: value for name, value in values.items() if math.isfinite(value)}


REPORTERS: dict[TrackerName, type[Reporter]] = {
    "tensorboard": TensorBoard,
    "wandb": Wandb,
    "mlflow": MLflow,
    "trackio": Trackio,
    "swanlab": SwanLab,
}
