"""A rollout next to the list: why it failed, the winner of its group, what is new of one in flight."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from tests.growth import queries_of
from tests.markup import dense
from tests.webapp.reading.conftest import ANSWERED, ASKED, CALLED, SAID
from webapp.people.teams.models import User
from webapp.reading.groups import winner_of
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, Turn

Make = Callable[..., Any]
WRONG = {"role": "assistant", "content": "It is 54."}
LONGER = (ASKED, CALLED, ANSWERED, SAID, {"role": "assistant", "content": "Anything else?"})


@pytest.fixture
def run(trained: Make) -> Run:
    return trained()  # type: ignore[no-any-return]


@pytest.fixture
def failed(run: Run, play: Make) -> Rollout:
    """One of four of its group: two solved their task, the second with more reward."""
    play(run, 2, 0, 1, talk=LONGER, row=3, success=1.0, reward=0.5)
    play(run, 2, 0, 2, talk=LONGER, row=3, success=1.0, reward=0.9)
    play(run, 2, 0, 3, talk=LONGER, row=3, success=0.0, reward=0.95)
    parts = {"task_success": 0.0, "tool_necessity": 0.0}
    talk = (ASKED, CALLED, ANSWERED, WRONG)
    return play(run, 2, 0, 0, talk=talk, row=3, success=0.0, reward=0.1, parts=parts)  # type: ignore[no-any-return]


def pane(client: Client, rollout: Rollout, query: str = "") -> str:
    answer = client.get(f"/p/joust/rollouts/{rollout.pk}/pane/{query}")
    assert answer.status_code == 200
    return dense(answer.content.decode())


def test_it_says_why_and_shows_the_winner_to_the_first_difference(
    failed: Rollout, rita: User, client_for: Make
) -> None:
    text = pane(client_for(rita), failed, "?found=outcome%3Dfailed")
    assert "Another number than expected" in text and "expected: 15" in text, "of the object in its row, what it holds"
    assert re.search(r"Winner: rollout\s+2", text), "the solved one with the most reward, not the failed one with more"
    before, after = text.split("First difference")
    assert before.count('class="turn"') == before.count("winner-turn") == 3, "prompt, call and result are the same"
    assert "It is 54." in after and "It is 45." in after and "Anything else?" in after
    assert after.count("winner-turn") == 2, "its turn, and one that the loser does not have"
    assert f"/p/joust/rollouts/{failed.pk}/?found=outcome%3Dfailed" in text
    assert text.count("data-zero") == 2


def test_the_winner_can_be_closed_and_the_page_has_it_too(failed: Rollout, rita: User, client_for: Make) -> None:
    client = client_for(rita)
    closed = pane(client, failed, "?winner=no")
    assert "winner-turn" not in closed and "Show the winner of its group next to it" in closed
    address = f"/p/joust/rollouts/{failed.pk}/"
    whole = dense(client.get(address).content.decode())
    assert whole.count("winner-turn") == 5 and 'href="?winner=no"' in whole
    for query in ("?winner=no", "?view=raw", "?view=tokens", "?whole=1"):
        assert "winner-turn" not in client.get(address + query).content.decode(), query


def test_who_has_no_winner(failed: Rollout, play: Make, run: Run) -> None:
    assert winner_of(failed) is not None
    solved = Rollout.objects.filter(outcome="solved").first()
    assert solved is not None and winner_of(solved) is None
    Rollout.objects.filter(pk=failed.pk).update(outcome="excluded")
    failed.refresh_from_db()
    assert winner_of(failed) is None, "what failed outside the policy is not compared"
    alone = play(run, 3, 0, 0, success=0.0)
    play(run, 3, 1, 0, success=1.0)  # of another group
    play(run, 3, 0, 1, success=1.0, attempt=2)  # of another attempt
    assert winner_of(alone) is None


def test_one_in_flight_is_asked_for_again_until_something_is_new(
    run: Run, play: Make, rita: User, client_for: Make
) -> None:
    flying = play(run, 4, 0, 0, talk=(ASKED, CALLED), status="running", outcome="in_flight", reward=None, seq=7)
    Turn.objects.filter(rollout=flying).update(seq=7)
    client = client_for(rita)
    text = pane(client, flying)
    assert "since=7" in text and 'hx-trigger="every 2s"' in text and "waiting for the next turn" in text
    address = f"/p/joust/rollouts/{flying.pk}/pane/"
    assert [client.get(f"{address}?since={seq}").status_code for seq in (6, 7, 8)] == [200, 204, 204]
    Turn.objects.filter(rollout=flying, number=1).update(seq=9)
    assert "since=9" in pane(client, flying, "?since=7")
    Rollout.objects.filter(pk=flying.pk).update(status="completed", outcome="solved", seq=10)
    assert "every 2s" not in pane(client, flying, "?since=9")
    assert client.get(f"{address}?since=x").status_code == 200


def test_who_may_read_it(failed: Rollout, rita: User, charlie: User, client_for: Make) -> None:
    address = f"/p/joust/rollouts/{failed.pk}/pane/"
    assert client_for(None).get(address).status_code == 302
    assert client_for(charlie).get(address).status_code == 404
    assert client_for(rita).post(address).status_code == 405
    assert client_for(rita).get(address.replace(str(failed.pk), str(uuid4()))).status_code == 404


def test_a_large_group_costs_no_more_questions(
    failed: Rollout, run: Run, play: Make, rita: User, client_for: Make
) -> None:
    client, address = client_for(rita), f"/p/joust/rollouts/{failed.pk}/pane/"
    few = queries_of(client, address)
    for index in range(4, 64):
        play(run, 2, 0, index, row=3, success=float(index % 2))
    assert queries_of(client, address) == few <= 15


def test_the_environments_verdict_has_its_reason(failed: Rollout, rita: User, client_for: Make) -> None:
    found = client_for(rita).get(f"/api/v1/rollouts/{failed.pk}/words").json()["parts"]
    reasons = {part["name"]: part["reason"] for part in found}
    assert reasons["task_success"] == "The environment's own verdict. Another number than expected. Expected: 15"
    Rollout.objects.filter(pk=failed.pk).update(outcome="solved")
    found = client_for(rita).get(f"/api/v1/rollouts/{failed.pk}/words").json()["parts"]
    assert {part["name"]: part["reason"] for part in found}["task_success"] == "The environment's own verdict."
