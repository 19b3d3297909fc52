"""What rules free, in sentences: without a database."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest
from django.core.exceptions import ValidationError

from webapp.retention.candidates import Forecast, Item
from webapp.retention.rules import Rule, check_rules
from webapp.retention.services import Overview, Row
from webapp.retention.words import evidence, freed_sentence, headline, rule_text
from webapp.runs.removal.models import Kept

AT = datetime(2026, 6, 1, tzinfo=UTC)


def item(number: int, size: int, kept: str = "") -> Item:
    return Item(UUID(int=number), f"run-{number}", AT, size, 1, kept)


def found(*rows: Row, **over: int) -> Overview:
    values = {"unmeasured": 0, "turns": 0, "sampled": 0, "freed": 0, "freed_runs": 0}
    return Overview(list(rows), **(values | over))


def row(kind: Kept, rule: Rule, *now: Item, later: int = 0, recent: int = 0, size: int = 0) -> Row:
    return Row(kind, rule, [*now, item(9, 1000, "starred")], Forecast(list(now), later, 2, recent, size))


LOGS = row(Kept.LOGS, Rule(days=30), item(1, 100), item(2, 50), later=30, recent=3, size=500)
TOKENS = row(Kept.TOKENS, Rule(gib=1), item(2, 200), later=5, recent=4, size=70)
FREE = row(Kept.WORDS, Rule(), recent=9, size=9000)


def test_runs_are_counted_once_and_bytes_of_all_kinds_are_summed() -> None:
    shown = found(LOGS, TOKENS, FREE)
    assert (shown.now_bytes, shown.now_runs, shown.later_bytes, shown.recent, shown.aging) == (350, 2, 35, 4, 6)
    assert (LOGS.bytes, [each.run for each in LOGS.kept]) == (1150, [UUID(int=9)])
    assert headline(shown).replace("\xa0", " ") == (
        "The rules free 350 bytes of 2 runs now, and about 35 bytes more within 30 days."
    )
    assert headline(found(FREE)).startswith("No rule:") and found(FREE).recent == 0


def test_the_evidence_names_what_is_estimated_and_what_is_missing() -> None:
    assert evidence(found(FREE)) == []
    said = evidence(found(LOGS, TOKENS, FREE, turns=12_000, sampled=300, unmeasured=2))
    assert [text.replace("\xa0", " ") for text in said] == [
        "The 30 days are estimated: 4 runs that ended in the last 30 days left 570 bytes, and the next 30 are taken to "
        "bring as much.",
        "Files are measured. The size of 12,000 turns in the database is estimated from 300 of them.",
        "2 runs that have ended are not measured yet and are in no figure.",
    ]


def test_what_was_freed_is_named() -> None:
    assert freed_sentence(found()) == "The rules have removed nothing in the last 30 days."
    said = freed_sentence(found(freed=10, freed_runs=1)).replace("\xa0", " ")
    assert said == "The rules freed 10 bytes of 1 run in the last 30 days."


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (Rule(), "no limit"),
        (Rule(days=1), "1 day"),
        (Rule(gib=5), "5 GiB"),
        (Rule(days=30, gib=5), "30 days, 5 GiB"),
    ],
)
def test_a_rule_is_named_by_its_limits(rule: Rule, text: str) -> None:
    assert (rule_text(rule), rule.limits) == (text, text != "no limit")


@pytest.mark.parametrize(("value", "good"), [(0, False), (1, True), (999_999, True), (1_000_000, False), (None, True)])
def test_a_limit_is_from_one_to_999999(value: int | None, good: bool) -> None:
    for name in ("days", "gib"):
        if good:
            check_rules({"logs": {name: value}, "tokens": None})
            continue
        with pytest.raises(ValidationError) as caught:
            check_rules({"logs": {name: value}, "tokens": None})
        assert list(caught.value.message_dict) == ["logs"]
