"""Several files that are uploaded together as one dataset: packed as the zip archive that the check reads anyway."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import IO, cast

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.files.base import File
from django.core.files.uploadedfile import TemporaryUploadedFile
from django.utils.translation import gettext as _

from training.data.files.bundle import ENDINGS, part_of

KEEP_FREE_BYTES = 1024**3
_COPY_BYTES = 1 << 20


def files_clean(files: list[File[bytes]]) -> None:
    """Refuse files that are not parts of one table: of another kind, or the parts of a benchmark that stay apart.

    The ending decides here, as it does in an archive. Raises ``ValidationError``.
    """
    if len(files) < 2:
        return
    if len(files) > settings.DATA_UPLOAD_MAX_NUMBER_FILES:
        too_many = _("At most %(most)s files at once; pack more of them into one zip archive.")
        raise ValidationError(too_many % {"most": settings.DATA_UPLOAD_MAX_NUMBER_FILES})
    endings = {_file_suffix(file) for file in files}
    if strange := [str(file.name) for file in files if _file_suffix(file) not in ENDINGS]:
        sentence = _("Of several files each must end in %(endings)s; this one does not: %(name)s.")
        raise ValidationError(sentence % {"endings": ", ".join(ENDINGS), "name": strange[0]})
    if len(endings) > 1:
        sentence = _("Several files make one dataset only if all are of one format; these are %(endings)s.")
        raise ValidationError(sentence % {"endings": ", ".join(sorted(endings))})
    parts = {part_of(str(file.name)) for file in files}
    if len(parts) > 1 and parts & {"train", "training"}:
        sentence = _("These are parts of a dataset (%(parts)s): upload each part as a dataset of its own.")
        raise ValidationError(sentence % {"parts": ", ".join(sorted(part for part in parts if part))})


@contextmanager
def packed(files: list[File[bytes]]) -> Iterator[tuple[File[bytes], str]]:
    """One file with all rows, and its name; a single file is itself."""
    first = str(files[0].name)
    if len(files) == 1:
        yield files[0], first
        return
    _require_room(files)
    with TemporaryUploadedFile("upload.zip", "application/zip", 0, None) as target:
        _write_zip(target, files)
        yield target, f"{first} + {len(files) - 1}"


def _require_room(files: list[File[bytes]]) -> None:
    if empty := next((file for file in files if not file.size), None):
        raise ValidationError({"file": _("The file %(name)s is empty.") % {"name": empty.name}})
    size = sum(int(file.size or 0) for file in files)
    if shutil.disk_usage(settings.DATA_DIR).free < 3 * size + KEEP_FREE_BYTES:
        raise ValidationError({"file": _("The server's disk is nearly full, so the file was not kept.")})


def _write_zip(target: TemporaryUploadedFile, files: list[File[bytes]]) -> None:
    """Write each file as a member, under its own name if all names differ: the name gives a member's place."""
    names = [PurePosixPath(str(file.name)).name for file in files]
    alike = len(set(names)) < len(names)
    spool = cast(IO[bytes], target.file)
    with zipfile.ZipFile(spool, "w", zipfile.ZIP_STORED) as archive:
        for number, (name, file) in enumerate(zip(names, files, strict=True)):
            with archive.open(f"{number}-{name}" if alike else name, "w", force_zip64=True) as member:
                for chunk in file.chunks(_COPY_BYTES):
                    member.write(chunk)
    target.size = spool.seek(0, os.SEEK_END)
    spool.flush()
    spool.seek(0)


def _file_suffix(file: File[bytes]) -> str:
    return PurePosixPath(str(file.name).lower().removesuffix(".gz")).suffix
