"""What rules removed from a run, as its pages find and say it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from webapp.runs.models import Run
from webapp.runs.removal.models import Expiry, Kept
from webapp.runs.removal.selectors import expiries_of, expiry_of, removed_sentence

pytestmark = pytest.mark.django_db
RULE = {"days": 1, "gib": 5, "by": "age"}


def removed(run: Run, kind: Kept, days_ago: int, **rule: Any) -> Expiry:
    found = Expiry.objects.create(
        project=run.project, run=run, run_name=run.name, kind=kind, rule=RULE | rule, bytes=1, number=1, seq=1
    )
    Expiry.objects.filter(pk=found.pk).update(at=timezone.now() - timedelta(days=days_ago))
    return found


def test_the_newest_removal_of_a_kind_from_a_run_is_found(make_run: Any) -> None:
    run, other = make_run(), make_run()
    removed(other, Kept.WORDS, 0), removed(run, Kept.WORDS, 9)
    newest, logs = removed(run, Kept.WORDS, 2), removed(run, Kept.LOGS, 1)
    assert expiry_of(run, Kept.WORDS) == newest and expiry_of(run, Kept.WORDS, Kept.LOGS) == logs
    assert expiry_of(run, Kept.TOKENS) is None and expiry_of(make_run(), Kept.WORDS) is None
    assert expiries_of(run) == [logs, newest]


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"by": "size"}, "at most 5 GiB are kept, and the runs that ended first go first."),
        ({"days": 1}, "kept for 1 day after the run ended."),
        ({"days": 30}, "kept for 30 days after the run ended."),
    ],
)
def test_a_removal_names_the_limit_that_was_reached(make_run: Any, rule: dict[str, Any], words: str) -> None:
    assert removed_sentence(removed(make_run(), Kept.LOGS, 1, **rule)).endswith(words)
