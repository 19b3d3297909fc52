"""Holds without a server: several addresses, and pauses that begin again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from training.config import EnvironmentConfig
from training.errors import EnvironmentTimeout
from training.rollout import holding
from training.rollout.holding import Hold


@pytest.mark.parametrize(("up", "away"), [((True, True), False), ((False, True), False), ((False, False), True)])
def test_one_of_several_servers_is_enough(monkeypatch: pytest.MonkeyPatch, up: tuple[bool, bool], away: bool) -> None:
    urls = ("http://127.0.0.1:1", "http://127.0.0.1:2")

    async def ask(_config: Any, url: str) -> None:
        if not up[urls.index(url)]:
            raise EnvironmentTimeout("late")

    monkeypatch.setattr(holding, "ask_server", ask)

    async def find() -> bool:
        hold = Hold(EnvironmentConfig(url=urls[0], replicas=[urls[1]]), lambda event: None)
        return await hold.away(EnvironmentTimeout("late"))

    assert asyncio.run(find()) is away


def test_pauses_begin_again_once_it_has_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    now, events = [100.0], []
    monkeypatch.setattr(holding, "_now", lambda: now[0])
    monkeypatch.setattr(holding.random, "uniform", lambda _low, high: high)
    wait = holding.Wait(600.0, events.append)

    def pauses(times: int) -> list[float]:
        made = []
        for _ in range(times):
            made.append(wait.pause(EnvironmentTimeout("late")))
            now[0] += made[-1]
        return made

    assert pauses(4) == [0.5, 1.0, 2.0, 4.0]
    wait.answered()
    assert pauses(2) == [0.5, 1.0]
    assert [event.tries for event in events] == [1, 2, 3, 4, 0, 1, 2]
