"""Is a perfect contestant perfect in every family's format? ``python benchmarks/families.py [--tasks N] [--calls N]``.

For each chat template of TRL's wheel that writes calls: the share of random calls that come back from what the template
wrote, and the success of a contestant that plays the right turns of the tools environment, sampled as the ids of what
its own template writes and read by the run's own player. Before, all of them were read as Hermes; ``as_hermes`` says
what that would still give. Prints JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.environment import environment_server  # noqa: E402
from envs.wire import Message, ToolCall  # noqa: E402
from tests.training.rollout.templates import random_call, tokenizer_for, tool_for  # noqa: E402
from training.config import EnvironmentConfig, JobConfig, RolloutConfig  # noqa: E402
from training.data.reader import load_rows  # noqa: E402
from training.data.schema import Row  # noqa: E402
from training.dialects import DIALECTS, Parse  # noqa: E402
from training.errors import TemplateError  # noqa: E402
from training.policy.engine import EngineFigures, Sample  # noqa: E402
from training.rollout.family import read_by, templates  # noqa: E402
from training.rollout.replicas import Replicas  # noqa: E402
from training.rollout.templates import use_training_template  # noqa: E402
from training.rollout.tokens import ChatTemplate, pieces_of  # noqa: E402
from training.rollout.trajectory import Player, Task, Trajectory  # noqa: E402


class Perfect:
    """Samples the recorded turns of each episode, one after another, with the tokens that end them."""

    version = 0
    figures = EngineFigures()

    def __init__(self, turns: dict[str, Iterator[list[int]]]) -> None:
        self._turns = turns

    async def generate(self, prompt_ids: list[int], *, max_tokens: int, seed: int, episode: str = "") -> Sample:
        """The next recorded turn."""
        ids = next(self._turns[episode])
        return Sample(ids, [0.0] * len(ids), finished=True)

    def release(self, episode: str) -> None:
        """Nothing is kept."""

    def sampling(self) -> Any:
        """Nothing is prepared."""
        return nullcontext()

    def weights_changed(self) -> int:
        """There are none."""
        return 0

    def close(self) -> None:
        """Nothing was started."""


def made(name: str, count: int, folder: Path) -> list[Row]:
    """Rows of the tools environment: its tasks, or the right turns of the same ones."""
    path = folder / f"{name}.jsonl"
    command = [sys.executable, "-m", "envs.tools", name, "--difficulty", "starter", "--count", str(count)]
    subprocess.run([*command, "--output", str(path)], check=True, cwd=ROOT, capture_output=True, timeout=120)
    return load_rows(path, count)


def success(template: ChatTemplate, parse: Parse, tasks: list[Row], right: list[Row], url: str) -> float:
    """The share of tasks that the perfect contestant solves."""
    shown = {row.messages[0].content: row for row in right}
    turns = {}
    for number, task in enumerate(tasks):
        row = shown[task.messages[0].content]
        pieces = pieces_of(template, row.messages, row.tools)
        turns[str(number)] = iter([template.encode(piece.text) for piece in pieces if piece.turn is not None])
    place = EnvironmentConfig(name="tools", url=url)
    limits = RolloutConfig(max_turns=4, max_turn_tokens=4096, max_completion_tokens=16_384, max_prompt_tokens=16_384)
    player = Player(Perfect(turns), template, parse, limits, place, Replicas(place).open)
    played = asyncio.run(_play(player, tasks))
    return sum(trajectory.env_reward == 1.0 for trajectory in played) / len(played)


async def _play(player: Player, tasks: list[Row]) -> list[Trajectory]:
    found = []
    for number, row in enumerate(tasks):
        task = Task(number, row.messages, row.tools, row.task(), 0, 0, str(number))
        found.append(await player.play(task, lambda _turn: None))
    return found


def read_back(template: ChatTemplate, count: int) -> float:
    """The share of random calls that come back from the ids of what the template writes."""
    dice, right = random.Random(11), 0
    for _ in range(count):
        name, arguments = random_call(dice)
        message = Message(role="assistant", tool_calls=[ToolCall(id="call_0", name=name, arguments=arguments)])
        tools = [tool_for(name, arguments)]
        turn = pieces_of(template, [Message(role="user", content="x"), message], tools)[-1]
        read = DIALECTS[template.family.dialect](template.decode(template.encode(turn.text)), "c", tools)
        right += [(call.name, call.arguments) for call in read.tool_calls] == [(name, arguments)]
    return right / count


def main() -> None:
    """Print the figures of every template."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=24)
    parser.add_argument("--calls", type=int, default=200)
    options = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, environment_server("tools", "--slots", "8") as server:
        right = made("demonstrations", 2000, Path(folder))
        asked = {row.messages[0].content for row in right}
        tasks = [row for row in made("tasks", 400, Path(folder)) if row.messages[0].content in asked][: options.tasks]
        for name, text in templates().items():
            tokenizer = tokenizer_for(text)
            try:
                use_training_template(tokenizer)
            except TemplateError:
                continue
            template = ChatTemplate(tokenizer)
            if not template.family.dialect:
                continue
            found[name] = {
                "dialect": template.family.dialect,
                "read_back": read_back(template, options.calls),
                "success": success(template, read_by(template.family, JobConfig()), tasks, right, server.url),
                "as_hermes": success(template, DIALECTS["hermes"], tasks, right, server.url),
            }
    whole = [each for each in found.values() if each["read_back"] == each["success"] == 1.0]
    print(
        json.dumps(
            {"templates": found, "perfect": len(whole), "of": len(found), "calls": options.calls, "tasks": len(tasks)},
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
