"""The next version of a dataset: its rows with new ones, or its upload read again under other choices."""

from __future__ import annotations

import json
import logging
import os
import shutil
import uuid
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext as _

from training.data import RowError, check_tree, row_from_dict
from webapp.common import work
from webapp.common.pages import clean_name
from webapp.common.storage import companion, dataset_dir
from webapp.common.text import os_words
from webapp.datasets.choices import UPLOADED, Choices, choices_clean, companions_of
from webapp.datasets.models import Dataset, DatasetState
from webapp.datasets.operations import parent_of
from webapp.datasets.selectors import datasets_of
from webapp.datasets.services import KEEP_FREE_BYTES, companions_store, too_large_sentence, version_insert
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project, User

# --- Appending ------------------------------------------------------------------------------------------------------
# Adding rows to a dataset: its rows never change, so the rows and the new ones become its next version.
#
# 1. The newest version must have been checked: the rows of an unchecked one are not known yet.
# 2. The file is written before the lock is taken; under the project's lock the base must still be the newest. Else the
#    rows that another person added meanwhile would be missing, so it starts again.
# 3. From there on the version is an upload like any other: it is checked in a process of its own.

logger = logging.getLogger(__name__)
MAX_ROWS = 1000
TRIES = 3


def dataset_append(
    *, project: Project, user: User | None, name: str, rows: list[dict[str, Any]], file_name: str
) -> Dataset:
    """The next version of a dataset with these rows at its end. Raises ``ValidationError`` with a sentence."""
    name, lines = clean_name(name), _rows_as_lines(rows)
    for _number in range(TRIES):
        base = _base_version(project, name)
        dataset = Dataset(id=uuid.uuid4(), project=project, name=name, file_name=file_name, created_by=user)
        parents = [parent_of(base)] if base else []
        dataset.lineage = {"operation": "append", "options": {"rows": len(rows)}, "parents": parents}
        try:
            dataset.bytes = _write_file(dataset, base, lines)
            if _insert_if_newest(dataset, base):
                logger.info("rows appended", extra={"dataset_id": dataset.pk, "project_id": project.pk})
                return dataset
        except BaseException:
            shutil.rmtree(dataset_dir(dataset.id), ignore_errors=True)
            raise
        shutil.rmtree(dataset_dir(dataset.id), ignore_errors=True)
    raise ValidationError(_("Someone else is adding to “%(name)s”. Try again in a moment.") % {"name": name})


def _rows_as_lines(rows: list[dict[str, Any]]) -> bytes:
    """The rows as lines of a file that the check will accept. Raises ``ValidationError``."""
    if not 1 <= len(rows) <= MAX_ROWS:
        raise ValidationError(_("Between 1 and %(n)s rows can be added at once.") % {"n": MAX_ROWS})
    texts = []
    for row in rows:
        try:
            check_tree(row)
            row_from_dict(row)
        except RowError as exc:
            raise ValidationError(_("A dataset cannot hold this row: %(reason)s.") % {"reason": exc}) from exc
        texts.append(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
    return "".join(texts).encode()


def _base_version(project: Project, name: str) -> Dataset | None:
    """The version to add to; ``None`` where the name is new. A rejected version has no rows and is skipped."""
    versions = datasets_of(project).filter(name=name).exclude(state=DatasetState.REJECTED)
    newest = versions.order_by("-version").first()
    if newest is not None and newest.state == DatasetState.CHECKING:
        raise ValidationError(_("%(name)s is still being checked. Try again in a moment.") % {"name": str(newest)})
    if newest is not None and newest.state == DatasetState.NEEDS_MAPPING:
        raise ValidationError(
            _("%(name)s has not been read yet. Choose the format on its page.") % {"name": str(newest)}
        )
    if newest is not None and newest.state == DatasetState.NEEDS_CHOICE:
        raise ValidationError(
            _("%(name)s has bad rows. Decide on its page whether to continue without them.") % {"name": str(newest)}
        )
    return newest


def _write_file(dataset: Dataset, base: Dataset | None, lines: bytes) -> int:
    """Write the file of the new version, readable by us only. Returns its size in bytes."""
    try:
        size = (base.rows_path.stat().st_size if base else 0) + len(lines)
        if size > settings.MAX_UPLOAD_BYTES:
            raise ValidationError(too_large_sentence())
        if shutil.disk_usage(settings.DATA_DIR).free < size * 2 + KEEP_FREE_BYTES:
            raise ValidationError(_("The server's disk is nearly full, so the file was not kept."))
        dataset.upload_path.parent.mkdir(parents=True, mode=0o700)
        handle = os.open(dataset.upload_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "wb") as target:
            if base is not None:
                with base.rows_path.open("rb") as source:
                    shutil.copyfileobj(source, target, 1 << 20)
            target.write(lines)
    except OSError as exc:
        sentence = _("The rows could not be stored: %(reason)s.") % {"reason": os_words(exc)}
        raise ValidationError(sentence) from exc
    return size


def _insert_if_newest(dataset: Dataset, base: Dataset | None) -> bool:
    """Save the row if the base is still the newest version. Returns whether it was."""
    with transaction.atomic():
        Project.objects.select_for_update().filter(pk=dataset.project_id).first()
        versions = Dataset.objects.filter(project=dataset.project, name=dataset.name).order_by("-version")
        usable = versions.exclude(state=DatasetState.REJECTED).values_list("pk", flat=True).first()
        if usable != (base.pk if base else None):
            return False
        dataset.version = (versions.values_list("version", flat=True).first() or 0) + 1
        dataset.save(force_insert=True)
        work.enqueue(dataset)
        audit(AuditAction.DATASET_ADDED, dataset, by=dataset.created_by)
    return True


# --- Reading again --------------------------------------------------------------------------------------------------
# Reading an upload again under other choices.
#
# A version that was never ready (its format is not recognised, it has bad rows, or was rejected) is read again in its
# place: no run can have used it. A ready version never changes, so its file becomes the next version under the same
# name.

IN_PLACE = (DatasetState.NEEDS_MAPPING, DatasetState.NEEDS_CHOICE, DatasetState.REJECTED)


def can_read_again(dataset: Dataset) -> bool:
    """Whether there is a file to read again: it has arrived, and no check reads it."""
    return dataset.state != DatasetState.CHECKING and dataset.upload_path.is_file()


def dataset_read_again(*, dataset: Dataset, user: User | None, choices: Choices) -> Dataset:
    """Read the same upload under these choices; returns the version that is checked now. Raises ``ValidationError``."""
    if not can_read_again(dataset):
        raise ValidationError(_("This version is being checked, or its file is gone."), code="conflict")
    choices_clean(dataset.project, choices, companions_of(dataset))
    return _read_in_place(dataset, choices) if dataset.state in IN_PLACE else _next_version(dataset, user, choices)


def _read_in_place(dataset: Dataset, choices: Choices) -> Dataset:
    source = {name: value for name, value in dataset.source.items() if name != "look"}
    with transaction.atomic():
        changed = Dataset.objects.filter(pk=dataset.pk, state__in=IN_PLACE).update(
            state=DatasetState.CHECKING,
            reading=choices.reading,
            checking=choices.checking,
            source=source,
            progress={},
            report={},
            rows=0,
            bad_rows=0,
            sha256="",
        )
        if not changed:
            raise ValidationError(_("This version is being checked, or its file is gone."), code="conflict")
        for path in (dataset.rows_path, dataset.identities_path, dataset.findings_path):
            path.unlink(missing_ok=True)
        companions_store(dataset, choices)
        work.enqueue(dataset)
        audit(AuditAction.DATASET_CHANGED, dataset)
    dataset.refresh_from_db()
    return dataset


def _next_version(dataset: Dataset, user: User | None, choices: Choices) -> Dataset:
    source: dict[str, Any] = {name: value for name, value in dataset.source.items() if name == "hub"}
    made = Dataset(
        id=uuid.uuid4(),
        project=dataset.project,
        name=dataset.name,
        file_name=dataset.file_name,
        bytes=dataset.bytes,
        created_by=user,
        reading=choices.reading,
        checking=choices.checking,
        source={**source, "copied": dataset.reference},
    )
    try:
        _link_or_copy(dataset.upload_path, made.upload_path)
        for kind in companions_of(dataset):
            if choices.reading.get(kind) == UPLOADED and kind not in choices.companions:
                _link_or_copy(companion(dataset.pk, kind), companion(made.pk, kind))
        companions_store(made, choices)
        version_insert(made)
    except OSError as exc:
        shutil.rmtree(dataset_dir(made.pk), ignore_errors=True)
        sentence = _("The file could not be stored: %(reason)s.") % {"reason": os_words(exc)}
        raise ValidationError(sentence) from exc
    except BaseException:
        shutil.rmtree(dataset_dir(made.pk), ignore_errors=True)
        raise
    return made


def _link_or_copy(source: Path, target: Path) -> None:
    """The same bytes in a second place: a hard link where the disk can, as neither file is written again."""
    target.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
    if source.is_dir():
        target.mkdir(mode=0o700)
        for item in source.iterdir():
            _link_or_copy(item, target / item.name)
        return
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        os.chmod(target, 0o600)
