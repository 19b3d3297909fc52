"""The pages of sweeps, drawn by themselves: what they offer to whom, and what they say of each state."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from tests.markup import drawn, words

PK, NOW = uuid.UUID(int=1), datetime(2026, 1, 1, tzinfo=UTC)
SWEEP = {"pk": PK, "name": "rates", "get_mode_display": "grid", "created_at": NOW}


def _sweep(board: dict[str, Any] | None = None, **context: Any) -> str:
    whole = {"answer": {"kind": "open", "text": "Nothing is known yet."}, **(board or {})}
    return drawn("sweeps/detail.html", sweep=SWEEP, board=whole, **context)


def test_editors_delete_a_sweep_and_owners_its_runs_too() -> None:
    shown = [_sweep(), _sweep(can_edit=True, role="editor"), _sweep(can_edit=True, role="owner")]
    for act, to in (
        ('data-dialog="delete-sweep"', [False, True, True]),
        (f'action="/p/joust/sweeps/{PK}/delete/"', [False, True, True]),
        ("Delete its runs too", [False, False, True]),
    ):
        assert [act in page for page in shown] == to, act


def test_a_sweep_is_asked_for_again_while_its_runs_are_at_work() -> None:
    assert "hx-get" in _sweep({"going_on": True}) and "hx-get" not in _sweep()


def test_the_comparison_of_a_sweep_says_whether_results_or_only_options_are_compared() -> None:
    assert "Options side by side" in words(_sweep({"compare": "/compare/"}))
    compared = words(_sweep({"compare": "/compare/", "comparable": True}))
    assert "Compare Its runs" in compared and "side by side" not in compared
    assert "Compare" not in words(_sweep({"comparable": True}))
    left = _sweep({"answer": {"kind": "open", "text": "?", "left_out": ["One failed."]}})
    assert '<ul class="answer-left" id="left-out"><li>One failed.</li></ul>' in left and "left-out" not in _sweep()


def test_a_list_of_sweeps_says_how_many_ended_and_has_a_button_for_editors() -> None:
    lines = [{"sweep": SWEEP, "ended": 3, "runs": 4, "lost": lost, "axes": [("Rate", "1, 2")]} for lost in (0, 1)]
    page = words(drawn("sweeps/list.html", lines=lines))
    assert "rates grid Rate 1, 2 3 of 4 ended" in page and page.count("1 without a result") == 1
    for given, buttons in (({"lines": lines}, 1), ({"lines": []}, 2)):
        assert drawn("sweeps/list.html", can_edit=True, **given).count("/runs/new/#sweep") == buttons
        assert "/runs/new/" not in drawn("sweeps/list.html", **given)
    assert "No sweeps yet" in drawn("sweeps/list.html", lines=[]) and "No sweeps yet" not in page
