"""The trackers' own packages and readers, where they are installed; none of them needs a network here."""

from __future__ import annotations

import importlib
import json
import os
import sqlite3
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.training.reporting.conftest import RUN_ID, Attempt

Begin = Callable[..., Attempt]
BOTH = [(1, 1.1), (2, 2.1), (3, 3.1), (4, 4.1), (5, 5.2), (6, 6.2)]
"""What two attempts come to where the first report of a step counts: the second began after step 3."""


def installed(name: str) -> Any:
    return pytest.importorskip(name, reason=f"the optional package {name} is not installed")


def two_attempts(begin: Begin, tracker: str, **variables: str) -> Path:
    os.environ.update(variables)  # each attempt's trainer forgets them
    first = begin(to=[tracker])
    first.steps(1, 4)
    first.end("paused")
    os.environ.update(variables)
    second = begin(2, from_step=3, to=[tracker])
    second.steps(4, 6)
    second.end()
    assert not [message for level, message in first.log() + second.log() if level == "warning"]
    return first.run_dir


@pytest.fixture(autouse=True)
def _time_to_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.reporting.starting.END_S", 120.0)


def test_tensorboard_shows_the_later_attempt_where_steps_were_trained_again(begin: Begin) -> None:
    reader = installed("tensorboard.backend.event_processing.event_accumulator")
    folder = two_attempts(begin, "tensorboard") / "reports" / "tensorboard"
    found = reader.EventAccumulator(str(folder), size_guidance={"scalars": 0})
    found.Reload()
    assert sorted(found.Tags()["scalars"]) == ["reward", "rewards/exact/mean"]
    assert [(item.step, round(item.value, 5)) for item in found.Scalars("reward")] == [
        *BOTH[:3],
        (4, 4.2),
        *BOTH[4:],
    ]


def wandb_records(path: Path) -> Iterator[bytes]:
    """The records of an offline file: LevelDB's log, in blocks of 32 KiB."""
    data, place, record = path.read_bytes(), 7, b""
    while place + 7 <= len(data):
        if (left := 32768 - place % 32768) < 7:
            place += left
            continue
        _check, size, kind = struct.unpack("<IHB", data[place : place + 7])
        record += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):
            yield record
            record = b""


def test_wandb_keeps_offline_files_with_our_names_and_steps(begin: Begin) -> None:
    installed("wandb")
    proto: Any = importlib.import_module("wandb.proto.wandb_internal_pb2")
    folder = two_attempts(begin, "wandb", WANDB_MODE="offline") / "reports" / "wandb"
    rows, runs = [], []
    for path in sorted(folder.glob("offline-run-*/*.wandb")):
        for data in wandb_records(path):
            record = proto.Record()
            record.ParseFromString(data)
            if record.WhichOneof("record_type") == "run":
                runs.append((record.run.run_id, record.run.display_name, record.run.project, list(record.run.tags)))
            elif record.WhichOneof("record_type") == "history":
                values = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
                assert "rewards/exact/mean" in values
                rows.append((int(values["_step"]), float(values["reward"])))
    assert rows == BOTH and runs == [(RUN_ID, "first", "pilot", ["a", "b"])] * 2


def test_mlflow_finds_its_run_again(begin: Begin, tmp_path: Path) -> None:
    mlflow = installed("mlflow")
    installed("sqlalchemy")  # mlflow-skinny speaks to servers only
    address = f"sqlite:///{tmp_path}/mlflow.db"
    two_attempts(begin, "mlflow", MLFLOW_TRACKING_URI=address)
    client = mlflow.MlflowClient(address)
    runs = client.search_runs([client.get_experiment_by_name("pilot").experiment_id])
    assert [(run.info.run_name, run.info.status, run.data.tags["tiltyard.run"]) for run in runs] == [
        ("first", "FINISHED", RUN_ID)
    ]
    history = client.get_metric_history(runs[0].info.run_id, "reward")
    assert sorted((item.step, item.value) for item in history) == BOTH
    assert all(1.6e12 < item.timestamp < 4e12 for item in history)
    assert runs[0].data.params["optim.max_grad_norm"] == "1.0"


def test_trackio_continues_its_run(begin: Begin, tmp_path: Path) -> None:
    installed("trackio")
    two_attempts(begin, "trackio", TRACKIO_DIR=str(tmp_path / "trackio"))
    with sqlite3.connect(tmp_path / "trackio" / "pilot.db") as database:
        rows = database.execute("select run_name, step, metrics from metrics order by step").fetchall()
    assert [(step, json.loads(values)["reward"]) for _name, step, values in rows] == BOTH
    assert {name for name, _step, _values in rows} == {"first-5d1c0d55"}


def test_swanlab_writes_its_files(begin: Begin) -> None:
    installed("swanlab")
    folder = two_attempts(begin, "swanlab", SWANLAB_MODE="offline") / "reports"
    files = sorted(folder.glob("run-*/run-*.swanlab"))
    assert len(files) == 2 and all(b"rewards/exact/mean" in path.read_bytes() for path in files)
