"""What scores a job that names no reward: solving the task, where it is known whether it was solved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from training.config import JobConfig
from training.rewards.defaults import SAMPLED, default_rewards, said, with_rewards
from training.rewards.scoring import form_components, starting_components

ASKED = {"messages": [{"role": "user", "content": "What is 2 + 2?"}]}
ARENA = {"name": "arena", "url": "http://127.0.0.1:1"}
FORM = [("tool_call_correctness", 0.12), ("tool_necessity", 0.08), ("result_use", 0.08), ("final_answer", 0.08)]
FORM += [("coherence", 0.04)]  # 0.4 × 0.3, 0.2, 0.2, 0.2, 0.1


def job(folder: Path, rows: list[dict[str, Any]] | None, **over: Any) -> JobConfig:
    config: dict[str, Any] = {"kind": "grpo", **over}
    if rows is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        config["data"] = {"train": str(folder / "rows.jsonl")}
    return JobConfig.model_validate(config)


@pytest.mark.parametrize(
    ("rows", "place", "told_by"),
    [
        ([ASKED | {"answer": {"contains": ["4"]}}], ARENA, "environment"),
        ([ASKED | {"seed": 1}, ASKED], ARENA, "environment"),
        ([ASKED, ASKED | {"id": "a"}], ARENA, ""),  # nothing that a server of ours could judge by
        ([ASKED], ARENA | {"protocol": "agentgym"}, "environment"),  # whose tasks are its own
        ([ASKED | {"answer": "4"}], ARENA | {"protocol": "mcp"}, "answers"),  # MCP knows no rewards
        ([ASKED | {"seed": 1}], ARENA | {"protocol": "virtual"}, ""),
        ([ASKED | {"answer": "4"}], {}, "answers"),
        ([ASKED | {"answer": "4"}, ASKED], {}, ""),  # the second could not be scored
        ([ASKED | {"answer": {"contains": ["4"]}}], {}, ""),  # no short answer
        ([ASKED], {}, ""),
        (None, ARENA, "environment"),  # which draws the tasks
    ],
)
def test_what_decides_whether_a_task_was_done(tmp_path: Path, rows: Any, place: dict[str, Any], told_by: str) -> None:
    found = default_rewards(job(tmp_path, rows, environment=place))
    assert found.told_by == told_by
    weights = [(part.name, part.weight) for part in found.components]
    judge = {"environment": "task_success", "answers": "math_answer"}
    assert weights == ([(judge[told_by], 0.6), *FORM] if told_by else [(p.name, p.weight) for p in form_components()])


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"reward_model": {"ground_truth": "4"}}, "reward_model.ground_truth"),
        ({"answer": "two and two\n#### 4"}, "answer"),
        ({"ground_truth": "4", "answer": "a long solution " * 30}, "ground_truth"),
        ({"answer": "x" * 201}, None),  # no short answer
        ({"answer": "x" * 200}, "answer"),
    ],
)
def test_the_answer_is_taken_from_where_every_row_has_it(tmp_path: Path, row: dict[str, Any], field: str) -> None:
    first = default_rewards(job(tmp_path, [ASKED | row] * 2)).components[0]
    assert first.params.get("truth_field") == field


def test_a_sample_of_the_rows_decides(tmp_path: Path) -> None:
    rows = [ASKED | {"answer": "4"}] * (SAMPLED - 1)
    assert default_rewards(job(tmp_path / "a", [*rows, ASKED])).told_by == ""
    assert default_rewards(job(tmp_path / "b", [*rows, rows[0], ASKED])).told_by == "answers"


def test_rows_that_cannot_be_read_are_left_to_the_run_that_plays_them(tmp_path: Path) -> None:
    gone = {"data": {"train": str(tmp_path / "gone.jsonl")}}
    assert default_rewards(job(tmp_path, None, **gone)).told_by == ""
    assert default_rewards(job(tmp_path, None, environment=ARENA, **gone)).told_by == "environment"


def test_only_what_names_no_components_is_filled(tmp_path: Path) -> None:
    own = {"components": [{"name": "coherence", "weight": 1.0}]}
    rows = [ASKED | {"answer": "4"}]
    chosen = job(tmp_path, rows, rewards=own)
    assert with_rewards(chosen) is chosen
    learner = job(tmp_path, rows, kind="sft")
    assert with_rewards(learner) is learner
    bare = job(tmp_path, rows, environment=ARENA)
    filled = with_rewards(bare)
    assert filled.rewards.components == starting_components() and bare.rewards.components == []
    assert with_rewards(filled) is filled and filled.data == bare.data


def test_each_stage_is_scored_by_what_its_own_tasks_tell(tmp_path: Path) -> None:
    (tmp_path / "bare.jsonl").write_text(json.dumps(ASKED) + "\n")
    stages = [
        {"name": "own", "until_step": 1, "rewards": {"components": [{"name": "coherence", "weight": 1.0}]}},
        {"name": "bare", "until_step": 2, "data": {"train": str(tmp_path / "bare.jsonl")}},
        {"name": "last"},
    ]
    config = job(tmp_path, [ASKED | {"answer": "4"}], environment=ARENA, curriculum={"stages": stages})
    own, bare, last = with_rewards(config).courses
    assert [part.name for part in own.rewards.components] == ["coherence"]
    assert bare.rewards.components == form_components() and last.rewards.components == starting_components()


def test_the_log_says_what_replaces_a_choice(tmp_path: Path) -> None:
    line = said(job(tmp_path, [ASKED | {"answer": "4"}], environment=ARENA))
    assert line.startswith("No reward was chosen. Scored by task_success × 0.6, tool_call_correctness × 0.12,")
    assert line.endswith(": the environment says whether a task was done.")
    assert said(job(tmp_path, [ASKED])).endswith("nothing tells whether a task was done, so form alone is paid.")
