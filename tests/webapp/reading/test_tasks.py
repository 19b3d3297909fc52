"""The task map, held against rows made by hand."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from training.evaluation.comparisons import changes
from webapp.people.teams.models import User
from webapp.reading.task_map import (
    COLUMNS,
    KINDS,
    Courses,
    category_map,
    columns_of,
    courses_of,
    dataset_at,
    shade_of,
    task_map,
    visits_of,
)
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout

Make = Callable[..., Any]
# Row: its visits, each a step and how many of its eight rollouts solved it; None is without a verdict.
TRIES = 8
LIVES: dict[int, list[tuple[int, int | None]]] = {
    0: [(1, 0), (3, 8), (6, 8)],  # learned
    1: [(1, 8), (4, 8), (7, 0)],  # forgotten
    2: [(2, 0), (5, 4), (8, 0)],  # never: half is not more than half
    3: [(2, 5), (3, 3), (5, 5), (8, 3)],  # flickering: three changes, each of which chance explains
    4: [(1, 8), (4, 3), (9, 8)],  # kept: two changes
    5: [(9, None)],  # no verdict at all
    6: [(2, 6), (9, 4)],  # a change that chance explains
    7: [(9, 8)],  # seen once
}
KIND_OF = dict(enumerate(("learned", "forgotten", "never", "flickering", "kept"))) | {6: "unclear", 7: "once"}


@pytest.fixture
def lived(trained: Make, play: Make) -> Run:
    run = trained()
    for row, visits in LIVES.items():
        for step, solved in visits:
            for index in range(TRIES):
                known = {} if solved is None else {"success": float(index < solved)}
                play(run, step, row, index, row=row, task=f"What is {row} * 5?", **known)
    return run


def rows_of(run: Run, **asked: Any) -> list[int]:
    return [line.task.row for line in task_map(run, **asked).lines if line.task]


def test_what_became_of_each_task(lived: Run) -> None:
    found = task_map(lived)
    kinds = {line.task.row: line.task.kind for line in found.lines if line.task}
    assert kinds == KIND_OF
    assert found.counts == dict.fromkeys(KINDS, 1)
    learned, forgotten, once = (found.lines[at].task for at in (0, 1, 6))
    assert learned is not None and forgotten is not None and once is not None
    assert (learned.visits, learned.solved, learned.counted, learned.changes) == (3, 16, 24, 1)
    assert (learned.first_hits, learned.first_tries, learned.last_hits, learned.last_tries) == (0, 8, 8, 8)
    assert learned.p == pytest.approx(2 / 12870), "0 of 8 against 8 of 8"
    assert forgotten.p == pytest.approx(1 / 735471), "16 of 16 before, 0 of 8: one of C(24, 8) tables"
    assert (once.visits, once.p) == (1, None)
    assert (learned.first_solved, learned.last_solved, learned.first_share, learned.last_share) == (3, 6, 0.0, 1.0)
    assert found.lines[2].task is not None and found.lines[2].task.first_solved is None
    assert [line.text for line in found.lines][:2] == ["What is 0 * 5?", "What is 1 * 5?"]
    assert [line.category for line in found.lines] == ["even", "odd", "even", "odd", "even", "", ""]


def by_hand(visits: list[tuple[int, int]]) -> tuple[float, float]:
    """How often a task with these visits (solved, tries) would be forgotten, and learned, if it never changed."""
    (*_rest, last), first = visits, visits[0]
    before = (sum(solved for solved, _n in visits[:-1]), sum(tries for _solved, tries in visits[:-1]))
    return float(changes([before], [last]).fell[0]), float(changes([first], [last]).rose[0])


def test_words_beyond_chance_say_how_many_chance_would_give(lived: Run) -> None:
    expected = [
        by_hand([(solved, TRIES) for _step, solved in visits if solved is not None])
        for row, visits in LIVES.items()
        if row not in (5, 7)  # without two visits nothing is tested
    ]
    found = task_map(lived).by_chance
    assert found["forgotten"] == pytest.approx(sum(fell for fell, _rose in expected))
    assert found["learned"] == pytest.approx(sum(rose for _fell, rose in expected))
    assert expected[5] == pytest.approx((28 / 8008, 28 / 8008)), "6 of 8, then 4 of 8"


@pytest.mark.parametrize(
    ("visits", "kind"),
    [
        ([(7, 8), (2, 8)], "forgotten"),  # p = 0.041
        ([(7, 8), (3, 8)], "unclear"),  # p = 0.12
        ([(2, 8), (7, 8)], "learned"),
        ([(3, 8), (7, 8)], "unclear"),
        ([(0, 2), (2, 2)], "unclear"),  # p = 1/3: two rollouts can never be beyond chance
        ([(1, 2), (0, 2)], "never"),
        ([(0, 8), (8, 8), (0, 8)], "forgotten"),  # 8 of 16 before, p = 0.022
        ([(0, 8), (8, 8), (3, 8)], "unclear"),
        ([(0, 8), (8, 8), (8, 8), (4, 8)], "unclear"),  # learned, were 4 of 8 not p = 0.077 from 0 of 8
        ([(0, 8), (8, 8), (8, 8), (5, 8)], "learned"),  # p = 0.026
    ],
)
def test_chance_is_left_out_at_its_limit(trained: Make, play: Make, visits: list[tuple[int, int]], kind: str) -> None:
    run = trained()
    for step, (solved, tries) in enumerate(visits, 1):
        for index in range(tries):
            play(run, step, 0, index, row=0, success=float(index < solved))
    (line,) = task_map(run).lines
    assert line.task is not None and line.task.kind == kind, line.task


def test_cells_say_the_share_and_lead_to_the_newest_group(lived: Run) -> None:
    found = task_map(lived)
    assert found.columns == [(visit, visit) for visit in range(1, 5)], (
        "row 3 has four visits, row 5 none with a verdict"
    )
    never = [box and (box.share, box.shade, box.step, box.group) for box in found.lines[2].boxes]
    assert never == [(0.0, 0, 2, 2), (0.5, 3, 5, 2), (0.0, 0, 8, 2), None]
    (half,) = [box for box in found.lines[2].boxes if box and box.step == 5]
    assert half.interval == pytest.approx((0.2152, 0.7848), abs=1e-4), "Wilson's of 4 of 8"
    assert [box and box.step for box in found.lines[6].boxes] == [9, None, None, None]


def test_visits_share_columns_when_there_are_many(trained: Make, play: Make) -> None:
    run = trained()
    for step in range(10, 10 + 2 * COLUMNS):
        play(run, step, step, 0, row=0, success=float(step == 11))
    play(run, 500, 3, 0, row=1, success=1.0)
    found = task_map(run)
    assert found.columns[0] == (1, 2) and found.columns[-1] == (119, 120) and len(found.columns) == COLUMNS
    first, last = found.lines[0].boxes[0], found.lines[0].boxes[-1]
    assert first is not None and first[:1] + first[2:] == (0.5, 1, 2, 11, 11, 10)
    assert last is not None and (last.share, last.since, last.step) == (0.0, 128, 129)
    assert found.lines[1].boxes[0] is not None and not any(found.lines[1].boxes[1:])
    play(run, 501, 0, 0, row=0, success=0.0)
    assert (task_map(run).columns[-1], len(task_map(run).columns)) == ((121, 121), 41), "three visits a column"
    assert columns_of(5, 5) == ([(5, 5)], 1)
    assert columns_of(1, 61)[0][-1] == (61, 61)


def test_kinds_sorts_and_pages(lived: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rows_of(lived, kind="forgotten") == [1]
    assert rows_of(lived, kind="once") == [7] and rows_of(lived, kind="unclear") == [6]
    assert rows_of(lived, sort="need") == [1, 2, 6, 3, 7, 4, 0], "lost and not learned first, learned last"
    assert rows_of(lived, sort="changes")[:2] == [3, 4]
    assert rows_of(lived, sort="gain")[0] == 0 and rows_of(lived, sort="gain")[-1] == 1
    assert rows_of(lived, sort="drop")[:2] == [1, 2]
    assert rows_of(lived, sort="share") == [2, 3, 6, 0, 1, 4, 7]  # 4/24, 16/32, 10/16, 16/24 twice, 19/24, 8/8
    monkeypatch.setattr("webapp.reading.task_map.PER_PAGE", 2)
    assert [rows_of(lived, page=page) for page in (1, 2, 3, 4, 5)] == [[0, 1], [2, 3], [4, 6], [7], []]
    assert task_map(lived, page=9).counts["kept"] == 1 and task_map(lived, page=2).total == 7


def test_only_the_newest_attempt_of_a_step_counts(lived: Run, play: Make) -> None:
    for index in range(TRIES):  # step 7, in which row 1 was forgotten, is played again, with another task
        play(lived, 7, 0, index, row=0, attempt=2, success=1.0)
    lived.attempt = 2
    kinds = {line.task.row: line.task.kind for line in task_map(lived).lines if line.task}
    assert kinds[1] == "kept" and kinds[0] == "learned"
    courses = courses_of(lived)
    assert [visit.step for visit in visits_of(lived, courses, 0, 1)] == [1, 4]
    assert [(visit.step, visit.share) for visit in visits_of(lived, courses, 0, 0)][-1] == (7, 1.0)


def test_what_is_held_out_excluded_or_in_flight_does_not_count(lived: Run, play: Make) -> None:
    play(lived, 9, 0, 0, row=0, success=0.0, held_out=True)
    play(lived, 9, 1, 0, row=0, status="excluded")
    play(lived, 9, 1, 1, row=0, status="running")
    line = task_map(lived).lines[0]
    assert line.task is not None and (line.task.kind, line.task.counted) == ("learned", 24)
    box = line.boxes[3]
    assert box is not None and (box.share, box.shade, box.interval) == (None, None, None)


def test_the_dataset_of_a_stage_is_the_one_at_its_path(lived: Run, make_dataset: Make) -> None:
    first, second = make_dataset(name="first-one"), make_dataset(name="second-one")
    strange = str(second.rows_path).replace(str(second.pk), str(uuid4()))
    courses = Courses([], [0], [str(second.rows_path), str(first.rows_path), strange, "/elsewhere/rows.jsonl"])
    assert [dataset_at(lived, courses, number) for number in range(4)] == [second, first, None, None]


def test_stages_with_other_datasets_have_other_tasks(lived: Run, play: Make, make_dataset: Make) -> None:
    other = make_dataset([{"messages": [{"role": "user", "content": "other"}], "category": "late"}], name="other")
    resolved = lived.resolved | {
        "curriculum": {
            "stages": [
                {"name": "a", "until_step": 20},
                {"name": "b", "data": {"train": str(other.rows_path)}},
            ]
        }
    }
    stages = [{"stage": 1, "of": 2, "name": "a", "began": 0}, {"stage": 2, "of": 2, "name": "b", "began": 20}]
    Run.objects.filter(pk=lived.pk).update(resolved=resolved, health={"stages": stages})
    lived.refresh_from_db()
    for index in range(2):
        play(lived, 21, 0, index, row=0, task="other", success=0.0)
    courses = courses_of(lived)
    assert (courses.begins, courses.numbers, courses.at(20), courses.at(21)) == ([21], [0, 1], 0, 1)
    lines = {(line.task.dataset, line.task.row): line for line in task_map(lived).lines if line.task}
    assert lines[0, 0].task.kind == "learned" and lines[1, 0].task.kind == "once"  # type: ignore[union-attr]
    assert (lines[1, 0].text, lines[1, 0].category, lines[0, 0].text) == ("other", "late", "What is 0 * 5?")


def test_categories_are_summed_over_their_tasks(lived: Run) -> None:
    found = category_map(lived)
    assert [line.text for line in found.lines] == ["even", "odd"]
    even = [box and (box.solved, box.counted) for box in found.lines[0].boxes]
    # step 1: rows 0 and 4; 2: row 2; 3: row 0; 4: row 4; 5: row 2; 6: row 0; 8: row 2; 9: row 4
    assert even == [(8, 16), (0, 8), (8, 8), (3, 8), (4, 8), (8, 8), None, (0, 8), (8, 8)]
    assert all(box is None or box.step is None for box in found.lines[0].boxes)


def test_a_run_that_has_played_nothing_has_no_map_of_categories(trained: Make) -> None:
    found = category_map(trained())
    assert (found.lines, found.columns, found.total) == ([], [], 0)


@pytest.mark.parametrize(
    ("share", "shade"), [(None, None), (0.0, 0), (0.01, 1), (0.25, 2), (0.5, 3), (0.99, 4), (1.0, 5)]
)
def test_shades(share: float | None, shade: int | None) -> None:
    assert shade_of(share) == shade


def text_of(client: Any, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200
    return answer.content.decode()


def test_forgotten_tasks_are_two_clicks_from_the_run(lived: Run, rita: User, client_for: Make) -> None:
    client, base = client_for(rita), f"/p/joust/runs/{lived.pk}/"
    assert f'href="{base}tasks/"' in text_of(client, base)
    page = text_of(client, f"{base}tasks/")
    assert 'href="?kind=forgotten"' in page
    forgotten = text_of(client, f"{base}tasks/?kind=forgotten")
    assert "What is 1 * 5?" in forgotten and "What is 0 * 5?" not in forgotten
    words = "visit 3, step 7: 0 of 8 solved, 0% (0% to 32%)"
    cell = rf'<a href="{base}groups/7/1/" title="{re.escape(words)}"><i data-reward="0"></i>'
    assert re.search(rf'{cell}<span aria-hidden="true">0/8 <small>step 7<br>0%–32%<', forgotten)
    assert [page.index(f"What is {row} * 5?") for row in (1, 2, 6)] == sorted(
        page.index(f"What is {row} * 5?") for row in range(8) if row != 5
    )[:3], "the page opens on what was lost, then on what was not learned"
    assert "row 2" in forgotten and "odd" in forgotten
    assert "8 of 8, at last 0 of 8 · 3 visits · p\u00a0&lt;\u00a00.0001" in forgotten
    assert (
        "<strong>forgotten 1</strong>, about 0.0" in page
        and "6 of 8, at last 4 of 8 · 2 visits · p\u00a0=\u00a00.61" in page
    )
    assert "8 of 8 · 1 visit</span>" in page
    assert "No task is of this kind." not in forgotten
    assert text_of(client, f"{base}tasks/?kind=odd&sort=odd&page=x%00").count("<tr>") == 8
    category = text_of(client, f"{base}tasks/?by=category")
    assert "even" in category and "groups/" not in category


def test_empty_maps_say_why(trained: Make, play: Make, rita: User, client_for: Make) -> None:
    run = trained()
    client, address = client_for(rita), f"/p/joust/runs/{run.pk}/tasks/"
    assert "says which row of a dataset it played" in text_of(client, address)
    play(run, 1, 0, 0, row=0)
    assert "No rollout of this run has a verdict yet" in text_of(client, address)
    play(run, 1, 0, 1, row=0, success=1.0)
    assert "No task is of this kind." in text_of(client, address + "?kind=never")
    assert "seen once" in text_of(client, address)


def test_who_may_read_the_map(lived: Run, rita: User, charlie: User, client_for: Make, make_run: Make) -> None:
    page, api = f"/p/joust/runs/{lived.pk}/tasks/", f"/api/v1/runs/{lived.pk}/tasks"
    for address in (page, api):
        assert client_for(charlie).get(address).status_code == 404
        assert client_for(rita).post(address).status_code == 405
    assert client_for(None).get(page).status_code == 302
    found = client_for(rita).get(api + "?kind=forgotten").json()
    assert (found["total"], found["pages"], found["counts"]["learned"]) == (1, 1, 1)
    (item,) = found["items"]
    assert (item["row"], item["kind"], item["first_solved"], item["last_solved"]) == (1, "forgotten", 1, 4)
    assert (item["visits"], item["first"], item["last"], item["p"]) == (3, [8, 8], [0, 8], pytest.approx(1 / 735471))
    assert set(found["by_chance"]) == {"forgotten", "learned"} and 0 < found["by_chance"]["forgotten"] < 0.1
    assert item["cells"][-1] == {"column": 2, "solved": 0, "counted": 8, "share": 0.0, "step": 7, "group": 1}
    assert found["columns"] == [{"first": visit, "last": visit} for visit in (1, 2, 3)]
    by_category = client_for(rita).get(api + "?by=category").json()["items"]
    assert [item["category"] for item in by_category] == ["even", "odd"] and by_category[0]["row"] is None
    assert client_for(rita).get(api + "?kind=odd").status_code == 422
    assert client_for(rita).get(f"/p/joust/runs/{make_run(kind='sft').pk}/tasks/").status_code == 404


def test_many_visits_are_marks_without_text(trained: Make, play: Make, rita: User, client_for: Make) -> None:
    run = trained()
    for row, visits in ((0, 12), (1, 13)):
        for step in range(1, 1 + visits):
            play(run, step, row, 0, row=row, success=1.0)
        page = text_of(client_for(rita), f"/p/joust/runs/{run.pk}/tasks/")
        assert ("data-worded" in page) is (visits == 12)
    assert (
        f'href="/p/joust/runs/{run.pk}/groups/13/1/" title="visit 13, step 13: 1 of 1 solved, 100% (21% to 100%)"></a>'
        in page
    )


def test_a_page_of_the_longest_map_stays_small(trained: Make, play: Make, rita: User, client_for: Make) -> None:
    run = trained()
    one = play(run, 1, 0, 0, row=0, success=0.0)
    made = [
        Rollout(
            **{f.attname: getattr(one, f.attname) for f in one._meta.concrete_fields if f.attname != "id"}, id=uuid4()
        )
        for _ in range(40 * 61)
    ]
    for at, item in enumerate(made):
        item.step, item.row, item.group = 100 + at // 40, at % 40, at % 40
    Rollout.objects.bulk_create(made)
    page = text_of(client_for(rita), f"/p/joust/runs/{run.pk}/tasks/")
    assert page.count("<td>") == 40 * 31 and len(page.encode()) < 400_000


def test_pages_take_as_many_queries_however_many_tasks(
    lived: Run, play: Make, rita: User, client_for: Make, django_assert_max_num_queries: Make
) -> None:
    for row in range(10, 40):
        play(lived, 9, row, 0, row=row, success=1.0)
    client = client_for(rita)
    with django_assert_max_num_queries(16):
        assert client.get(f"/p/joust/runs/{lived.pk}/tasks/").status_code == 200
