"""Bodies that several operations of the API take."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from training.config import Protocol, RewardComponent
from webapp.common.answers import Extended
from webapp.datasets.models import Dataset
from webapp.datasets.operations import lineage_dict
from webapp.environments.models import MAX_REPLICAS
from webapp.runs.records.limits import Which
from webapp.runs.states import Priority

CLASS = "class in the queue; only owners choose another than `normal`"


class Body(BaseModel):
    """Base of every body: unknown fields are an error, so a misspelt one is noticed."""

    model_config = ConfigDict(extra="forbid")


class ConfigIn(Body):
    """A config as an object or as YAML text; what is left out has its default."""

    config: dict[str, Any] | None = None
    yaml: str | None = Field(default=None, max_length=65536)


class RunIn(ConfigIn):
    """A new run: its config as an object or as YAML text; what is left out has its default."""

    name: str = Field(min_length=1, max_length=80)
    idempotency_key: str | None = Field(default=None, min_length=1, max_length=64)
    launch: bool = True
    priority: Priority = Field(default=Priority.NORMAL, description=CLASS)


class RunPatch(Body):
    """People's marks on a run; fields that are left out stay."""

    tags: list[str] | None = Field(default=None, max_length=20)
    notes: str | None = Field(default=None, max_length=8000)
    archived: bool | None = None


class QueueIn(Body):
    """A change of a waiting run's place in the queue; fields that are left out stay."""

    priority: Priority | None = None
    on_hold: bool | None = Field(default=None, description="true: no worker takes it; false: release it")
    first: bool = Field(default=False, description="put it before all others of its class")


class DrainIn(Body):
    """A host whose workers drain, or work again."""

    host: str = Field(default="", max_length=120, description="the part of a worker's name after the @")
    on: bool = True


class LimitIn(Body):
    """Other limits of a project; fields that are left out stay."""

    project: str = Field(default="", max_length=80, description="slug")
    devices: int | None = Field(default=None, description="how many its runs may have at once; null: no limit")
    storage_gib: int | None = Field(default=None, description="how many GiB it may store; null: no limit")

    @property
    def limits(self) -> dict[Which, int | None]:
        """Those that were sent."""
        sent: dict[Which, int | None] = {"devices": self.devices, "storage_gib": self.storage_gib}
        return {name: value for name, value in sent.items() if name in self.model_fields_set}


class StarIn(Body):
    """Whether the caller's star is on a run."""

    starred: bool = True


class RewardSpecIn(Body):
    """A reward spec; a name that exists gets its next version."""

    name: str = Field(min_length=1, max_length=80)
    components: list[RewardComponent] = Field(min_length=1, max_length=100)


class EnvironmentIn(Body):
    """An environment: a server at `url`, or servers that are started from a built-in `program` or an `image`.

    A server at an address is refused when it does not pass validation, unless `accept` is true.
    """

    name: str = Field(min_length=1, max_length=80)
    url: str = Field(default="", max_length=500)
    token: str = Field(default="", max_length=500)
    server_name: str = Field(default="", max_length=80)
    accept: bool = False
    protocol: Protocol = "openenv"
    options: dict[str, Any] = Field(default_factory=dict)
    program: str = Field(default="", max_length=40)
    image: str = Field(default="", max_length=200)
    arguments: dict[str, Any] = Field(default_factory=dict, description="options of the built-in server")
    slots: int = Field(default=128, ge=1, le=4096)
    cpus: float = Field(default=1.0, ge=0.1, le=64)
    memory_mb: int = Field(default=1024, ge=64, le=262_144)
    pids: int = Field(default=128, ge=8, le=4096)
    wanted: int = Field(default=1, ge=0, le=MAX_REPLICAS)


class ScaleIn(Body):
    """How many replicas are wanted."""

    wanted: int = Field(ge=0, le=MAX_REPLICAS)


class ModelIn(Body):
    """The team's own words on a model; fields that are left out stay. `mark` is `candidate`, `production` or empty, and
    `card` has the team's sections by name: `intended_use`, `limitations`, `licence`."""

    mark: str | None = Field(default=None, max_length=10)
    tags: list[str] | None = Field(default=None, max_length=100)
    notes: str | None = Field(default=None, max_length=20_000)
    card: dict[str, str] | None = Field(default=None, max_length=10)


class ModelNew(Body):
    """A model to register: `source` is an id of the hub or the name of a folder, `checkpoint` one of a run's."""

    name: str = Field(min_length=1, max_length=80)
    kind: Literal["hub", "folder", "run"]
    source: str = Field(default="", max_length=200)
    revision: str = Field(default="", max_length=64)
    checkpoint: UUID | None = None


class PushIn(Body):
    """The target of a push: `owner/name` on the hub. `confirm` says that its weights may leave this server."""

    repository: str = Field(min_length=3, max_length=200)
    private: bool = True
    confirm: bool = False


def with_lineage(dataset: Dataset) -> Extended:
    """A dataset version with what it was made of."""
    return Extended(dataset, lineage=lineage_dict(dataset))
