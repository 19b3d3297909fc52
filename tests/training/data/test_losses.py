"""What a format has no place for is listed when rows are written in it: nothing is dropped in silence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from training.config import JobConfig
from training.data.making import ConvertOptions, convert, writers
from training.exports.verl import export_verl

CALL = {"id": "c7", "name": "f", "arguments": {"a": 1}}
FULL: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "q", "loss": False},
        {"role": "assistant", "content": "x", "tool_calls": [CALL]},
        {"role": "tool", "content": "r", "tool_call_id": "c7"},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    "seed": 3,
    "ground_truth": "4",
}
LOST: dict[str, set[str]] = {
    "jsonl": set(),
    "conversation": set(),
    "openai": set(),
    "sharegpt": {"ids of tool calls"},
    "swift": set(),
    "verl": set(),
    "verl_toolbench": {"tool calls", "tools", "fields of messages", "column seed", "column ground_truth"},
    "agentgym": {"tool calls", "tools"},
    "toolbench_queries": {"messages", "tool calls", "tools", "fields of messages"},
    "gsm8k": {"messages", "tool calls", "tools", "fields of messages"},
    "helloagents_sft": {
        *("messages", "tool calls", "tools", "fields of messages"),
        *("column seed", "column ground_truth", "column question", "column answer"),
    },
    "alpaca": {"messages", "tool calls", "tools", "fields of messages"},
}
NEEDED: dict[str, dict[str, Any]] = {
    "agentgym": {"item_id": "webshop_1"},
    "toolbench_queries": {"query_id": 1, "query": "q"},
    "gsm8k": {"question": "q", "answer": "#### 4"},
    "helloagents_sft": {"question": "q", "answer": "#### 4"},
    "alpaca": {"instruction": "q", "output": "4"},
}


def written(folder: Path, row: dict[str, Any], target: str) -> dict[str, int]:
    (folder / "in.jsonl").write_text(json.dumps(row) + "\n")
    done = convert(folder / "in.jsonl", ConvertOptions(output=folder / "out.jsonl", to=target))
    assert (done.rows, done.bad_rows) == (1, 0), done.bad
    return done.lost


@pytest.mark.parametrize("target", LOST)
def test_what_a_format_cannot_hold_is_counted(tmp_path: Path, target: str) -> None:
    assert set(written(tmp_path, FULL | NEEDED.get(target, {}), target)) == LOST[target]


def test_every_writer_is_looked_at() -> None:
    """Those that are not here refuse a row that is not of their own format."""
    assert set(writers()) - set(LOST) == {"toolbench", "bfcl", "helloagents_rl", "preference", "nemo_gym"}


def test_a_job_for_verl_names_what_its_rows_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in.jsonl").write_text(json.dumps(FULL) + "\n")
    (tmp_path / "out").mkdir()
    export_verl(JobConfig(), tmp_path / "in.jsonl", tmp_path / "out")
    readme = (tmp_path / "out" / "README.txt").read_text()
    assert "has no place for" not in readme
    items = [{"from": "system", "value": "You are AutoGPT, access to the following APIs: []"}]
    record = {"id": "Step 1", "conversations": [*items, {"from": "user", "value": "q"}], "seed": 3}
    (tmp_path / "in.jsonl").write_text(json.dumps([record]))
    export_verl(JobConfig(), tmp_path / "in.jsonl", tmp_path / "out")
    assert "train.parquet has no place for column seed of 1 rows." in (tmp_path / "out" / "README.txt").read_text()
