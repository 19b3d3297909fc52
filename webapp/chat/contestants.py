"""Who can be talked with: models of the registry, what runs left, ids of Hugging Face, and endpoints."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from pydantic import BaseModel, ConfigDict, Field
from pydantic import ValidationError as ShapeError

from training.chat.wire import Open
from training.config import EndpointConfig, ModelConfig
from training.errors import ConfigError, ModelError, TiltyardError
from webapp.engine.resolve import model_meant
from webapp.outbound import target_of
from webapp.registry.models import Checkpoint, ModelKind
from webapp.registry.selectors import checkpoints_of, models_of
from webapp.teams.models import Project

MOST = 2
MAX_CHOICES = 500
CHECKPOINT, ENDPOINT = "checkpoint:", "endpoint"


class Contestant(BaseModel):
    """One of a chat. ``source``: `model:<name>`, `run:<name>`, `checkpoint:<id>`, an id of Hugging Face, or `endpoint`
    with where it is."""

    model_config = ConfigDict(extra="forbid")

    source: str = Field(min_length=1, max_length=300)
    url: str = Field(default="", max_length=500)
    model: str = Field(default="", max_length=200)
    key_variable: str = Field(default="", max_length=100)
    title: str = Field(default="", max_length=300, description="how it is called; made by the server")


class Choice(NamedTuple):
    """A line of the list to choose from."""

    value: str
    label: str


def choices(project: Project) -> list[tuple[str, list[Choice]]]:
    """Whom a person may choose, in groups: registered models, then what runs left."""
    registered = models_of(project).exclude(kind=ModelKind.STARTER).select_related(None).defer(None).only("name")
    finished = checkpoints_of(project).filter(final=True).select_related(None).prefetch_related(None).defer(None)
    finished = finished.select_related("run").only("step", "run__name")
    models = [Choice(model.reference, model.name) for model in registered[:MAX_CHOICES]]
    left = [Choice(f"{CHECKPOINT}{item.pk}", _title(item)) for item in finished[:MAX_CHOICES]]
    return [(label, found) for label, found in ((_("Registered"), models), (_("Trained here"), left)) if found]


def _title(checkpoint: Checkpoint) -> str:
    return _("%(run)s · step %(step)s") % {"run": checkpoint.run.name, "step": checkpoint.step}


def contestant_of(project: Project, values: dict[str, Any]) -> Contestant:
    """A contestant that a person chose, with its title, checked as far as that goes. Raises ``ValidationError``."""
    try:
        found = Contestant.model_validate(values)
    except ShapeError as exc:
        raise ValidationError({"contestants": _("Choose a model.")}) from exc
    try:
        opened = open_of(project, found)
        if opened.endpoint.url:
            target_of(opened.endpoint.url)
    except TiltyardError as exc:
        sentence = exc.sentence if isinstance(exc, ConfigError) else exc.message
        raise ValidationError({"contestants": sentence[:1].upper() + sentence[1:]}) from exc
    return found.model_copy(update={"title": _called(project, found)})


def _called(project: Project, contestant: Contestant) -> str:
    source = contestant.source
    if source == ENDPOINT:
        return contestant.model
    if source.startswith(CHECKPOINT):
        return _title(_checkpoint(project, source))
    return source.partition(":")[2] if source.startswith(("model:", "run:")) else source


def open_of(project: Project, contestant: Contestant) -> Open:
    """Whom a chat process has to load, as it is now. Raises ``ModelError``, ``ConfigError`` with a sentence."""
    if contestant.source == ENDPOINT:
        try:
            endpoint = EndpointConfig(url=contestant.url, model=contestant.model, key_variable=contestant.key_variable)
        except ShapeError as exc:
            raise ModelError(_("The endpoint's address or the name of its key variable cannot be used.")) from exc
        if not endpoint.url or not endpoint.model:
            raise ModelError(_("An endpoint needs an address and the name of its model."))
        return Open(endpoint=endpoint)
    if contestant.source == "starter":
        raise ModelError(_("The starter is built anew for each run: choose a model that a run has left."))
    if not contestant.source.startswith(CHECKPOINT):
        source, revision = model_meant(project, contestant.source)
        return Open(model=ModelConfig(source=source, revision=revision))
    checkpoint = _checkpoint(project, contestant.source)
    if not checkpoint.folder.is_dir():
        raise ModelError(_("The files of this checkpoint are gone."))
    return Open(model=ModelConfig(source=str(checkpoint.folder)))


def _checkpoint(project: Project, source: str) -> Checkpoint:
    """Raises ``ModelError``."""
    try:
        found = checkpoints_of(project).filter(pk=UUID(source.removeprefix(CHECKPOINT))).first()
    except ValueError:
        found = None
    if found is None:
        raise ModelError(_("This checkpoint is not here any more."))
    return found
