"""OpenEnv servers whose action is one text field: what the model wrote goes out, the observation's text comes back."""

from __future__ import annotations

from typing import Any

from envs.wire import Message, Observation, ResetRequest, StepRequest
from training.config import EnvironmentConfig, option
from training.data.schema import conversation_key
from training.errors import EnvironmentProtocolError
from training.rollout.protocols.base import first_text, options_of
from training.rollout.protocols.openenv_foreign import TEXT_FIELDS, OpenEnvOptions, OpenEnvSession, ask_facts
from training.rollout.session import MessageRefused, Session, as_text
from training.words import _

__all__ = ["Options", "ask_facts", "open_session"]
MAX_NAMED = 20
_SHAPE_FAULTS = frozenset({"missing", "extra_forbidden"})
_FIELD = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"


class Options(OpenEnvOptions):
    """Options of the protocol ``openenv-text``."""

    action_field: str = option(
        "message",
        title=_("Action field"),
        help=_("The field of the server's action that takes the model's text."),
        pattern=_FIELD,
    )
    observation_field: str = option(
        "",
        title=_("Observation field"),
        help=_(
            "The field of the server's observation that the model reads. Empty uses the first of prompt, "
            "instruction, observation, text, message, echoed_message, content, response, output, result and "
            "state that is text, or the only text field."
        ),
        pattern=rf"^$|{_FIELD}",
    )


class TextSession(OpenEnvSession):
    """Text in, text out."""

    def __init__(self, config: EnvironmentConfig, url: str, options: Options) -> None:
        super().__init__(config, url, options)
        self._action_field = options.action_field
        self._observation_field = options.observation_field

    async def _begin_episode(self, request: ResetRequest) -> Observation:
        text = self._text(body := await self._reset(request))
        if text is None and (self._observation_field or not _has_question(request.task) or _unread(body)):
            raise self._unreadable(body)
        messages = [Message(role="user", content=text)] if text else []
        return Observation(messages=messages, done=self._over, reward=self._reward)

    async def _play(self, request: StepRequest) -> Observation:
        try:
            body = await self._ask_observation("step", {self._action_field: request.message})
        except MessageRefused as refused:
            return self._not_understood(refused)
        text = self._text(body)
        if text is None and not self._over:
            raise self._unreadable(body)
        messages = [] if text is None else [Message(role="user", content=text)]
        return Observation(messages=messages, done=self._over, reward=self._reward)

    def _text(self, body: dict[str, Any]) -> str | None:
        if self._observation_field:
            value = body.get(self._observation_field)
            return None if value is None else as_text(value)
        filled = {name: value for name, value in body.items() if value != ""}
        text = first_text(filled, TEXT_FIELDS)
        if text is None and len(unread := _unread(filled)) == 1:
            return str(filled[unread[0]])  # nothing else can be meant
        return text if text is not None else first_text(body, TEXT_FIELDS)

    def _unreadable(self, body: dict[str, Any]) -> EnvironmentProtocolError:
        wanted = self._observation_field or "any of " + ", ".join(TEXT_FIELDS)
        has = ", ".join(sorted(str(name)[:64] for name in body)[:MAX_NAMED]) or "no field"
        return EnvironmentProtocolError(
            f"The observation has no text: {wanted} is missing, and it has {has}.",
            hint="Set options.observation_field to the field that the model reads.",
        )

    def _not_understood(self, refused: MessageRefused) -> Observation:
        """The policy gets what was wrong with its action. Raises the refusal where the message, not the text, is."""
        complaints = [sentence for field, kind, sentence in refused.faults if field == self._action_field]
        shape = any(kind in _SHAPE_FAULTS or field != self._action_field for field, kind, _ in refused.faults)
        if shape or not complaints:
            raise refused
        message = Message(role="user", content=f"Error: the action was not understood: {' '.join(complaints)}")
        return Observation(messages=[message], reward=self._reward, info={"parse_error": complaints[0]})


def _has_question(task: dict[str, Any]) -> bool:
    """Whether the row has a conversation of its own, so that the environment need not say anything to begin."""
    key = conversation_key(task)
    return key is not None and bool(task[key])


def _unread(body: dict[str, Any]) -> list[str]:
    """Fields with a text that have no known name."""
    return [name for name, value in body.items() if isinstance(value, str) and value and name not in TEXT_FIELDS]


async def open_session(config: EnvironmentConfig, url: str) -> Session:
    """Connect; one connection is one session."""
    session = TextSession(config, url, options_of(Options, config))
    await session.open()
    return session
