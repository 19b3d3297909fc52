"""The words around a phrase, the model's last words and a tool's last error: where each of them is cut."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, Turn
from webapp.runs.rollouts.selectors import last_errors, last_words, snippet_in

Message = dict[str, str]


def say(text: str, role: str = "assistant") -> Message:
    return {"role": role, "content": text}


def around(text: str, phrase: str = "needle") -> tuple[str, str, str] | None:
    found = snippet_in(Turn(number=3, messages=[say(text)]), phrase)
    assert found is None or found.turn == 3
    return None if found is None else (found.before, found.said, found.after)


@pytest.mark.parametrize(("length", "mark"), [(79, ""), (80, ""), (81, "…")])
def test_of_a_long_text_80_characters_on_each_side_are_shown(length: int, mark: str) -> None:
    kept = "x" * min(length, 80)
    assert around("x" * length + "needle") == (mark + kept, "needle", "")
    assert around("needle" + "x" * length) == ("", "needle", kept + mark)


@pytest.mark.parametrize(
    ("text", "phrase", "found"),
    [
        ("İİİ the NEEDLE is here", "needle", ("İİİ the ", "NEEDLE", " is here")),  # "İ".lower() has two characters
        ("İzmir, İstanbul", "İstanbul", ("İzmir, ", "İstanbul", "")),
        ("今天天气很好", "天气", ("今天", "天气", "很好")),
        ("الطقس جميل اليوم", "جميل", ("الطقس ", "جميل", " اليوم")),
        ("a.b* (c)", "B* (", ("a.", "b* (", "c)")),
        ("axb", "a.b", None),
        ("", "a", None),
    ],
)
def test_a_phrase_is_found_as_it_is_written_apart_from_case(
    text: str, phrase: str, found: tuple[str, str, str] | None
) -> None:
    assert around(text, phrase) == found


@pytest.fixture
def rollout(make_run: Callable[..., Run]) -> Callable[..., Rollout]:
    """``rollout(turn, …)``: each turn is a list of messages; their numbers begin with 1."""

    def make(*turns: list[Message]) -> Rollout:
        place: dict[str, Any] = {"attempt": 1, "step": 1, "group": 0, "index": 0, "seq": 1}
        made = Rollout.objects.create(run=make_run(), started_at=datetime(2026, 1, 1, tzinfo=UTC), **place)
        for number, messages in enumerate(turns, 1):
            Turn.objects.create(rollout=made, run=made.run, number=number, messages=messages, seq=1)
        return made

    return make


@pytest.mark.django_db
@pytest.mark.parametrize(("length", "mark"), [(239, ""), (240, ""), (241, "…")])
def test_the_last_240_characters_are_shown(rollout: Callable[..., Rollout], length: int, mark: str) -> None:
    made = rollout([say("م" * length)])
    assert last_words([made.pk]) == {made.pk: mark + "م" * min(length, 240)}


@pytest.mark.django_db
def test_the_last_message_of_a_turn_is_the_last_word(rollout: Callable[..., Rollout]) -> None:
    made = rollout([say("first"), say("Error: one", "tool"), say("second"), say("Error: two", "tool"), say(" \n")])
    assert last_words([made.pk]) == {made.pk: "second"} and last_errors([made.pk]) == {made.pk: "Error: two"}


@pytest.mark.django_db
@pytest.mark.parametrize(("calls", "found"), [(2, True), (3, False)])
def test_the_last_three_turns_are_read_for_words(rollout: Callable[..., Rollout], calls: int, found: bool) -> None:
    made = rollout([say("so it is 45")], *[[say("")]] * calls)
    assert last_words([made.pk]) == ({made.pk: "so it is 45"} if found else {})


@pytest.mark.django_db
@pytest.mark.parametrize(("later", "found"), [(63, True), (64, False)])
def test_an_error_is_looked_for_in_64_turns(rollout: Callable[..., Rollout], later: int, found: bool) -> None:
    made = rollout([say("Error: late", "tool")], *[[say("45", "tool")]] * later)
    assert last_errors([made.pk]) == ({made.pk: "Error: late"} if found else {})


@pytest.mark.django_db
def test_of_no_rollouts_nothing_is_asked() -> None:
    assert last_words([]) == last_errors([]) == {}
