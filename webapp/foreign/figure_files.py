"""The metrics of a run as CSV, parquet and TensorBoard's event files: the figures that its curves show, all of them.

For a step that several attempts trained only the figure that counts is written, so no step comes twice. Times are those
at which the trainer wrote the step; a figure whose time is not known has none, and in event files its run's beginning.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext as _

from training.errors import DataError, TiltyardError
from training.exports import EventFile
from training.journal import JOURNAL_NAME, Metrics, parse_event
from webapp.common import work
from webapp.common.serving import csv_lines
from webapp.common.storage import attempt_dir
from webapp.common.work import Claim
from webapp.datasets.models import ExportState
from webapp.datasets.services import KEEP_FREE_BYTES
from webapp.foreign.models import MetricsFormat, RunExport
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, User
from webapp.runs.metrics.selectors import all_points, metric_names
from webapp.runs.models import Run
from webapp.runs.states import TERMINAL, RunState

PARQUET_ROWS = 50_000
_HEAD_BYTES = 200
LONG = ("step", "time", "attempt", "name", "value")


class Figure(NamedTuple):
    """One figure; ``at`` is in seconds since 1970."""

    step: int
    attempt: int
    name: str
    value: float
    at: float | None


def step_times(folder: Path) -> dict[int, float]:
    """When the trainer wrote each step of an attempt, as its journal says; empty where that is gone."""
    found: dict[int, float] = {}
    try:
        with open(folder / JOURNAL_NAME, "rb") as file:
            for line in file:
                if b'"type":"metrics"' in line[:_HEAD_BYTES] and (event := _parse_metrics(line)) is not None:
                    found.setdefault(event.step, event.t)
    except OSError:
        return found
    return found


def _parse_metrics(line: bytes) -> Metrics | None:
    try:
        event = parse_event(line)
    except ValueError:
        return None
    return event if isinstance(event, Metrics) else None


def _iso_time(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def write_csv(figures: Iterable[Figure], names: Sequence[str], path: Path, title: str, begun: float) -> None:
    """A line for each figure."""
    rows = ((item.step, _iso_time(item.at), item.attempt, item.name, item.value) for item in figures)
    _write_lines(LONG, rows, path)


def write_csv_wide(figures: Iterable[Figure], names: Sequence[str], path: Path, title: str, begun: float) -> None:
    """A line for each step, a column for each metric; missing figures are empty."""

    def rows() -> Iterator[list[Any]]:
        for step, group in groupby(figures, key=lambda item: item.step):
            found = {item.name: item for item in group}
            last = max(found.values(), key=lambda item: item.attempt)
            yield [step, _iso_time(last.at), last.attempt, *(found[n].value if n in found else None for n in names)]

    _write_lines([*LONG[:3], *names], rows(), path)


def _write_lines(header: Sequence[str], rows: Iterable[Sequence[object]], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        file.writelines(csv_lines(header, rows))


def write_parquet(figures: Iterable[Figure], names: Sequence[str], path: Path, title: str, begun: float) -> None:
    """A row for each figure, with times as timestamps in UTC."""
    import pyarrow
    import pyarrow.parquet

    kinds = (
        pyarrow.int64(),
        pyarrow.timestamp("ms", "UTC"),
        pyarrow.int32(),
        pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
        pyarrow.float64(),
    )
    schema = pyarrow.schema(list(zip(LONG, kinds, strict=True)))
    with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for part in _in_parts(figures, PARQUET_ROWS):
            columns = (
                [item.step for item in part],
                [None if item.at is None else int(item.at * 1000) for item in part],
                [item.attempt for item in part],
                [item.name for item in part],
                [item.value for item in part],
            )
            arrays = [pyarrow.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))


def _in_parts(figures: Iterable[Figure], size: int) -> Iterator[list[Figure]]:
    part: list[Figure] = []
    for item in figures:
        part.append(item)
        if len(part) == size:
            yield part
            part = []
    if part:
        yield part


def write_tensorboard(figures: Iterable[Figure], names: Sequence[str], path: Path, title: str, begun: float) -> None:
    """A zip with one event file in a folder with the run's name, which TensorBoard shows as its name."""
    with tempfile.NamedTemporaryFile(dir=path.parent) as file:
        events = EventFile(file, begun)  # type: ignore[arg-type]
        for (step, _attempt), group in groupby(figures, key=lambda item: (item.step, item.attempt)):
            found = list(group)
            events.scalars(step, begun if found[0].at is None else found[0].at, {i.name: i.value for i in found})
        file.flush()
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            archive.write(file.name, f"{title}/events.out.tfevents.{int(begun):010d}.tiltyard")


Writer = Callable[[Iterable[Figure], Sequence[str], Path, str, float], None]
WRITERS: dict[str, tuple[Writer, str]] = {
    "csv": (write_csv, "csv"),
    "csv_wide": (write_csv_wide, "wide.csv"),
    "parquet": (write_parquet, "parquet"),
    "tensorboard": (write_tensorboard, "tensorboard.zip"),
}
"""The writer of each format, and the suffix of its file's name."""


# --- Figure exports -------------------------------------------------------------------------------------------------
# The metrics of a run as a file that a worker writes (``webapp.common.work``).

KEPT, MAX_OPEN, REPORT_EVERY = 5, 3, 10_000


def has_ended(run: Run) -> bool:
    """Whether a run's metrics do not change any more, so that a file of them is complete."""
    return run.state in TERMINAL or run.state == RunState.PAUSED


def metrics_order(*, run: Run, user: User | None, to: str) -> RunExport:
    """Ask for a file of a run's metrics. Raises ``ValidationError``."""
    if to not in MetricsFormat.values:
        raise ValidationError({"to": _("There is no such format to write.")})
    if not has_ended(run):
        raise ValidationError(_("The run has not ended yet; its metrics can be written afterwards."))
    if RunExport.objects.filter(run__project=run.project_id, state__in=RunExport.OPEN).count() >= MAX_OPEN:
        raise ValidationError(_("Files are being written for this project already; wait until one is done."))
    if shutil.disk_usage(settings.DATA_DIR).free < KEEP_FREE_BYTES:
        raise ValidationError(_("The server's disk is nearly full, so nothing was written."))
    export = RunExport(
        run=run, created_by=user, format=to, file_name=f"{_path_part(run.name)}-metrics.{WRITERS[to][1]}"
    )
    with transaction.atomic():
        export.save(force_insert=True)
        _forget_old(run)
        work.enqueue(export)
        audit(AuditAction.RUN_EXPORTED, run, by=user, subject=f"{run} ({export.file_name})")
    return export


def _path_part(name: str) -> str:
    """A run's name as a part of a path that every system takes."""
    return re.sub(r"[^\w.-]+", "-", name).strip(".-") or "run"


def _forget_old(run: Run) -> None:
    """Only the newest files are kept."""
    for old in RunExport.objects.filter(run=run).exclude(state__in=RunExport.OPEN)[KEPT:]:
        path = old.path
        old.delete()
        transaction.on_commit(lambda path=path: path.unlink(missing_ok=True))  # type: ignore[misc]


def metrics_write(claim: Claim[RunExport]) -> None:
    """Write a claimed export, and move the complete file into its place."""
    export = claim.item
    run = Run.objects.select_related("project").get(pk=export.run_id)
    counted = _Counted(claim)
    export.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=export.path.parent) as folder:
        made = Path(folder) / "made"
        begun = run.started_at or run.created_at
        write, _suffix = WRITERS[export.format]
        write(counted.through(_figures_of(run)), metric_names(run), made, _path_part(run.name), begun.timestamp())
        if not counted.count:
            raise DataError(_("The run has no metrics."))
        made.chmod(0o600)
        with claim.held():
            made.replace(export.path)
    claim.finish(state=ExportState.DONE, figures=counted.count, bytes=export.path.stat().st_size, error=None)


class _Counted:
    """Counts what goes through, and reports that as the export's progress."""

    def __init__(self, claim: Claim[RunExport]) -> None:
        self.count = 0
        self._claim = claim

    def through(self, figures: Iterator[Figure]) -> Iterator[Figure]:
        for item in figures:
            self.count += 1
            if self.count % REPORT_EVERY == 0:
                self._claim.report({"figures": self.count})
            yield item


def _figures_of(run: Run) -> Iterator[Figure]:
    @cache
    def times(attempt: int) -> dict[int, float]:
        return step_times(attempt_dir(run.pk, attempt))

    for step, attempt, name, value in all_points(run):
        yield Figure(step, attempt, name, value, times(attempt).get(step))


def metrics_failed(export: RunExport, error: TiltyardError) -> dict[str, Any]:
    """The columns of an export that could not be written."""
    return {"state": ExportState.FAILED, "error": error.info.model_dump(mode="json")}
