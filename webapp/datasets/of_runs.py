"""The dataset version that a run's steps drew their tasks from."""

from __future__ import annotations

import uuid
from pathlib import Path

from webapp.datasets.models import Dataset
from webapp.runs.config import config_at
from webapp.runs.models import Run


def dataset_of_step(run: Run, step: int, part: str = "") -> Dataset | None:
    """The version whose rows a step, or a ``part`` of its mix, was played on, if it is one of the run's project and
    still there."""
    config = config_at(run, step, part)
    path = Path(config.data.train) if config else Path()
    try:
        known = Dataset.objects.filter(pk=uuid.UUID(path.parent.name), project=run.project_id).first()
    except ValueError:
        return None
    return known if known and known.rows_path == path and path.is_file() else None
