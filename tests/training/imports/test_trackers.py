"""Consoles and databases of other trainers and trackers: prime-rl, OpenRLHF, MLflow, Trackio; and what is refused."""

from __future__ import annotations

import json
import math
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.training.imports.test_readers import of, read, zipped
from tests.training.imports.test_trainers import figures
from training.data.files.sources import Given
from training.imports.read import import_files

PRIME = (
    "\x1b[32m09:01:17\x1b[0m [\x1b[1mSUCCESS\x1b[0m] Step 0 | Time: 850.78s | Reward: 0.5400 | Seq. Length: 2864.3 "
    "tokens/sample | Async Level: 0 | Max. Off-Policy Level: 0\n"
    "09:02:17 [INFO] Starting step 1\n"
    "09:02:17 [SUCCESS] Step 1 | Time: 12.01s | Loss: -0.0078 | Entropy: nan | Mismatch KL: 4.9e-01 | "
    "Grad. Norm: 2.0312 | LR: 1.00e-06 | Throughput: 1859 tokens/s | MFU: 31.5% | Peak Mem.: 81.1 GiB | Odd: none\n"
)
OPENRLHF = (
    "(PPOTrainer pid=7) INFO x] ✨ Global step 3: {'policy_loss': 0.25, 'reward': 0.5, 'kl': np.float64(0.1), "
    "'generated_samples': ['a', 1.0], 'num_actions': 120.0}\n"
    "Episode [1/20]:  10%|█         | 9/90 [00:10<00:40]\n"
    "(PPOTrainer pid=7) INFO x] ✨ Global step 4 [replay]: {'policy_loss': nan, 'dynamic_filtering_pass_rate': 12.5}\n"
)


def test_the_console_of_prime_rl(tmp_path: Path) -> None:
    report, events = read(tmp_path, ("orchestrator.log", PRIME.encode()))
    assert (report.tool, report.verdict, report.files[0].kind) == ("prime-rl", "ok", "prime_console")
    found = figures(events)
    assert found[0] == {
        "timing/step": 850.78,
        "reward": 0.54,
        "seq_length": 2864.3,
        "async_level": 0.0,
        "max_off_policy_level": 0.0,
    }
    assert math.isnan(found[1].pop("entropy")) and found[1] == {
        "timing/step": 12.01,
        "loss": -0.0078,
        "mismatch_kl": 0.49,
        "grad_norm": 2.0312,
        "learning_rate": 1e-6,
        "throughput": 1859.0,
        "mfu": 31.5,
        "peak_mem": 81.1,
    }
    assert [(item.line, item.reason) for item in report.remarks] == [(3, "'Odd: none' is not a name with a number")]


def test_another_program_s_steps_are_not_prime_rl_s(tmp_path: Path) -> None:
    report, _events = read(tmp_path, ("log", b"Step 1 | Time: 08:30:00 | Price: $3601.50 | Position: FLAT\n"))
    assert report.verdict == "rejected" and "not a known file of a run" in report.message


def test_a_version_is_no_number(tmp_path: Path) -> None:
    report, events = read(tmp_path, ("log", b"Step 2 | Time: 1s | Loss: 2.5 | vLLM: 0.9.1\n"))
    assert figures(events)[2] == {"timing/step": 1.0, "loss": 2.5} and "vLLM" in report.remarks[0].reason


def test_the_console_of_openrlhf_has_its_own_name_and_steps(tmp_path: Path) -> None:
    report, events = read(tmp_path, ("train.log", OPENRLHF.encode()))
    assert report.tool == "OpenRLHF" and sorted(figures(events)) == [3, 4]
    found = figures(events)
    assert found[3] == {"policy_loss": 0.25, "reward": 0.5, "kl": 0.1, "num_actions": 120.0}
    assert math.isnan(found[4]["policy_loss"]) and found[4]["dynamic_filtering_pass_rate"] == 12.5
    assert not any("no step number" in note for note in report.files[0].notes)


@pytest.mark.parametrize("mark", ["'", '"'])
def test_the_console_of_ms_swift_names_its_steps(tmp_path: Path, mark: str) -> None:
    rows = [
        {"loss": "0.5", "token_acc": "0.25", "global_step/max_steps": "10/438", "percentage": "2.28%"},
        {"eval_loss": "nan", "global_step/max_steps": "100/438", "elapsed_time": "30s"},
    ]
    text = "Train:   2%|2  | 9/438 [00:30<20:00]\n" + "\n".join(f"x{row}".replace("'", mark) for row in rows) + "\n"
    report, events = read(tmp_path, ("train.log", text.encode()))
    assert (report.tool, report.verdict, sorted(figures(events))) == ("ms-swift", "ok", [10, 100])
    assert figures(events)[10] == {"loss": 0.5, "token_acc": 0.25} and math.isnan(figures(events)[100]["eval_loss"])
    assert set(report.files[0].left_out) == {"percentage", "elapsed_time"}
    assert not report.remarks


def mlruns(run: str = "mlruns/1/abc") -> dict[str, bytes]:
    return {
        f"{run}/meta.yaml": b"run_id: abc\n",
        f"{run}/params/lr": b"1e-6",
        f"{run}/tags/mlflow.runName": b"best",
        f"{run}/metrics/train/loss": b"1767000000000 0.5 1\n1767000010000 nan 2\n1767000020000 x 3\n",
        f"{run}/metrics/reward": b"1767000000000 0.25 1\n",
    }


def archive(**files: bytes) -> bytes:
    return zipped(**{name.replace("/", "__"): data for name, data in files.items()})


def test_the_metric_files_of_mlflow(tmp_path: Path) -> None:
    report, events = read(tmp_path, ("run.zip", archive(**mlruns())))
    assert report.verdict == "bad_rows" and report.last_step == 2
    assert figures(events)[1] == {"reward": 0.25, "train/loss": 0.5, "loss": 0.5} and math.isnan(
        figures(events)[2]["train/loss"]
    )
    assert of(events, "metrics")[0].t == 1767000000.0
    assert sorted(file.name.rsplit("/", 1)[-1] for file in report.files if file.kind == "mlflow_other") == [
        "lr",
        "meta.yaml",
        "mlflow.runName",
    ]
    assert [(bad.line, bad.reason) for bad in report.bad] == [(3, "'x' is not a number")]


def test_one_metric_file_alone(tmp_path: Path) -> None:
    _report, events = read(tmp_path, ("kl", b"1767000000000 0.5 7\n"))
    assert figures(events)[7] == {"kl": 0.5}


def test_two_runs_of_mlflow_in_one_archive_ask_which_one(tmp_path: Path) -> None:
    both = mlruns() | {"mlruns/1/def/metrics/reward": b"1767000000000 0.75 1\n"}
    report, _events = read(tmp_path, ("run.zip", archive(**both)))
    assert "It holds the figures of 2 runs: abc, def." in report.message
    (tmp_path / "again").mkdir()
    report = import_files([Given(tmp_path / "in-0", "run.zip")], tmp_path / "again", run="def")
    assert '"reward":0.75' in (tmp_path / "again" / "journal.jsonl").read_text() and report.last_step == 1


def database(path: Path, *statements: tuple[str, list[tuple[Any, ...]]]) -> bytes:
    connection = sqlite3.connect(path)
    for statement, rows in statements:
        connection.executemany(statement, rows) if rows else connection.execute(statement)
    connection.commit()
    connection.close()
    return path.read_bytes()


def mlflow_database(path: Path) -> bytes:
    largest = sys.float_info.max
    return database(
        path,
        ("CREATE TABLE runs (run_uuid TEXT, name TEXT)", []),
        ("INSERT INTO runs VALUES (?, ?)", [("u1", "first"), ("u2", "second"), ("u3", "empty")]),
        (
            "CREATE TABLE metrics (key TEXT, value DOUBLE, timestamp BIGINT, run_uuid TEXT, step BIGINT, is_nan)",
            [],
        ),
        (
            "INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)",
            [
                ("reward", 0.5, 1767000000000, "u1", 1, 0),
                ("loss", 0.0, 1767000000000, "u1", 1, 1),
                ("kl", largest, 1767000000000, "u1", 2, 0),
                ("kl", -largest, 1767000000000, "u1", 3, 0),
                ("reward", 0.75, 1767000000000, "u2", 1, 0),
            ],
        ),
    )


@pytest.mark.parametrize(("run", "reward"), [("first", 0.5), ("u1", 0.5), ("second", 0.75)])
def test_mlflow_s_database(tmp_path: Path, run: str, reward: float) -> None:
    (tmp_path / "db").write_bytes(mlflow_database(tmp_path / "mlflow.db"))
    out = tmp_path / "run"
    out.mkdir()
    report = import_files([Given(tmp_path / "db", "mlflow.db")], out, run=run)
    text = (out / "journal.jsonl").read_text()
    assert report.verdict == "ok" and f'"reward":{reward}' in text
    if reward == 0.5:
        assert '"loss":"NaN"' in text and '"kl":"Infinity"' in text and '"kl":"-Infinity"' in text
        assert report.files[0].notes == [
            "3 figures are not finite (NaN or infinite), the first at step 1: kl (2), loss (1). "
            "They are gaps in their curves."
        ]


def test_mlflow_s_database_asks_which_run(tmp_path: Path) -> None:
    report, _events = read(tmp_path, ("mlflow.db", mlflow_database(tmp_path / "db")))
    assert "It holds the figures of 2 runs: first, second." in report.message


TRACKIO = (
    "CREATE TABLE metrics (id INTEGER PRIMARY KEY, timestamp TEXT NOT NULL, run_name TEXT NOT NULL, "
    "step INTEGER NOT NULL, metrics TEXT NOT NULL)"
)


def trackio(path: Path, *rows: tuple[str, int, str]) -> bytes:
    stamped = [
        (f"2026-01-01T00:00:0{number}" if number < 10 else "2026-01-01", *row) for number, row in enumerate(rows)
    ]
    insert = "INSERT INTO metrics (timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?)"
    return database(path, (TRACKIO, []), (insert, stamped))


def test_trackio_s_database(tmp_path: Path) -> None:
    """As a run it was once refused as conversations."""
    data = trackio(
        tmp_path / "db",
        ("a", 1, '{"train/loss": 0.5, "train/reward": "NaN", "image": {"_type": "trackio.image"}}'),
        ("a", 0, '{"train/loss": Infinity}'),
        ("a", 2, "{broken"),
        ("a", 3, "[1]"),
    )
    report, events = read(tmp_path, ("project.db", data))
    found = figures(events)
    assert (report.verdict, report.bad_rows, report.files[0].kind) == ("bad_rows", 2, "trackio")
    assert found[1]["loss"] == 0.5 and math.isnan(found[1]["reward"]) and found[0]["train/loss"] == math.inf
    assert [bad.reason for bad in report.bad] == ["its metrics are not valid JSON", "it holds no figure"]
    assert report.files[0].left_out == {"image": "its values are not numbers"}
    assert [event.t for event in of(events, "metrics")][:2] == [1767225601.0, 1767225600.0]


def test_trackio_s_database_of_two_runs(tmp_path: Path) -> None:
    data = trackio(tmp_path / "db", ("a", 1, '{"loss": 1}'), ("b", 1, '{"loss": 2}'))
    report, _events = read(tmp_path, ("project.db", data))
    assert "It holds the figures of 2 runs: a, b." in report.message


HOSTILE = {
    "a view": [
        "CREATE TABLE m (run_name, step, metrics, timestamp)",
        "CREATE VIEW metrics AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
        "SELECT '' AS run_name, i AS step, '' AS metrics, '' AS timestamp FROM n",
    ],
    "other tables": ["CREATE TABLE conversations (id, messages)"],
    "nothing": ["CREATE TABLE a (b)", "DROP TABLE a"],
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_another_database_is_refused_with_its_tables(tmp_path: Path, kind: str) -> None:
    data = database(tmp_path / "db", *((statement, []) for statement in HOSTILE[kind]))
    report, _events = read(tmp_path, ("x.db", data))
    assert "It is an SQLite database of neither Trackio nor MLflow" in report.message


def test_a_damaged_database_is_a_sentence(tmp_path: Path) -> None:
    rows = [("a", step, json.dumps({"loss": step})) for step in range(4000)]
    data = bytearray(trackio(tmp_path / "db", *rows))
    for data_at in (data[:5000], data[:4096] + b"\xff" * 9000 + data[13096:], data[:100]):
        folder = tmp_path / str(len(data_at))
        folder.mkdir()
        report, _events = read(folder, ("x.db", bytes(data_at)))
        assert report.verdict == "rejected" and "database" in report.message


REFUSED = {
    "the file of W&B": (b":W&B\xe1\xbe\x00\x01" + b"\0" * 200, "Weights & Biases' own file of a run"),
    "the summary of W&B": (
        b'{"_step": 9, "loss": 0.5, "_wandb": {"runtime": 5}}',
        "the last figure of each metric",
    ),
    "ToolEval": (b'{"10001": {"query": "q", "is_solved": {"0": "AnswerStatus.Solved"}}}', "a result of ToolEval"),
    "BFCL": (b'{"id": "simple_0", "result": "[f()]", "latency": 1.0}\n', "results of BFCL"),
    "the harness": (b'{"results": {"gsm8k": {}}, "n-shot": {"gsm8k": 5}}', "a result of the LM Evaluation Harness"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_run_is_refused_by_its_name(tmp_path: Path, kind: str) -> None:
    data, words = REFUSED[kind]
    report, _events = read(tmp_path, ("f", data))
    assert report.verdict == "rejected" and words in report.message
