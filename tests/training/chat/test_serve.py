"""``python -m training chat`` as a process: what it is asked, what it answers, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import ROOT

COMMAND = [sys.executable, "-m", "training", "chat"]


class Process:
    """A chat process and its lines."""

    def __init__(self, **opened: Any) -> None:
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        pipe = subprocess.PIPE
        self.child = subprocess.Popen(COMMAND, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, env=env)
        self.send(type="open", **opened)

    def send(self, **line: Any) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(json.dumps(line).encode() + b"\n")
        self.child.stdin.flush()

    def ask(self, name: str, text: str = "Say red please.", **more: Any) -> None:
        self.send(type="ask", id=name, messages=[{"role": "user", "content": text}], **more)

    def line(self) -> dict[str, Any]:
        assert self.child.stdout is not None
        found: dict[str, Any] = json.loads(self.child.stdout.readline())
        return found

    def until(self, *kinds: str, name: str = "") -> list[dict[str, Any]]:
        """The lines of one answer up to its end."""
        lines = []
        while not lines or lines[-1]["type"] not in kinds:
            line = self.line()
            if not name or line.get("id") == name:
                lines.append(line)
        return lines

    def end(self) -> int:
        assert self.child.stdin is not None and self.child.stdout is not None and self.child.stderr is not None
        self.child.stdin.close()
        code = self.child.wait(timeout=20)
        self.child.stdout.close()
        self.child.stderr.close()
        return code


@pytest.fixture(scope="module")
def process(starter_folder: Path) -> Iterator[Process]:
    made = Process(model={"source": str(starter_folder)})
    ready = made.line()
    assert (ready["type"], ready["context"], ready["device"]) == ("ready", 4096, "cpu")
    yield made
    assert made.end() == 0


def test_an_answer_comes_in_pieces_and_whole(process: Process) -> None:
    process.ask("one", max_tokens=40, seed=3)
    lines = process.until("ended", "failed")
    event = next(line for line in lines if line["type"] == "said")
    pieces = "".join(line["text"] for line in lines if line["type"] == "text")
    assert lines[-1]["type"] == "ended" and lines[-1]["why"] in {"done", "length"}
    assert pieces.strip().startswith(event["message"]["content"][:5])
    assert 0 < lines[-1]["tokens"] <= 40 and lines[-1]["first_s"] < 5


def test_the_seed_decides_and_temperature_0_needs_none(process: Process) -> None:
    texts: dict[tuple[int, float], str] = {}
    for seed, temperature in ((1, 1.0), (1, 1.0), (2, 1.0), (1, 0.0), (2, 0.0)):
        process.ask("again", seed=seed, temperature=temperature, max_tokens=24)
        text = "".join(line.get("text", "") for line in process.until("ended", "failed"))
        assert texts.setdefault((seed, temperature), text) == text
    assert texts[1, 1.0] != texts[2, 1.0]
    assert texts[1, 0.0] == texts[2, 0.0] != texts[1, 1.0]


def test_two_answers_at_once_are_what_they_are_alone(process: Process) -> None:
    def alone(name: str, temperature: float) -> str:
        process.ask(name, seed=5, temperature=temperature, max_tokens=64)
        return "".join(line.get("text", "") for line in process.until("ended", name=name))

    expected = {"hot": alone("hot", 1.3), "cold": alone("cold", 0.0)}
    process.ask("hot", seed=5, temperature=1.3, max_tokens=64)
    process.ask("cold", seed=5, temperature=0.0, max_tokens=64)
    texts, open_ = {"hot": "", "cold": ""}, {"hot", "cold"}
    while open_:
        line = process.line()
        texts[line["id"]] += line.get("text", "")
        if line["type"] == "ended":
            open_.discard(line["id"])
    assert texts == expected


def test_a_stop_ends_it_within_a_moment_and_a_second_one_is_ignored(process: Process) -> None:
    process.ask("long", max_tokens=4000, temperature=0.0)
    process.until("text", name="long")
    began = time.monotonic()
    process.send(type="stop", id="long")
    process.send(type="stop", id="long")
    assert process.until("ended", name="long")[-1]["why"] == "stopped"
    assert time.monotonic() - began < 2
    process.ask("after", max_tokens=4)
    assert process.until("ended", "failed")[-1]["id"] == "after"


def test_a_conversation_beyond_the_context_is_named_with_figures(process: Process) -> None:
    process.ask("far", "7 " * 4200, max_tokens=10)
    error = process.until("failed", name="far")[-1]["error"]
    assert error["code"] == "context_full"
    assert error["told"]["values"]["context"] == "4,096"
    assert int(error["told"]["values"]["prompt"].replace(",", "")) > 4200


def test_a_line_that_is_none_costs_nothing(process: Process) -> None:
    process.send(type="ask", nonsense=True)
    assert process.until("failed")[-1]["error"]["code"] == "config_invalid"
    process.ask("fine", max_tokens=4)
    assert process.until("ended")[-1]["id"] == "fine"


def test_a_model_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    made = Process(model={"source": str(tmp_path / "gone")})
    line = made.line()
    assert (line["type"], line["error"]["code"]) == ("failed", "model_unusable")
    assert made.end() == 1
