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
