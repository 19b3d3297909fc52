"""The trainer as a process of its own: its commands, its last word, and how it stops and dies."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.training.helpers import demonstration_rows, echo_behaviour, events, of_type, scripted_server, write_rows
from training.machine import mount_of

ROOT = Path(__file__).resolve().parents[2]


def trainer(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
    """``python -m training`` as a child process."""
    words = [sys.executable, "-m", "training", *map(str, arguments)]
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)


WITHOUT_HEALTH = [sys.executable, "-m", "tests.training.without_health"]


@pytest.fixture
def children() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts trainers and ends those that a failed test left behind."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
        started.append(trainer(*arguments, **options))
        return started[-1]

    yield start
    for child in started:
        if child.poll() is None:
            child.kill()
        child.communicate()


def config_file(folder: Path, model: Path, **over: Any) -> Path:
    kind = over.get("kind", "sft")
    rows = write_rows(folder / "rows.jsonl", demonstration_rows(), prompts_only=kind == "grpo")
    config = {
        "kind": kind,
        "model": {"source": str(model)},
        "data": {"train": str(rows)},
        "sft": {"batch_size": 8, "max_length": 256},
        "run": {"max_steps": 100_000, "device": "cpu", "threads": 1},
        "optim": {"learning_rate": 1e-3},
        **over,
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def wait_for(run_dir: Path, condition: Callable[[list[Any]], bool], limit_s: float = 90) -> None:
    """Wait until the journal says so."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if (run_dir / "journal.jsonl").exists() and condition(events(run_dir)):
            return
        time.sleep(0.05)
    raise AssertionError("the journal never said so")


def has(kind: str, count: int = 1) -> Callable[[list[Any]], bool]:
    return lambda found: sum(event.type == kind for event in found) >= count


def test_schema_prints_the_config_without_loading_torch() -> None:
    began = time.monotonic()
    child = trainer("schema")
    out, _ = child.communicate(timeout=30)
    assert "rollout" in json.loads(out)["properties"] and time.monotonic() - began < 10


@pytest.mark.parametrize("text", ["run: [", "kind: magic", "- a list", "unknown: 1", "rollout: {num_generations: 1}"])
def test_a_bad_config_is_refused_with_its_option_and_code_2(tmp_path: Path, text: str) -> None:
    (tmp_path / "job.yaml").write_text(text)
    child = trainer("run", tmp_path / "job.yaml", "--run-dir", tmp_path / "run")
    out, _ = child.communicate(timeout=30)
    assert child.returncode == 2 and out.strip() and b"Traceback" not in out
    assert not (tmp_path / "run").exists()


def test_a_typed_failure_is_the_last_word_with_sentence_and_hint(tmp_path: Path) -> None:
    path = config_file(tmp_path, tmp_path / "no-model", run={"max_steps": 2, "device": "cpu"})
    child = trainer("run", path, "--run-dir", tmp_path / "run")
    child.communicate(timeout=60)
    last = events(tmp_path / "run")[-1]
    assert child.returncode == 1 and last.type == "run_finished" and last.status == "failed"
    assert last.error.code == "model_unusable" and last.error.hint and "no-model" in last.error.message


def test_a_short_run_succeeds_prints_progress_and_keeps_its_config(tmp_path: Path, starter_folder: Path) -> None:
    path = config_file(tmp_path, starter_folder, run={"max_steps": 2, "device": "cpu", "threads": 1})
    child = trainer("run", path, "--run-dir", tmp_path / "run")
    out, _ = child.communicate(timeout=120)
    assert child.returncode == 0, out
    assert b"step 2" in out and b"succeeded at step 2" in out
    assert events(tmp_path / "run")[-1].status == "succeeded"
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["sft"]["batch_size"] == 8
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()


def test_an_unknown_exception_is_a_crash_with_its_traceback_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from training.config import JobConfig
    from training.main import run_job

    def explode(job: Any) -> None:
        raise KeyError("surprise")

    monkeypatch.setattr("training.config.methods.Method.load", lambda method: explode)
    monkeypatch.setattr("training.main._listen_for_stop", lambda stop, ending: None)
    assert run_job(JobConfig(), tmp_path, progress=False) == 1
    last = events(tmp_path)[-1]
    assert last.error.code == "trainer_crashed" and "surprise" in last.error.message
    assert any("KeyError" in event.message for event in of_type(tmp_path, "log"))


@pytest.mark.parametrize(
    ("number", "code"),
    [("ENOSPC", "storage_full"), ("EDQUOT", "storage_full"), ("EROFS", "storage_failed"), ("EIO", "storage_failed")],
)
def test_a_disk_that_takes_nothing_is_named_as_such(
    number: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from training.config import JobConfig
    from training.main import run_job

    def explode(job: Any) -> None:
        raise OSError(getattr(errno, number), os.strerror(getattr(errno, number)))

    monkeypatch.setattr("training.config.methods.Method.load", lambda method: explode)
    monkeypatch.setattr("training.main._listen_for_stop", lambda stop, ending: None)
    assert run_job(JobConfig(), tmp_path, progress=False) == 5
    last = events(tmp_path)[-1]
    assert (last.status, last.error.code) == ("paused", code)
    place = mount_of(tmp_path) if code == "storage_full" else tmp_path
    assert str(place) in last.error.message and last.error.hint


async def _slow(socket: Any, frame: dict[str, Any], turn: int) -> str | None:
    import asyncio

    if frame["type"] == "step":
        await asyncio.sleep(300)
    return await echo_behaviour(socket, frame, turn)


IN_TRAINING = pytest.param("training", signal.SIGINT, marks=pytest.mark.slow)


@pytest.mark.plain_start  # while it prepares it imports torch
@pytest.mark.parametrize(("phase", "number"), [("preparing", signal.SIGTERM), IN_TRAINING])
def test_a_signal_stops_an_sft_run_in_time(
    tmp_path: Path, starter_folder: Path, children: Any, phase: str, number: signal.Signals
) -> None:
    child = children("run", config_file(tmp_path, starter_folder), "--run-dir", tmp_path / "run")
    wait_for(tmp_path / "run", has("phase") if phase == "preparing" else has("metrics", 3))
    began = time.monotonic()
    child.send_signal(number)
    assert child.wait(timeout=12) == 4
    assert time.monotonic() - began < 8
    last = events(tmp_path / "run")[-1]
    assert last.type == "run_finished" and last.status == "stopped" and last.error is None


def test_a_signal_stops_a_grpo_run_that_waits_for_a_hung_environment(
    tmp_path: Path, starter_folder: Path, children: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real process against an environment that never answers a step; its health is answered by a small server."""
    with scripted_server(_slow) as url:
        config = config_file(
            tmp_path,
            starter_folder,
            kind="grpo",
            environment={"url": url, "step_timeout_s": 600},
            rollout={"prompts_per_step": 2, "num_generations": 2},
        )
        words = [*WITHOUT_HEALTH, "run", str(config), "--run-dir", str(tmp_path / "run")]
        child = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for(tmp_path / "run", has("turn", 4))
            began = time.monotonic()
            child.send_signal(signal.SIGTERM)
            assert child.wait(timeout=12) == 4
        finally:
            child.kill()
            child.wait()
    assert time.monotonic() - began < 8
    assert events(tmp_path / "run")[-1].status == "stopped"


@pytest.mark.slow
def test_a_stopped_run_continues_in_the_same_folder_and_repeats_no_name(
    tmp_path: Path, starter_folder: Path, children: Any
) -> None:
    """By default nothing was saved, and a second start in the folder named its rollouts like the first."""
    run_dir = tmp_path / "run"
    with scripted_server() as url:
        over = {
            "kind": "grpo",
            "environment": {"url": url},
            "rollout": {"prompts_per_step": 1, "num_generations": 2, "max_turns": 1, "max_turn_tokens": 8},
            "rewards": {"components": [{"name": "length_budget", "weight": 1}]},
        }
        words = [*WITHOUT_HEALTH, "run", "--run-dir", str(run_dir)]
        for steps, ends in ((100_000, 4), (0, 0)):
            steps = steps or of_type(run_dir, "run_finished")[0].step + 1
            over["run"] = {"max_steps": steps, "device": "cpu", "threads": 1}
            child = subprocess.Popen([*words, str(config_file(tmp_path, starter_folder, **over))], cwd=ROOT)
            try:
                if ends:
                    wait_for(run_dir, has("metrics", 2))
                    child.send_signal(signal.SIGTERM)
                assert child.wait(timeout=60) == ends
            finally:
                child.kill()
                child.wait()
    stopped = of_type(run_dir, "run_finished")[0].step
    resumed = of_type(run_dir, "resumed")[0]
    assert (resumed.source, resumed.step, resumed.lost_steps) == (f"checkpoint-{stopped}", stopped, 0)
    names = [event.rollout for event in of_type(run_dir, "rollout_started")]
    assert len(set(names)) == len(names) and {name.split("-")[0] for name in names} == {"a1", "a2"}


def test_the_watchdog_ends_a_phase_that_does_not_listen(tmp_path: Path) -> None:
    """A method that never looks at the flag is ended with the same last word."""
    script = (
        "import sys, time, pathlib, training.main as m; m.Job.stop_grace = lambda job: 0.5\n"
        "from training.config import JobConfig, Method\n"
        "Method.load = lambda method: lambda job: (print('up', flush=True), [time.sleep(0.1) for _ in range(600)])\n"
        "sys.exit(m.run_job(JobConfig(), pathlib.Path(sys.argv[1])))"
    )
    child = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    child.send_signal(signal.SIGTERM)
    assert child.wait(timeout=10) == 4
    child.stdout.close()
    assert events(tmp_path)[-1].status == "stopped"


@pytest.mark.parametrize(("at_work", "saved"), [("busy", 3), ("asleep", 2), ("busy", 1)])
def test_the_watchdog_waits_for_a_save_that_is_at_work_and_says_what_is_lost(
    tmp_path: Path, at_work: str, saved: int
) -> None:
    """An update that took longer than the grace ended the run as if all were well, and eight steps were gone."""
    script = (
        "import sys, time, pathlib, training.main as m; m.Job.stop_grace = lambda job: 0.5\n"
        "m.patience = lambda grace_s: 3.0 if sys.argv[3] == '1' else 60.0\n"
        "from training.config import JobConfig, Method\n"
        "def method(job):\n"
        "    job.step, job.saved_step = 3, 1 if sys.argv[3] == '1' else 2\n"
        "    print('up', flush=True)\n"
        "    job.stop.wait()\n"
        "    until = time.process_time() + (100 if sys.argv[3] == '1' else 2)\n"
        "    while time.process_time() < until:\n"
        "        time.sleep(60) if sys.argv[2] == 'asleep' else None\n"
        "    job.saved_step = 3\n"
        "    job.check_stop()\n"
        "Method.load = lambda _: method\n"
        "sys.exit(m.run_job(JobConfig(), pathlib.Path(sys.argv[1])))"
    )
    words = [sys.executable, "-c", script, str(tmp_path), at_work, str(saved)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=50) == 4
    assert (events(tmp_path)[-1].status, events(tmp_path)[-1].step) == ("stopped", 3)
    warned = [event.message for event in of_type(tmp_path, "log") if event.level == "warning"]
    lost = {3: [], 2: ["step 3 is"], 1: ["steps 2 to 3 are"]}[saved]
    assert len(warned) == len(lost) and all(f"{each} trained again." in warned[0] for each in lost)


def test_the_trainer_dies_with_its_parent(tmp_path: Path, starter_folder: Path, children: Any) -> None:
    read, write = os.pipe()
    path = config_file(tmp_path, starter_folder)
    child = children("run", path, "--run-dir", tmp_path / "run", "--parent-pipe", read, pass_fds=(read,))
    os.close(read)
    wait_for(tmp_path / "run", has("metrics"))
    os.close(write)
    assert child.wait(timeout=5) == 3
    assert events(tmp_path / "run")[-1].type != "run_finished"


@pytest.mark.slow
def test_after_kill_9_every_line_of_the_journal_is_an_event(
    tmp_path: Path, starter_folder: Path, children: Any
) -> None:
    child = children("run", config_file(tmp_path, starter_folder), "--run-dir", tmp_path / "run")
    wait_for(tmp_path / "run", has("metrics", 5))
    child.kill()
    child.wait()
    found = events(tmp_path / "run")
    assert [event.n for event in found] == list(range(1, len(found) + 1))
    assert found[-1].type != "run_finished"


@pytest.mark.slow
def test_kill_9_in_stage_2_continues_in_stage_2(tmp_path: Path, starter_folder: Path) -> None:
    run_dir = tmp_path / "run"
    with scripted_server() as url:
        over = {
            "kind": "grpo",
            "environment": {"url": url},
            "rollout": {"prompts_per_step": 1, "num_generations": 2, "max_turns": 1, "max_turn_tokens": 8},
            "rewards": {"components": [{"name": "length_budget", "weight": 1}]},
            "curriculum": {
                "stages": [{"name": "a", "until_step": 2}, {"name": "b", "rollout": {"max_turn_tokens": 9}}]
            },
        }
        words = [*WITHOUT_HEALTH, "run", "--run-dir", str(run_dir)]
        for steps, ends in ((100_000, -signal.SIGKILL), (0, 0)):
            steps = steps or max(event.step for event in of_type(run_dir, "metrics")) + 1
            over["run"] = {"max_steps": steps, "device": "cpu", "threads": 1, "save_every": 5, "save_every_minutes": 0}
            child = subprocess.Popen([*words, str(config_file(tmp_path, starter_folder, **over))], cwd=ROOT)
            try:
                if ends:
                    wait_for(run_dir, has("metrics", 4))
                    child.kill()
                assert child.wait(timeout=90) == ends
            finally:
                child.kill()
                child.wait()
    stages = [(event.name, event.began, event.why) for event in of_type(run_dir, "stage_started")]
    assert stages == [("a", 0, "first"), ("b", 2, "steps"), ("b", 2, "resumed")]
    assert of_type(run_dir, "resumed")[0].step >= 2 and (run_dir / "model" / "manifest.json").exists()
