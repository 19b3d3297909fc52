"""OpenEnv servers whose action is one text field: what the model wrote goes out, the observation's text comes back."""

from __future__ import annotations

from typing import Any

from envs.wire import Message, Observation, ResetRequest, StepRequest
from training.config import EnvironmentConfig, option
from training.errors import EnvironmentProtocolError
from training.rollout.protocols.base import first_text, options_of
from training.rollout.protocols.openenv_foreign import TEXT_FIELDS, OpenEnvOptions, OpenEnvSession, ask_facts
from training.rollout.session import Session, as_text
from training.words import _

__all__ = ["Options", "ask_facts", "open_session"]
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
            "The field of the server's observation that the model reads. Empty takes the first of prompt, instruction, "
            "observation, text, message, echoed_message, content, response, output, result and state that is a text."
        ),
        pattern=rf"^$|{_FIELD}",
    )


class TextSession(OpenEnvSession):
    """Text in, text out."""

    def __init__(self, config: EnvironmentConfig, url: str, options: Options) -> None:
        super().__init__(config, url, options)
        self._action_field = options.action_field
        self._observation_field = options.observation_field

    async def _begin(self, request: ResetRequest) -> Observation:
        text = self._text(await self._reset(request))
        messages = [Message(role="user", content=text)] if text else []
        return Observation(messages=messages, done=self._over, reward=self._reward)

    async def _play(self, request: StepRequest) -> Observation:
        text = self._text(await self._ask("step", {self._action_field: request.message}))
        if text is None and not self._over:
            wanted = self._observation_field or "any of " + ", ".join(TEXT_FIELDS)
            raise EnvironmentProtocolError(
                f"The observation has no text: {wanted} is missing.", hint="Set options.observation_field."
            )
        messages = [] if text is None else [Message(role="user", content=text)]
        return Observation(messages=messages, done=self._over, reward=self._reward)

    def _text(self, body: dict[str, Any]) -> str | None:
        if not self._observation_field:
            return first_text(body, TEXT_FIELDS)
        value = body.get(self._observation_field)
        return None if value is None else as_text(value)


async def open_session(config: EnvironmentConfig, url: str) -> Session:
    """Connect; one connection is one session."""
    session = TextSession(config, url, options_of(Options, config))
    await session.open()
    return session
