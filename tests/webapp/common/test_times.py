"""Times as people read them, at the edges of their units."""

from __future__ import annotations

from datetime import timedelta

import pytest

from webapp.common.text import duration
from webapp.common.ui import ago_text, coarse


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((0, "just now"), (44.9, "just now"), (45, "1 min ago"), (89, "1 min ago"), (91, "2 min ago")),
        *(
            (3599, "60 min ago"),
            (3600, "1 h ago"),
            (86_399, "24 h ago"),
            (86_400, "1 day ago"),
            (172_800, "2 days ago"),
        ),
    ],
)
def test_how_long_ago_is_said_in_one_unit(seconds: float, text: str) -> None:
    assert ago_text(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text", "still"),
    [
        *((0, "0 s", "0 s"), (9.94, "9.9 s", "9.9 s"), (9.95, "10 s", "10 s"), (59, "59 s", "59 s")),
        *((60, "1 min 0 s", "1 min"), (599, "9 min 59 s", "9 min"), (600, "10 min", "10 min")),
        *((3599, "59 min", "59 min"), (3600, "1 h 0 min", "1 h 0 min"), (86_399, "23 h 59 min", "23 h 59 min")),
        *((86_400, "1 d 0 h", "1 d 0 h"), (-1, "–", "–"), (float("inf"), "–", "–")),
    ],
)
def test_a_duration_has_the_two_units_that_matter(seconds: float, text: str, still: str) -> None:
    assert (duration(seconds), coarse(seconds)) == (text, still)


def test_a_time_that_is_not_known_is_a_dash() -> None:
    assert (duration(None), duration(""), duration(timedelta(minutes=2, seconds=3))) == ("–", "–", "2 min 3 s")
