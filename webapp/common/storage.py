"""The one place that makes paths: built from server-made ids under the data folder, never from user text."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from uuid import UUID

from django.conf import settings
from django.core.files.base import File
from django.core.files.uploadedfile import TemporaryUploadedFile

logger = logging.getLogger(__name__)


def project_dir(project_id: UUID) -> Path:
    """Folder of what belongs to a project itself: the base models that were fetched for it."""
    return Path(settings.DATA_DIR) / "projects" / str(UUID(str(project_id)))


def dataset_dir(dataset_id: UUID) -> Path:
    """Folder of one dataset version."""
    return Path(settings.DATA_DIR) / "datasets" / str(UUID(str(dataset_id)))


def rollout_set_dir(set_id: UUID) -> Path:
    """Folder of one rollout set: its episodes, their columns, and the values that were computed from them."""
    return Path(settings.DATA_DIR) / "rollout-sets" / str(UUID(str(set_id)))


def rescoring_dir(rescoring_id: UUID) -> Path:
    """Folder of recorded rollouts while they are scored again."""
    return Path(settings.DATA_DIR) / "rescorings" / str(UUID(str(rescoring_id)))


def export_file(dataset_id: UUID, export_id: UUID) -> Path:
    """One file that was made of a dataset version for downloading."""
    return dataset_dir(dataset_id) / "exports" / str(UUID(str(export_id)))


def companion(dataset_id: UUID, kind: str) -> Path:
    """A file (or, of function documents, a folder of files) that was uploaded as the companion of a dataset."""
    if kind not in ("answers", "documents", "ids"):
        raise ValueError("not a kind of companion")
    return dataset_dir(dataset_id) / "companions" / kind


def run_dir(run_id: UUID) -> Path:
    """Folder of one run; each attempt has its own folder inside."""
    return Path(settings.DATA_DIR) / "runs" / str(UUID(str(run_id)))


def attempt_dir(run_id: UUID, attempt: int) -> Path:
    """Folder of one attempt: config.yaml, journal.jsonl, log.txt, checkpoints, model."""
    return run_dir(run_id) / str(int(attempt))


def rewind_file(run_id: UUID, rollout_id: UUID, turn: int) -> Path:
    """The past of rollouts that continue from a turn of a recorded one; it is deleted with the recorded run."""
    return run_dir(run_id) / "rewinds" / f"{UUID(str(rollout_id))}-{int(turn)}.json"


def run_export_file(run_id: UUID, export_id: UUID) -> Path:
    """One file that was made of a run's metrics for downloading."""
    return run_dir(run_id) / "exports" / str(UUID(str(export_id)))


def trash_dir(removal_id: UUID) -> Path:
    """Folder of the files that one removal deletes."""
    return Path(settings.DATA_DIR) / "trash" / str(UUID(str(removal_id)))


def import_dir(import_id: UUID) -> Path:
    """Folder of one upload of a foreign run, until it has been read."""
    return Path(settings.DATA_DIR) / "imports" / str(UUID(str(import_id)))


def environments_dir() -> Path:
    """Folder of the environments that we start: the ledger of processes, and a folder for each."""
    return Path(settings.DATA_DIR) / "environments"


def environment_dir(environment_id: UUID) -> Path:
    """Folder of one environment on its keeper's host: the token for its servers, and a log for each replica."""
    return environments_dir() / str(UUID(str(environment_id)))


def replica_log(environment_id: UUID, number: int) -> Path:
    """The log file of one replica."""
    return environment_dir(environment_id) / f"replica-{int(number)}.log"


def environment_data_root() -> Path:
    """Folder of the operator's data files that servers which we start may be given."""
    return Path(settings.ENVIRONMENT_DATA_DIR)


def environment_data(relative: str) -> Path:
    """The path of ``relative`` in the environments' data, such as ``toolbench/tools``; ``ValueError`` for any other
    place.

    Only plain names: nothing hidden, nothing above, nothing that a link leads out to.
    """
    parts = relative.split("/")
    if not all(part and part.isprintable() and not part.startswith(".") for part in parts):
        raise ValueError("not a plain path")
    return inside(environment_data_root(), relative)


def inside(root: Path, relative: str) -> Path:
    """``root / relative`` if it stays inside root without following links; ``ValueError`` otherwise."""
    path = (root / relative).resolve()
    if not path.is_relative_to(root.resolve()):
        raise ValueError("path leaves its folder")
    return path


def file_store(file: File[bytes], path: Path) -> None:
    """Put an upload in its place, readable by us only. What is already on our disk is moved, not copied."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
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
