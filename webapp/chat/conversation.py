"""A chat as its contestant reads it, and as a request to a chat process."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _
from pydantic import ValidationError as ShapeError

from envs.wire import Message
from training.chat.wire import Ask, Place
from training.config import EnvironmentConfig
from training.errors import EnvironmentUnreachable
from webapp.chat.models import Answer, Chat, Turn
from webapp.chat.parameters import Parameters
from webapp.environments.tokens import ours, token_for


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
    """The messages that one contestant saw and said; ``before``: up to the turn that this answer answers.

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
