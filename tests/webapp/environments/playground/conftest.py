"""A tab of the playground, without the origin and session layers."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from channels.routing import URLRouter

from tests.training.helpers import demonstration_rows
from tests.webapp.live.conftest import Wire
from training.starter import build_starter
from webapp.common import serving
from webapp.environments.models import Environment
from webapp.environments.playground.consumer import seats_taken
from webapp.people.teams.models import User
from webapp.sockets import websocket_urlpatterns


class Seat(Wire):
    """One person's tab on one environment."""

    def __init__(self, environment_id: object, user: User | None, query: str = "") -> None:
        super().__init__(URLRouter(websocket_urlpatterns), f"/ws/environments/{environment_id}/play/{query}")
        self.scope["user"] = user

    async def frame(self, within_s: float = 10) -> dict[str, Any]:
        """The next frame; not JSON for a browser fails."""
        message = await self.receive_output(within_s)
        assert message["type"] == "websocket.send", message
        found: dict[str, Any] = json.loads(message["text"], parse_constant=pytest.fail)
        return found

    async def ask(self, **command: Any) -> dict[str, Any]:
        """Send a command and take its answer."""
        await self.send_to(text_data=json.dumps(command))
        return await self.frame()

    async def closed(self, within_s: float = 5) -> int:
        """Wait for the close and return its code."""
        while True:
            message = await self.receive_output(within_s)
            if message["type"] == "websocket.close":
                return int(message["code"])

    async def reset(self, task: dict[str, Any] | None = None, seed: int = 0) -> dict[str, Any]:
        source = {"kind": "empty"} if task is None else {"kind": "task", "task": task}
        return await self.ask(type="reset", seed=seed, source=source)

    async def step(self, message: str = "", *calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
        wanted = [{"name": name, "arguments": arguments} for name, arguments in calls]
        return await self.ask(type="step", message=message, tool_calls=wanted)


TASK = {
    "conversation": [{"role": "user", "content": "What is 17 * 23?"}],
    "answer": {"contains": ["391"], "tools": ["calculator"]},
    "language": "en",
}
CALL = ("calculator", {"expression": "17 * 23"})


@pytest.fixture
async def sit() -> AsyncIterator[Callable[..., Any]]:
    """``await sit(environment, user)``: a tab that was let in and greeted; all of them are closed at the end."""
    seats: list[Seat] = []

    async def make(environment: Environment, user: User, query: str = "") -> Seat:
        seat = Seat(environment.pk, user, query)
        connected, code = await seat.connect()
        assert connected, code
        assert (await seat.frame())["type"] == "hello"
        seats.append(seat)
        return seat

    yield make
    for seat in seats:
        await seat.disconnect()
    assert seats_taken() == 0


@pytest.fixture(autouse=True)
def _close_threads() -> Any:
    yield
    serving.close_connections()


@pytest.fixture(scope="module")
def tiny_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The tokenizer of an untrained starter model."""
    from transformers import AutoTokenizer

    folder = tmp_path_factory.mktemp("starter")
    build_starter(demonstration_rows(), folder, seed=3)
    return AutoTokenizer.from_pretrained(folder)


def sessions(url: str) -> int:
    """How many slots of a server are taken, by its own word."""
    with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
        return int(json.load(answer)["sessions"])
