"""Are recorded rollouts rebuilt to the same observation at every turn? ``python benchmarks/rewind.py [--rollouts N]``.

Each native environment plays episodes as a run does (the player, its journal), by the calls of ``benchmarks/envs.py``
with mistakes between them, up to 20 turns: texts that are no call, tools that do not exist. What the journal has is
then played again on a new server, and every answer is compared. ``turn_by_turn`` does that once more
for each turn of every tenth rollout by itself, as a person does who opens it there. Seconds are those of a whole
rollout with its connection, for 20 turns where it has fewer. Prints JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.environment import environment_server  # noqa: E402
from benchmarks.envs import EPISODES, Seen  # noqa: E402
from envs.wire import Message, ResetRequest, ToolCall  # noqa: E402
from training.config import EnvironmentConfig, RolloutConfig  # noqa: E402
from training.dialects import ParsedTurn  # noqa: E402
from training.dialects.base import Tools  # noqa: E402
from training.dialects.json_calls import parse_hermes  # noqa: E402
from training.journal import (  # noqa: E402
    JOURNAL_NAME,
    Journal,
    TurnAdded,
    read_events,
)
from training.policy.engine import Sample  # noqa: E402
from training.policy.scripted import END, WordTemplate  # noqa: E402
from training.rollout.endpoint import Answered  # noqa: E402
from training.rollout.players import NoEngine  # noqa: E402
from training.rollout.protocols import open_session  # noqa: E402
from training.rollout.rewinding import Recording, Rewound, Taken, rewind  # noqa: E402
from training.rollout.trajectory import PlayedTurn, Player, Task, Trajectory  # noqa: E402

TURNS = 20
TARGET_S = 2.0
ROOM, TURN_ROOM = 262_144, 32_768


@dataclass(frozen=True)
class Actor(Player):
    """Plays what a benchmark's episode says, with mistakes before its turns."""

    scripts: dict[str, Iterator[ParsedTurn]] = field(default_factory=dict)
    seen: dict[str, Seen] = field(default_factory=dict)

    async def _sample(self, task: Task, trajectory: Trajectory) -> Sample:
        self.seen[task.episode_id].answer = "\n".join(message.content for message in trajectory.messages[-2:])
        turn = next(self.scripts[task.episode_id], ParsedTurn("That is all."))
        return Answered([END], [0.0], True, turn=turn, message=Message(role="assistant", content=turn.text))

    def _parse_sample(self, sample: Sample, prefix: str, tools: Tools | None) -> ParsedTurn:
        assert isinstance(sample, Answered)
        return sample.turn


def script(episode: Iterator[dict[str, Any]], number: int) -> Iterator[ParsedTurn]:
    """An episode's turns, each after some mistakes, so that about ``TURNS`` turns come together."""
    chance = random.Random(number)
    for at, step in enumerate(episode):
        for _ in range(chance.randint(1, 4)):
            yield mistake(chance, at)
        calls = [ToolCall.model_validate(call) for call in step.get("tool_calls", [])]
        yield ParsedTurn(str(step.get("message", "")), calls)


def mistake(chance: random.Random, at: int) -> ParsedTurn:
    """A turn that an environment answers with a word about it."""
    if chance.random() < 0.5:
        return parse_hermes(
            f'Let me see. <tool_call>{{"name": "look", "arguments": {chance.randint(0, 99)}', f"call_{at}_"
        )
    return ParsedTurn("", [ToolCall(id=f"call_{at}_0", name=f"tool_{chance.randint(0, 99)}", arguments={"x": at})])


async def record(name: str, url: str, count: int, folder: Path) -> dict[str, Recording]:
    """Play episodes into a journal, and read them back from it."""
    config = EnvironmentConfig(url=url)
    limits = RolloutConfig(
        max_turns=TURNS, max_completion_tokens=ROOM, max_prompt_tokens=ROOM, max_turn_tokens=TURN_ROOM
    )
    actor = Actor(NoEngine(), WordTemplate(), parse_hermes, limits, config, lambda: open_session(config))  # type: ignore[arg-type]
    journal = Journal(folder / name)
    resets, rewards = {}, {}
    for number in range(count):
        key, seen = f"a1-s1-g{number}-i0", Seen()
        episode = EPISODES[name](number, seen)
        begin = next(episode)
        resets[key] = ResetRequest(task=begin["task"], seed=begin["seed"], episode_id=key)
        actor.scripts[key], actor.seen[key] = script(episode, number), seen
        task = Task(number, [], None, begin["task"], begin["seed"], 0, key)
        trajectory = await actor.play(task, Writer(journal, key))
        if trajectory.error is not None:
            raise RuntimeError(f"{name}: {trajectory.error.message}")
        rewards[key] = trajectory.env_reward if trajectory.status == "completed" else None
    journal.close()
    turns: dict[str, list[TurnAdded]] = {}
    for _end, event in read_events(folder / name / JOURNAL_NAME, max_bytes=1 << 40):
        if isinstance(event, TurnAdded):
            turns.setdefault(event.rollout, []).append(event)
    return {key: recording(resets[key], turns[key], rewards[key]) for key in resets}


class Writer:
    """Journals the turns of one rollout, as a run's step does."""

    def __init__(self, journal: Journal, name: str) -> None:
        self._journal, self._name, self._count = journal, name, 0

    def __call__(self, played: PlayedTurn) -> None:
        turn = {"messages": played.messages, "parse_error": played.parse_error, "wrote": played.wrote}
        self._journal.write(TurnAdded.model_validate({"rollout": self._name, "turn": self._count, **turn}))
        self._count += 1


def recording(reset: ResetRequest, events: list[TurnAdded], reward: float | None) -> Recording:
    """A rollout as a journal has it."""
    first, *rest = events
    turns: list[Taken] = []
    for event in rest:
        if event.messages[0].role == "assistant":
            turns.append(Taken(event.messages[0], [], event.parse_error, event.wrote))
        else:
            turns[-1].answer.extend(event.messages)
    return Recording(reset, [], first.messages, turns, reward)


async def rebuild(url: str, found: Recording, turns: int) -> Rewound:
    """Play one again, on a session of its own; its seconds count connecting too."""
    began = time.perf_counter()
    session = await open_session(EnvironmentConfig(url=url))
    try:
        made = await rewind(session, found, turns)
        made.seconds = time.perf_counter() - began
        return made
    finally:
        await session.close()


def measure(name: str, count: int, folder: Path) -> dict[str, Any]:
    """Record on one server, rebuild on another."""
    with environment_server(name) as server:
        recorded = asyncio.run(record(name, server.url, count, folder))

    async def all_again(url: str) -> tuple[list[Rewound], list[Rewound]]:
        whole = [await rebuild(url, found, len(found.turns)) for found in recorded.values()]
        some = list(recorded.values())[:: max(1, count // 10)]
        return whole, [await rebuild(url, found, turn) for found in some for turn in range(len(found.turns))]

    with environment_server(name) as server:
        whole, single = asyncio.run(all_again(server.url))
    took = sorted(made.seconds * TURNS / made.turns for made in whole)
    turns = [taken for found in recorded.values() for taken in found.turns]
    return {
        "rollouts": len(whole),
        "turns": sum(made.turns for made in whole),
        "unreadable_turns": sum(taken.parse_error is not None for taken in turns),
        "same": sum(made.difference is None for made in whole) / len(whole),
        "turn_by_turn": len(single),
        "turn_by_turn_same": sum(made.difference is None for made in single) / len(single),
        "differences": [str(made.difference) for made in [*whole, *single] if made.difference][:3],
        "p95_s_of_20_turns": round(took[int(0.95 * (len(took) - 1))], 4),
    }


def main() -> int:
    """Measure, print, and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=100)
    parser.add_argument("--names", nargs="+", default=list(EPISODES))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = {name: measure(name, options.rollouts, Path(folder)) for name in options.names}
    met = all(
        each["same"] == each["turn_by_turn_same"] == 1 and each["p95_s_of_20_turns"] <= TARGET_S
        for each in found.values()
    )
    sys.stdout.write(json.dumps({"environments": found, "target_s": TARGET_S, "met": met}, indent=1) + "\n")
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
