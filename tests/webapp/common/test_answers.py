"""Shapes of answers: what is read off rows, and what becomes of a row that does not fit."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from pydantic import AliasPath, Field

from webapp.common import answers
from webapp.common.answers import Answer, Extended, Finite, Items, Related, Time, Username, as_json, in_shape

KNIGHT = UUID(int=7)
AT = datetime(2026, 11, 28, 4, 30, 0, 250, UTC)


class Knight(Answer):
    id: UUID
    name: str
    score: Finite
    team: str = Field(validation_alias=AliasPath("team", "name"))
    at: Time
    lances: int | None = None


@dataclass
class Team:
    name: str = "Joust"


@dataclass
class Row:
    id: UUID = KNIGHT
    name: str = "Ivanhoe"
    score: float | None = 0.5
    team: Team = field(default_factory=Team)
    at: datetime = AT


SHOWN = {"id": str(KNIGHT), "name": "Ivanhoe", "score": 0.5, "team": "Joust", "at": "2026-11-28T04:30:00.000250+00:00"}


TEAM = {"name": "Joust"}


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Misfits are logged, as in production; elsewhere in the tests they fail."""
    monkeypatch.setattr(answers, "report_misfit", REPORT)
    caplog.set_level(logging.ERROR, "webapp.common.answers")
    return caplog


REPORT = answers.report_misfit


def test_an_answer_is_read_off_a_row_and_off_a_dictionary() -> None:
    assert in_shape(Knight, Row()) == SHOWN
    assert in_shape(Knight, {**SHOWN, "team": {"name": "Joust"}, "secret": "not named by the shape"}) == SHOWN
    assert in_shape(Items[Knight], {"items": [Row(), Row(name="Bois")]})["items"][1]["name"] == "Bois"


@pytest.mark.parametrize("score", [float("nan"), float("inf"), None])
def test_a_number_that_json_lacks_is_null(score: float | None) -> None:
    assert in_shape(Knight, Row(score=score))["score"] is None


@pytest.mark.parametrize(
    "row", [Row(), Row(name="\u2028 Wilfrid of Ivanhoé", score=float("nan")), {**SHOWN, "team": TEAM}]
)
def test_the_text_of_an_answer_is_the_same_answer(row: Any) -> None:
    text = as_json(Knight, row)
    assert text.isascii() and json.loads(text) == in_shape(Knight, row)


def test_fields_that_a_row_does_not_have_are_added() -> None:
    assert in_shape(Knight, Extended(Row(), lances=3)) == {**SHOWN, "lances": 3}
    assert in_shape(Knight, Extended(Row(), name="Locksley"))["name"] == "Locksley"
    twice = Extended(Extended({"id": KNIGHT, "name": "Bois", "score": 1, "team": TEAM}, at=AT), lances=3, row=0, self=0)
    assert in_shape(Knight, twice) == {**SHOWN, "name": "Bois", "score": 1, "lances": 3}


def test_a_row_that_does_not_fit_is_shown_and_logged_without_its_values(reports: pytest.LogCaptureFixture) -> None:
    odd = Row(name=12, score="not-for-the-log")  # type: ignore[arg-type]
    found = in_shape(Items[Knight], {"items": [Row(), odd]})["items"]
    assert found == [SHOWN, {**SHOWN, "name": 12, "score": "not-for-the-log", "lances": None}]
    (record,) = reports.records
    assert record.message == "answer_misfit" and record.shape == "Knight"  # type: ignore[attr-defined]
    assert record.fields == "name: string_type, score: float_parsing"  # type: ignore[attr-defined]
    assert "not-for-the-log" not in reports.text


class Joust(Answer):
    won: int
    by: Username = Field(validation_alias="knight")
    lists: Related[Knight] = Field(validation_alias=AliasPath("field", "lists"))


def test_an_odd_row_is_still_read_through_the_types_of_its_fields(reports: pytest.LogCaptureFixture) -> None:
    lists = SimpleNamespace(all=lambda: [Row()])
    row = SimpleNamespace(won="all", knight=SimpleNamespace(username="ivanhoe"), field=SimpleNamespace(lists=lists))
    assert in_shape(Joust, row) == {"won": "all", "by": "ivanhoe", "lists": [SHOWN]}
    assert in_shape(Joust, {"won": "all", "by": "bois", "lists": []}) == {"won": "all", "by": "bois", "lists": []}
    assert [record.fields for record in reports.records] == ["won: int_parsing"] * 2  # type: ignore[attr-defined]


def test_what_a_row_lacks_is_null_and_logged(reports: pytest.LogCaptureFixture) -> None:
    assert in_shape(Knight, {"id": KNIGHT}) == dict.fromkeys([*SHOWN, "lances"]) | {"id": str(KNIGHT)}
    assert [record.message for record in reports.records] == ["answer_misfit"]
