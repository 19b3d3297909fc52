"""The pages of suites, drawn by themselves: what they offer to whom, and what they say of each state."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from tests.markup import drawn, words

PK, NOW = uuid.UUID(int=1), datetime(2026, 1, 1, tzinfo=UTC)
LINE = {"title": "small", "score_cell": {"text": "60%"}, "evaluation": {"created_at": NOW}}
WAITING = {"title": "large", "evaluation": {"created_at": NOW}}


def _suite(number: int = 2, parts: int = 1, board: dict[str, Any] | None = None, **context: Any) -> str:
    part = {"title": "sums", "weight": 1.0, "config": {"evaluate": {}, "rollout": {"num_generations": 4}}}
    version = {"pk": number, "number": number, "parts": [part] * parts}
    given = {"version": version, "versions": [{"pk": 2, "number": 2}, {"pk": 1, "number": 1}], "board": board or {}}
    return drawn("suites/detail.html", suite={"pk": PK, "name": "tools"}, **{**given, **context})


def test_only_editors_change_a_suite_evaluate_on_it_and_delete_it() -> None:
    acts = (f"/suites/{PK}/edit/", f"/suites/{PK}/evaluate/", f"/suites/{PK}/delete/", 'data-dialog="delete-suite"')
    offered = [("model:a", "a"), ("model:b", "b")]
    viewer, editor = _suite(offered=offered), _suite(offered=offered, chosen="model:b", can_edit=True)
    assert [act in viewer for act in acts] == [False] * 4 and "<form" not in viewer
    assert [act in editor for act in acts] == [True] * 4
    assert 'value="model:b" selected' in editor and 'value="model:a" selected' not in editor
    assert "Queues one evaluation." in words(editor)
    assert "Queues 2 evaluations." in words(_suite(parts=2, can_edit=True))


def test_an_older_version_says_so_and_leads_to_the_newest() -> None:
    old = _suite(1)
    assert "cannot be compared with those of @2." in words(old) and "Show the newest" in old
    assert "older version" not in _suite(2)
    assert 'href="?version=1" aria-current="true"' in old and 'href="?version=2" aria-current' not in old
    assert "Versions" not in words(_suite(versions=[{"pk": 2, "number": 2}]))


def test_a_leaderboard_says_who_is_best_and_what_each_other_is_against_it() -> None:
    lines = [LINE, {**LINE, "title": "base", "page": "/base/", "mark": "good", "verdict": "worse"}, LINE]
    page = words(_suite(board={"lines": lines}))
    assert page.count("★ best") == 1 and page.index("★ best") < page.index("base good") < page.index("worse")
    assert "worse" in page and 'href="/base/"' in _suite(board={"lines": lines})
    empty = words(_suite())
    assert "No contestant has played this version yet" in empty and "No contestant" not in page
    corrected = [words(_suite(board={"lines": lines, "corrected": number})) for number in (1, 2)]
    assert ["(Holm)" in found for found in corrected] == [False, True] and "for 2 comparisons" in corrected[1]
    two = words(_suite(parts=2, board={"lines": lines}))
    assert "sums ×" in two and "sums ×" not in page


def test_those_without_a_score_and_the_best_over_time_are_shown_where_there_are_some() -> None:
    page = words(_suite(board={"waiting": [WAITING]}))
    assert "Without a score" in page and "large" in page and "Without a score" not in words(_suite())
    best = [{"value": 0.5, "title": "small", "at": NOW}]
    assert "The best over time" not in words(_suite(board={"history": best}))
    assert "The best over time" in words(_suite(board={"history": best * 2}))


def test_a_list_of_suites_has_the_best_of_each_and_a_button_for_editors() -> None:
    suite, version = {"pk": PK, "name": "tools"}, {"number": 3, "parts": [1, 2]}
    rows = [(suite, {"version": version, "lines": [LINE, {**LINE, "title": "base"}]}), (suite, {"version": version})]
    page = words(drawn("suites/list.html", rows=rows))
    assert "tools @3 2 2 small 60%" in page and "tools @3 2 0 none yet –" in page and "base" not in page
    for given, buttons in (({"rows": rows}, 1), ({"rows": []}, 2)):
        assert drawn("suites/list.html", can_edit=True, **given).count('href="/p/joust/suites/new/"') == buttons
        assert "/suites/new/" not in drawn("suites/list.html", **given)
    assert "No suites yet" in drawn("suites/list.html", rows=[]) and "No suites yet" not in page


def test_the_form_of_a_suite_says_what_a_change_makes_and_leads_back() -> None:
    new = drawn("suites/form.html", form={}, rows=[{}, {"base": "kept"}])
    known = {"number": 2, "suite_id": PK, "suite": {"name": "tools"}}
    change = drawn("suites/form.html", form={"name": {"html_name": "name"}}, rows=[{}], version=known)
    assert "New suite Each part is one evaluation" in words(new) and "Part 1 Part 2 kept" in words(new)
    assert "Change tools Other parts make version 3: it begins without scores" in words(change)
    assert 'class="button" href="/p/joust/suites/"' in new and f'class="button" href="/p/joust/suites/{PK}/"' in change
    assert [page.count("card-body suite-part") for page in (new, change)] == [2, 1]
