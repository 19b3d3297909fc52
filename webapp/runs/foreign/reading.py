"""Runs of other trainers, uploaded as files.

1. ``import_create`` stores the files and the row (state ``reading``) and sends a message, which is only a hint.
2. ``import_claim`` takes the import for one worker by writing a fresh token into ``progress``; while that worker
   reports at least once in ``LOST_AFTER_S``, nobody else can claim it.
3. The files are read by a limited child process into a folder, and the folder becomes a run, in one transaction; during
   that no word is heard, so ``at`` lies ahead by as long as it may take.
4. The outcome is written only where the token is still ours. An import whose worker fell silent is sent again.
"""

from __future__ import annotations

import logging
import secrets
import shutil
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.files.base import File
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from training.data.files.archive import Given
from training.data.limits import CheckLimits
from training.errors import DataError
from training.imports.report import ImportReport
from training.imports.runner import run_import as read_files
from training.words import said, told
from webapp.claims import progress_writer, silent
from webapp.datasets.services import KEEP_FREE_BYTES, PROGRESS_EVERY_S, too_large_sentence
from webapp.pages import clean_name
from webapp.runs.foreign.importing import run_import
from webapp.runs.models import ImportState, RunImport
from webapp.storage import file_store, import_dir
from webapp.teams.models import Project, User
from webapp.text import clean_json, clean_text

logger = logging.getLogger(__name__)
LOST_AFTER_S = 60
READ_WALL_S, STORE_WALL_S = 840, 900
TIME_LIMIT_S = READ_WALL_S + STORE_WALL_S
MAX_OPEN = 3


class ImportLost(Exception):
    """Somebody else has the import now, or it is gone."""


def import_create(*, project: Project, user: User | None, name: str, files: Sequence[File[bytes]]) -> RunImport:
    """Store the files of one run and have them read. Raises ``ValidationError`` by field."""
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
        created_by=user,
        files=[{"name": _shown(file.name), "bytes": size} for file, size in zip(files, sizes, strict=True)],
    )
    try:
        for number, file in enumerate(files):
            file_store(file, _file(item, number))
        with transaction.atomic():
            item.save(force_insert=True)
            transaction.on_commit(lambda: import_enqueue(item.pk))
    except BaseException:
        shutil.rmtree(import_dir(item.pk), ignore_errors=True)
        raise
    logger.info("import uploaded", extra={"import_id": item.pk, "project_id": project.pk, "bytes": sum(sizes)})
    return item


def _shown(name: str | None) -> str:
    return clean_text((name or "").replace("\n", " "))[-200:] or "file"


def _file(item: RunImport, number: int) -> Path:
    return import_dir(item.pk) / "files" / str(number)


def import_enqueue(import_id: uuid.UUID) -> None:
    """Tell a worker. A broker that is down costs only time: lost imports are found again."""
    from kombu.exceptions import OperationalError

    from webapp.runs.tasks import import_files

    try:
        import_files.apply_async((str(import_id),), retry=False)
    except (OperationalError, OSError) as exc:
        logger.warning("import not sent: %s", exc, extra={"import_id": import_id})


def import_claim(import_id: uuid.UUID | str) -> RunImport | None:
    """Take an import for this worker; ``None`` when there is nothing to do or somebody is at it."""
    with transaction.atomic():
        found = RunImport.objects.select_for_update().filter(pk=import_id, state=ImportState.READING).first()
        if found is None:
            return None
        if found.progress.get("token") and time.time() - float(found.progress.get("at", 0)) < LOST_AFTER_S:
            return None
        found.progress = {"token": secrets.token_hex(8), "at": time.time(), "stage": "reading"}
        found.save(update_fields=["progress"])
    return found


def import_read(item: RunImport) -> None:
    """Read a claimed import and make its run."""
    token = str(item.progress["token"])
    folder = import_dir(item.pk) / token
    given = [Given(_file(item, number), file["name"]) for number, file in enumerate(item.files)]
    limits = CheckLimits(max_rows=settings.MAX_DATASET_ROWS, wall_s=READ_WALL_S)
    try:
        report = read_files(given, folder, limits=limits, on_progress=_reporter(item, token))
        if report.verdict == "rejected":
            _finish(item, token, state=ImportState.REJECTED, report=_stored(report))
            return
        _make_run(item, token, report, folder)
    except ImportLost:
        logger.info("import given up", extra={"import_id": item.pk})
    except DataError as exc:
        _finish(item, token, state=ImportState.REJECTED, report=_refusal(exc.message))
    except OSError as exc:
        logger.exception("import could not write", extra={"import_id": item.pk})
        sentence = told(gettext_noop("The run could not be stored: {why}."), why=exc.strerror or "I/O error")
        _finish(item, token, state=ImportState.REJECTED, report=_refusal(sentence))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _make_run(item: RunImport, token: str, report: ImportReport, folder: Path) -> None:
    """The folder as a run; whoever lost the import meanwhile finds the run there already, by its files."""
    rows = report.rows_in - report.bad_rows
    progress = {"token": token, "at": time.time() + STORE_WALL_S, "stage": "storing", "rows": rows}
    if not _ours(item, token).update(progress=progress):
        raise ImportLost
    name = item.name or item.files[0]["name"].rsplit("/", 1)[-1].rsplit(".", 1)[0]
    try:
        run, new = run_import(project=item.project, folder=folder, name=name, user=item.created_by)
    except IntegrityError:  # another import made the same run, or one of this name, just now
        run, new = run_import(project=item.project, folder=folder, name=name, user=item.created_by)
    _finish(item, token, state=ImportState.DONE, report=_stored(report), run=run, is_new=new)


def _refusal(why: str) -> dict[str, Any]:
    """The report of files that were not read; the worker knows no reader, so the sentence is translated when shown."""
    return dict(clean_json({"message": str(why), "told": [said(why).model_dump(mode="json")]}))


def _stored(report: ImportReport) -> dict[str, Any]:
    return dict(clean_json(report.model_dump(mode="json")))


def _reporter(item: RunImport, token: str) -> Callable[[Any], None]:
    """Write progress at most four times a second; raises ``ImportLost`` when the import is no longer ours."""
    write = progress_writer(lambda: _ours(item, token), token, ImportLost, PROGRESS_EVERY_S)
    return lambda progress: write({"stage": "reading", **progress._asdict()})


def _ours(item: RunImport, token: str) -> QuerySet[RunImport]:
    return RunImport.objects.filter(pk=item.pk, state=ImportState.READING, progress__token=token)


def _finish(item: RunImport, token: str, **outcome: Any) -> None:
    """Write the outcome; the uploaded files have served then."""
    if _ours(item, token).update(progress={}, **outcome):
        shutil.rmtree(import_dir(item.pk), ignore_errors=True)


def import_time_out(import_id: str) -> None:
    """The import's own time limit ran out: reject with a sentence."""
    late = gettext_noop("Reading the files took too long. Give fewer steps at once.")
    rows = RunImport.objects.filter(pk=import_id, state=ImportState.READING)
    if rows.update(state=ImportState.REJECTED, report=_refusal(late), progress={}):
        shutil.rmtree(import_dir(uuid.UUID(str(import_id))), ignore_errors=True)


def lost_imports() -> QuerySet[RunImport]:
    """Imports of which nobody has heard for too long: their worker was killed, or the message was lost."""
    return silent(RunImport.objects.filter(state=ImportState.READING), LOST_AFTER_S)


def imports_of(project: Project) -> QuerySet[RunImport]:
    """A project's imports, newest first."""
    return RunImport.objects.filter(project=project).select_related("project", "run", "created_by")


def percent_of(item: RunImport) -> int:
    """How far the reading has come, 0 to 100."""
    if item.progress.get("stage") == "storing":
        return 100
    total = int(item.progress.get("total") or 0)
    return min(100, round(100 * int(item.progress.get("bytes") or 0) / total)) if total else 0
