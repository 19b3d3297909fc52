"""The metrics of a run as a file that a worker writes (``webapp.common.work``)."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext as _

from training.errors import DataError, TiltyardError
from webapp.common import work
from webapp.common.storage import attempt_dir
from webapp.common.work import Claim
from webapp.datasets.models import ExportState
from webapp.datasets.services import KEEP_FREE_BYTES
from webapp.foreign.figure_files import WRITERS, Figure, step_times
from webapp.foreign.models import MetricsFormat, RunExport
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, User
from webapp.runs.metrics.selectors import all_points, metric_names
from webapp.runs.models import Run
from webapp.runs.states import TERMINAL, RunState

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
