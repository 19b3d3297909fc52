"""What the tables of the command show for a value."""

from __future__ import annotations

from typing import Any

import pytest
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
