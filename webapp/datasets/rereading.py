"""Reading an upload again under other choices.

A version that was never ready (its format is not recognised, it has bad rows, or was rejected) is read again in its
place: no run can have used it. A ready version never changes, so its file becomes the next version under the same name.
"""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext as _

from webapp.common import work
from webapp.common.storage import companion, dataset_dir
from webapp.common.text import os_words
from webapp.datasets.choices import UPLOADED, Choices, choices_clean, companions_of
from webapp.datasets.models import Dataset, DatasetState
from webapp.datasets.services import companions_store, version_insert
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, User

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
