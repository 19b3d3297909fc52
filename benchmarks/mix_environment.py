"""A planted environment for ``benchmarks/mix.py``: one turn, paid where the reply is the colour of the task's shape."""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from envs.base import Facts, ToolEnvironment  # noqa: E402
from envs.base.cli import add_server_options, serve  # noqa: E402
from envs.wire import Observation, StepRequest, Validation  # noqa: E402

COLOURS = {"circle": "red", "square": "blue", "star": "green", "cross": "white"}
SHAPES = {"north": ("circle", "square"), "south": ("star", "cross")}
"""What is asked for in each of two places that are trained on."""


class Colouring(ToolEnvironment):
    """No text names the colour of a shape: a policy can only learn it from the reward."""

    shape = ""

    def reset(self, task: dict[str, Any], seed: int, episode_id: str) -> Observation:
        """The shape that is asked for."""
        self.shape = str(task.get("shape", ""))
        return Observation(messages=[], tools=[])

    def step(self, request: StepRequest) -> Observation:
        """The verdict on the reply, which ends the episode."""
        solved = float(request.message.strip().rstrip(".") == COLOURS.get(self.shape))
        return Observation(messages=[], done=True, reward=solved, reward_parts={"task_success": solved})


def rows(place: str, count: int, seed: int, *, answered: bool) -> Iterator[dict[str, Any]]:
    """Tasks of one place; ``answered`` ones have a reply that knows no colour, so a model learns but its form."""
    draw = random.Random(seed)
    for number in range(count):
        shape = draw.choice(SHAPES[place])
        messages = [{"role": "user", "content": f"Colour of {shape} {number % 100}?"}]
        if answered:
            messages.append({"role": "assistant", "content": f"{draw.choice(list(COLOURS.values()))}."})
        yield {"conversation" if answered else "messages": messages, "shape": shape}


def write_rows(path: Path, places: Sequence[str], count: int, seed: int, *, answered: bool) -> None:
    """The same of some places as a file."""
    found = [row for place in places for row in rows(place, count, seed, answered=answered)]
    path.write_text("".join(json.dumps(row) + "\n" for row in found), encoding="utf-8")


def validate() -> Validation:
    """Right and wrong replies."""
    paid = {right: [_play(shape, colour if right else "grey") for shape, colour in COLOURS.items()] for right in (1, 0)}
    ok = min(paid[1]) == 1.0 and max(paid[0]) == 0.0
    return Validation(ok=ok, episodes=8, gold_reward=sum(paid[1]) / 4, bad_reward=max(paid[0]))


def _play(shape: str, reply: str) -> float:
    episode = Colouring()
    episode.reset({"shape": shape}, 0, "")
    return episode.step(StepRequest(message=reply)).reward or 0.0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    add_server_options(parser, port=8210, slots=512)
    serve(parser.parse_args(), Colouring, name="colouring", version="1", facts=Facts(validate=validate))
