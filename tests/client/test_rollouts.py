"""``tiltyard rollout``: orders to a trainer, and branches of a recorded rollout."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from tests.chat_stub import Stub, says
from tests.client.conftest import Tool, answered, logged_in, refused
from tests.webapp.endpoints.conftest import make_endpoint, stub
from tests.webapp.reading.rewinding.conftest import environment, play, played, run, tasks, trained
from webapp.engine.supervisor import supervise
from webapp.people.teams.models import User
from webapp.runs.models import Run, RunEvent
from webapp.runs.rollouts.models import Rollout, RolloutStatus

__all__ = ["environment", "make_endpoint", "play", "played", "run", "stub", "tasks", "trained"]
pytestmark = pytest.mark.django_db(transaction=True)
Make = Callable[..., Any]


@pytest.fixture(autouse=True)
def _by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webapp.engine.history._send_message", lambda row: False)


def test_a_contestant_continues_and_its_branches_are_listed(
    tool: Tool, played: Make, make_endpoint: Make, stub: Stub
) -> None:
    make_endpoint()
    stub.replies = [says("The answer is 20.")]
    rollout = played()
    words = ("rollout", "continue", str(rollout.pk), "--turn", "3", "--contestant", "endpoint:gpt", "--times", "2")
    assert "nothing yet" in tool("rollout", "branches", str(rollout.pk)).stdout
    made = answered(tool(*words, "--temperature", "0.5", "--json"))
    run = Run.objects.get(pk=made["id"])
    assert (run.kind, run.config["rollout"]["num_generations"], run.config["rollout"]["temperature"]) == (
        "evaluate", 2, 0.5,
    )  # fmt: skip
    supervise(run.pk, run.pool)
    shown = tool("rollout", "branches", str(rollout.pk)).stdout
    assert shown.count("gpt (endpoint)") == 2 and shown.count("solved") == 2
    listed = answered(tool("rollout", "branches", str(rollout.pk), "--json"))
    assert [(row["turn"], row["outcome"]) for row in listed] == [(3, "solved")] * 2
    plain = tool(*words).stdout
    assert "branch-3.1.0-turn-3-2" in plain and "queued" in plain


def test_a_model_is_named_without_its_kind(tool: Tool, played: Make) -> None:
    words = ("rollout", "continue", str(played().pk), "--turn", "1", "--contestant", "nobody")
    refused(tool(*words), "there is no model “nobody” in this project.")
    assert tool(*words, "--times", "17").exit_code == 2 and tool(*words, "--turn", "0").exit_code == 2
    refused(tool("rollout", "branches", str(uuid.uuid4())), "")


def test_a_rollout_in_flight_is_ended_or_counted_as_failed(tool: Tool, site: str, played: Make, rita: User) -> None:
    ended, failed = played(), played(index=1)
    Run.objects.update(state="running", attempt=1, lease_owner="w")
    Rollout.objects.update(status=RolloutStatus.RUNNING, attempt=1)
    assert "trainer" in tool("rollout", "end", str(ended.pk)).stdout
    assert answered(tool("rollout", "fail", str(failed.pk), "--json"))["act"] == "fail"
    orders = [event.payload["act"] for event in RunEvent.objects.filter(kind="rollout_order").order_by("seq")]
    assert orders == ["end", "fail"]
    refused(tool("rollout", "end", str(ended.pk)), "")
    refused(logged_in(site, rita, "viewer")("rollout", "end", str(ended.pk)), "")
