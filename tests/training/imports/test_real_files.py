"""Every file of the seeds that an import reads: exact steps, metrics, rollouts and values, and rows that add up."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from training.data.files.sources import Given
from training.imports.read import import_files
from training.imports.report import ImportReport
from training.journal import read_events
from training.rewards.combining import group_statistics

VERL = "seed1_envtuning_bfcl"
TABLES = "seed4_webshop/verl_metrics"
CSV: list[tuple[str, int, int, int, int]] = [  # file, rows, steps, last step, figures in the file
    ("training_alfworld_grpo_training_metrics_grpo.csv", 49, 49, 49, 3724),
    ("training_alfworld_sft_grpo_training_metrics_sft_grpo.csv", 19, 19, 19, 1444),
    ("training_babyai_grpo_training_metrics_grpo_base.csv", 1450, 1450, 2450, 110202),
    ("training_textcraft_sft_grpo_5epoch_metrics.csv", 115, 115, 115, 8402),
]


def imported(output: Path, *files: Path) -> tuple[ImportReport, list[Any]]:
    report = import_files([Given(path, path.name) for path in files], output)
    assert report.verdict == "ok", report.message
    for file in report.files:
        assert file.rows_in == file.rows + file.bad_rows
    return report, [event for _offset, event in read_events(output / "journal.jsonl", max_bytes=1 << 30)]


def test_a_console_log(seed_data: Path, tmp_path: Path) -> None:
    log = seed_data / VERL / "verl_console_log/train_2026-03-11.log"
    report, events = imported(tmp_path, log)
    assert (report.tool, report.steps, report.last_step, report.rollouts) == ("verl", 6, 6, 0)
    given: dict[int, dict[str, float]] = {}
    for line in re.findall(r"step:(\d+) - (global_seqlen/min.*)", log.read_text(errors="replace")):
        given[int(line[0])] = {k: float(v) for k, v in (pair.rsplit(":", 1) for pair in line[1].split(" - "))}
    figures = {event.step: event.values for event in events if event.type == "metrics"}
    assert [len(given[step]) for step in range(1, 7)] == [58, 58, 58, 58, 59, 58]  # a checkpoint at step 5
    for step, values in given.items():
        assert values.items() <= figures[step].items()
        assert len(figures[step]) == len(values) + 11
        assert (figures[step]["reward"], figures[step]["kl"]) == (values["critic/score/mean"], values["actor/kl_loss"])
        assert figures[step]["timing/step"] == values["timing_s/step"]
    assert report.metrics == 59 + 11 and "timing_s/save_checkpoint" in figures[5]
    assert (figures[1]["reward"], figures[2]["reward"], figures[1]["completions/mean_length"]) == (
        0.564,
        0.73,
        5020.625,
    )
    times = [event.t for event in events if event.type == "metrics"]
    assert times == sorted(times) and 300 < times[-1] - times[0] < 3600
    assert b"\x1b[" not in (tmp_path / "output.log").read_bytes()[:100_000]


def test_rollout_dumps(seed_data: Path, tmp_path: Path) -> None:
    files = [seed_data / VERL / f"verl_rollout_dump/step_{step}.jsonl" for step in (30, 1, 15)]
    report, events = imported(tmp_path, *files)
    assert (report.rollouts, report.groups, report.steps, report.last_step) == (24, 12, 3, 30)
    rows = [json.loads(line) for path in sorted(files) for line in path.read_text().splitlines()]
    rows.sort(key=lambda row: row["step"])
    ends = [event for event in events if event.type == "rollout_finished"]
    assert [end.reward for end in ends] == [row["score"] for row in rows]
    for end, row in zip(ends, rows, strict=True):
        numbers = {"total_interaction_rounds", "format_reward", "tool_call_reward", "is_tool_call"}
        assert end.parts == {name: row[name] for name in numbers}
    # verl counted the rounds itself; the split finds as many, but for one text that was cut at 10,000 tokens
    differ = [end.rollout for end, row in zip(ends, rows, strict=True) if end.turns != row["total_interaction_rounds"]]
    assert differ == ["15/3/1"]
    text = "".join(
        message.content
        for event in events
        if event.type == "turn" and event.rollout == "1/0/0"
        for message in event.messages
    )
    plain = rows[0]["input"] + rows[0]["output"]
    assert len(plain) - len(text) < len(plain) // 20 and "<|im_start|>" not in text
    groups = [event for event in events if event.type == "group_scored"]
    assert [group.rollouts for group in groups[:2]] == [["1/0/0", "1/0/1"], ["1/1/0", "1/1/1"]]
    for group, at in zip(groups, range(0, 24, 2), strict=True):
        assert group.advantages == group_statistics([rows[at]["score"], rows[at + 1]["score"]]).advantages
    figures = {event.step: event.values for event in events if event.type == "metrics"}
    assert {step: values["reward"] for step, values in figures.items()} == {1: 0.5, 15: 0.375, 30: 0.625}
    assert figures[1]["groups/zero_variance_share"] == 0.5


@pytest.mark.parametrize(("name", "rows", "steps", "last", "count"), CSV)
def test_a_table(seed_data: Path, tmp_path: Path, name: str, rows: int, steps: int, last: int, count: int) -> None:
    path = seed_data / TABLES / name
    report, events = imported(tmp_path, path)
    assert (report.tool, report.files[0].rows, report.steps, report.last_step) == ("verl", rows, steps, last)
    header, *lines = [line.split(",") for line in path.read_text().splitlines()]
    cells = [(int(float(line[0])), dict(zip(header[1:], line[1:], strict=True))) for line in lines]
    assert sum(1 for _step, row in cells for cell in row.values() if cell) == count
    figures = [event for event in events if event.type == "metrics"][: len(cells)]
    for (step, row), event in zip(cells, figures, strict=True):
        own = {key: float(cell) for key, cell in row.items() if cell}
        assert event.step == step and own.items() <= event.values.items()
        assert event.values["reward"] == own["critic_score_mean"]


def test_an_index_of_runs_says_that_its_steps_repeat(seed_data: Path, tmp_path: Path) -> None:
    report, _events = imported(tmp_path, seed_data / TABLES / "training_metrics_index.csv")
    assert (report.files[0].rows, report.steps) == (35, 21)
    assert "14 rows name a step that an earlier row has" in report.files[0].notes[0]
    assert set(report.files[0].left_out) == {"environment", "run_id", "path", "sha256"}


@pytest.mark.parametrize("name", ["data_SCHEMA_COLUMNS.csv", "paper_metrics.csv"])
def test_a_table_without_steps_is_refused(seed_data: Path, tmp_path: Path, name: str) -> None:
    report = import_files([Given(seed_data / TABLES / name, name)], tmp_path)
    assert report.verdict == "rejected" and report.message.startswith(f"{name}: The table has no column of steps")
