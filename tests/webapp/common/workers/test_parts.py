"""The page of the workers, drawn by itself: the state of each, and what only administrators read."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.utils import timezone

from tests.markup import drawn, words

NOW = timezone.now()


def _page(line: dict[str, Any] | None = None, worker: dict[str, Any] | None = None, **context: Any) -> str:
    one = {
        "name": "w1",
        "queues": ["train"],
        "device": "cpu",
        "draining": False,
        "version": "1",
        "beat_at": NOW,
        **(worker or {}),
    }
    lines = [{"worker": one, "host": "here", "runs": [], **(line or {})}]
    return drawn("workers/list.html", **{"lines": lines, "loads": [], **context})


RUN = {"name": "run 1", "url_args": ("joust", uuid.UUID(int=1))}


@pytest.mark.parametrize(
    ("line", "worker", "said"),
    [
        ({}, {}, "waiting for work"),
        ({"runs": [RUN]}, {}, "busy"),
        ({"runs": [RUN]}, {"draining": True}, "draining It finishes what it runs and takes nothing new."),
        ({"problem": "Disk full."}, {"draining": True}, "takes no work Disk full."),
        ({"problem": "Disk full.", "gone": True}, {}, "gone"),
    ],
)
def test_a_worker_has_one_state(line: dict[str, Any], worker: dict[str, Any], said: str) -> None:
    assert f"heartbeat w1 {said} train cpu" in words(_page(line, worker))


def test_a_worker_names_the_runs_that_its_reader_may_see() -> None:
    runs = [RUN, {"name": "chat"}, {"name": ""}]
    page = _page({"runs": runs})
    assert "busy train cpu run 1 chat of another team" in words(page) and page.count("/runs/") == 1
    assert page.count("<br>") == 2
    assert "train cpu –" in words(_page())


def test_only_workers_that_train_have_a_device() -> None:
    gpu = {"gpu": "H200", "gpu_bytes": 1024}
    assert "train cpu H200, 1.0\xa0KB 40 °C –" in _spaced(_page({"readings": ["40 °C"]}, gpu))
    assert "short – –" in words(_page({}, {"queues": ["short"]}))
    assert "H200" not in _page({}, {"queues": ["short"], **gpu})


def _spaced(page: str) -> str:
    return words(page.replace("\xa0", "&nbsp;")).replace("1.0 KB", "1.0\xa0KB")


def test_only_administrators_read_hints_versions_and_drain_hosts() -> None:
    line = {"problem": "Disk full.", "hint": "Delete.", "clock": "2 s late."}
    page, every = words(_page(line)), words(_page(line, all=True))
    assert "Disk full. 2 s late. train" in page and "Version" not in page and "Drain" not in page
    assert "Disk full. Delete. 2 s late. Set it right" in every and "Version" in every and "Drain here" in every
    assert "Let here work again" in words(_page({}, {"draining": True}, all=True))


def test_a_clockwork_that_is_late_is_a_problem() -> None:
    never = words(_page(clock_late=True, clock_age_s=None))
    assert "has not checked yet" in never and "Its log is" not in never
    assert "last checked 0 s ago" in words(_page(clock_late=True, clock_age_s=0, all=True))
    assert "Its log is" in _page(clock_late=True, all=True) and "clockwork" not in _page()
    assert "No room" in _page(disk_fault="No room")


def test_a_host_that_drains_without_a_worker_is_named() -> None:
    drains = [{"host": "there"}]
    page = _page(empty_drains=drains)
    assert "The host there is draining" in words(page) and "<form" not in page
    assert "Let there work again" in words(_page(empty_drains=drains, all=True))


def test_each_pool_has_its_places() -> None:
    load = {"at_work": 1, "places": 2, "waiting": 3, "oldest_s": 4}
    said = [words(_page(loads=[{**load, "pool": pool}])) for pool in ("train", "endpoint", "short", "long")]
    names = ["Runs and chats that need a device", "Runs and chats that need no device"]
    names += ["User work that takes seconds", "User work that may take hours"]
    assert [page.endswith(f"{name} 1 of 2 at a time 3 4 s") for page, name in zip(said, names, strict=True)] == [
        True
    ] * 4
    assert "No worker has reported" in _page(lines=[]) and "No worker has reported" not in _page()
