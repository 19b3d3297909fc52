"""``tiltyard environment``: which servers there are, and which runs have reserved their sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.client.conftest import Tool, answered, refused
from tests.webapp.runs.records.test_sessions import busy, line, world

__all__ = ["busy", "line", "world"]
pytestmark = pytest.mark.django_db(transaction=True)


def test_an_environment_shows_the_runs_that_have_reserved_sessions(
    tool: Tool, world: Callable[..., Any], busy: Callable[..., Any]
) -> None:
    shop = world(16, name="shop")
    assert "Runs have reserved none of its 16 sessions." in tool("environment", "show", "shop").stdout
    busy({shop: 9}, name="night-1")
    lines = tool("environment", "show", "environment:shop").stdout.splitlines()
    assert any("1 run at work has reserved 9 of its 16 sessions." in line for line in lines), lines
    assert [line.split() for line in lines][-1] == ["night-1", "9"]
    found = answered(tool("environment", "show", str(shop.pk), "--json"))
    assert (found["name"], found["reserved"]["sessions"]) == ("shop", 9)
    assert [row["name"] for row in answered(tool("environment", "list", "--json"))] == ["shop"]
    assert "shop" in tool("environment", "list").stdout
    refused(tool("environment", "show", "nothing"), "There is no environment 'nothing' in joust.")
