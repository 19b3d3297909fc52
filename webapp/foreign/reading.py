"""Runs of other trainers: the uploaded files are stored now, and read by a worker (``webapp.common.work``)."""

from __future__ import annotations

import json
import logging
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.files.base import File
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from training.data import CheckLimits
from training.data.files.archive import Given
from training.errors import TiltyardError
from training.imports.read import REPORT_NAME
from training.imports.read import run_import as read_files
from training.imports.report import READERS, ImportReport
from training.words import Sentence
from webapp.common import work
from webapp.common.pages import clean_name
from webapp.common.storage import attempt_dir, file_store, import_dir
from webapp.common.text import clean_json, clean_text, in_words, message_of, translated
from webapp.common.work import Claim
from webapp.datasets.services import KEEP_FREE_BYTES, too_large_sentence
from webapp.foreign.importing import run_import
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project, User
from webapp.runs.models import ImportState, Run, RunImport

logger = logging.getLogger(__name__)
READ_WALL_S = 840
MAX_OPEN = 3


def import_create(
    *, project: Project, user: User | None, name: str, files: Sequence[File[bytes]], source_run: str = ""
) -> RunImport:
    """Store the files of one run and have them read; ``source_run`` is meant where a table has several.

    Raises ``ValidationError`` by field.
    """
    sizes = [int(file.size or 0) for file in files]
    if not files or not sum(sizes):
        raise ValidationError({"uploads": _("The file is empty.") if files else _("Choose at least one file.")})
    if sum(sizes) > settings.MAX_UPLOAD_BYTES:
        raise ValidationError({"uploads": too_large_sentence()}, code="too_large")
    if shutil.disk_usage(settings.DATA_DIR).free < sum(sizes) * 4 + KEEP_FREE_BYTES:
        raise ValidationError({"uploads": _("The server's disk is nearly full, so the files were not kept.")})
    if RunImport.objects.filter(project=project, state=ImportState.READING).count() >= MAX_OPEN:
        raise ValidationError(_("Other imports of this project are being read; wait until one is done."))
    item = RunImport(
        id=uuid.uuid4(),
        project=project,
        name=clean_name(name) if name.strip() else "",
        source_run=clean_text(source_run).strip(),
        created_by=user,
        files=[{"name": _shown_name(file.name), "bytes": size} for file, size in zip(files, sizes, strict=True)],
    )
    try:
        for number, file in enumerate(files):
            file_store(file, _file_path(item, number))
        with transaction.atomic():
            item.save(force_insert=True)
            work.enqueue(item)
            audit(AuditAction.RUN_IMPORTED, item, by=user, subject=item.name or item.files[0]["name"])
    except BaseException:
        shutil.rmtree(import_dir(item.pk), ignore_errors=True)
        raise
    logger.info("import uploaded", extra={"import_id": item.pk, "project_id": project.pk, "bytes": sum(sizes)})
    return item


def _shown_name(name: str | None) -> str:
    return clean_text((name or "").replace("\n", " "))[-200:] or "file"


def _file_path(item: RunImport, number: int) -> Path:
    return import_dir(item.pk) / "files" / str(number)


def import_read(claim: Claim[RunImport]) -> None:
    """Read a claimed import in a limited child process, and make its folder a run."""
    item = claim.item
    folder = import_dir(item.pk) / claim.token
    given = [Given(_file_path(item, number), file["name"]) for number, file in enumerate(item.files)]
    limits = CheckLimits(max_rows=settings.MAX_DATASET_ROWS, wall_s=READ_WALL_S)
    claim.report({"stage": "reading"}, at_once=True)
    try:
        report = read_files(
            given,
            folder,
            limits=limits,
            on_progress=lambda progress: claim.report({"stage": "reading", **progress._asdict()}),
            run=item.source_run,
        )
        if report.verdict == "rejected":
            claim.finish(state=ImportState.REJECTED, report=_storable_report(report))
        else:
            _make_run(claim, report, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def import_failed(_item: RunImport, error: TiltyardError) -> dict[str, Any]:
    """The columns of an import that failed."""
    return {"state": ImportState.REJECTED, "report": _refusal_report(error.message)}


def import_ended(item: RunImport) -> None:
    """Delete the uploaded files, which are not needed any more."""
    shutil.rmtree(import_dir(item.pk), ignore_errors=True)


def _make_run(claim: Claim[RunImport], report: ImportReport, folder: Path) -> None:
    """Make the folder a run. A worker that takes over a lost import finds the run there already, by its files."""
    item = claim.item
    claim.report({"stage": "storing", "rows": report.rows_in - report.bad_rows}, at_once=True)
    name = item.name or item.files[0]["name"].rsplit("/", 1)[-1].rsplit(".", 1)[0]
    try:
        run, new = run_import(project=item.project, folder=folder, name=name, user=item.created_by)
    except IntegrityError:  # another import made the same run, or one of this name, just now
        run, new = run_import(project=item.project, folder=folder, name=name, user=item.created_by)
    claim.finish(state=ImportState.DONE, report=_storable_report(report), run=run, is_new=new)


def _refusal_report(why: str) -> dict[str, Any]:
    """The report of files that were not read; the worker does not know the reader's language, so the sentence is
    translated when shown."""
    return dict(clean_json({"message": str(why), "told": [Sentence.of(why).data]}))


def _storable_report(report: ImportReport) -> dict[str, Any]:
    return dict(clean_json(report.model_dump(mode="json")))


def imports_of(project: Project) -> QuerySet[RunImport]:
    """A project's imports, newest first."""
    return RunImport.objects.filter(project=project).select_related("project", "run", "created_by")


def percent_of(item: RunImport) -> int:
    """How far the reading has come, 0 to 100."""
    if item.progress.get("stage") == "storing":
        return 100
    total = int(item.progress.get("total") or 0)
    return min(100, round(100 * int(item.progress.get("bytes") or 0) / total)) if total else 0


# --- Report ---------------------------------------------------------------------------------------------------------
# The report on a foreign run's files, in the reader's language.

REPORT_BYTES = 8 << 20


def import_report(run: Run) -> dict[str, Any]:
    """The report on a foreign run's files, from the run's folder; empty for a run of ours."""
    if not run.imported_from:
        return {}
    try:
        with open(attempt_dir(run.pk, run.attempt) / REPORT_NAME, "rb") as file:
            return import_view(json.loads(file.read(REPORT_BYTES)))
    except (OSError, ValueError):
        return {}


def import_view(report: dict[str, Any]) -> dict[str, Any]:
    """An import's report as pages show it."""
    titles = {reader.name: _(reader.title) for reader in READERS}
    files = [item | {"title": titles.get(item.get("kind", ""), "")} for item in report.get("files", [])]
    bad = sum(int(item.get("bad_rows", 0)) for item in files)
    left_out = [
        {"file": item.get("name", ""), "column": column, "why": translated(why)}
        for item in files
        for column, why in item.get("left_out", {}).items()
    ]
    notes = [*dict.fromkeys(note for item in files for note in _file_notes(item))]
    told = {"message": message_of(report), "tool": translated(report.get("tool"))}
    listed = {name: [_with_reason(item) for item in report.get(name, [])] for name in ("bad", "remarks")}
    return report | told | listed | {"files": files, "bad_rows": bad, "columns": left_out[:200], "notes": notes[:50]}


def _file_notes(item: dict[str, Any]) -> list[str]:
    """The notes on a file; reports of earlier versions have only the English sentences."""
    return [in_words(found) for found in item.get("told") or []] or [str(text) for text in item.get("notes", [])]


def _with_reason(item: dict[str, Any]) -> dict[str, Any]:
    return item | {"reason": in_words(item["told"])} if item.get("told") else item
