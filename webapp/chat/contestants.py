"""The contestants of chats: models of the registry, checkpoints of runs, endpoints of the project, Hugging Face ids."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from pydantic import BaseModel, ConfigDict, Field
from pydantic import ValidationError as ShapeError

from training.chat.wire import Open
from training.config import EndpointConfig, ModelConfig, Reference, kind_in, name_in
from training.errors import ConfigError, ModelError, TiltyardError
from webapp.common.pages import newest_only
from webapp.common.pools import ENDPOINT, TRAIN
from webapp.endpoints.models import Endpoint
from webapp.endpoints.selectors import endpoint_named, endpoints_of
from webapp.endpoints.services import asked_with
from webapp.engine.resolve import model_meant
from webapp.people.teams.models import Project
from webapp.runs.registry.models import Checkpoint, ModelKind
from webapp.runs.registry.selectors import checkpoints_of, models_of

MOST = 2
MAX_CHOICES = 500


class Contestant(BaseModel):
    """One of a chat. ``source``: ``model:<name>``, ``run:<name>``, ``checkpoint:<id>``, ``endpoint:<name>``, or an id
    of Hugging Face."""

    model_config = ConfigDict(extra="forbid")

    source: str = Field(min_length=1, max_length=300)
    title: str = Field(default="", max_length=300, description="how it is called; made by the server")


def pool_of(source: str) -> str:
    """The pool whose places answers of this contestant take."""
    return ENDPOINT if kind_in(source) == "endpoint" else TRAIN


class Choice(NamedTuple):
    """A line of the list to choose from."""

    value: str
    label: str


def choices(project: Project) -> list[tuple[str, list[Choice]]]:
    """The contestants to choose from, in groups: registered models, checkpoints of runs, endpoints."""
    registered = models_of(project).exclude(kind=ModelKind.STARTER).select_related(None).defer(None).only("name")
    finished = checkpoints_of(project).filter(final=True).select_related(None).prefetch_related(None).defer(None)
    finished = finished.select_related("run").only("step", "run__name")
    models = [Choice(model.reference, model.name) for model in registered[:MAX_CHOICES]]
    left = [Choice(item.reference, _checkpoint_title(item)) for item in finished[:MAX_CHOICES]]
    asked = [Choice(item.reference, item.name) for item in endpoints_of(project)[:MAX_CHOICES]]
    groups = ((_("Registered"), models), (_("Trained here"), left), (_("Endpoints"), asked))
    return [(_group_label(label, found), found) for label, found in groups if found]


def _group_label(label: str, found: list[Choice]) -> str:
    return " · ".join(filter(None, (label, newest_only(len(found), MAX_CHOICES))))


def _checkpoint_title(checkpoint: Checkpoint) -> str:
    return _("%(run)s · step %(step)s") % {"run": checkpoint.run.name, "step": checkpoint.step}


def contestant_of(project: Project, values: dict[str, Any]) -> Contestant:
    """A contestant that a person chose, with its title, checked as far as possible here. Raises ``ValidationError``."""
    try:
        found = Contestant.model_validate(values)
    except ShapeError as exc:
        raise ValidationError({"contestants": _("Choose a model.")}) from exc
    try:
        open_of(project, found)
    except TiltyardError as exc:
        sentence = exc.sentence if isinstance(exc, ConfigError) else exc.message
        raise ValidationError({"contestants": sentence[:1].upper() + sentence[1:]}) from exc
    return found.model_copy(update={"title": _contestant_title(project, found)})


def _contestant_title(project: Project, contestant: Contestant) -> str:
    match Reference.parse(contestant.source):
        case Reference("checkpoint", pk):
            return _checkpoint_title(_checkpoint_of(project, pk))
        case Reference("model" | "run" | "endpoint", name):
            return name
    return contestant.source


def open_of(project: Project, contestant: Contestant) -> Open:
    """The model that a chat process has to load, or the endpoint. Raises ``ModelError``, ``ConfigError`` with a
    sentence."""
    if (endpoint := endpoint_meant(project, contestant)) is not None:
        return Open(endpoint=EndpointConfig.model_validate(asked_with(endpoint)))
    if contestant.source == "starter":
        raise ModelError(_("The starter is built again for each run: choose a model that a run has trained."))
    if kind_in(contestant.source) != "checkpoint":
        source, revision = model_meant(project, contestant.source)
        return Open(model=ModelConfig(source=source, revision=revision))
    checkpoint = _checkpoint_of(project, name_in("checkpoint", contestant.source))
    if not checkpoint.folder.is_dir():
        raise ModelError(_("The files of this checkpoint are gone."))
    return Open(model=ModelConfig(source=str(checkpoint.folder)))


def endpoint_meant(project: Project, contestant: Contestant) -> Endpoint | None:
    """The endpoint that a contestant is; ``None`` for a model. Raises ``ModelError``."""
    if pool_of(contestant.source) != ENDPOINT:
        return None
    name = name_in("endpoint", contestant.source)
    found = endpoint_named(project, name)
    if found is None:
        raise ModelError(_("There is no endpoint “%s” in this project.") % name[:120])
    return found


def _checkpoint_of(project: Project, pk: str) -> Checkpoint:
    """The checkpoint of a source. Raises ``ModelError``."""
    try:
        found = checkpoints_of(project).filter(pk=UUID(pk)).first()
    except ValueError:
        found = None
    if found is None:
        raise ModelError(_("This checkpoint is not here any more."))
    return found
