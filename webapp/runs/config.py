"""A run's config, read."""

from __future__ import annotations

from pydantic import ValidationError

from training.config import JobConfig
from webapp.runs.models import Run


def config_of(run: Run) -> JobConfig | None:
    """The config that the run has or had; ``None`` when it was written by a version that no longer fits."""
    try:
        return JobConfig.model_validate(run.resolved or run.config)
    except ValidationError:
        return None
