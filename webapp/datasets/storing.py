"""Putting uploaded files in their places."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

from django.core.files.base import File
from django.core.files.uploadedfile import TemporaryUploadedFile

from webapp.datasets.choices import Choices, documents_named
from webapp.datasets.models import Dataset
from webapp.storage import companion

logger = logging.getLogger(__name__)


def companions_store(dataset: Dataset, choices: Choices) -> None:
    """Put the files that are read beside a dataset in their places; those of earlier choices are replaced."""
    for kind, files in choices.companions.items():
        place = companion(dataset.pk, kind)
        if kind == "documents":
            shutil.rmtree(place, ignore_errors=True)
            for stem, file in documents_named(files).items():
                file_store(file, place / f"{stem}.json")
        else:
            place.unlink(missing_ok=True)
            file_store(files[0], place)


def file_store(file: File[bytes], path: Path) -> None:
    """Put the file in its place, readable by us only. What is already on our disk is moved, not copied."""
    path.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
    if isinstance(file, TemporaryUploadedFile):
        try:
            os.replace(file.temporary_file_path(), path)
            os.chmod(path, 0o600)
            return
        except OSError:
            logger.info("upload copied across file systems")
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as target:
        for chunk in file.chunks():
            target.write(chunk)
