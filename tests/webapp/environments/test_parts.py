"""Parts of the page of an environment, drawn by themselves: its figures, and what editors may do with it."""

from __future__ import annotations

import uuid
from typing import Any

from django.utils import timezone

from tests.markup import drawn, words

PK = uuid.UUID(int=1)
HEALTH = {"slots": None, "sessions": None, "healthy": 1, "replicas": 2, "state": "ok", "checked_s": 3}


def _live(item: dict[str, Any] | None = None, health: dict[str, Any] | None = None, **context: Any) -> str:
    one = {"pk": PK, "launched": True, "wanted": 1, **(item or {})}
    given = {"item": one, "health": {**HEALTH, **(health or {})}, "most": 3, "can_edit": True, "reserved": {}}
    return drawn("environments/_live.html", **{**given, **context})


def test_sessions_are_shown_once_it_is_known_how_many_there_are() -> None:
    assert "Sessions – Steps" in words(_live()) and "<progress" not in _live()
    known = _live(health={"slots": 4, "sessions": 0})
    assert "Sessions 0 / 4 Steps" in words(known) and 'max="4" value="0"' in known
    assert "Sessions – / 4 Steps" in words(_live(health={"slots": 4}))
    assert "<progress" not in _live(health={"slots": 0})


def test_its_state_says_when_it_was_checked_and_what_is_wrong() -> None:
    assert "checked 3 s ago" in words(_live())
    assert "checked" not in words(_live(health={"checked_s": None}))
    stale = words(_live(health={"stale": True}))
    assert "is the keeper running?" in stale and "checked 3 s ago" not in stale
    bad = _live(health={"error": "Down.", "hint": "Start it.", "state": "bad"}, notice="No.")
    assert words(bad).startswith("No. Down. Start it. State") and 'data-kind="error"' in bad
    assert 'data-kind="warning"' in _live(health={"error": "Slow."}) and "notice" not in _live()


def test_replicas_are_added_and_removed_within_their_limits() -> None:
    def disabled(wanted: int, **context: Any) -> list[bool]:
        page = _live({"wanted": wanted}, **context)
        return [" disabled" in page.split(f'name="add" value="{by}"')[1].partition(">")[0] for by in ("-1", "1")]

    assert [disabled(wanted) for wanted in (0, 1, 2, 3)] == [
        [True, False],
        [False, False],
        [False, False],
        [False, True],
    ]
    for page in (_live(can_edit=False), _live({"launched": False})):
        assert "/scale/" not in page and "/restart/" not in page


def test_replicas_are_started_stopped_and_restarted_by_editors() -> None:
    running, stopped = words(_live()), words(_live({"wanted": 0}))
    assert "Stop all Restart all" in running and "Start " not in running
    assert " Start " in stopped and "Stop all" not in stopped and "Restart all" not in stopped
    assert "The first replica is starting." in running and "No replica is running." in stopped


def test_reserved_sessions_name_their_runs() -> None:
    runs = [{"run": "one", "run_id": PK, "sessions": 1}, {"run": "two", "run_id": PK, "sessions": 2}]
    page = _live(reserved={"title": "3 of 4", "runs": runs, "queued": 1})
    assert "Reserved sessions Queued runs 3 of 4 one 1 session two 2 sessions" in words(page)
    assert "Queued runs" not in _live() and 'class="lines"' not in _live()


def _row(item: dict[str, Any] | None = None, health: dict[str, Any] | None = None, **context: Any) -> str:
    one = {"pk": PK, "name": "maze", "kind": "process", "program": "maze", "protocol": "openenv", **(item or {})}
    return drawn("environments/_row.html", item=one, health={**HEALTH, **(health or {})}, **context)


def test_a_row_says_where_the_environment_is_and_how_it_does() -> None:
    assert words(_row()).startswith("maze envs.maze ")
    assert words(_row({"kind": "url", "url": "http://h", "image": "i"})).startswith("maze http://h ")
    assert words(_row({"kind": "docker", "url": "http://h", "image": "i"})).startswith("maze i ")
    assert "openenv – – – 1 / 2 –" in words(_row()) and "<progress" not in _row()
    known = words(_row(health={"slots": 4, "sessions": 0, "baselines": ["random 0.5"], "version": "2"}))
    assert "2 openenv 0 / 4 " in known and known.endswith("1 / 2 random 0.5")
    late = words(_row(health={"stale": True, "error": "Down.", "hint": "Start it."}))
    assert "checked 3 s ago Down. Start it." in late and "checked" not in words(_row())


def test_only_editors_play_and_check_from_a_row() -> None:
    assert words(_row(can_edit=True)).endswith("Play Check") and "<form" not in _row()


def _orders(order: dict[str, Any] | None = None, **row: Any) -> str:
    context = {name: row.pop(name) for name in ("busy", "can_edit") if name in row}
    one = {"name": "sums", "state": "waiting", "get_state_display": "waiting", "created_at": timezone.now()}
    rows = [{"order": {**one, **(order or {})}, "what": "9 tasks", **row}]
    return drawn("environments/_orders.html", item={"pk": PK}, orders=rows, **context)


def test_an_order_says_how_far_it_is() -> None:
    page = _orders()
    assert words(page).startswith("Generated datasets sums 9 tasks ·") and 'aria-label="Being written"' in page
    assert 'data-state="checking"' in page and "<progress" in _orders({"state": "writing"})
    failed = _orders({"state": "failed"}, error="No room.", hint="Delete.")
    assert "<progress" not in failed and "No room. Delete." in words(failed) and 'data-state="failed"' in failed
    made = {"pk": PK, "rows": 1, "state": "checking", "get_state_display": "being checked"}
    checking = _orders({"dataset": made}, percent=40)
    assert 'value="40"' in checking and "9 tasks · 1 row ·" in words(checking) and f"/datasets/{PK}/" in checking
    ready = _orders({"dataset": {**made, "state": "ready", "rows": 2}, "state": "done"})
    assert "<progress" not in ready and "2 rows" in words(ready)


def test_orders_are_asked_for_again_while_one_is_busy() -> None:
    assert "every 1s" in _orders(busy=True) and "every 1s" not in _orders()
    assert "Generate a dataset" in _orders(can_edit=True) and "Generate a dataset" not in _orders()
    none = drawn("environments/_orders.html", item={"pk": PK})
    assert "None yet." in words(none) and "None yet." not in words(_orders())
