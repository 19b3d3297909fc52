"""Contestants of chats, the parameters of their answers, and a chat as a request to a chat process."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from pydantic import BaseModel, ConfigDict, Field
from pydantic import ValidationError as ShapeError

from envs.wire import Message
from training.chat.wire import Ask, Open, Place
from training.config import EndpointConfig, EnvironmentConfig, ModelConfig, Reference, kind_in, name_in
from training.errors import ConfigError, EnvironmentUnreachable, ModelError, TiltyardError
from training.words import complaint_of, option_of
from webapp.chat.models import Answer, Chat, Turn
from webapp.common.pages import newest_only
from webapp.common.pools import ENDPOINT, TRAIN
from webapp.endpoints.models import Endpoint
from webapp.endpoints.selectors import endpoint_named, endpoints_of
from webapp.endpoints.services import asked_with
from webapp.engine.resolve import here, model_meant
from webapp.engine.sampler import pool_of_model
from webapp.environments.tokens import ours, token_for
from webapp.people.teams.models import Project
from webapp.runs.registry.models import Checkpoint, ModelKind
from webapp.runs.registry.selectors import checkpoints_of, models_of

# --- Contestants ----------------------------------------------------------------------------------------------------
# The contestants of chats: models of the registry, checkpoints of runs, endpoints of the project, Hugging Face ids.

MOST = 2
MAX_CHOICES = 500


class Contestant(BaseModel):
    """One of a chat. ``source``: ``model:<name>``, ``run:<name>``, ``checkpoint:<id>``, ``endpoint:<name>``, or an id
    of Hugging Face."""

    model_config = ConfigDict(extra="forbid")

    source: str = Field(min_length=1, max_length=300)
    title: str = Field(default="", max_length=300, description="how it is called; made by the server")


def pool_of(project: Project, source: str) -> str:
    """The pool whose places answers of this contestant take now."""
    if kind_in(source) == "endpoint":
        return ENDPOINT
    try:
        return pool_of_model(open_of(project, Contestant(source=source)).model)
    except TiltyardError:
        return TRAIN  # the worker that takes the answer says what is wrong


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
    folder = here(checkpoint.folder)
    if not folder.is_dir():
        raise ModelError(_("The files of this checkpoint are gone."))
    return Open(model=ModelConfig(source=str(folder)))


def endpoint_meant(project: Project, contestant: Contestant) -> Endpoint | None:
    """The endpoint that a contestant is; ``None`` for a model. Raises ``ModelError``."""
    if kind_in(contestant.source) != "endpoint":
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


# --- Parameters -----------------------------------------------------------------------------------------------------
# The sampling parameters of a chat's answers.

MAX_SYSTEM_CHARS = 20_000


class Parameters(BaseModel):
    """Temperature 0 takes the likeliest token; ``max_tokens`` is the limit of one model turn."""

    model_config = ConfigDict(extra="forbid")

    temperature: float = Field(default=0.7, ge=0, le=5)
    max_tokens: int = Field(default=512, ge=1, le=32768)
    seed: int = Field(default=0, ge=0, lt=2**31)
    system: str = Field(default="", max_length=MAX_SYSTEM_CHARS)


def parameters_of(values: dict[str, Any]) -> Parameters:
    """The given parameters, with defaults for the others. Raises ``ValidationError`` by field."""
    try:
        return Parameters.model_validate(values)
    except ShapeError as exc:
        errors = exc.errors(include_url=False, include_input=False)
        if not all(option_of(error) in Parameters.model_fields for error in errors):
            raise ValidationError(_("There is no parameter of this name.")) from exc
        raise ValidationError({option_of(error): str(complaint_of(error)) for error in errors}) from exc


# --- Requests -------------------------------------------------------------------------------------------------------


def turns_of(chat: Chat) -> list[Turn]:
    """The present conversation, without replaced turns."""
    return list(chat.turns.filter(replaced_at=None).order_by("number").prefetch_related("answers"))


def last_answer(turn: Turn, contestant: int) -> Answer | None:
    """The newest answer of a contestant to this turn."""
    mine = [answer for answer in turn.answers.all() if answer.contestant == contestant]
    return max(mine, key=lambda answer: answer.number, default=None)


def answered(answer: Answer) -> list[Message]:
    """The messages of an answer, the text of a turn that was cut off included."""
    messages = [Message.model_validate(message) for message in answer.messages]
    if answer.partial.strip():
        messages.append(Message(role="assistant", content=answer.partial))
    return messages


def conversation(chat: Chat, contestant: int, *, before: Answer | None = None, system: str = "") -> list[Message]:
    """The messages that one contestant read and wrote; ``before``: up to the turn that this answer answers.

    Two turns of a person with nothing between them are joined: many chat templates refuse two user turns in a row.
    """
    messages = [Message(role="system", content=system)] if system else []
    for turn in turns_of(chat):
        if turn.text:
            _append_merged(messages, Message(role="user", content=turn.text))
        if before is not None and turn.pk == before.turn_id:
            break
        answer = last_answer(turn, contestant)
        for message in answered(answer) if answer is not None else []:
            _append_merged(messages, message)
    return messages


def _append_merged(messages: list[Message], message: Message) -> None:
    last = messages[-1] if messages else None
    if last is not None and last.role == message.role == "user":
        messages[-1] = Message(role="user", content=f"{last.content}\n\n{message.content}")
    else:
        messages.append(message)


def ask_of(answer: Answer) -> Ask:
    """The request to a chat process for this answer. Raises environment errors."""
    chat, parameters = answer.turn.chat, Parameters.model_validate(answer.parameters)
    return Ask(
        id=str(answer.pk),
        messages=conversation(chat, answer.contestant, before=answer, system=parameters.system),
        place=place_of(chat, parameters.seed),
        temperature=parameters.temperature,
        max_tokens=parameters.max_tokens,
        seed=(parameters.seed + answer.number) % 2**31,
    )


def place_of(chat: Chat, seed: int) -> Place | None:
    """The environment of a chat as its registration is now. Raises ``EnvironmentUnreachable``."""
    if not chat.environment_name:
        return None
    environment = chat.environment
    if environment is None:
        raise EnvironmentUnreachable(
            _("The environment “%s” was removed.") % chat.environment_name, hint=_("Start a chat with another one.")
        )
    values: dict[str, Any] = environment.job_values()
    if not values["url"]:
        raise EnvironmentUnreachable(
            _("No server of “%s” runs.") % environment.name, hint=_("Start one on the environment's page.")
        )
    try:
        config = EnvironmentConfig.model_validate(values)
    except ShapeError as exc:
        raise EnvironmentUnreachable(
            _("This environment's registration is not complete; check it on the environments page.")
        ) from exc
    allow = [*settings.OUTBOUND_ALLOW, *(f"{host}:{port}" for host, port in ours(environment))]
    return Place(config=config, seed=seed, allow=allow, token=token_for(environment, config.url))
