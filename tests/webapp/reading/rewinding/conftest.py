"""A rollout that the tools server really played, as a run records it, and tabs that rewind it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest

from envs.wire import Message, ResetRequest, StepRequest, ToolCall
from tests.webapp.environments.playground.conftest import Seat
from tests.webapp.reading.conftest import play, tasks, trained
from training.config import EnvironmentConfig
from training.rollout.protocols import open_session
from training.rollout.rewinding import mix_seed
from training.rollout.session import heard, opening
from webapp.common import serving
from webapp.datasets.models import Dataset
from webapp.environments.models import Environment
from webapp.environments.playground.consumer import seats_taken
from webapp.people.teams.models import User
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, Turn

__all__ = ["play", "tasks", "trained"]
Make = Callable[..., Any]
STEP, GROUP, ROW = 3, 1, 4


class Said(NamedTuple):
    """A turn that the policy takes."""

    text: str = ""
    expression: str = ""
    parse_error: str | None = None

    def message(self, turn: int) -> Message:
        call = ToolCall(id=f"call_{turn}_0", name="calculator", arguments={"expression": self.expression})
        return Message(role="assistant", content=self.text, tool_calls=[call] if self.expression else None)


TALK = (
    Said(expression="4 * 4"),
    Said("Let me see.", parse_error="The tool call is not valid JSON."),
    Said("Again.", expression="4 * 5"),
    Said("It is 20."),
)


async def record(url: str, row: dict[str, Any], seed: int, talk: Sequence[Said]) -> tuple[list[Any], float | None]:
    """Play, and give the turns as rows are made of them: messages and why one could not be read."""
    session = await open_session(EnvironmentConfig(url=url))
    prompt = [Message.model_validate(message) for message in row["messages"]]
    first = await session.reset(ResetRequest(task=row, seed=seed, episode_id="recorded"))
    turns: list[Any] = [(opening(prompt, first), "")]
    reward = None
    for number, spoken in enumerate(talk):
        message = spoken.message(number)
        request = StepRequest(
            message=message.content, tool_calls=message.tool_calls or [], parse_error=spoken.parse_error
        )
        answer = await session.step(request)
        turns.append(([message], spoken.parse_error or ""))
        if added := heard(answer):
            turns.append((added, ""))
        reward = answer.reward if answer.reward is not None else reward
    await session.close()
    return turns, reward


@pytest.fixture
def environment(make_environment: Make, tools_server: str) -> Environment:
    found: Environment = make_environment(url=tools_server, name="arithmetic")
    return found


@pytest.fixture
def run(trained: Make, environment: Environment) -> Run:
    """A GRPO run on the tools server; what was resolved has its address."""
    found: Run = trained(environment={"name": environment.reference})
    found.resolved["environment"] |= {"name": "tools", "url": environment.url}
    found.save(update_fields=["resolved"])
    return found


@pytest.fixture
def played(run: Run, tasks: Dataset, environment: Environment, play: Make) -> Callable[..., Rollout]:
    """``played(talk)``: a rollout of the fifth row, with turns that its server answered."""

    def make(talk: Sequence[Said] = TALK, index: int = 0, **fields: Any) -> Rollout:
        row = json.loads(tasks.rows_path.read_text().splitlines()[ROW])
        seed = mix_seed(7, STEP, GROUP) % 2**31
        with ThreadPoolExecutor(1) as aside:  # a browser's test has a loop of its own in this thread
            turns, reward = aside.submit(asyncio.run, record(environment.url, row, seed, talk)).result()
        known = {"row": ROW, "env_reward": reward, "success": reward, "reward": 0.8, "turns": len(talk)} | fields
        rollout: Rollout = play(run, STEP, GROUP, index, **known)
        Turn.objects.bulk_create(
            Turn(
                rollout=rollout,
                run=run,
                number=number,
                messages=[message.model_dump(mode="json", exclude_none=True) for message in messages],
                parse_error=error,
                seq=0,
            )
            for number, (messages, error) in enumerate(turns)
        )
        return rollout

    return make


def keep_no_episodes(tasks: Dataset) -> None:
    """Have the environment's server speak a protocol that has no episodes, and the tasks name what it needs."""
    api = {"category_name": "Math", "tool_name": "calculator", "api_name": "multiply"}
    rows = [json.loads(line) | {"api_list": [api]} for line in tasks.rows_path.read_text().splitlines()]
    tasks.rows_path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    Environment.objects.update(protocol="virtual")


class Tab(Seat):
    """One person's tab on one rollout."""

    def __init__(self, rollout_id: object, user: User | None, query: str = "") -> None:
        super().__init__(rollout_id, user, query)
        self.scope["path"] = f"/ws/rollouts/{rollout_id}/rewind/"

    async def rewind(self, turn: int) -> dict[str, Any]:
        return await self.ask(type="rewind", turn=turn)


@pytest.fixture
async def sit() -> AsyncIterator[Callable[..., Any]]:
    """``await sit(rollout, user)``: a tab that was let in and greeted; all of them are closed at the end."""
    tabs: list[Tab] = []

    async def make(rollout: Rollout, user: User, query: str = "") -> Tab:
        tab = Tab(rollout.pk, user, query)
        connected, code = await tab.connect()
        assert connected, code
        assert (await tab.frame())["type"] == "hello"
        tabs.append(tab)
        return tab

    yield make
    for tab in tabs:
        await tab.disconnect()
    assert seats_taken() == 0


@pytest.fixture(autouse=True)
def _close_threads() -> Any:
    yield
    serving.close_connections()
