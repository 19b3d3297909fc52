"""What an exit code without a last word means, and which of them count as a crash of the run."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from training.sessions import folder_id
from webapp.engine import trainer
from webapp.engine.attempts import attempt_end, claim
from webapp.engine.trainer import death, kill_orphan, oom_kills, output_tail
from webapp.runs.states import RunState


@pytest.mark.parametrize(
    ("code", "out_of_memory", "named", "hint"),
    [
        (-9, False, "trainer_killed", "log"),
        (-9, True, "trainer_died", "kernel killed a process for want of memory"),
        (-9, None, "trainer_died", "often a kill by the kernel"),
        (137, True, "trainer_died", "kernel killed a process for want of memory"),
        (137, False, "trainer_died", "often a kill by the kernel"),
        (-11, False, "trainer_died", "log"),
        (1, True, "trainer_died", "log"),
    ],
)
def test_a_kill_is_distinguished_from_a_crash(code: int, out_of_memory: bool | None, named: str, hint: str) -> None:
    cause = death(code, out_of_memory)
    assert cause.code == named and hint in cause.hint


def test_the_kernels_count_of_kills_is_read() -> None:
    lines = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    assert oom_kills() == (int(lines["oom_kill"]) if "oom_kill" in lines else None)


@pytest.mark.parametrize(
    ("note", "killed"),
    [
        ({}, [(4321, signal.SIGKILL)]),
        ({"started": 8.0}, []),
        ({"started": None}, []),
        ({"folder": "of the original"}, []),
        ({"pid": "x"}, []),
    ],
)
def test_only_the_process_that_was_noted_is_killed(
    note: dict[str, Any], killed: list[tuple[int, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number may be another program's by now, and in a copy of the folder it is the original's."""
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(trainer, "_signal_group", lambda pid, number: found.append((pid, number)))
    monkeypatch.setattr(trainer, "started_at", lambda pid: {4321: 7.0}.get(pid))
    kill_orphan(tmp_path)
    ours = {"pid": 4321, "started": 7.0, "folder": folder_id(tmp_path)}
    (tmp_path / trainer.PROCESS_NAME).write_text(json.dumps(ours | note))
    kill_orphan(tmp_path)
    assert found == killed


def test_the_last_lines_that_were_printed_are_kept(tmp_path: Path) -> None:
    assert output_tail(tmp_path) == []
    lines = [f"line {number}" for number in range(trainer.TAIL_LINES + 5)]
    (tmp_path / trainer.OUTPUT_NAME).write_text("\n".join([*lines, "", "x" * (trainer.LINE_CHARS + 1)]))
    found = output_tail(tmp_path)
    assert found[-2:] == [lines[-1], "x" * trainer.LINE_CHARS]
    assert found[0] == lines[-(trainer.TAIL_LINES - 2)] and len(found) == trainer.TAIL_LINES - 1, "an empty one counts"


@pytest.mark.django_db
def test_five_kills_at_the_start_do_not_end_a_run(queued: Any) -> None:
    """Three SIGKILLs before the first step ended a run as ``crash_loop`` although nothing was wrong with it."""
    run = queued()
    for _ in range(5):
        attempt_end(claim(run.pk), death(-9, False))
        run.refresh_from_db()
        assert (run.state, run.error) == (RunState.QUEUED, None)


@pytest.mark.django_db
def test_three_kills_by_the_kernel_do(queued: Any) -> None:
    run = queued()
    for _ in range(3):
        attempt_end(claim(run.pk), death(-9, True))
    run.refresh_from_db()
    assert (run.state, run.error["code"]) == (RunState.FAILED, "crash_loop")
    assert "memory" in run.error["hint"]


@pytest.mark.django_db(transaction=True)
def test_a_kernel_that_ran_out_of_memory_meanwhile_is_noticed(queued: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from webapp.engine.supervisor import supervise

    counts = iter([4, 5])
    monkeypatch.setattr(trainer, "oom_kills", lambda: next(counts))
    run = queued("mode-kill/at-8/sleep-1", steps=12, save_every=3)
    supervise(run.pk)
    assert run.attempts.get().error["code"] == "trainer_died"


@pytest.mark.django_db
def test_the_twentieth_kill_without_a_new_step_does(queued: Any) -> None:
    """Something that kills every trainer of a run must not be fed without end."""
    run = queued()
    for _ in range(20):
        run.refresh_from_db()
        assert run.state == RunState.QUEUED
        attempt_end(claim(run.pk), death(-9, False))
    run.refresh_from_db()
    assert (run.state, run.error["code"]) == (RunState.FAILED, "crash_loop")
