"""Three people vote blind in real browsers by keyboard alone, and the page of results says what they said."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.urls import reverse

from webapp.evaluation.votes.models import Vote, VoteRound
from webapp.people.teams.models import User
from webapp.runs.models import Run

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
Page = Any


@pytest.fixture
def runs(evaluation: Callable[..., Run]) -> list[Run]:
    """The first solves task 0, the second tasks 1 and 2; none solves 3."""
    return [
        evaluation("alpha-7b", {n: [float(n == 0)] for n in range(4)}),
        evaluation("beta-7b", {n: [float(n in (1, 2))] for n in range(4)}),
    ]


def _answer(page: Page) -> str:
    """Press the arrow towards the episode that says "solved"; both bad where none does."""
    sides = {side: page.locator(f'.ballot-turn[data-side="{side}"]').all_inner_texts() for side in ("left", "right")}
    solved = [side for side, texts in sides.items() if "solved" in " ".join(texts)]
    key = {"left": "ArrowLeft", "right": "ArrowRight"}[solved[0]] if solved else "ArrowUp"
    _press(page, key)
    return key


def _press(page: Page, key: str) -> None:
    with page.expect_response(lambda answer: answer.request.method == "POST"):
        page.keyboard.press(key)
    page.locator("#ballot:not([data-sending])").wait_for()


def test_three_people_vote_by_keyboard_alone(
    page_for: Callable[..., Page], alice: User, bob: User, rita: User, runs: list[Run]
) -> None:
    owner = page_for(alice)
    owner.goto(reverse("compare", args=["joust"]) + f"?c={runs[0].pk}&c={runs[1].pk}")
    owner.get_by_role("link", name="Blind vote").click()
    owner.get_by_label("Name").fill("taste")
    owner.get_by_label("Ballots").fill("4")
    owner.get_by_role("button", name="Open the round").click()
    made = VoteRound.objects.get()
    address = reverse("vote", args=["joust", made.pk])
    for user in (alice, bob, rita):
        page = owner if user == alice else page_for(user)
        page.goto(reverse("compare", args=["joust"]))
        page.get_by_role("link", name="Vote", exact=True).press("Enter")
        page.wait_for_url(f"**{address}")
        keys = []
        for number in range(1, 5):
            assert page.locator("#ballot h1").inner_text() == f"Ballot {number} of 4"
            assert "alpha-7b" not in page.content() and "beta-7b" not in page.content()
            keys.append(_answer(page))
            if user == bob and number == 2:  # bob slips, takes it back, and leaves in between
                _press(page, "Backspace")
                assert page.locator("#ballot h1").inner_text() == "Ballot 2 of 4"
                _answer(page)
                page.goto(reverse("project-page", args=["joust"]))
                page.goto(address)
        assert keys.count("ArrowUp") == 1
        assert "That was the last ballot" in page.locator("#ballot").inner_text()
        if user == rita:
            page.get_by_role("link", name="See the results").press("Enter")
            page.wait_for_url(f"**/votes/{made.pk}/")
            text = re.sub(r"\s+", " ", page.locator("#results").inner_text())
            assert "votes: 12 · people: 3 · ballots: 4" in text
            assert "25% are “both bad”" in text and "0% are ties" in text
            assert page.locator("#scores tbody tr .contestant a").all_inner_texts() == ["beta-7b", "alpha-7b"]
            assert page.locator("#matrix tbody td").all_inner_texts() == ["", "3 of 12", "6 of 12", ""]
            assert "100%" in page.locator("#agrees-reward").inner_text() and "α = 1.00" in text
            assert page.locator("#agrees-reward td").nth(2).inner_text() == "3"
    assert Vote.objects.count() == 12


def test_a_vote_is_not_lost_when_the_network_fails(
    page_for: Callable[..., Page], alice: User, runs: list[Run], make_vote_round: Callable[..., VoteRound]
) -> None:
    made = make_vote_round(runs, [alice], ballots=4)
    page = page_for(alice)
    page.goto(reverse("vote", args=["joust", made.pk]))
    page.context.set_offline(True)
    page.keyboard.press("ArrowLeft")
    page.locator("#vote-unsent").wait_for(state="visible")
    assert page.locator("#ballot h1").inner_text() == "Ballot 1 of 4" and not Vote.objects.exists()
    page.context.set_offline(False)
    _press(page, "ArrowLeft")
    assert page.locator("#ballot h1").inner_text() == "Ballot 2 of 4" and Vote.objects.count() == 1
    assert page.locator("#vote-unsent").is_hidden()
    # Keys that mean something else do not vote, and a key that is held votes once.
    page.keyboard.press("Control+ArrowLeft")
    page.keyboard.press("PageDown")
    page.keyboard.down("ArrowDown")
    for _ in range(5):
        page.keyboard.down("ArrowDown")
    page.keyboard.up("ArrowDown")
    page.get_by_role("heading", name="Ballot 3 of 4").wait_for()
    assert Vote.objects.count() == 2


def test_on_a_phone_by_touch(
    page_for: Callable[..., Page], alice: User, runs: list[Run], make_vote_round: Callable[..., VoteRound]
) -> None:
    made = make_vote_round(runs, [alice], ballots=4)
    page = page_for(alice, viewport={"width": 390, "height": 760}, has_touch=True, is_mobile=True)
    page.goto(reverse("vote", args=["joust", made.pk]))
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for name in ("A better", "B better", "Tie", "Both bad"):
        box = page.get_by_role("button", name=name).bounding_box()
        assert box["height"] >= 44 and box["y"] + box["height"] <= 760, f"{name} is out of reach"
    page.locator(".ballot-sides").evaluate("box => box.scrollTo(box.scrollWidth, 0)")
    right = page.locator('.ballot-side-name[data-side="right"]')
    for _ in range(40):  # until the swipe has come to rest
        if (box := right.bounding_box())["x"] + box["width"] <= 390:
            break
        page.wait_for_timeout(50)
    assert box["x"] + box["width"] <= 390
    page.get_by_role("button", name="B better").tap()
    page.get_by_role("heading", name="Ballot 2 of 4").wait_for()
    page.get_by_role("button", name="Undo the last vote").tap()
    page.get_by_role("heading", name="Ballot 1 of 4").wait_for()
    assert not Vote.objects.exists()
