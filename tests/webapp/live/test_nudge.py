"""Nudges: a run's highest number waits for the thread, a fork has its own, and a loss is logged once."""

from __future__ import annotations

import asyncio
import logging
import threading
import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from webapp.runs import nudge as module
from webapp.runs.nudge import Nudger, group_of, nudge

ONE, OTHER = uuid.uuid4(), uuid.uuid4()


@pytest.fixture(autouse=True)
def _no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    none = SimpleNamespace(start=lambda: None)
    # In that module alone: an executor that starts a thread at this moment needs a real one.
    quiet = SimpleNamespace(Thread=lambda **_options: none, Lock=threading.Lock, Event=threading.Event)
    monkeypatch.setattr(module, "threading", quiet)
    monkeypatch.setattr(module, "_nudger", None)


def test_the_highest_number_of_each_run_waits() -> None:
    nudger = Nudger()
    for run, seq in ((ONE, 5), (ONE, 3), (OTHER, 2), (OTHER, 4)):
        nudger.put(run, seq)
    assert nudger._pending == {str(ONE): 5, str(OTHER): 4} and nudger._wake.is_set()


def test_a_process_has_one_thread_and_a_fork_its_own() -> None:
    nudge(ONE, 1)
    first = module._nudger
    assert first is not None
    nudge(ONE, 2)
    assert module._nudger is first and first._pending == {str(ONE): 2}
    first._pid -= 1  # as after a fork
    nudge(ONE, 3)
    assert module._nudger is not None and module._nudger._pending == {str(ONE): 3} and first._pending == {str(ONE): 2}


def test_lost_nudges_are_logged_once_until_one_is_sent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="webapp.runs.nudge")
    sent: list[tuple[str, dict[str, Any]]] = []
    away = True

    async def group_send(group: str, message: dict[str, Any]) -> None:
        if away:
            raise ConnectionError
        sent.append((group, message))

    monkeypatch.setattr(module, "channel_layers", {"default": SimpleNamespace(group_send=group_send)})
    nudger, logged = Nudger(), []
    for away in (True, True, False, True):  # noqa: B007 (read by group_send)
        asyncio.run(nudger._send(str(ONE), 7))
        logged.append(len(caplog.records))
    assert logged == [1, 1, 1, 2]
    assert sent == [(group_of(ONE), {"type": "run.changed", "run": str(ONE), "seq": 7})]
