"""Hostile text takes every reader of datasets and of runs time that grows with its length, not with its square."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.growth import assert_linear, assert_quick
from training.data.checking.check import check_file
from training.data.files.sources import Given
from training.data.options import ReadOptions
from training.imports.read import import_files

HOSTILE: dict[str, str] = {
    "brackets": "[",
    "braces": '{"a":',
    "think": "<think>",
    "thought": "Thought:",
    "action": "\nAction: ",
    "calls": "<tool_call>",
    "calls_of_json": '<tool_call>{"a":',
    "chatml": "<|im_start|>user\n",
    "roles": "\nuser\nassistant",
    "dicts": "{'loss': ",
    "quotes": "{'",
    "steps": "step:1 - a",
    "bars": "1/2 [",
    "digits": "1",
    "colours": "\x1b[",
    "backslashes": "\\",
    "commas": ",",
    "spaces": " ",
}


def _text(unit: str, size: int) -> str:
    return unit * (size // len(unit))


def _as_line(text: str) -> bytes:
    return text.encode()


def _as_lines(text: str) -> bytes:
    return b"{'loss': 0.5}\nstep:1 - a:1\n" + text.encode() + b"\n"


def _as_row(text: str) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": text}]}).encode()


def _as_toolbench(text: str) -> bytes:
    system = {"from": "system", "value": "You are AutoGPT, access to the following APIs: []"}
    line = "\nAction:" + text if text.isspace() else text
    return json.dumps([{"id": "Step 1", "conversations": [system, {"from": "assistant", "value": line}]}]).encode()


def _as_table(text: str) -> bytes:
    return b"question,answer\n" + text.encode() + b",a\n"


def _as_dump(text: str) -> bytes:
    prompt = "system\ns\nuser\nq\nassistant\n"
    return json.dumps({"input": prompt, "output": text, "score": 1.0, "step": 1}).encode() + b"\n"


def _as_chatml_dump(text: str) -> bytes:
    return json.dumps({"input": "<|im_start|>user\n" + text, "output": text, "score": 1.0, "step": 1}).encode() + b"\n"


DATASETS: dict[str, tuple[Callable[[str], bytes], str]] = {
    "any": (_as_line, ""),
    "conversation": (_as_row, ""),
    "toolbench": (_as_toolbench, "toolbench"),
    "table": (_as_table, ""),
}
RUNS: dict[str, Callable[[str], bytes]] = {
    "any": _as_line,
    "console": _as_lines,
    "dump": _as_dump,
    "chatml": _as_chatml_dump,
}


def _grows_calmly(work: Callable[[Path, Path], object], make: Callable[[str], bytes], unit: str, folder: Path) -> None:
    numbers = itertools.count()

    def reading(size: int) -> Callable[[], None]:
        path = folder / f"{size}.in"
        path.write_bytes(make(_text(unit, size)))

        def read() -> None:
            out = folder / f"out-{next(numbers)}"
            out.mkdir()
            work(path, out)

        return read

    assert_linear(reading, 64 << 10, limit_s=2.0, quiet_s=0.05, clock=time.process_time)


@pytest.mark.parametrize("unit", HOSTILE)
@pytest.mark.parametrize("name", DATASETS)
def test_a_dataset_of_hostile_text(tmp_path: Path, name: str, unit: str) -> None:
    make, form = DATASETS[name]
    reading = ReadOptions(format=form)
    _grows_calmly(lambda path, out: check_file(path, out, reading=reading), make, HOSTILE[unit], tmp_path)


@pytest.mark.parametrize("unit", HOSTILE)
@pytest.mark.parametrize("name", RUNS)
def test_a_run_of_hostile_text(tmp_path: Path, name: str, unit: str) -> None:
    _grows_calmly(
        lambda path, out: import_files([Given(path, "step_1.jsonl")], out), RUNS[name], HOSTILE[unit], tmp_path
    )


def test_thirty_two_thousand_thoughts_take_a_moment(tmp_path: Path) -> None:
    """The text that cost 130 seconds elsewhere: as a message, as a rollout and as a file of its own."""
    text = "<think>" * 32_000
    for make in (_as_row, _as_toolbench, _as_line):
        (tmp_path / "in").write_bytes(make(text))
        assert_quick(lambda: check_file(tmp_path / "in", tmp_path), 0.5, clock=time.process_time)
