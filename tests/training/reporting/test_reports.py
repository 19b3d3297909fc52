"""What a tracker receives, when it is away, slow or missing, and what a run notices of it: nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.training.reporting.conftest import KEY, RUN_ID, Attempt, Wandb
from training.journal import Metrics
from training.reporting import starting

Begin = Callable[..., Attempt]
Behaves = Callable[[str], Wandb]


def test_a_tracker_gets_our_names_and_steps_as_one_run(begin: Begin, wandb: Behaves) -> None:
    tracker = wandb("well")
    attempt = begin(to=["wandb"])
    attempt.steps(1, 3)
    attempt.end()
    received = tracker.received()
    assert (received[0]["id"], received[0]["name"], received[0]["project"], received[0]["tags"]) == (
        RUN_ID,
        "first",
        "pilot",
        ["a", "b"],
    )
    assert received[1:] == [
        {"step": step, "values": {"reward": step + 0.1, "rewards/exact/mean": step / 3}} for step in (1, 2, 3)
    ] + [{"finished": 0}]
    assert attempt.log() == [("info", "Weights & Biases: http://tracker.example/run")]


def test_neither_paths_nor_addresses_nor_other_trackers_keys_leave(
    begin: Begin, wandb: Behaves, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "of another")
    monkeypatch.setenv("JUDGE_KEY", "of a judge")
    tracker = wandb("well")
    begin(to=["wandb"]).end()
    begun = tracker.received()[0]
    assert begun["config"]["optim.max_grad_norm"] == 1.0 and begun["config"]["kind"] == "grpo"
    assert not {"model.source", "environment.url", "data.train", "report.to"} & set(begun["config"])
    assert "WANDB_API_KEY" in begun["env"] and not {"MLFLOW_TRACKING_TOKEN", "JUDGE_KEY"} & set(begun["env"])


def test_keys_stay_with_the_reporters(begin: Begin, wandb: Behaves) -> None:
    """What the trainer starts later, such as a reward's code, finds none in the trainer's own environment."""
    import os

    wandb("well")
    begin(to=["wandb"]).end()
    assert "WANDB_API_KEY" not in os.environ and "HOME" in os.environ


def test_a_resumed_run_continues_in_the_same_run_and_reports_no_step_twice(begin: Begin, wandb: Behaves) -> None:
    wandb("well")
    first = begin(to=["wandb"])
    first.steps(1, 5)
    first.end("paused")
    tracker = wandb("well")
    second = begin(2, from_step=3, to=["wandb"])
    second.steps(4, 7)
    second.end()
    assert tracker.steps() == [(1, 1.1), (2, 2.1), (3, 3.1), (4, 4.1), (5, 5.1), (6, 6.2), (7, 7.2)]
    begun = [item for item in tracker.received() if "id" in item]
    assert [(item["id"], item["resume"]) for item in begun] == [(RUN_ID, "allow")] * 2
    assert [item["finished"] for item in tracker.received() if "finished" in item] == [1, 0]


def test_what_an_attempt_could_not_report_the_next_reports(begin: Begin, wandb: Behaves) -> None:
    """Steps that were lost with the first attempt are those of the second."""
    wandb("refuses")
    first = begin(to=["wandb"])
    first.steps(1, 5)
    first.end("paused")
    tracker = wandb("well")
    second = begin(2, from_step=3, to=["wandb"])
    second.steps(4, 6)
    second.end()
    assert tracker.steps() == [(1, 1.1), (2, 2.1), (3, 3.1), (4, 4.2), (5, 5.2), (6, 6.2)]


def test_a_tracker_that_is_away_is_named_once_without_its_key_and_caught_up_with(begin: Begin, wandb: Behaves) -> None:
    tracker = wandb("refuses")
    attempt = begin(to=["wandb"])
    attempt.steps(1, 4)
    tracker.wait(lambda received: len(received) >= 2)  # it has been tried again
    Path(f"{tracker.record}.up").touch()
    tracker.wait(lambda received: any(item.get("step") == 4 for item in received))
    attempt.end()
    assert tracker.steps() == [(1, 1.1), (2, 2.1), (3, 3.1), (4, 4.1)]
    away, url, back = attempt.log()
    assert away == (
        "warning",
        "Weights & Biases cannot be reached; the run goes on. ConnectionError: no route to host, key (WANDB_API_KEY)",
    )
    assert KEY not in (attempt.run_dir / "journal.jsonl").read_text()
    assert (url[0], back) == (
        "info",
        ("info", "Weights & Biases is reached again and has been told what it missed."),
    )


def test_a_tracker_that_hangs_slows_no_step_and_the_end_only_so_long(
    begin: Begin, wandb: Behaves, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "END_S", 2.0)
    tracker = wandb("hangs")
    attempt = begin(to=["wandb"])
    tracker.wait(lambda received: len(received) == 1)
    slowest = 0.0
    for step in range(1, 201):
        began = time.monotonic()
        attempt.journal.write(Metrics(step=step, values={f"figure/{number}": 0.5 for number in range(40)}))
        slowest = max(slowest, time.monotonic() - began)
    assert slowest < 0.5
    began = time.monotonic()
    attempt.end()
    assert 1.5 < time.monotonic() - began < 5
    assert [child.poll() for child in attempt.reports._children.values()] == [-9]
    assert attempt.log() == [
        ("warning", "Weights & Biases was not told everything before the run ended; a resume tells the rest.")
    ]


def test_a_hanging_call_is_named_while_it_hangs(
    begin: Begin, wandb: Behaves, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    site = tmp_path / "packages" / "sitecustomize.py"
    tracker = wandb("hangs")
    site.write_text("import training.reporting.telling as t; t.SILENT_S = 1.0")
    attempt = begin(to=["wandb"])
    tracker.wait(lambda received: len(received) == 1)
    end = time.monotonic() + 20
    while not attempt.log():
        assert time.monotonic() < end
        time.sleep(0.1)
    assert attempt.log() == [
        ("warning", "Weights & Biases cannot be reached; the run goes on. It has not answered for 1 s.")
    ]


def test_a_missing_package_is_named_and_the_other_trackers_get_reports(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    packages = tmp_path / "broken"
    packages.mkdir()
    (packages / "wandb.py").write_text("raise ModuleNotFoundError(\"No module named 'wandb'\", name='wandb')")
    monkeypatch.setenv("PYTHONPATH", f"{packages}:{Path(__file__).resolve().parents[3]}")
    attempt = begin(to=["wandb", "tensorboard"])
    attempt.steps(1, 2)
    attempt.end()
    text = "Weights & Biases cannot be reached; the run goes on. The package wandb is not installed in the worker's"
    assert attempt.log()[0][1].startswith(text)
    assert list((attempt.run_dir / "reports" / "tensorboard").glob("events.out.tfevents.*"))


def test_without_a_last_word_the_tracker_hears_that_it_did_not_succeed(begin: Begin, wandb: Behaves) -> None:
    tracker = wandb("well")
    attempt = begin(to=["wandb"])
    attempt.steps(1, 2)
    attempt.leave()
    assert tracker.steps() == [(1, 1.1), (2, 2.1)] and tracker.received()[-1] == {"finished": 1}


def test_later_words_on_a_step_are_no_second_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """An evaluation writes what its cut-off rollouts cost with its last step."""
    from training.reporting.trackers import Figures
    from training.reporting.trackers import Wandb as Reporter

    class Run:
        rows: list[Any] = []
        summary: dict[str, float] = {}

        def log(self, values: dict[str, float], step: int, commit: bool) -> None:
            self.rows.append(step)

    reporter = Reporter()
    reporter._run, reporter._last = Run(), -1
    reporter.log(Figures(4, 0.0, {"reward": 1.0}))
    reporter.log(Figures(4, 0.0, {"endpoint/cost": 2.0}))
    assert (Run.rows, Run.summary) == ([4], {"endpoint/cost": 2.0})
