"""What the tables of the command show for a value."""

from __future__ import annotations

from typing import Any

import pytest
from tiltyard_client import show
from tiltyard_client.show import cell, interval


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("bytes", 2_500_000, "2.5 MB"),
        ("bytes", 12_345_678_901, "12,345.7 MB"),
        ("bytes", 0, "0.0 MB"),
        ("created_at", "2026-03-04T05:06:07Z", "2026-03-04 05:06"),
        ("ok", True, "yes"),
        ("ok", False, "no"),
        ("tags", ["a", "[b]"], "a, \\[b]"),
        ("reward", 0.123456, "0.1235"),
        ("step", 0, "0"),
        *(("any", nothing, "–") for nothing in (None, "", [])),
    ],
)
def test_a_value_has_its_unit(name: str, value: Any, text: str) -> None:
    assert cell(name, value) == text


def test_a_share_is_shown_in_percent_and_another_figure_as_it_is() -> None:
    figure = {"value": 0.5, "low": 0.25, "high": 0.75}
    assert interval("success", figure) == "50% (25 to 75)"
    assert interval("reward", figure) == "0.5 (0.25 to 0.75)"
    assert interval("tool_errors", figure | {"low": None, "high": None}) == "50%"
    assert interval("reward", figure | {"value": None}) == interval("reward", None) == "–"


def test_names_that_differ_at_their_ends_stay_apart_in_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At 80 columns ``run list`` cut two names to the same beginning."""
    monkeypatch.setattr("tiltyard_client.show.console._width", 40)
    names = ["exam-first-grpo-easy-with-a-long-name-1", "exam-first-grpo-easy-with-a-long-name-2"]
    show.table([{"name": name, "state": "succeeded"} for name in names], {"name": "name", "state": "state"})
    shown = capsys.readouterr().out
    assert "…" not in shown and max(map(len, shown.splitlines())) <= 40
    cells = "".join(line[: shown.index("state")].strip() for line in shown.splitlines()[1:])
    assert cells == "".join(names)
