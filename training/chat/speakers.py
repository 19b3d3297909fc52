"""Who answers in a chat: a model in this process, or an endpoint that is asked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from envs.wire import Message
from training.chat_client import Endpoint, complete
from training.config import JobConfig
from training.dialects import Parse, ParsedTurn, choose_dialect
from training.errors import ContextFull, DataError, PolicyFault, boundary
from training.policy.engine import SamplingParams, Watch, WatchedEngine
from training.policy.scripted import count
from training.rollout.endpoint import in_words, message_of, turn_of, written, written_tokens
from training.rollout.family import read_by
from training.rollout.tokens import ChatTemplate, Tools
from training.words import _, sentence

# Text of a turn piece by piece while its tokens come, in whole characters and without special tokens.

UNFINISHED = "\ufffd"
"""The sign that a decoder writes for bytes that are no character yet."""
MOST_WAITING = 8
"""No character has so many tokens: what looks unfinished for so long is the text itself."""


class Pieces:
    """Turns ids into pieces of text whose sum is the text of all ids.

    Decoding one id alone would lose what its neighbours decide: a space before a word, a character of several tokens.
    So the ids since the last whole piece are decoded together with those of the piece before it, and only what is new
    and whole is given out.
    """

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._before = 0  # where the piece before the last one begins
        self._given = 0  # ids up to here are given out

    def add(self, token: int) -> str:
        """The text that is whole with this id; empty while a character is not."""
        self._ids.append(token)
        return self._next(whole=len(self._ids) - self._given >= MOST_WAITING)

    def rest(self) -> str:
        """The text that was still held back, once no further id comes."""
        return self._next(whole=True)

    def _next(self, *, whole: bool) -> str:
        known = self._decode(self._ids[self._before : self._given])
        text = self._decode(self._ids[self._before :])
        if len(text) <= len(known) or (text.endswith(UNFINISHED) and not whole):
            return ""
        self._before, self._given = self._given, len(self._ids)
        return text[len(known) :]


LEAST_ROOM = 16
"""Tokens that an answer must have room for, unless fewer are asked for."""
OnText = Callable[[str], None]


@dataclass(frozen=True)
class SamplingSettings:
    """How one turn is to be drawn."""

    temperature: float
    max_tokens: int
    seed: int

    @property
    def params(self) -> SamplingParams:
        """Temperature 0 takes the likeliest token."""
        return SamplingParams(self.temperature) if self.temperature > 0 else SamplingParams(top_k=1)


@dataclass
class SpeakerReply:
    """One turn of the model or endpoint that answers. ``first_s``: seconds until its first token; ``cut``: by the limit
    of tokens; ``read``: tokens that an endpoint read for it, 0 where that costs nothing; ``message``: the turn as
    an endpoint wrote it, with what is no part of its answer."""

    turn: ParsedTurn
    tokens: int
    first_s: float | None
    cut: bool
    read: int = 0
    message: Message | None = None


class Speaker(Protocol):
    """Writes one turn after a conversation; ``on_text`` hears its pieces as they come."""

    def reader(self, config: JobConfig) -> Parse:
        """The parser of its turns in the environment of ``config``."""
        ...

    async def speak(
        self,
        messages: list[Message],
        tools: Tools | None,
        settings: SamplingSettings,
        parse: Parse,
        prefix: str,
        on_text: OnText,
    ) -> SpeakerReply: ...


@dataclass(frozen=True)
class ModelSpeaker:
    """A model that is sampled here. ``context`` is how many tokens it can hold, 0 where that is unknown."""

    engine: WatchedEngine
    template: ChatTemplate
    context: int

    def reader(self, config: JobConfig) -> Parse:
        """See ``Speaker``."""
        return read_by(self.template.family, config)

    async def speak(
        self,
        messages: list[Message],
        tools: Tools | None,
        settings: SamplingSettings,
        parse: Parse,
        prefix: str,
        on_text: OnText,
    ) -> SpeakerReply:
        """See ``Speaker``. Raises ``ContextFull``, ``PolicyFault``."""
        began, loop = time.monotonic(), asyncio.get_running_loop()
        with boundary(DataError, "rendering the conversation"):
            prompt = self.template.prompt_ids(messages, tools)
        room = self._room(len(prompt), settings.max_tokens)
        pieces, first = Pieces(self.template.decode), [0.0]

        def hear(token: int) -> None:
            first[0] = first[0] or time.monotonic() - began
            if piece := pieces.add(token):
                on_text(piece)

        def on_token(token: int) -> None:
            with suppress(RuntimeError):  # the loop is gone: no task listens any more
                loop.call_soon_threadsafe(hear, token)

        watch = Watch(on_token, settings.params)
        with boundary(PolicyFault, "sampling"):
            sample = await self.engine.generate(prompt, max_tokens=room, seed=settings.seed, watch=watch)
        if piece := pieces.rest():
            on_text(piece)
        cut = not sample.finished or not self.template.ends(sample.ids[-1])
        turn = parse(self.template.decode(sample.ids), prefix, tools)
        return SpeakerReply(turn, len(sample.ids), first[0] or None, cut)

    def _room(self, prompt: int, wanted: int) -> int:
        """Tokens that the turn may have. Raises ``ContextFull``."""
        if not self.context:
            return wanted
        room = self.context - prompt
        if room < min(LEAST_ROOM, wanted):
            text = _("The conversation has {prompt} tokens, and this model holds {context} with its answer.")
            raise ContextFull(sentence(text, prompt=f"{prompt:,}", context=f"{self.context:,}"))
        return min(wanted, room)


@dataclass(frozen=True)
class EndpointSpeaker:
    """An OpenAI-compatible endpoint. ``tools_in_words``: tools are described to it in words, and it calls them so."""

    endpoint: Endpoint
    tools_in_words: bool = False

    def reader(self, config: JobConfig) -> Parse:
        """See ``Speaker``."""
        return choose_dialect(config)

    async def speak(
        self,
        messages: list[Message],
        tools: Tools | None,
        settings: SamplingSettings,
        parse: Parse,
        prefix: str,
        on_text: OnText,
    ) -> SpeakerReply:
        """See ``Speaker``. Raises ``EndpointFault``."""
        began, first = time.monotonic(), [0.0]

        def hear(text: str) -> None:
            first[0] = first[0] or time.monotonic() - began
            on_text(text)

        body: dict[str, Any] = {
            "messages": self._messages(messages, tools),
            "temperature": settings.temperature,
            "max_tokens": settings.max_tokens,
            "seed": settings.seed,
            **({"tools": tools} if tools and not self.tools_in_words else {}),
        }
        reply = await complete(self.endpoint, body, hear)
        turn = turn_of(reply, parse, prefix, tools)
        if not first[0] and turn.text:  # it came in one piece
            hear(turn.text)
        tokens = reply.tokens["completion_tokens"] or written_tokens(turn, reply)
        read = reply.tokens["prompt_tokens"] or sum(count(message.content) for message in messages)
        first_s, cut = first[0] or time.monotonic() - began, reply.ended == "length"
        return SpeakerReply(turn, tokens, first_s, cut, read, message_of(turn, reply))

    def _messages(self, messages: list[Message], tools: Tools | None) -> list[dict[str, Any]]:
        return in_words(messages, tools) if self.tools_in_words else [written(message) for message in messages]
