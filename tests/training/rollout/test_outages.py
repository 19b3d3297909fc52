"""The page of an outage, a refusal, a fault of one episode, and which of them is waited for."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.training.helpers import ScriptedEngine, of_type
from tests.training.rollout.bench import Bench, free_port, tools_server
from training.config import EnvironmentConfig
from training.errors import (
    EnvironmentFault,
    EnvironmentProtocolError,
    EnvironmentRefused,
    EnvironmentTimeout,
    EnvironmentUnreachable,
    RewardFault,
)
from training.rollout import holding
from training.rollout.holding import Hold


class Front:
    """A proxy before a server on loopback. In an outage it cuts all connections and answers with a page of its own."""

    def __init__(self, target: int) -> None:
        self.port, self._target, self.page = free_port(), target, b""
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(10)

    def _serve(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(asyncio.start_server(self._meet, "127.0.0.1", self.port))
        ready.set()
        self._loop.run_forever()

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.page:
            await reader.read(4096)
            writer.write(self.page)
            await writer.drain()
            writer.close()
            return
        back, forth = await asyncio.open_connection("127.0.0.1", self._target)
        self._open |= {writer, forth}
        await asyncio.gather(self._pass(reader, forth), self._pass(back, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    def outage(self, page: bytes) -> None:
        """From now on ``page`` is all that anybody hears; empty ends it."""

        def cut() -> None:
            self.page = page
            for writer in self._open:
                writer.close()
            self._open.clear()

        self._loop.call_soon_threadsafe(cut)


def page(status: str, body: bytes = b"<!doctype html><h1>We will be back soon</h1>") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


@pytest.mark.parametrize("status", ["500 Internal Server Error", "200 OK", "404 Not Found", "403 Forbidden"])
def test_a_page_of_an_outage_is_waited_for(tmp_path: Path, tokenizer: Any, status: str) -> None:
    """45 s of a maintenance page excluded all rollouts of three steps, and paused the run for the night."""
    port = free_port()
    with tools_server(port):
        front = Front(port)
        bench = Bench(tmp_path, tokenizer, f"http://127.0.0.1:{front.port}", engine=ScriptedEngine(tokenizer, ["42."]))
        assert bench.collect(1).figures["rollouts/excluded"] == 0
        front.outage(page(status))
        threading.Timer(2.0, front.outage, [b""]).start()
        assert bench.collect(2).figures["rollouts/excluded"] == 0
    bench.journal.close()
    held = bench.held()
    assert held[0].error is not None and held[0].step == 2 and held[-1].error is None
    assert {end.status for end in of_type(tmp_path, "rollout_finished")} == {"completed"}


@pytest.mark.parametrize(
    ("error", "played", "answers", "away"),
    [
        (EnvironmentRefused("HTTP 404"), True, False, True),
        (EnvironmentFault("HTTP 500"), True, False, True),
        (EnvironmentProtocolError("<html>"), True, False, True),
        (EnvironmentRefused("HTTP 404"), True, True, False),  # it is there, and refuses this one
        (EnvironmentFault("HTTP 500"), True, True, False),  # a fault of this episode
        (EnvironmentRefused("HTTP 404"), False, False, False),  # it never was the right one
        (EnvironmentFault("HTTP 500"), False, False, False),
        (RewardFault("ours"), True, False, False),
    ],
)
def test_who_has_played_is_away_while_it_does_not_say_who_it_is(
    monkeypatch: pytest.MonkeyPatch, error: Any, played: bool, answers: bool, away: bool
) -> None:
    asked = iter([played, answers]) if played else iter([answers])

    async def ask(*_args: Any) -> None:
        if not next(asked):
            raise EnvironmentProtocolError("It answered <html>.")

    monkeypatch.setattr(holding, "ask_server", ask)

    async def find() -> bool:
        hold = Hold(EnvironmentConfig(url="http://127.0.0.1:1"), lambda event: None)
        if played:
            hold.begun()
        return await hold.away(error)

    assert asyncio.run(find()) is away


def test_a_server_that_never_says_who_it_is_is_held_for_what_passes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(*_args: Any) -> None:
        raise EnvironmentProtocolError("There is no such address.")

    monkeypatch.setattr(holding, "ask_server", silent)

    async def find() -> list[bool]:
        hold = Hold(EnvironmentConfig(url="http://127.0.0.1:1"), lambda event: None)
        hold.begun()
        errors = [EnvironmentFault("HTTP 500"), EnvironmentTimeout("late"), EnvironmentUnreachable("gone")]
        return [await hold.away(error) for error in errors]

    assert asyncio.run(find()) == [False, False, True]


def test_a_question_that_an_earlier_step_cut_off_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step has a loop of its own: what its end cancelled must not be waited for in the next one."""
    hold = Hold(EnvironmentConfig(url="http://127.0.0.1:1"), lambda event: None)
    asked: list[int] = []

    async def ask(*_args: Any) -> None:
        asked.append(1)
        if len(asked) == 1:
            await asyncio.sleep(60)

    async def begin() -> None:
        hold.begun()
        await asyncio.sleep(0.01)

    monkeypatch.setattr(holding, "ask_server", ask)
    asyncio.run(begin())
    assert asyncio.run(hold.away(EnvironmentFault("HTTP 500"))) is False, "nothing is known of it yet"
    asyncio.run(begin())
    assert len(asked) == 2 and hold._says_who is True


def test_a_step_does_not_end_before_the_server_has_said_who_it_is(
    tmp_path: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outage of the next step would answer in its place: all of its rollouts were excluded on a busy machine."""
    ask = holding.ask_server

    async def slowly(*args: Any) -> Any:
        await asyncio.sleep(0.5)
        return await ask(*args)

    monkeypatch.setattr(holding, "ask_server", slowly)
    port = free_port()
    with tools_server(port):
        bench = Bench(tmp_path, tokenizer, f"http://127.0.0.1:{port}", engine=ScriptedEngine(tokenizer, ["42."]))
        bench.collect(1)
    assert bench.collector.hold._says_who is True
    bench.journal.close()


def test_a_server_that_did_not_say_who_it_is_is_asked_again_in_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    says: list[bool] = []

    async def ask(*_args: Any) -> None:
        says.append(len(says) > 0)
        if not says[-1]:
            raise EnvironmentProtocolError("It answered <html>.")

    monkeypatch.setattr(holding, "ask_server", ask)

    async def play() -> list[list[bool]]:
        hold, heard = Hold(EnvironmentConfig(url="http://127.0.0.1:1"), lambda event: None), []
        for step in (1, 1, 2, 3):
            hold.step = step
            hold.begun()
            await hold.learned()
            heard.append(list(says))
        return heard

    assert asyncio.run(play()) == [[False], [False], [False, True], [False, True]]
