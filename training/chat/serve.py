"""The chat process: loads whom ``Open`` names, then answers whatever is asked, several at once.

1. stdout belongs to the wire: what libraries print goes to stderr.
2. A thread reads stdin; its end ends the process at once, for whoever asked is gone.
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
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError

from envs.wire import Message
from training.chat.answering import Answering
from training.chat.speakers import EndpointSpeaker, ModelSpeaker, SamplingSettings, Speaker
from training.chat.wire import LINE_BYTES, Ask, Failed, Line, Open, Ready, Stop, heard_adapter
from training.config import JobConfig
from training.dialects import text
from training.errors import ConfigError, PolicyFault, TiltyardError
from training.rollout.endpoint import endpoint_of

EXIT_FAILED = 1


def serve() -> int:
    """Speak the wire of ``training/chat/wire.py`` until stdin ends. Returns the exit code."""
    wire = _wire()
    tell = _Teller(wire)
    try:
        opened = _opened(sys.stdin.buffer)
        with _speaker(opened) as (speaker, ready):
            tell(ready)
            asyncio.run(_Desk(speaker, tell).run(sys.stdin.buffer))
    except TiltyardError as error:
        tell(Failed(error=error.info))
        return EXIT_FAILED
    except Exception as exc:  # the last boundary: nothing may end without a word
        tell(Failed(error=PolicyFault(f"{type(exc).__name__} while loading: {str(exc)[:300]}").info))
        return EXIT_FAILED
    return 0


def _wire() -> BinaryIO:
    """The real stdout; from now on file descriptor 1 is stderr."""
    kept = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(kept, "wb", buffering=0)


class _Teller:
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
    """Whoever answers, as long as the block lasts. Raises ``ModelError``, ``ConfigError``."""
    began = time.monotonic()
    if opened.endpoint.url:
        tells_tools = opened.endpoint.tool_format == "text"
        yield EndpointSpeaker(endpoint_of(opened.endpoint), tells_tools), Ready(device="endpoint")
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
    await speaker.speak(greeting, None, settings, text.parse, "", lambda _text: None)


def _log(text: str) -> None:
    if text:
        sys.stderr.write(f"{text}\n")


class _Desk:
    """Takes what is asked, and has it answered."""

    def __init__(self, speaker: Speaker, tell: _Teller) -> None:
        self._speaker, self._tell = speaker, tell
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
            self._tell(Failed(error=ConfigError(f"This line cannot be read: {str(exc)[:300]}").info))
            return
        if isinstance(line, Stop):
            if task := self._tasks.get(line.id):
                task.cancel()
        elif isinstance(line, Ask) and line.id not in self._tasks:
            self._tasks[line.id] = asyncio.create_task(self._answer(line), name=f"answer-{line.id}")

    async def _answer(self, ask: Ask) -> None:
        answering = Answering(ask, self._speaker, self._tell)
        try:
            self._tell(await answering.run())
        except asyncio.CancelledError:
            self._tell(answering.ended.model_copy(update={"why": "stopped"}))
        except TiltyardError as error:
            self._tell(Failed(id=ask.id, error=error.info))
        except Exception as exc:  # a defect of ours must cost one answer, not the process
            fault = PolicyFault(f"{type(exc).__name__} while answering: {str(exc)[:300]}")
            self._tell(Failed(id=ask.id, error=fault.info))
        finally:
            self._tasks.pop(ask.id, None)
