"""A hold where an environment has several servers."""

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
