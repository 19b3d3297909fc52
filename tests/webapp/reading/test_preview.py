"""The card that a link to a rollout shows: what it says, who may see it, what it costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.growth import queries_of
from tests.markup import dense
from tests.webapp.reading.conftest import ANSWERED, ASKED, CALLED, SAID
from webapp.people.teams.models import User
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout

Make = Callable[..., Any]
WRONG = {"role": "assistant", "content": "It is <b>54</b>."}


@pytest.fixture
def run(trained: Make) -> Run:
    return trained()  # type: ignore[no-any-return]


@pytest.fixture
def failed(run: Run, play: Make) -> Rollout:
    parts = {"task_success": 0.0, "tool_necessity": 0.0, "tool_call": 0.5}
    talk = (ASKED, CALLED, ANSWERED, WRONG)
    return play(run, 2, 0, 3, talk=talk, row=3, success=0.0, reward=0.1, parts=parts)  # type: ignore[no-any-return]


def card(client: Client, rollout: Rollout, slug: str = "joust") -> str:
    answer = client.get(reverse("rollout-preview", args=[slug, rollout.pk]))
    assert answer.status_code == 200
    return dense(answer.content.decode())


def test_it_says_what_was_asked_what_it_said_and_why_it_earned_nothing(
    client_for: Make, rita: User, failed: Rollout
) -> None:
    shown = card(client_for(rita), failed)
    assert "Rollout 2.0.3" in shown and 'data-state="failed"' in shown and "step 2" in shown
    assert failed.run.name in shown and failed.task in shown
    assert "It is &lt;b&gt;54&lt;/b&gt;." in shown and "expected: 15" in shown
    assert "reward<strong>0.100</strong>" in shown and "Another number than expected" in shown
    assert ">0 for: Task success, Tool necessity<" in shown and shown.count("data-state") == 1
    assert "attempt" not in shown, "the first one is the usual"


def test_a_solved_one_has_no_reason_and_one_without_words_says_so(
    client_for: Make, rita: User, run: Run, play: Make
) -> None:
    solved = play(run, 1, 0, 0, talk=(ASKED, CALLED, ANSWERED, SAID), row=3, success=1.0, reward=1.0, parts={})
    shown = card(client_for(rita), solved)
    assert 'data-state="solved"' in shown and "preview-reason" not in shown and "0 for" not in shown
    mute = play(run, 1, 0, 1, talk=(ASKED,), success=0.0, reward=None)
    shown = card(client_for(rita), mute)
    assert "no words in its last turns" in shown and "No reward." in shown and "<strong>0" not in shown


def test_texts_of_any_script_are_whole_and_harmless(client_for: Make, rita: User, run: Run, play: Make) -> None:
    said = {"role": "assistant", "content": "الجواب 天气很好 \u202eabc"}
    shown = card(client_for(rita), play(run, 1, 0, 0, talk=(ASKED, said), success=0.0, reward=0.0))
    assert "الجواب 天气很好" in shown and "\u202e" not in shown and "U+202E" in shown
    assert "reward<strong>0.00</strong>" in shown
    assert "已解决" in card(client_for(rita, headers={"accept-language": "zh-hans"}), run_solved(run, play))


def run_solved(run: Run, play: Make) -> Rollout:
    return play(run, 1, 1, 0, talk=(ASKED, SAID), success=1.0, reward=1.0)  # type: ignore[no-any-return]


def test_strangers_and_other_projects_get_nothing(
    client_for: Make, alice: User, charlie: User, failed: Rollout
) -> None:
    address = reverse("rollout-preview", args=["joust", failed.pk])
    assert client_for(charlie).get(address).status_code == 404
    assert client_for(alice).get(reverse("rollout-preview", args=["elsewhere", failed.pk])).status_code == 404
    assert client_for(alice).get(reverse("rollout-preview", args=["joust", failed.run.pk])).status_code == 404
    assert client_for(None).get(address).status_code == 302
    assert client_for(alice).post(address).status_code == 405


def test_it_costs_four_queries_and_stays_in_no_cache(client_for: Make, rita: User, failed: Rollout) -> None:
    client, address = client_for(rita), reverse("rollout-preview", args=["joust", failed.pk])
    client.get(address)
    assert queries_of(client, address) == 2 + 4, "session, person; project, rollout with its cause, words, dataset"
    assert "max-age" not in client.get(address)["Cache-Control"]
