"""Writing datasets: the row and its file now, the check by a worker (``webapp.common.work``)."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import uuid
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.files.base import File
from django.db import IntegrityError, transaction
from django.db.models import Max
from django.utils.translation import gettext as _

from training.data.checking.check import Ask
from training.data.checking.runner import run_check
from training.data.identity import IDENTITIES_NAME
from training.data.limits import CheckLimits
from training.errors import TiltyardError
from webapp.common import work
from webapp.common.pages import clean_name
from webapp.common.storage import dataset_dir, file_store
from webapp.common.text import in_words
from webapp.common.work import Claim
from webapp.datasets.choices import Choices, choices_clean, resolved
from webapp.datasets.deriving import rows_make
from webapp.datasets.hub import file_ready
from webapp.datasets.models import Dataset, DatasetState
from webapp.datasets.selectors import runs_using
from webapp.datasets.storing import companions_store
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project, User
from webapp.runs.removal.files import removal_add

logger = logging.getLogger(__name__)
KEEP_FREE_BYTES = 1024**3
CHECK_WALL_S = 840
MAX_PREVIEW_ROWS = 10
MAX_PREVIEW_BYTES = 256 * 1024
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def dataset_create(
    *, project: Project, user: User | None, name: str, file: File[bytes], file_name: str, choices: Choices | None = None
) -> Dataset:
    """Store an upload as the next version under a name and have it checked. Raises ``ValidationError`` by field."""
    choices = choices or Choices()
    choices_clean(project, choices)
    if not file.size:
        raise ValidationError({"file": _("The file is empty.")})
    size = int(file.size) + sum(int(beside.size or 0) for files in choices.companions.values() for beside in files)
    if size > settings.MAX_UPLOAD_BYTES:
        raise ValidationError({"file": too_large_sentence()}, code="too_large")
    if shutil.disk_usage(settings.DATA_DIR).free < size * 2 + KEEP_FREE_BYTES:
        raise ValidationError({"file": _("The server's disk is nearly full, so the file was not kept.")})
    shown = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", file_name)[-255:] or "upload"
    dataset = Dataset(
        id=uuid.uuid4(),
        project=project,
        name=clean_name(name),
        file_name=shown,
        bytes=int(file.size),
        created_by=user,
        reading=choices.reading,
        checking=choices.checking,
        source=_look_source(choices),
    )
    try:
        file_store(file, dataset.upload_path)
        companions_store(dataset, choices)
        version_insert(dataset)
    except BaseException:
        shutil.rmtree(dataset_dir(dataset.id), ignore_errors=True)
        raise
    logger.info("dataset uploaded", extra={"dataset_id": dataset.pk, "project_id": project.pk, "bytes": size})
    return dataset


def dataset_fetch(
    *, project: Project, user: User | None, name: str, hub: dict[str, str], choices: Choices | None = None
) -> Dataset:
    """Have a worker fetch a dataset of Hugging Face (``hub`` is ``source_clean``'s) and check it."""
    choices = choices or Choices()
    choices_clean(project, choices)
    dataset = Dataset(
        id=uuid.uuid4(),
        project=project,
        name=clean_name(name),
        file_name=hub["id"],
        created_by=user,
        reading=choices.reading,
        checking=choices.checking,
        source={"hub": hub, **_look_source(choices)},
    )
    try:
        companions_store(dataset, choices)
        version_insert(dataset)
    except BaseException:
        shutil.rmtree(dataset_dir(dataset.id), ignore_errors=True)
        raise
    return dataset


def _look_source(choices: Choices) -> dict[str, Any]:
    return {"look": True} if choices.look else {}


def too_large_sentence() -> str:
    """The sentence for a file that is larger than the limit."""
    limit = settings.MAX_UPLOAD_BYTES
    size = f"{limit / 1024**3:g} GB" if limit >= 1024**3 else f"{limit / 1024**2:.4g} MB"
    return _("The file is larger than %(limit)s, the most that may be uploaded. Split it into several files.") % {
        "limit": size
    }


def version_insert(dataset: Dataset) -> None:
    """Save the row under the next version; of two uploads at once, the later one takes the number after."""
    for last_try in (False, False, False, True):
        newest = Dataset.objects.filter(project=dataset.project, name=dataset.name).aggregate(top=Max("version"))["top"]
        dataset.version = (newest or 0) + 1
        try:
            with transaction.atomic():
                dataset.save(force_insert=True)
                audit(AuditAction.DATASET_ADDED, dataset, by=dataset.created_by)
                work.enqueue(dataset)
            return
        except IntegrityError:
            if last_try:
                raise


def check_run(claim: Claim[Dataset]) -> None:
    """Make or fetch the file where it is not here yet, check it in a process of its own, and write the outcome."""
    dataset = claim.item
    checks = dataset_dir(dataset.id) / "checks"
    shutil.rmtree(checks, ignore_errors=True)  # files of earlier checks that were killed
    folder = checks / claim.token
    limits = CheckLimits(max_rows=settings.MAX_DATASET_ROWS, wall_s=CHECK_WALL_S)
    try:
        rows_make(claim)
        file_ready(claim)
        options = resolved(dataset)
        ask: Ask = "always" if dataset.source.get("look") else "unsure"
        report = run_check(
            dataset.upload_path,
            folder,
            limits=limits,
            on_progress=lambda progress: claim.report(progress._asdict()),
            tokenizer=options.tokenizer,
            reading=options.reading,
            checking=options.checking,
            ask=ask,
        )
        _finish_check(claim, report, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_failed(dataset: Dataset, error: TiltyardError) -> dict[str, Any]:
    """The columns of a dataset that could not be made, fetched or checked."""
    words = " ".join(in_words(text) for text in (error.message, error.hint) if text)
    return {"state": DatasetState.REJECTED, "report": {"verdict": "rejected", "message": words}}


def _finish_check(claim: Claim[Dataset], report: dict[str, Any], folder: Path) -> None:
    """Write the outcome and move the good rows to their place, in this order of safety: lock, move, commit."""
    states = {"ok": DatasetState.READY, "bad_rows": DatasetState.NEEDS_CHOICE, "unsure": DatasetState.NEEDS_MAPPING}
    state = states.get(str(report.get("verdict")), DatasetState.REJECTED)
    with claim.held():
        if state in (DatasetState.READY, DatasetState.NEEDS_CHOICE):
            _move_into_place(folder / "rows.jsonl", claim.item.rows_path)
            _move_into_place(folder / IDENTITIES_NAME, claim.item.identities_path)
        if (folder / "findings.jsonl").exists():
            _move_into_place(folder / "findings.jsonl", claim.item.findings_path)
        claim.finish(
            state=state,
            rows=report.get("rows", 0),
            bad_rows=report.get("bad_rows", 0),
            sha256=report.get("sha256", ""),
            report=_storable_report(report),
        )


def _move_into_place(made: Path, path: Path) -> None:
    os.replace(made, path)
    os.chmod(path, 0o600)


def _storable_report(report: dict[str, Any]) -> dict[str, Any]:
    """The report as the database keeps it: few preview rows, and no NUL, which PostgreSQL does not store."""
    preview = list(report.get("preview") or [])[:MAX_PREVIEW_ROWS]
    while preview and len(json.dumps(preview)) > MAX_PREVIEW_BYTES:
        preview.pop()
    return dict(json.loads(json.dumps({**report, "preview": preview}).replace("\\u0000", "\\ufffd")))


def dataset_keep_good_rows(*, dataset: Dataset) -> Dataset:
    """Use a dataset without its bad rows. Raises ``ValidationError`` when there is no choice to make any more."""
    changed = Dataset.objects.filter(pk=dataset.pk, state=DatasetState.NEEDS_CHOICE).update(state=DatasetState.READY)
    if not changed:
        raise ValidationError(_("This version has no open decision about bad rows."), code="conflict")
    audit(AuditAction.DATASET_KEPT, dataset)
    dataset.refresh_from_db()
    return dataset


def dataset_delete(*, dataset: Dataset) -> None:
    """Delete one version and its files. Refused while a run that has not ended uses it."""
    names = list(runs_using(dataset, active=True).values_list("name", flat=True)[:3])
    if names:
        raise ValidationError(
            _("It is used by a run that has not ended: %(runs)s.") % {"runs": ", ".join(names)}, code="conflict"
        )
    with transaction.atomic():
        audit(AuditAction.DATASET_DELETED, dataset)
        removal_add(str(dataset), [dataset_dir(dataset.id)], dataset.project)
        dataset.delete()
