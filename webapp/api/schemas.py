"""Bodies that the API takes, and what it shows of each object."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from pydantic import BaseModel, ConfigDict, Field

from training.config import RewardComponent
from webapp.datasets.models import Dataset
from webapp.environments.models import Environment
from webapp.rewards.models import RewardSpec
from webapp.runs.models import Run
from webapp.runs.selectors import run_view
from webapp.teams.models import Project


class Body(BaseModel):
    """Base of every body: unknown fields are an error, so a misspelt one is noticed."""

    model_config = ConfigDict(extra="forbid")


class RunIn(Body):
    """A new run: its config as an object or as YAML text; what is left out stands at its default."""

    name: str = Field(min_length=1, max_length=80)
    config: dict[str, Any] | None = None
    yaml: str | None = Field(default=None, max_length=65536)
    idempotency_key: str | None = Field(default=None, min_length=1, max_length=64)
    launch: bool = True


class RewardSpecIn(Body):
    """A reward spec; a name that exists gets its next version."""

    name: str = Field(min_length=1, max_length=80)
    components: list[RewardComponent] = Field(min_length=1, max_length=100)


class EnvironmentIn(Body):
    """A server to register."""

    name: str = Field(min_length=1, max_length=80)
    url: str = Field(min_length=1, max_length=500)


def project_out(project: Project) -> dict[str, Any]:
    """A project."""
    return {"slug": project.slug, "name": project.name, "team": project.team.name}


def run_out(run: Run, *, full: bool = False) -> dict[str, Any]:
    """A run as the live view shows it, with its address; ``full`` adds its config."""
    shown = {**run_view(run), "url": reverse("run-detail", args=[run.project.slug, run.pk])}
    return {**shown, "config": run.config} if full else shown


def dataset_out(dataset: Dataset, *, full: bool = False) -> dict[str, Any]:
    """A dataset version; ``full`` adds the report of its check without the preview of its rows."""
    shown = {
        "id": str(dataset.pk),
        "name": dataset.name,
        "version": dataset.version,
        "reference": dataset.reference,
        "state": dataset.state,
        "file_name": dataset.file_name,
        "bytes": dataset.bytes,
        "sha256": dataset.sha256,
        "rows": dataset.rows,
        "bad_rows": dataset.bad_rows,
        "created_at": dataset.created_at.isoformat(),
    }
    if full:
        progress = {key: value for key, value in dataset.progress.items() if key != "token"}
        report = {key: value for key, value in dataset.report.items() if key != "preview"}
        shown |= {"progress": progress, "report": report}
    return shown


def reward_out(spec: RewardSpec) -> dict[str, Any]:
    """A reward spec version."""
    return {
        "id": str(spec.pk),
        "name": spec.name,
        "version": spec.version,
        "reference": spec.reference,
        "components": spec.components,
        "created_at": spec.created_at.isoformat(),
    }


def environment_out(environment: Environment) -> dict[str, Any]:
    """A registered server and its last check."""
    return {
        "id": str(environment.pk),
        "name": environment.name,
        "reference": environment.reference,
        "url": environment.url,
        "server_name": environment.server_name,
        "healthy": environment.healthy,
        "health": environment.health,
        "checked_at": environment.checked_at.isoformat() if environment.checked_at else None,
    }
