"""The one place that makes paths: built from server-made ids under the data folder, never from user text."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from django.conf import settings


def dataset_dir(dataset_id: UUID) -> Path:
    """Folder of one dataset version."""
    return Path(settings.DATA_DIR) / "datasets" / str(UUID(str(dataset_id)))


def run_dir(run_id: UUID) -> Path:
    """Folder of one run; each attempt has its own folder inside."""
    return Path(settings.DATA_DIR) / "runs" / str(UUID(str(run_id)))


def attempt_dir(run_id: UUID, attempt: int) -> Path:
    """Folder of one attempt: config.yaml, journal.jsonl, log.txt, checkpoints, model."""
    return run_dir(run_id) / str(int(attempt))


def inside(root: Path, relative: str) -> Path:
    """``root / relative`` if it stays inside root without following links; ``ValueError`` otherwise."""
    path = (root / relative).resolve()
    if not path.is_relative_to(root.resolve()):
        raise ValueError("path leaves its folder")
    return path
