"""Signs of life: both sides of each limit, one that comes back, and a folder that is away."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from training.verl_backend import beats
from training.verl_backend.beats import LOST_S, NOTICE_S, Beats, begin_beating
from training.verl_backend.folder import BEATS_NAME


class Watched:
    """A job folder with the beats of some processes, looked at by a clock of the test."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.folder, self.now, self.said, self.lost = folder / BEATS_NAME, 1000.0, list[str](), list[str]()
        self.folder.mkdir()
        for number, name in enumerate(names):
            self.beat(name, number)
        self.beats = Beats(folder, self.said.append, self.lost.append, lambda: self.now)
        self.beats.look()

    def beat(self, name: str, at: int) -> None:
        """By the clock of its host, whichever time that has."""
        (self.folder / name).touch()
        os.utime(self.folder / name, (at, at))

    def look(self, later_s: float) -> None:
        self.now += later_s
        self.beats.look()


def test_a_silent_process_is_named_once_and_then_lost(tmp_path: Path) -> None:
    watched = Watched(tmp_path, "gpu-1-77", "gpu-2-78")
    for later in range(49):
        watched.beat("gpu-2-78", 100 - later)  # its clock goes back: a change is a beat
        watched.look(0.5)
    assert watched.said == watched.lost == []
    watched.beat("gpu-2-78", 40)
    watched.look(0.5)
    assert NOTICE_S == 49 * 0.5 + 0.5 and len(watched.said) == 1
    watched.beat("gpu-2-78", 39)
    watched.look(1.0)
    assert watched.said == ["Process 77 on gpu-1 has given no sign of life for 25 s."]
    watched.beat("gpu-2-78", 38)
    watched.look(LOST_S - NOTICE_S - 1.5)
    assert watched.lost == []
    watched.beat("gpu-2-78", 37)
    watched.look(0.5)
    assert watched.lost == ["A process of the job was lost: process 77 on gpu-1 has given no sign of life for 120 s."]
    assert len(watched.said) == 1


def test_one_that_beats_again_is_counted_from_then(tmp_path: Path) -> None:
    watched = Watched(tmp_path, "gpu-1-77")
    watched.look(LOST_S - 1)
    watched.beat("gpu-1-77", 5)
    watched.look(2)
    assert watched.said[1:] == ["Process 77 on gpu-1 is there again."] and watched.lost == []
    watched.look(LOST_S - 0.5)
    assert len(watched.said) == 3 and watched.lost == []
    watched.look(0.5)
    assert len(watched.lost) == 1


def test_a_process_that_begins_later_is_looked_at_too(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.beat("gpu-1-77", 0)
    watched.look(LOST_S * 2)
    assert watched.said == watched.lost == []
    watched.look(LOST_S)
    assert len(watched.lost) == 1


def test_a_process_beats_until_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, slept = tmp_path / BEATS_NAME / f"{socket.gethostname()}-{os.getpid()}", list[float]()
    began = {}

    class Thread:
        def __init__(self, target: object, **given: object) -> None:
            began.update(given, target=target)

        def start(self) -> None:
            assert path.exists(), "it is known from the first moment"

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            path.parent.rename(tmp_path / "away")
        if len(slept) == 3:
            (tmp_path / "away").rename(path.parent)
            os.utime(path, (1, 1))
        if len(slept) == 4:
            assert path.stat().st_mtime > 1, "it beats again"
            raise InterruptedError

    monkeypatch.setattr(beats.threading, "Thread", Thread)
    monkeypatch.setattr(beats.time, "sleep", sleep)
    begin_beating(tmp_path)
    assert began["daemon"]
    with pytest.raises(InterruptedError):
        began["target"]()  # type: ignore[operator]
    assert slept == [5.0] * 4
