"""The process that waits for verl: the journal that it merges, and its exit code."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.training.helpers import job_config
from tests.training.verl_backend.test_merger import Process, begin, brief, end, scored
from training.journal import Event, Journal, LogLine, Metrics, RunFinished
from training.verl_backend import __main__ as module
from training.verl_backend.folder import JobFolder, Plan
from training.verl_backend.merger import Merger


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    """A job of one group of two rollouts a step."""
    made = JobFolder(tmp_path / "verl")
    config = job_config(rollout={"prompts_per_step": 1, "num_generations": 2}, data={"train": "x"})
    made.write(config, Plan(attempt=1, order=[0], rows=1, eos_id=2))
    return made


def test_the_journal_grows_while_it_waits_and_is_whole_after_it(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MERGE_S", 0.01)
    merged = Merger.merge
    seen: list[list[str]] = []

    def merge(merger: Merger, *, over: bool = False) -> int:
        count = merged(merger, over=over)
        seen.append(brief(folder.run_dir))
        return count

    monkeypatch.setattr(Merger, "merge", merge)
    process, names = Process(folder.run_dir, "a-1"), ["a1-s1-g0-i0", "a1-s1-g0-i1"]
    with pytest.raises(RuntimeError), module.merging(folder):
        process.say(1, *(begin(name) for name in names), *(end(name) for name in names), scored(1, 0, *names))
        ends = time.monotonic() + 10
        while (not seen or len(seen[-1]) < 5) and time.monotonic() < ends:
            time.sleep(0.01)
        process.say(2, Metrics(step=1, values={}), RunFinished(status="failed", step=1))
        raise RuntimeError("verl has ended")
    assert len(seen[0]) <= 5 <= len(seen[-2]) and "run_finished 1" not in seen[-2], "the last word waits for the end"
    assert brief(folder.run_dir)[-2:] == ["metrics 1", "run_finished 1"]


@pytest.mark.parametrize(
    ("last", "code"),
    [
        (RunFinished(status="succeeded", step=2), 0),
        (RunFinished(status="failed", step=2), 1),
        (RunFinished(status="stopped", step=2), 4),
        (RunFinished(status="paused", step=2), 5),
        (LogLine(message='its "run_finished" never came'), 1),
        (None, 1),
    ],
)
def test_the_exit_code_is_that_of_a_run_on_one_device(tmp_path: Path, last: Event | None, code: int) -> None:
    journal = Journal(tmp_path)
    if last is not None:
        journal.write(last)
    journal.close()
    assert module.code_of(tmp_path) == code
