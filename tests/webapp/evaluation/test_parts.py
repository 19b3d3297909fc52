"""Parts of the pages of comparisons and votes, drawn by themselves: who is offered what, and what each state says."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from tests.markup import drawn, words

PK = uuid.UUID(int=1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ME, OTHER = SimpleNamespace(pk=7, username="bob"), SimpleNamespace(pk=8, username="dana")


def _comments(author: Any = ME, **context: Any) -> str:
    """One comment, as ``bob`` reads it."""
    comment = {"pk": PK, "created_by": author, "created_by_id": author and author.pk, "created_at": NOW, "text": "Good"}
    comment |= context.pop("comment", {})
    every = {"comments": [comment], "saved": {"pk": PK}, "user": ME, "comment_form": {"text": ""}}
    return drawn("sharing/_comments.html", **{**every, **context})


def test_a_comment_is_changed_by_its_author_and_deleted_by_owners_too() -> None:
    mine = _comments(may_write=True)
    assert f"compare/comments/{PK}/edit/" in mine and f"compare/comments/{PK}/delete/" in mine
    others = _comments(OTHER, may_write=True, role="editor")
    assert f"comments/{PK}/edit/" not in others and f"comments/{PK}/delete/" not in others
    own = _comments(OTHER, may_write=True, role="owner")
    assert f"comments/{PK}/edit/" not in own and f"comments/{PK}/delete/" in own
    assert "<form" not in _comments(may_write=False, role="owner")


def test_comments_say_whose_they_are_and_that_they_were_edited() -> None:
    assert words(_comments()).startswith("Comments 1 bob ") and "edited" not in words(_comments())
    assert "– " in words(_comments(None)) and "· edited Good" in words(_comments(comment={"edited_at": NOW}))
    none = "No comments yet."
    assert none in words(_comments(comments=[])) and none not in words(_comments(comments=[], may_write=True))
    assert none not in words(_comments()) and "Add a comment" in words(_comments(comments=[], may_write=True))


def test_a_comment_that_could_not_be_saved_stays_open_with_what_was_written() -> None:
    form = {"text": {"value": "Better", "errors": ["Too long."]}}
    page = _comments(may_write=True, edited=PK, edit_form=form)
    assert '<details class="fold fold-plain" open>' in page and ">Better</textarea>" in page and "Too long." in page
    closed = _comments(may_write=True, edited=uuid.UUID(int=4), edit_form=form)
    assert '<details class="fold fold-plain">' in closed and ">Good</textarea>" in closed and "Too long." not in closed


def _line(there: list[str], gone: list[str], **more: Any) -> str:
    saved = {"pk": PK, "name": "wolves", "created_at": NOW, "created_by": more.get("by")}
    line = {"saved": saved, "there": there, "gone": gone, "links": more.get("links", 0), "comments": 0}
    return words(drawn("sharing/_lines.html", lines=[line]))


def test_a_saved_comparison_names_what_it_compares_and_what_was_deleted() -> None:
    head = "Name Comments Saved wolves"
    assert _line(["a", "b"], []).startswith(f"{head} a, b 0 ")
    assert _line(["a"], ["b"]).startswith(f"{head} a · deleted: b 0 ")
    assert _line([], ["a", "b"], links=1, by=ME).startswith(f"{head} 1 link deleted: a, b 0 bob, ")
    assert "2 links" in _line(["a"], [], links=2)


BALLOT = {"pk": PK, "text": "2 + 3"}


def _ballot(ballot: Any = None, progress: tuple[int, int] = (0, 2), **context: Any) -> str:
    done, total = progress
    standing = {"asked": True, "progress": {"done": done, "total": total}, **context.pop("standing", {})}
    whole = {"pk": PK, "name": "wolves", **context.pop("round", {})}
    return drawn("votes/_ballot.html", round=whole, ballot=ballot, number=1, standing=standing, **context)


def test_a_ballot_marks_the_answer_that_was_given() -> None:
    page = _ballot(BALLOT)
    assert words(page).startswith("Ballot 1 of 2 Results stay hidden") and "aria-pressed" not in page
    for answer in ("left", "tie", "both_bad", "right"):
        pressed = _ballot(BALLOT, chosen=answer)
        assert pressed.count("aria-pressed") == 1
        button = pressed[pressed.index(f'value="{answer}"') :]
        assert 'aria-pressed="true"' in button[: button.index(">")]


def test_only_a_vote_that_was_given_can_be_taken_back() -> None:
    assert "Undo the last vote" not in _ballot(BALLOT)
    assert "Undo the last vote" in _ballot(BALLOT, (1, 2))
    assert "Undo the last vote" in _ballot(None, (2, 2), standing={"may_vote": True})
    assert "Undo the last vote" not in _ballot(None, (2, 2), standing={"may_vote": False})
    assert "Undo the last vote" not in _ballot(None, (0, 2), standing={"may_vote": True})


def test_a_ballot_has_its_task_and_the_answer_that_is_expected_where_the_round_shows_it() -> None:
    assert "Expected answer" not in _ballot({**BALLOT, "expected": "5"})
    assert "Expected answer 5 " in words(_ballot({**BALLOT, "expected": "5"}, round={"show_expected": True}))
    assert "The dataset has none for this task." in _ballot(BALLOT, round={"show_expected": True})
    asked = _ballot(BALLOT, round={"instructions": "Read\nall"}, note="Saved.", error="Gone.")
    assert words(asked).startswith("Ballot 1 of 2 Saved. Gone. Read all Results")
    opening = {"opening": [{"role": "user", "content": "hi"}], "rows": [(([], []), True), (([], []), False)]}
    page = _ballot(BALLOT, shown=opening)
    sides = [part[:30] for part in page.split('<div class="ballot-turn" ')[1:]]
    assert [side.split(">")[0] for side in sides] == [
        'data-side="left" data-same="yes"'[:30],
        'data-side="right" data-same="yes"'[:30],
        'data-side="left" data-same="no"'[:30],
        'data-side="right" data-same="no"'[:30],
    ]


@pytest.mark.parametrize(
    ("context", "title"),
    [
        ({"standing": {"asked": False}}, "wolves You are not asked in this round"),
        ({"round": {"closed_at": NOW}}, "wolves This round is closed"),
        ({"standing": {"seen": True}}, "wolves You have seen the results, so your votes are final"),
        ({}, "wolves That was the last ballot"),
        ({"progress": (0, 0)}, "wolves There is nothing left to vote on"),
    ],
)
def test_without_a_ballot_the_page_says_why(context: dict[str, Any], title: str) -> None:
    page = _ballot(**context)
    assert words(page).startswith(title)
    asked = context in ({"round": {"closed_at": NOW}}, {"standing": {"seen": True}}, {})
    assert ("<progress" in page) == asked


def test_only_options_that_differ_are_marked() -> None:
    rows = [{"path": "lr", "cells": [("a", "1e-5", False), ("b", "2e-5", True)]}]
    page = drawn("comparison/_options.html", found={"options": [{"rows": rows}]}, contestants=[])
    assert "<mark>2e-5</mark>" in page and "<mark>1e-5" not in page
    assert "Their options are the same." in drawn("comparison/_options.html", found={}, contestants=[])


def _offer(role: str = "editor", **offer: Any) -> str:
    found = {"offer": {"rollouts": 2, "spec": "s", **offer}}
    return drawn("comparison/_offer.html", role=role, found=found, contestants=[{"run": {"pk": PK}}])


def test_recorded_rollouts_are_scored_by_editors() -> None:
    page = _offer()
    assert words(page).startswith("Score the recorded rollouts with this spec 2 recorded rollouts lack values")
    assert words(page).endswith("Score the rollouts") and "required" not in page and "button-primary" in page
    assert words(_offer("viewer")).endswith("Editors of this project can start that.")
    assert "<form" not in _offer("viewer") and "Editors of this project" not in page
    refused = _offer(refusal="Too many.")
    assert words(refused).endswith("Too many.") and "<form" not in refused
    asks = _offer(asks="It costs 5.")
    assert "It costs 5. I confirm this." in words(asks) and " required>" in asks
    assert "1 recorded rollout lacks a value" in words(_offer(rollouts=1))


def test_scores_that_failed_can_be_tried_again() -> None:
    again = _offer(again=True)
    assert words(again).startswith("Some rollouts could not be scored 2 recorded rollouts have no reward")
    assert words(again).endswith("Try again") and "button-primary" not in again
    failure = {"title": "No answer", "hint": "Wait.", "detail": "30 s"}
    failed = words(_offer(failure=failure, cancelled=True))
    assert "No answer Wait. 30 s 2 recorded" in failed and "It was cancelled" not in failed
    assert "It was cancelled; the scores so far are kept." in words(_offer(cancelled=True))
    assert "reported" not in _offer(failure={"title": "No answer"}) and "cancelled" not in _offer()
    assert words(drawn("comparison/_offer.html", found={})) == ""


def _links(state: str = "open", author: Any = ME, **context: Any) -> str:
    link = {"pk": PK, "hint": "ab", "created_by": author, "created_by_id": author.pk, "created_at": NOW}
    link |= {"expires_at": NOW, "opened": 1, "opened_at": context.pop("opened_at", None)}
    given = {"saved": {"pk": PK, "name": "wolves"}, "lines": [{"link": link, "state": state}], "user": ME, "form": {}}
    return drawn("sharing/links.html", **{**given, **context})


def test_a_link_is_revoked_by_its_author_or_an_owner_while_it_can_open() -> None:
    assert "/revoke/" not in _links()
    assert "/revoke/" in _links(may_write=True) and "/revoke/" not in _links(may_write=True, author=OTHER)
    assert "/revoke/" in _links(owner=True, author=OTHER)
    revoked = ["/revoke/" in _links(state, owner=True) for state in ("open", "left", "expired", "revoked")]
    assert revoked == [True, True, False, False]


def test_a_link_says_whether_it_opens() -> None:
    states = {"open": "valid", "expired": "expired", "revoked": "revoked", "left": "closed"}
    for state, name in states.items():
        assert f"/s/ab… {name} bob, " in words(_links(state)), state
    assert "1 time never" in words(_links()) and "never" not in words(_links(opened_at=NOW))
    assert "Make a link" not in words(_links()) and "Make a link" in words(_links(may_write=True))
    assert "Only the team can read it" in _links(lines=[]) and "Only the team can read it" not in _links()
    made = _links(address="https://h/s/abc", made={"expires_at": NOW})
    assert "https://h/s/abc" in made and "2026-01-01 00:00" in made and "new-link" not in _links()


def _round(standing: dict[str, Any] | None = None, **context: Any) -> str:
    stand = {"may_vote": True, "progress": {"left": 2}, **(standing or {})}
    whole = {"pk": PK, "name": "wolves", "created_at": NOW, "seed": 1, **context.pop("round", {})}
    return drawn("votes/round.html", round=whole, standing=stand, ballots=3, **context)


def test_only_who_manages_a_round_closes_and_deletes_it() -> None:
    page = _round()
    assert "/close/" not in page and "<dialog" not in page and "/delete/" not in page
    own, closed = _round(can_manage=True), _round(can_manage=True, round={"closed_at": NOW})
    assert "/close/" in own and "Close the round Delete" in words(own) and "/reopen/" not in own
    assert "/reopen/" in closed and "Reopen Delete" in words(closed) and "/close/" not in closed


def test_results_are_hidden_from_who_has_not_voted() -> None:
    page = words(_round())
    assert "The results are hidden until you have voted You have 2 ballots left." in page
    assert "You have 1 ballot left." in words(_round({"progress": {"left": 1}}))
    votes = [_round(each).count(f"/votes/{PK}/vote/") for each in ({}, {"may_vote": False}, {"progress": {"left": 0}})]
    assert votes == [2, 1, 1]
    assert "2 ballots are left out" in words(_round(gone=2)) and "left out" not in page
    assert "?c=1" in _round(compare="c=1") and "?c=1" not in _round()
