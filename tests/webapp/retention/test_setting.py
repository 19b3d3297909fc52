"""``TILTYARD_RETENTION``: the site's rules, and what is refused at the start."""

from __future__ import annotations

import pytest
from django.core.exceptions import ImproperlyConfigured

from webapp.common.env import RETAINED, retention
from webapp.runs.removal.models import Kept

NONE = {"days": None, "gib": None}


def test_each_kind_has_days_gib_both_or_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILTYARD_RETENTION", raising=False)
    assert retention() == dict.fromkeys(RETAINED, NONE)
    monkeypatch.setenv("TILTYARD_RETENTION", "tokens=30d, checkpoints = 180d,checkpoints=500GiB,")
    assert retention() == {
        "words": NONE,
        "tokens": {"days": 30, "gib": None},
        "logs": NONE,
        "checkpoints": {"days": 180, "gib": 500},
    }


def test_the_kinds_are_those_of_the_rules() -> None:
    assert tuple(Kept.values) == RETAINED


@pytest.mark.parametrize("wrong", ["tokens", "tokens=30", "tokens=0d", "tokens=-1d", "tokens=1GB", "runs=3d", "=3d"])
def test_a_wrong_limit_stops_the_start_with_what_would_be_right(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILTYARD_RETENTION", wrong)
    with pytest.raises(ImproperlyConfigured, match="limits such as tokens=30d or checkpoints=500GiB") as caught:
        retention()
    assert repr(wrong) in str(caught.value)
