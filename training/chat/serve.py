"""The chat process: loads whom ``Open`` names, then answers what is asked, several at once.

1. stdout belongs to the wire: what libraries print goes to stderr.
2. A thread reads stdin; its end ends the process at once, for its parent is gone.
3. Each ``Ask`` is a task of the event loop; the engine batches what is asked at the same time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError

from envs.wire import Message, Observation, ResetRequest, StepRequest
from training.addresses import AllowList
from training.chat.speakers import EndpointSpeaker, ModelSpeaker, SamplingSettings, Speaker, SpeakerReply
from training.chat.wire import (
    LINE_BYTES,
    Ask,
    Ended,
    Ending,
    Failed,
    Line,
    Open,
    Place,
    Ready,
    Said,
    Stop,
    Text,
    heard_adapter,
)
from training.config import JobConfig
from training.connections import Access, reaching
from training.dialects import dialect_name
from training.dialects.protocols import parse_text
from training.errors import ConfigError, PolicyFault, TiltyardError
from training.rollout import protocols
from training.rollout.endpoint import endpoint_of
from training.rollout.rewinding import mix_seed
from training.rollout.session import Session, heard, opening
from training.rollout.tokens import Tools
from training.words import _, sentence

# One answer: turns of the speaker, and of the environment whose tools are called, until a person must be asked.
#
# The episode is begun again for each answer, with the same task and seed: the calls of earlier answers are played
# again, so that the environment is where it was, and no slot of it is held while a person reads. Servers whose
# protocol knows no episode are not called twice.
#
# A turn without a call is for the person. The environment is asked for its verdict on it, and the session ends. Where
# the action is a text, every turn is an action.

ANSWER_LIMIT_S = 900.0


class Answering:
    """One answer while it is made."""

    def __init__(self, ask: Ask, speaker: Speaker, write: Callable[[Line], None]) -> None:
        self._ask, self._speaker, self._write = ask, speaker, write
        self._messages = list(ask.messages)
        self._tools: Tools | None = None
        self._over = False
        self._ended = Ended(id=ask.id, why="done")
        self._began = time.monotonic()
        config = JobConfig(environment=ask.place.config) if ask.place else JobConfig()
        self._parse = speaker.reader(config)
        self._acts_in_text = ask.place is not None and dialect_name(config) == "text"

    async def run(self) -> Ended:
        """Answer. Raises typed errors; a cancellation is not turned into anything."""
        try:
            async with asyncio.timeout(ANSWER_LIMIT_S):
                self._ended.why = await self._answer()
        except TimeoutError as exc:
            text = _("The answer was not finished within {minutes} minutes.")
            raise PolicyFault(sentence(text, minutes=round(ANSWER_LIMIT_S / 60))) from exc
        return self.ended

    @property
    def ended(self) -> Ended:
        """Its last line as it would be now."""
        return self._ended.model_copy(update={"seconds": time.monotonic() - self._began})

    async def _answer(self) -> Ending:
        place = self._ask.place
        if place is None:
            return await self._turns(None)
        with reaching(Access(AllowList(place.allow), place.token)):
            session = await protocols.open_session(place.config)
            try:
                await self._reset_session(session, place)
                return await self._turns(session)
            finally:
                await asyncio.shield(session.close())

    async def _reset_session(self, session: Session, place: Place) -> None:
        """Reset the episode, and bring it to the conversation's last turn."""
        task = place.task if place.task is not None else _own_words(self._messages)
        first = await session.reset(ResetRequest(task=task, seed=place.seed, episode_id=self._ask.id))
        self._tools = first.tools
        self._over = first.done
        if not any(message.role == "assistant" for message in self._messages):
            added = opening(self._messages, first)[len(self._messages) :]
            self._add_messages(*added)
        elif place.config.protocol not in protocols.STATELESS:
            await self._replay(session)

    async def _replay(self, session: Session) -> None:
        """Make the calls of earlier answers again."""
        for at, message in enumerate(self._messages):
            if self._over or message.role != "assistant" or not (message.tool_calls or self._acts_in_text):
                continue
            answer = await session.step(StepRequest.of(message))
            added = heard(answer)
            before = [other.content for other in self._messages[at + 1 : at + 1 + len(added)]]
            self._ended.differs |= [other.content for other in added] != before
            self._over = answer.done

    async def _turns(self, session: Session | None) -> Ending:
        read = written = 0
        for number in range(self._ask.max_turns):
            if number and self._ask.allowance.spent(read, written):
                return "budget"
            spoken = await self._speak(number)
            turn = spoken.turn
            read, written = read + spoken.read, written + spoken.tokens
            if spoken.cut:
                return "length"
            if session is None or self._over:
                return "done"
            acts = bool(turn.tool_calls) or turn.parse_error is not None or self._acts_in_text
            if not acts:
                await self._verdict(session, turn.text)
                return "done"
            began = time.monotonic()
            answer = await session.step(StepRequest.of(spoken.message or turn.message(), turn.parse_error))
            self._add_messages(*heard(answer), seconds=time.monotonic() - began)
            self._rewarded(answer)
            if answer.done:
                return "done"
        return "turns"

    async def _speak(self, number: int) -> SpeakerReply:
        ask, turns = self._ask, sum(message.role == "assistant" for message in self._messages)
        settings = SamplingSettings(ask.temperature, ask.max_tokens, mix_seed(ask.seed, turns) % 2**31)
        began = time.monotonic()
        spoken = await self._speaker.speak(
            self._messages,
            self._tools,
            settings,
            self._parse,
            f"call_{turns}_",
            lambda text: self._write(Text(id=ask.id, text=text)),
        )
        if number == 0 and spoken.first_s is not None:
            self._ended.first_s = began - self._began + spoken.first_s
        self._ended.tokens += spoken.tokens
        turn = spoken.turn
        self._add_messages(
            spoken.message or turn.message(), tokens=spoken.tokens, read=spoken.read, seconds=time.monotonic() - began
        )
        return spoken

    async def _verdict(self, session: Session, text: str) -> None:
        """The environment's verdict on the last turn; none where it fails at that."""
        try:
            self._rewarded(await session.step(StepRequest(message=text)))
        except TiltyardError:
            return

    def _rewarded(self, answer: Observation) -> None:
        if answer.reward is not None:
            self._ended.reward = answer.reward

    def _add_messages(self, *messages: Message, tokens: int = 0, read: int = 0, seconds: float = 0.0) -> None:
        for message in messages:
            self._messages.append(message)
            self._write(Said(id=self._ask.id, message=message, tokens=tokens, read=read, seconds=seconds))


def _own_words(messages: list[Message]) -> dict[str, object]:
    """A task that is the person's first message; without one the environment draws a task by the seed."""
    first = next((message for message in messages if message.role == "user" and message.content), None)
    if first is None:
        return {}
    system = [message for message in messages[:1] if message.role == "system"]
    return {"messages": [message.model_dump(exclude_none=True) for message in [*system, first]]}


EXIT_FAILED = 1


def serve() -> int:
    """Speak the wire of ``training/chat/wire.py`` until stdin ends. Returns the exit code."""
    wire = _wire()
    write = _LineWriter(wire)
    try:
        opened = _opened(sys.stdin.buffer)
        with _speaker(opened) as (speaker, ready):
            write(ready)
            asyncio.run(_Desk(speaker, write).run(sys.stdin.buffer))
    except TiltyardError as error:
        write(Failed(error=error.info))
        return EXIT_FAILED
    except Exception as exc:  # the last boundary: nothing may end without a word
        write(Failed(error=PolicyFault(f"{type(exc).__name__} while loading: {str(exc)[:300]}").info))
        return EXIT_FAILED
    return 0


def _wire() -> BinaryIO:
    """The real stdout; from now on file descriptor 1 is stderr."""
    kept = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(kept, "wb", buffering=0)


class _LineWriter:
    """Writes lines, one at a time, from any thread."""

    def __init__(self, wire: BinaryIO) -> None:
        self._wire, self._lock = wire, threading.Lock()

    def __call__(self, line: Line) -> None:
        data = line.model_dump_json().encode() + b"\n"
        with self._lock, contextlib.suppress(BrokenPipeError):  # the end of stdin says the same
            sent = 0
            while sent < len(data):
                sent += self._wire.write(data[sent:]) or 0


def _opened(source: BinaryIO) -> Open:
    line = heard_adapter.validate_json(source.readline(LINE_BYTES))
    if not isinstance(line, Open):
        raise ConfigError("the first line of a chat says whom to load.")
    return line


@contextlib.contextmanager
def _speaker(opened: Open) -> Iterator[tuple[Speaker, Ready]]:
    """The speaker that answers, as long as the block lasts. Raises ``ModelError``, ``ConfigError``."""
    began = time.monotonic()
    if opened.endpoint.url:
        tools_in_words = opened.endpoint.tool_format == "text"
        yield EndpointSpeaker(endpoint_of(opened.endpoint), tools_in_words), Ready(device="endpoint")
        return
    config = JobConfig(model=opened.model)
    with tempfile.TemporaryDirectory(prefix="chat-") as scratch:
        from training.algorithms.loading import (
            autocast_dtype,
            fetch_model,
            load_model,
            load_tokenizer,
            prepare_device,
        )
        from training.policy.make import make_engine
        from training.rollout.tokens import ChatTemplate

        device = prepare_device(config)
        folder = fetch_model(config, [], Path(scratch))
        tokenizer, note = load_tokenizer(folder)
        _log(note or "")
        model = load_model(config, folder, device).to(device).eval()
    template = ChatTemplate(tokenizer)
    context = int(getattr(model.config, "max_position_embeddings", 0) or 0)
    engine = make_engine(config, model, template.stop_ids, autocast=autocast_dtype(device), log=_log)
    speaker = ModelSpeaker(engine, template, context)
    try:
        with engine.sampling():
            asyncio.run(_warm(speaker))
            yield speaker, Ready(context=context, device=device, seconds=time.monotonic() - began)
    finally:
        engine.close()


async def _warm(speaker: ModelSpeaker) -> None:
    """Answer a greeting, so that the first person does not wait for what every library does once."""
    greeting = [Message(role="user", content="Hello")]
    settings = SamplingSettings(temperature=1.0, max_tokens=2, seed=0)
    await speaker.speak(greeting, None, settings, parse_text, "", lambda _text: None)


def _log(text: str) -> None:
    if text:
        sys.stderr.write(f"{text}\n")


class _Desk:
    """Takes what is asked, and has it answered."""

    def __init__(self, speaker: Speaker, write: _LineWriter) -> None:
        self._speaker, self._write = speaker, write
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def run(self, source: BinaryIO) -> None:
        """Until the source ends."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def read() -> None:
            while line := source.readline(LINE_BYTES):
                loop.call_soon_threadsafe(self._hear, line)
            loop.call_soon_threadsafe(done.set)

        threading.Thread(target=read, name="chat-stdin", daemon=True).start()
        await done.wait()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _hear(self, text: bytes) -> None:
        try:
            line = heard_adapter.validate_json(text)
        except ValidationError as exc:
            self._write(Failed(error=ConfigError(f"This line cannot be read: {str(exc)[:300]}").info))
            return
        if isinstance(line, Stop):
            if task := self._tasks.get(line.id):
                task.cancel()
        elif isinstance(line, Ask) and line.id not in self._tasks:
            self._tasks[line.id] = asyncio.create_task(self._answer(line), name=f"answer-{line.id}")

    async def _answer(self, ask: Ask) -> None:
        answering = Answering(ask, self._speaker, self._write)
        try:
            self._write(await answering.run())
        except asyncio.CancelledError:
            self._write(answering.ended.model_copy(update={"why": "stopped"}))
        except TiltyardError as error:
            self._write(Failed(id=ask.id, error=error.info))
        except Exception as exc:  # a defect of ours must cost one answer, not the process
            fault = PolicyFault(f"{type(exc).__name__} while answering: {str(exc)[:300]}")
            self._write(Failed(id=ask.id, error=fault.info))
        finally:
            self._tasks.pop(ask.id, None)
