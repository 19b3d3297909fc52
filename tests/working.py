"""Background work without a worker: done here, or listed until a test has it done."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest
from django.utils.module_loading import autodiscover_modules

from webapp.common import work

W = TypeVar("W", bound=work.Work)
autodiscover_modules("tasks")
import webapp.rewards.lab.sets  # noqa: E402, F401 - below an app, where the line above does not look


def done(item: W) -> W:
    """The row after a worker was asked to do it."""
    work.do(item._meta.label_lower, str(item.pk))
    item.refresh_from_db()
    return item


def claimed(item: W) -> work.Claim[W]:
    """The row as a worker's own."""
    taken = work.claim(type(item), item.pk)
    assert taken is not None
    return taken


def perform(taken: work.Claim[Any]) -> None:
    """What a worker does with what it has claimed."""
    work.perform(work.KINDS[taken.item._meta.label_lower], taken)


def at_once(monkeypatch: pytest.MonkeyPatch, *models: type[work.Work]) -> list[str]:
    """Work of these kinds is done when it is asked for; the ids of all that was asked for are listed."""
    sent: list[str] = []

    def send(item: work.Work) -> bool:
        sent.append(str(item.pk))
        if isinstance(item, models):
            work.do(item._meta.label_lower, str(item.pk))
        return True

    monkeypatch.setattr(work, "_send", send)
    return sent
