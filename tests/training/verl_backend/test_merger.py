"""One journal of several: order, the fence of a step, torn lines, crashes at any place, and nothing twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from envs.wire import Message
from training.errors import ErrorInfo
from training.journal import (
    Event,
    GroupScored,
    Journal,
    LogLine,
    Metrics,
    PhaseChanged,
    RolloutFinished,
    RolloutStarted,
    RunFinished,
    TurnAdded,
    read_events,
)
from training.verl_backend import merger as module
from training.verl_backend.merger import STATE_NAME, Merger


class Process:
    """Writes its journal with times of the test's own; ``late`` is how far its clock is behind."""

    def __init__(self, run_dir: Path, name: str, late: float = 0.0) -> None:
        self.path = run_dir / "actors" / name / "journal.jsonl"
        self.path.parent.mkdir(parents=True)
        self.late, self.lines = late, 0

    def say(self, at: float, *events: Event) -> None:
        with self.path.open("ab") as file:
            for event in events:
                self.lines += 1
                event.n, event.t = self.lines, at - self.late
                file.write(event.model_dump_json().encode() + b"\n")


def begin(name: str, again: int = 0) -> RolloutStarted:
    step, group, index = (int(part[1:]) for part in name.split("-")[1:])
    return RolloutStarted(rollout=name, step=step, group=group, index=index, again=again)


def turn(name: str, number: int, text: str = "hi") -> TurnAdded:
    return TurnAdded(rollout=name, turn=number, messages=[Message(role="assistant", content=text)])


def end(name: str, reward: float = 0.5) -> RolloutFinished:
    return RolloutFinished(rollout=name, status="completed", reward=reward)


def scored(step: int, group: int, *rollouts: str) -> GroupScored:
    values: dict[str, Any] = {"reward_mean": 0.5, "reward_std": 0.0, "zero_variance": True}
    return GroupScored(step=step, group=group, rollouts=list(rollouts), advantages=[0.0] * len(rollouts), **values)


def spoken(run_dir: Path) -> list[Any]:
    path = run_dir / "journal.jsonl"
    return [event for _offset, event in read_events(path, max_bytes=1 << 30)] if path.exists() else []


def brief(run_dir: Path) -> list[str]:
    """The journal in short: what is said of what."""
    found = []
    for event in spoken(run_dir):
        of = getattr(event, "rollout", "") or getattr(event, "step", "") or getattr(event, "message", "")
        found.append(f"{event.type} {of}".strip())
    return found


def opened(run_dir: Path, wanted: int) -> Merger:
    return Merger(Journal(run_dir), wanted)


def merge_once(run_dir: Path, wanted: int = 2, *, over: bool = False) -> int:
    journal = Journal(run_dir)
    try:
        return Merger(journal, wanted).merge(over=over)
    finally:
        journal.close()


@pytest.fixture
def run(tmp_path: Path) -> tuple[Path, Process, Process]:
    """A step of two groups of one rollout: one process plays each, the trainer says the rest."""
    trainer, first = Process(tmp_path, "a-1"), Process(tmp_path, "b-2")
    first.say(2, begin("a1-s1-g0-i0"), turn("a1-s1-g0-i0", 0))
    trainer.say(1, PhaseChanged(phase="generating", step=1))
    first.say(4, turn("a1-s1-g0-i0", 1), end("a1-s1-g0-i0"), scored(1, 0, "a1-s1-g0-i0"))
    return tmp_path, trainer, first


def test_lines_come_in_the_order_of_their_times_and_keep_them(run: tuple[Path, Process, Process]) -> None:
    path, _trainer, _first = run
    second = Process(path, "c-3")
    second.say(3, begin("a1-s1-g1-i0"))
    assert merge_once(path) == 7
    assert brief(path) == [
        "phase 1",
        "rollout_started a1-s1-g0-i0",
        "turn a1-s1-g0-i0",
        "rollout_started a1-s1-g1-i0",
        "turn a1-s1-g0-i0",
        "rollout_finished a1-s1-g0-i0",
        "group_scored 1",
    ]
    assert [(event.n, event.t) for event in spoken(path)] == [(n + 1, t) for n, t in enumerate([1, 2, 2, 3, 4, 4, 4])]


def test_metrics_wait_for_the_last_group_of_their_step_and_what_follows_with_them(
    run: tuple[Path, Process, Process],
) -> None:
    path, trainer, _first = run
    second = Process(path, "c-3", late=-100)  # a clock far ahead
    trainer.say(5, Metrics(step=1, values={"loss": 0.25}), PhaseChanged(phase="generating", step=2))
    second.say(3, begin("a1-s1-g1-i0"), end("a1-s1-g1-i0"))
    merger = opened(path, 2)
    assert merger.merge() == 8 and "metrics 1" not in brief(path) and "phase 2" not in brief(path)
    assert merger.merge() == 0
    second.say(3, scored(1, 1, "a1-s1-g1-i0"))
    assert merger.merge() == 3
    assert brief(path)[-3:] == ["group_scored 1", "metrics 1", "phase 2"]
    assert spoken(path)[-2].values == {"loss": 0.25}


def test_all_updates_of_a_sampling_wait_for_its_groups(run: tuple[Path, Process, Process]) -> None:
    """Steps 1 to 3 learn from the rollouts of step 1, and step 4 from those of step 4, also after a restart."""
    path, trainer, _first = run
    second = Process(path, "c-3", late=-100)
    merger = Merger(Journal(path), 2, updates=3)
    trainer.say(5, *(Metrics(step=step, values={"loss": step / 8}) for step in (1, 2)))
    merger.merge()
    assert not [line for line in brief(path) if line.startswith("metrics")], "one of two rollouts is scored"
    second.say(3, begin("a1-s1-g1-i0"), end("a1-s1-g1-i0"), scored(1, 1, "a1-s1-g1-i0"))
    merger.merge()
    assert brief(path)[-2:] == ["metrics 1", "metrics 2"]
    merger = Merger(Journal(path), 2, updates=3)
    trainer.say(6, *(Metrics(step=step, values={"loss": 1.0}) for step in (3, 4)))
    merger.merge()
    assert brief(path)[-1] == "metrics 3", "step 4 waits for rollouts of its own"
    second.say(7, scored(4, 0, "a1-s4-g0-i0"), scored(4, 1, "a1-s4-g1-i0"))
    merger.merge()
    assert brief(path)[-1] == "metrics 4"


def test_a_step_has_as_many_rollouts_as_are_wanted(run: tuple[Path, Process, Process]) -> None:
    path, trainer, _first = run
    trainer.say(5, Metrics(step=1, values={}))
    merge_once(path, wanted=2)
    assert "metrics 1" not in brief(path)
    merge_once(path, wanted=1)
    assert brief(path)[-1] == "metrics 1"


def test_the_last_word_comes_last_once_the_job_is_over(run: tuple[Path, Process, Process]) -> None:
    path, trainer, first = run
    error = ErrorInfo(code="policy_fault", boundary="policy", message="gone")  # type: ignore[arg-type]
    trainer.say(3, Metrics(step=1, values={}), RunFinished(status="failed", step=0, error=error))
    first.say(9, LogLine(message="late"))
    merge_once(path)
    assert brief(path)[-1] == "log late"
    merger = opened(path, 2)
    merger.merge(over=True)
    assert brief(path)[-1] == "metrics 1"
    assert merger.last_word is not None and merger.last_word.error == error
    assert merge_once(path, over=True) == 0 and len(spoken(path)) == 8


def test_the_last_word_waits_for_those_who_still_write(run: tuple[Path, Process, Process]) -> None:
    path, trainer, first = run
    trainer.say(2, RunFinished(status="stopped", step=0))
    merger = opened(path, 2)
    merger.merge()
    first.say(9, LogLine(message="still here"))
    merger.merge()
    assert merger.last_word is None
    merger.merge(over=True)
    assert merger.last_word is not None and merger.last_word.status == "stopped"
    assert brief(path)[-1] == "log still here", "the run's own last word is its caller's"


def test_a_torn_line_waits_until_it_is_whole(run: tuple[Path, Process, Process]) -> None:
    path, _trainer, first = run
    with first.path.open("ab") as file:
        file.write(b'{"v":1,"n":6,"t":5.0,"type":"log","mess')
    merge_once(path)
    assert brief(path)[-1] == "group_scored 1"
    with first.path.open("ab") as file:
        file.write(b'age":"whole"}\n')
    assert merge_once(path) == 1 and brief(path)[-1] == "log whole"


def test_a_line_that_is_no_event_is_named_and_passed_over(run: tuple[Path, Process, Process]) -> None:
    path, _trainer, first = run
    with first.path.open("ab") as file:
        file.write(b"{}\n")
    first.say(6, LogLine(message="after"))
    merge_once(path)
    assert "log Line 6 of the journal of b-2 is no event." in brief(path) and brief(path)[-1] == "log after"


def test_a_crash_between_the_lines_and_their_places_writes_nothing_twice(run: tuple[Path, Process, Process]) -> None:
    path, trainer, first = run
    trainer.say(4, LogLine(message="said once"))
    merge_once(path)
    whole, state = brief(path), path / "actors" / STATE_NAME
    for lost in (state.read_bytes(), b"", b"{}"):  # saved, torn, of the beginning
        state.write_bytes(lost)
        merge_once(path)
        assert brief(path) == whole
    first.say(7, LogLine(message="new"))
    state.unlink()
    merge_once(path)
    assert brief(path) == [*whole, "log new"]


def test_every_place_of_a_crash_gives_the_same_journal(tmp_path: Path) -> None:
    """The journal is cut after each of its lines, with the places of before or of after."""
    trainer, first = Process(tmp_path, "a-1"), Process(tmp_path, "b-2")
    for step in (1, 2):
        names = [f"a1-s{step}-g{group}-i0" for group in (0, 1)]
        for group, name in enumerate(names):
            first.say(step * 10 + group, begin(name), turn(name, 0), end(name), scored(step, group, name))
        trainer.say(step * 10 + 5, Metrics(step=step, values={"loss": step}), LogLine(message=f"after {step}"))
    merge_once(tmp_path)
    whole, journal, state = brief(tmp_path), tmp_path / "journal.jsonl", tmp_path / "actors" / STATE_NAME
    assert whole[8:10] == ["metrics 1", "log after 1"] and len(whole) == 20
    lines, last = journal.read_bytes().splitlines(keepends=True), state.read_text()
    early = json.dumps({"journal": sum(map(len, lines[:10])), "taken": {}})
    for kept in range(len(lines)):
        for saved in (early, last, "{}"):
            journal.write_bytes(b"".join(lines[:kept]) + lines[kept][:20])
            state.write_text(saved)
            merge_once(tmp_path)
            assert sorted(brief(tmp_path)) == sorted(whole), (kept, saved)
            assert [event.n for event in spoken(tmp_path)] == list(range(1, 21))


def test_a_rollout_that_begins_again_has_its_turns_again(run: tuple[Path, Process, Process]) -> None:
    path, _trainer, _first = run
    second, name = Process(path, "c-3"), "a1-s1-g1-i0"
    second.say(3, begin(name), turn(name, 0, "lost"), begin(name, again=1), turn(name, 0, "kept"), end(name))
    copy = Process(path, "d-4")  # the same lines once more, as a host would send them that was not answered
    copy.path.write_bytes(second.path.read_bytes())
    merge_once(path)
    mine = [event for event in spoken(path) if getattr(event, "rollout", "") == name]
    assert [event.type for event in mine] == [
        "rollout_started",
        "turn",
        "rollout_started",
        "turn",
        "rollout_finished",
    ]
    assert [event.messages[0].content for event in mine if event.type == "turn"] == ["lost", "kept"]


def test_what_comes_once_more_of_a_step_that_is_over_is_old(run: tuple[Path, Process, Process]) -> None:
    path, trainer, first = run
    trainer.say(5, Metrics(step=1, values={}))
    merger = opened(path, 1)
    merger.merge()
    count = len(spoken(path))
    first.say(6, end("a1-s1-g0-i0", reward=0.9), scored(1, 0, "a1-s1-g0-i0"), begin("a1-s2-g0-i0"))
    trainer.say(6, Metrics(step=1, values={"loss": 1}))
    merger.merge()
    assert brief(path)[count:] == ["rollout_started a1-s2-g0-i0"]
    ours = ("a1-s2-g0-i0", 0, "rollout_started", None)
    assert [key for key in merger._seen if isinstance(key, tuple)] == [ours] and len(merger._seen) == 2


def test_files_longer_than_a_batch_are_read_to_their_end(
    run: tuple[Path, Process, Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _trainer, first = run
    first.say(6, *(LogLine(message=f"line {number}") for number in range(50)))
    monkeypatch.setattr(module, "BATCH_BYTES", 200)
    assert merge_once(path) == 56
    assert brief(path)[-1] == "log line 49" and len(brief(path)) == 56


def test_what_was_in_the_runs_journal_before_stays(run: tuple[Path, Process, Process]) -> None:
    path, _trainer, _first = run
    own = LogLine(n=1, t=0.5, message="made the job folder")
    (path / "journal.jsonl").write_bytes(own.model_dump_json().encode() + b"\n")
    merge_once(path)
    assert brief(path)[:2] == ["log made the job folder", "phase 1"]
    assert merge_once(path) == 0 and [event.n for event in spoken(path)] == list(range(1, 8))


def test_without_processes_there_is_nothing_to_merge(tmp_path: Path) -> None:
    assert merge_once(tmp_path) == 0 and spoken(tmp_path) == []


def test_held_out_tasks_are_of_no_step(run: tuple[Path, Process, Process]) -> None:
    """They are played with the weights of a step that is over, and its figures come a second time."""
    path, trainer, _first = run
    trainer.say(5, Metrics(step=1, values={"loss": 0.5}))
    trainer.say(6, begin("a1-e1-g0-i0"), turn("a1-e1-g0-i0", 0), end("a1-e1-g0-i0"))
    trainer.say(7, Metrics(step=1, values={"heldout/success": 0.25}))
    merge_once(path, 1)
    assert brief(path)[-5:] == [
        "metrics 1",
        "rollout_started a1-e1-g0-i0",
        "turn a1-e1-g0-i0",
        "rollout_finished a1-e1-g0-i0",
        "metrics 1",
    ]
    assert spoken(path)[-1].values == {"heldout/success": 0.25}
    assert merge_once(path, 1) == 0


def test_whoever_follows_sees_what_is_appended(run: tuple[Path, Process, Process]) -> None:
    path, _trainer, _first = run
    seen: list[Any] = []
    journal = Journal(path)
    Merger(journal, 2, seen.append).merge()
    journal.close()
    assert seen == spoken(path)
