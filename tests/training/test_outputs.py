"""Metrics as one JSON list and a log, written while a run runs: whole at every step, and never in its way."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from training.config import JobConfig
from training.journal import LogLine, Metrics, RunFinished, RunStarted
from training.main import METRICS_PATH, MetricsFile, Outputs, ToldJournal, rows_of


def begun(path: Path, *earlier: Path, step: int = 0) -> MetricsFile:
    file = MetricsFile(path, earlier)
    file.begin(step)
    return file


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_the_list_is_whole_after_every_step(tmp_path: Path) -> None:
    path = tmp_path / "metrics" / "m.json"
    file = begun(path)
    assert read(path) == []
    file.add(1, {"loss": 0.5, "名": 1.0})
    assert read(path) == [{"step": 1, "loss": 0.5, "名": 1.0}]
    file.add(2, {"loss": math.nan, "reward": math.inf, "kl": -math.inf})
    assert read(path)[1] == {"step": 2, "loss": None, "reward": None, "kl": None}
    assert len(path.read_text().splitlines()) == 4  # one object a line
    file.close()


def test_later_words_on_a_step_go_into_its_row(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    file = begun(path)
    file.add(1, {"loss": 0.5})
    file.add(2, {"loss": 0.25, "a": 1.0})
    file.add(2, {"a": 2.0})
    assert read(path) == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25, "a": 2.0}]
    file.add(3, {"loss": 0.125})
    assert [row["step"] for row in read(path)] == [1, 2, 3]
    file.close()


def test_an_attempt_begins_with_the_steps_before_its_own(tmp_path: Path) -> None:
    first, second = tmp_path / "1.json", tmp_path / "2.json"
    file = begun(first)
    for step in (1, 2, 3):
        file.add(step, {"loss": float(step)})
    file.close()
    file = begun(second, first, step=2)
    file.add(3, {"loss": 30.0})
    file.close()
    assert [(row["step"], row["loss"]) for row in read(second)] == [(1, 1.0), (2, 2.0), (3, 30.0)]
    file = begun(second, first, step=3)  # a run that continues in the folder that it stopped in
    file.add(4, {"loss": 40.0})
    file.close()
    assert [(row["step"], row["loss"]) for row in read(second)] == [(1, 1.0), (2, 2.0), (3, 30.0), (4, 40.0)]


@pytest.mark.parametrize("left", ["", "[\n{", "7", '[1, {"step": "x"}, {"loss": 1}]'])
def test_what_a_kill_left_of_an_earlier_file_is_no_reason_to_fail(tmp_path: Path, left: str) -> None:
    path = tmp_path / "m.json"
    path.write_text(left)
    assert rows_of(path) == []
    file = begun(path, tmp_path / "nothing.json", step=5)
    file.add(6, {"loss": 1.0})
    file.close()
    assert read(path) == [{"step": 6, "loss": 1.0}]


def _write_journal(folder: Path, kind: str) -> None:
    outputs = Outputs(JobConfig.model_validate({"kind": kind}), folder)
    journal = ToldJournal(folder, outputs, aloud=False)
    journal.write(RunStarted(kind="sft", total_steps=1, rows=3, device="cpu"))
    journal.write(Metrics(step=1, values={"loss": 0.5, "other": 2.0}))
    journal.write(LogLine(level="warning", message="Careful."))
    journal.last_word(RunFinished(status="succeeded", step=1))
    journal.close()
    outputs.close()


def test_a_run_that_trains_leaves_both_and_each_line_has_its_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _write_journal(tmp_path, "sft")
    assert read(tmp_path / METRICS_PATH) == [{"step": 1, "loss": 0.5, "other": 2.0}]
    (log,) = (tmp_path / "logs").iterdir()
    assert re.fullmatch(r"train_\d{8}_\d{6}\.log", log.name)
    lines = log.read_text().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  ", line) for line in lines)
    assert [line[21:] for line in lines] == [
        "sft on cpu: 3 rows, steps 1 to 1",
        "step 1  loss 0.5",
        "warning: Careful.",
        "succeeded at step 1",
    ]
    assert capsys.readouterr().out == ""


def test_where_nothing_is_trained_there_is_a_log_alone(tmp_path: Path) -> None:
    _write_journal(tmp_path, "evaluate")
    assert not (tmp_path / "metrics").exists()
    (log,) = (tmp_path / "logs").iterdir()
    assert re.fullmatch(r"evaluate_\d{8}_\d{6}\.log", log.name)


def test_a_place_that_cannot_be_written_is_reported_once_and_holds_nothing_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "logs").write_text("a file in the way")
    _write_journal(tmp_path, "sft")
    assert capsys.readouterr().err.count("no longer written") == 1
    assert (tmp_path / "journal.jsonl").read_text().count("\n") == 4
