"""MLflow's metric files, ``mlruns/<experiment>/<run>/metrics/<name>``: lines of time (ms), value and step.

A metric's name is the path below ``metrics``. What else lies in a run's folder holds no figures and is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from training.data.files.sniff import open_regular
from training.data.problems import MAX_LINE_BYTES
from training.imports.base import MAX_NAME_CHARS, BadRow, Figures, Item, Notes, Reader, number_of, shown, step_of
from training.imports.choice import one_run
from training.words import _, sentence

FOLDER = "metrics"
BESIDE = ("params", "tags", "artifacts", "inputs", "outputs", "traces")
KIND = "mlflow_other"
_LINE = re.compile(rb"\d{12,14} [-+.\w]{1,40} \d{1,10}\r?\n?")


def _parts(name: str) -> tuple[str, str]:
    """The run's folder and the metric of a file by its name."""
    folder, found, metric = f"/{name}".rpartition(f"/{FOLDER}/")
    return (folder, metric) if found else ("", name.rsplit("/", 1)[-1])


def is_beside(name: str, names: list[str]) -> bool:
    """Whether a file lies in the folder of an MLflow run, beside its metrics."""
    runs = {_parts(each)[0] for each in names if f"/{FOLDER}/" in f"/{each}"}
    folder, _slash, rest = f"/{name}".rpartition("/")
    inside = any(f"/{name}".startswith(f"{run}/{kind}/") for run in runs for kind in BESIDE)
    above = {run.rpartition("/")[0] for run in runs}
    return inside or (rest == "meta.yaml" and folder in runs | above)


def _recognise(path: Path) -> str:
    with open_regular(path) as file:
        is_metric = _LINE.fullmatch(file.readline(200)) is not None
    return "Its lines are a time, a value and a step." if is_metric else ""


def _look(_path: Path, notes: Notes) -> None:
    run = _parts(notes.name)[0]
    if run not in notes.shared.runs:
        notes.shared.runs.append(run)


def _read_items(path: Path, notes: Notes) -> Iterator[Item]:
    folder, metric = _parts(notes.name)
    names = [run.rsplit("/", 1)[-1] for run in notes.shared.runs]
    if len(names) > 1 and one_run(names, notes.run) != folder.rsplit("/", 1)[-1]:
        return
    offset = 0
    with open_regular(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES), b""), 1):
            offset += len(line)
            if not line.strip():
                continue
            try:
                yield Item(number, offset, _figure(line.decode("utf-8", "replace"), metric))
            except BadRow as exc:
                yield Item(number, offset, reason=exc.sentence)


def _figure(line: str, metric: str) -> Figures:
    cells = line.split()
    if len(cells) != 3 or not 0 < len(metric) <= MAX_NAME_CHARS:
        raise BadRow(sentence(_("{value} is not a time, a value and a step"), value=shown(line.strip())))
    at, value = number_of(cells[0]), number_of(cells[1])
    if value is None:
        raise BadRow(_("it holds no figure"))
    return Figures(step_of(cells[2]), {metric: value}, at / 1000 if at is not None and 9e11 < at < 5e12 else None)


READER = Reader(
    name="mlflow",
    title=_("metric file of MLflow"),
    tool="",
    about="`mlruns/<experiment>/<run>/metrics/<name>`, one file or an archive of a run's folder: lines of time, value "
    "and step. A metric's name is its path below `metrics`; parameters, tags and artifacts are passed over.",
    recognise=_recognise,
    read=_read_items,
    look=_look,
)
