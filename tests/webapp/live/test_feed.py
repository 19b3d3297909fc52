"""What sockets share, at its limits: how much fits, what was missed, and which reads are kept."""

from __future__ import annotations

import time
import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from webapp.live import feed
from webapp.live.feed import Feed, Held, Read


@pytest.mark.parametrize(("limit", "fits"), [(0, []), (3, []), (4, ["abc"]), (6, ["abc"]), (7, ["abc", "de"])])
def test_as_many_texts_as_fit_with_a_comma_each(limit: int, fits: list[str]) -> None:
    assert feed._fitting(["abc", "de", "f" * 9, ""], limit, str) == fits


@pytest.mark.parametrize(
    ("after", "missed"), [(-1, False), (0, False), (4_999, False), (5_000, True), (10_000, True), (10_001, False)]
)
def test_what_was_missed_is_sent_where_it_is_not_too_much(
    after: int, missed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = Read(["changes"], 10_000)
    monkeypatch.setattr(feed, "_run_or_gone", lambda _run: SimpleNamespace(seq=10_000))
    monkeypatch.setattr(feed, "_read_changes", lambda _run, _after, empty: changes if empty else None)
    assert feed._read_missed(uuid.uuid4(), after) == (changes if missed else None)


def _held(ago: float, *texts: str, ended: bool = False, failed: bool = False, done: bool = True) -> Held:
    task: Any = SimpleNamespace(
        done=lambda: done,
        cancelled=lambda: False,
        exception=lambda: ValueError() if failed else None,
        result=lambda: Read(list(texts), 1, ended=ended),
    )
    return Held(time.monotonic() - ago, 0, task)


def test_reads_are_kept_for_seconds_and_those_of_ended_runs_for_minutes() -> None:
    shared = Feed()
    shared._reads.update(
        {
            ("new",): _held(1),
            ("old",): _held(60),
            ("ended",): _held(60, ended=True),
            ("ended long ago",): _held(700, ended=True),
            ("at work",): _held(60, done=False),
            ("failed",): _held(60, ended=True, failed=True),
        }
    )
    shared._forget_reads()
    assert list(shared._reads) == [("new",), ("ended",), ("at work",)]


def test_the_newest_reads_are_kept_within_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "KEEP_BYTES", 10)
    shared = Feed()
    shared._reads.update(
        {(name,): _held(1, *texts) for name, texts in {"a": "x", "b": ("yyy", "yyy"), "c": ("zzzz",)}.items()}
    )
    shared._forget_reads()
    assert list(shared._reads) == [("b",), ("c",)]
