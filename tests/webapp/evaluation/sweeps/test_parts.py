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


def test_a_setting_has_its_runs_by_seed_and_how_much_it_gained() -> None:
    run = {"pk": PK, "name": "run 7", "state_shown": ("succeeded", "done")}
    places = [{"run": run, "seed": 0}, {"run": run, "seed": None}, {"run": None, "seed": 3}]
    success = {"text": "60%", "low": "50%", "high": "70%", "tasks": 8}
    setting = {"number": 4, "word": "better", "places": places}
    row = {"setting": setting, "values": ["1e-6", "2"], "success": success, "gain": "+10", "compare": "/compare/"}
    known = {**row, "ends": "+1 – +19", "p": "p = 0.02", "verdict": "better"}
    board = {"options": ["Rate", "Seed"], "rows": [known], "comparable": True}
    page = drawn("sweeps/_settings.html", board=board)
    said = words(page)
    assert "Rate Seed Success Gain Verdict Runs 1e-6 2 60% 50% – 70% 8 tasks +10 +1 – +19 p = 0.02 better" in said
    assert said.endswith("Compare with the base seed 0 done run 7 done deleted")
    assert 'data-label="Rate"><span class="contestant" data-curve="4">' in page and 'data-label="Seed">2</td>' in page
    assert page.count('class="cell-main"') == 1 and page.count('class="truncate"') == 1
    one = {**row, "setting": {**setting, "places": []}, "values": [], "success": {"text": "–", "tasks": 1}}
    bare = words(drawn("sweeps/_settings.html", board={"rows": [one]}))
    assert "Setting Success Gain Verdict Runs the only one – 1 task +10 Side by side with the base" in bare


def _form(used: bool = False, **context: Any) -> str:
    rows = [{"number": number, "option": f"o{number}", "values": "1, 2"} for number in range(3)]
    sweep = {"used": used, "rows": rows, "mode": "single", "options": [("a.b", "B")], **context.pop("sweep", {})}
    return drawn("sweeps/_form.html", sweep=sweep, **{"form": {}, **context})


def test_a_sweep_is_offered_with_a_run_of_its_own_and_open_once_it_is_used() -> None:
    page = _form()
    shown = (page, _form(True), _form(sweep={"general": "No."}))
    assert "<details" in page and [" open" in given for given in shown] == [False, True, True]
    assert [name in page for name in ("Varied option 1", "Varied option 3", "Varied option 4")] == [True, True, False]
    assert page.count("optim.learning_rate") == 1 and page.count('placeholder=""') == 2
    assert 'value="single" checked' in page and 'value="product" checked' not in page
    for other in ({"source": "run"}, {"draft": {"value": "7"}}):
        assert words(_form(form=other)) == "", "what is launched from something else is one run"


def test_the_plan_of_a_sweep_says_what_is_wrong_and_what_it_would_launch() -> None:
    filled = [{"title": "Rate", "now": "1e-6"}, {"problem": "No number.", "offered": ["1", "2"], "more": 3}]
    page = drawn(
        "sweeps/_plan.html", sweep={"filled": filled, "general": "Too many."}, asked=True, form={"errors": True}
    )
    assert "Rate now 1e-6 No number. Values: 1 , 2 and 3 more Too many. Some options of the form need" in words(page)
    assert page.count("data-problem") == 1 and "<button" not in page and "data-used" not in page
    assert "Some options" not in drawn("sweeps/_plan.html", sweep={}, form={"errors": True})
    plan = {"points": [1, 2], "words": "2 runs."}
    for given, label, off in (
        ({"sweep": {}}, "Launch the sweep", False),
        ({"sweep": {}, "asked": True}, "Launch the sweep", True),
        ({"sweep": {"plan": plan, "used": True}, "asked": True}, "2 runs. Launch 2 runs", False),
        ({"sweep": {"plan": {**plan, "points": [1]}}, "asked": True}, "2 runs. Launch 1 run", False),
    ):
        offered = drawn("sweeps/_plan.html", can_edit=True, **given)
        assert words(offered) == label and (" disabled" in offered) is off, label
    assert "data-used" in drawn("sweeps/_plan.html", sweep={"used": True})


def test_a_plot_of_changes_names_what_each_is_compared_with() -> None:
    row = {"contestant": {"number": 3, "title": "rate\u202e"}}
    page = drawn("sweeps/_plot.html", plot={"of": {"title": "base\u202e"}, "rows": [row]})
    assert "points of success more than base U+202E , with" in words(page) and words(page).endswith(" rate U+202E")
    assert page.count('data-curve="3"') == 2
