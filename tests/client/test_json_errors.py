"""``--json`` where a command fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.client.conftest import Tool, answered

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("at", ["run", "token"])
def test_json_that_was_asked_for_is_json_also_where_it_fails(
    tool: Tool, home: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """A script that reads the output met a sentence."""
    if at == "run":
        failed = answered(tool("run", "show", "nothing-there", "--json"), 1)
        assert failed["ok"] is False and failed["code"] and failed["message"]
        assert set(failed) == {"ok", "code", "message", "detail"}
    monkeypatch.setenv("TILTYARD_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("TILTYARD_TOKEN", "tiltyard_x")
    words = ("run", "list") if at == "run" else ("token",)
    assert answered(tool(*words, "--json"), 3)["code"] == "unreachable"
    plain = tool(*words)
    assert (plain.exit_code, plain.stdout) == (3, "") and "does not answer" in plain.stderr


def test_json_of_a_refusal_has_what_the_server_named(tool: Tool, home: Path) -> None:
    (home / "job.yaml").write_text("rollout: {max_turns: many}\n")
    failed = answered(tool("run", "launch", "--file", "job.yaml", "--json"), 1)
    assert failed["ok"] is False and "max_turns" in json.dumps(failed["detail"])
