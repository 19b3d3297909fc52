"""Tables that other trainers and trackers write: logs of ms-swift and LLaMA-Factory, charts of several runs, commas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.training.imports.test_axis import lines
from tests.training.imports.test_readers import read
from tests.training.imports.test_trainers import figures
from training.data.files.sources import Given
from training.imports.__main__ import main
from training.imports.read import import_files

SWIFT: list[dict[str, Any]] = [
    {
        "loss": 0.5,
        "global_step/max_steps": "10/438",
        "percentage": "2.28%",
        "elapsed_time": "30s",
        "speed(s/it)": 3,
    },
    {"eval_loss": 0.25, "global_step/max_steps": "100/438"},
    {"train_loss": 0.1, "global_step/max_steps": "438/438"},
]
SUMMARY = {"last_model_checkpoint": "x", "global_step": 438, "log_history": [{"loss": 9.0, "step": 10}]}
FACTORY: list[dict[str, Any]] = [
    {"current_steps": 5, "total_steps": 30, "loss": 1.5, "lr": 1e-6, "epoch": 0.1, "elapsed_time": "0:00:10"},
    {"current_steps": 10, "total_steps": 30, "eval_loss": 1.25, "loss": None, "percentage": 33.3},
]


def test_the_log_of_ms_swift(tmp_path: Path) -> None:
    """It was once taken for a trainer's state that is cut off, because of its last line."""
    report, events = read(tmp_path, ("logging.jsonl", lines(*SWIFT, SUMMARY)))
    assert (report.verdict, report.tool, report.rows_in, report.last_step) == ("ok", "ms-swift", 3, 438)
    found = figures(events)
    assert (found[10], found[100], found[438]) == (
        {"loss": 0.5, "speed(s/it)": 3.0},
        {"eval_loss": 0.25},
        {"train_loss": 0.1},
    )
    assert report.files[0].notes == ["Its state of the whole run was skipped: the lines before it have its figures."]
    assert set(report.files[0].left_out) == {"percentage", "elapsed_time"}


def test_a_state_on_one_line_is_still_a_state(tmp_path: Path) -> None:
    state = {"global_step": 2, "log_history": [{"step": 2, "loss": 0.5}]}
    report, events = read(tmp_path, ("trainer_state.json", json.dumps(state).encode()))
    assert report.files[0].kind == "trainer_state" and figures(events)[2] == {"loss": 0.5}


def test_the_log_of_llama_factory(tmp_path: Path) -> None:
    report, events = read(tmp_path, ("trainer_log.jsonl", lines(*FACTORY)))
    assert (report.verdict, report.tool, report.last_step) == ("ok", "LLaMA-Factory", 10)
    found = figures(events)
    assert (found[5]["loss"], found[5]["learning_rate"], found[10]["eval_loss"]) == (1.5, 1e-6, 1.25)
    assert "loss" not in found[10]


CHART = (
    b'"Step","exp - a - train/reward","exp - a - train/reward__MIN","exp - b - train/reward"\n'
    b"1,0.1,0,0.3\n2,0.2,0,nan\n"
)


def imported(tmp_path: Path, data: bytes, run: str) -> Any:
    (tmp_path / "f").write_bytes(data)
    out = tmp_path / f"out-{run}"
    out.mkdir()
    return import_files([Given(tmp_path / "f", "chart.csv")], out, run=run), out


def test_a_chart_of_several_runs_asks_which_one(tmp_path: Path) -> None:
    """It was once one run with two metrics of strange names, and no reward."""
    report, _out = imported(tmp_path, CHART, "")
    assert (report.verdict, report.message) == (
        "rejected",
        "chart.csv: It holds the figures of 2 runs: exp - a, exp - b. "
        "Name the one to import: Run in the file, or `--run NAME`.",
    )
    report, out = imported(tmp_path, CHART, "exp - a")
    assert (report.verdict, report.mapped) == ("ok", {"train/reward": "reward"})
    assert '"train/reward":0.2,"reward":0.2' in (out / "journal.jsonl").read_text()
    report, _out = imported(tmp_path, CHART, "exp - c")
    assert "It has no run exp - c; its runs are exp - a, exp - b. Name one of its runs." in report.message


def test_runs_of_one_file_are_different_runs(tmp_path: Path) -> None:
    heads = [(imported(tmp_path, CHART, run)[1] / "journal.jsonl").read_text()[:600] for run in ("exp - a", "exp - b")]
    digests = [json.loads(head.splitlines()[0])["versions"]["source_sha256"] for head in heads]
    assert digests[0] != digests[1]


def test_a_table_that_is_no_chart_of_runs_is_not_asked_about(tmp_path: Path) -> None:
    report, events = read(tmp_path, ("t.csv", b"step,a - x,b - y,loss\n1,1,2,3\n"))
    assert report.verdict == "ok" and figures(events)[1] == {"a - x": 1.0, "b - y": 2.0, "loss": 3.0}


def test_the_run_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "chart.csv").write_bytes(CHART)
    words = ["--input", str(tmp_path / "chart.csv"), "--output", str(tmp_path / "run")]
    assert main(words) == 2 and "2 runs: exp - a, exp - b" in capsys.readouterr().out
    assert main([*words, "--run", "exp - b"]) == 0
    assert '"train/reward":0.3' in (tmp_path / "run" / "journal.jsonl").read_text()


@pytest.mark.parametrize(
    ("data", "read_as"),
    [
        (b"step;reward;loss\n1;0,25;-1,5e-3\n", {"reward": 0.25, "loss": -0.0015}),
        (b"step;reward\n1;1.234,5\n", {"reward": 1234.5}),
        (b"step;reward\n1;1,234\n", {"reward": 1.234}),  # no thousands between semicolons
        (b"step\treward\n1\t0,25\n", {"reward": 0.25}),
        (b'step,reward\n1,"0,25"\n', {"reward": 0.25}),
        (b'step,reward,loss\n1,"0,250","2,5"\n', {"reward": 0.25, "loss": 2.5}),
        (b"step;reward\n1;3\n2;0,5\n", {"reward": 3.0}),
    ],
)
def test_decimal_commas(tmp_path: Path, data: bytes, read_as: dict[str, float]) -> None:
    """Such a table once held no figure."""
    report, events = read(tmp_path, ("t.csv", data))
    assert figures(events)[1] == read_as
    assert report.files[0].notes == ["Its numbers have decimal commas: 0,25 was read as 0.25."]


@pytest.mark.parametrize("data", [b"step;reward\n1;0.25\n", b"step;reward\n1;3\n", b"step,reward\n1,0.25\n"])
def test_a_table_without_commas_in_its_numbers_says_nothing_of_them(tmp_path: Path, data: bytes) -> None:
    report, events = read(tmp_path, ("t.csv", data))
    assert report.files[0].notes == [] and figures(events)[1]["reward"] in (0.25, 3.0)


@pytest.mark.parametrize(
    "data", [b"step;reward;loss\n1;0,25;1.5\n", b'step,reward,loss\n1,"1,234",2\n', b'step,a,b\n1,"1,234",0.5\n']
)
def test_commas_that_may_mean_either_are_not_guessed(tmp_path: Path, data: bytes) -> None:
    report, _events = read(tmp_path, ("t.csv", data))
    assert report.verdict == "rejected" and "is not a number, under" in report.message
