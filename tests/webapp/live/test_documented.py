"""docs/live.md names every field of every row that a socket sends, every kind of event, and every close code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.webapp.live.conftest import Socket, Watched, in_db
from training import journal
from webapp.live import consumers
from webapp.runs.answers import LIVE
from webapp.runs.reports import REPORT_KINDS

pytestmark = pytest.mark.django_db(transaction=True)
PAGE = (Path(__file__).resolve().parents[3] / "docs" / "live.md").read_text(encoding="utf-8")
VIEWS = {
    "run": "RunView",
    "points": "PointView",
    "rollouts": "RolloutView",
    "turns": "TurnView",
    "groups": "GroupView",
    "events": "EventView",
    "checkpoints": "CheckpointView",
}


def documented(view: str) -> set[str]:
    return set(re.findall(rf"- \*\*{view}\*\* `([^`]+)`", PAGE)[0].split())


ADDED = {"run": documented("FrameRun"), "rollouts": documented("FrameRollout")}
"""What these rows have in a frame, and not elsewhere."""


async def test_every_field_of_a_frame_is_documented(watched: Watched, alice: Any) -> None:
    await in_db(watched.step)(1)
    await in_db(watched.say)(journal.CheckpointSaved(step=1, path="checkpoints/checkpoint-1", bytes=1, final=False))
    socket = Socket(watched.run.pk, alice, "?after=0")
    await socket.connect()
    frame = await socket.frame()
    assert frame["type"] == "changes" and set(LIVE) == set(VIEWS) - {"run"}
    for key, view in VIEWS.items():
        for row in [frame["run"]] if key == "run" else frame[key]:
            assert set(row) == documented(view) | ADDED.get(key, set()), view
        assert frame[key], key
    await socket.disconnect()


def test_kinds_of_events_and_close_codes_are_documented() -> None:
    for kind in ("state", "attempt", "phase", "log", "warning", *REPORT_KINDS):
        assert f"`{kind}`" in PAGE, kind
    codes = {consumers.BAD_FRAME, consumers.LOGIN, consumers.FORBIDDEN, consumers.GONE, consumers.TOO_MANY}
    assert codes == {int(code) for code in re.findall(r"^\| (4\d{3}) \|", PAGE, re.M)}
