"""Rollouts are found by every filter, in every order, a page at a time."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.http import QueryDict

from tests.webapp.reading.inspector.conftest import BEGAN, ROWS, Played
from webapp.datasets.models import Dataset
from webapp.reading.inspector import finding
from webapp.reading.inspector.filters import SORTS, filters_of, project_scope, run_scope
from webapp.reading.inspector.finding import Bar, Count, View, categories_in, figures_of
from webapp.reading.inspector.page import blocks
from webapp.reading.inspector.saving import chosen_of
from webapp.runs.models import Attempt, Run
from webapp.runs.rollouts.models import Rollout, Turn
from webapp.runs.rollouts.words import numbers_of


def view_of(run: Run, query: str = "") -> View:
    return View(run_scope(run.project, run), filters_of(QueryDict(query)))


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("outcome=failed", {"wrong", "cut", "held"}),
        ("outcome=solved&outcome=partly", {"right", "half"}),
        ("outcome=in_flight", {"open"}),
        ("outcome=excluded", {"lost"}),
        ("outcome=no_verdict", {"mute"}),
        ("tool=calculator", {"right", "wrong"}),
        ("tool=calculator&tool=python", {"right", "wrong", "cut"}),
        ("boundary=environment", {"lost"}),
        ("truncated=yes", {"cut"}),
        ("truncated=no&outcome=failed", {"wrong", "held"}),
        ("held_out=yes", {"held"}),
        ("held_out=no&outcome=failed", {"wrong", "cut"}),
        ("reward_from=0.2&reward_to=0.5", {"wrong", "half", "mute"}),
        ("reward_from=0.2&reward_below=0.5", {"wrong", "mute"}),
        ("part_tool_call_below=1", {"wrong", "cut"}),
        ("part_tool_call_from=0.5", {"right", "wrong"}),
        ("part_none_from=0", set()),
        ("turns_from=2&turns_to=3", {"wrong", "cut"}),
        ("length_to=10", {"right", "wrong"}),
        ("characters_from=40", {"half"}),
        ("duration_from=7", {"open"}),
        ("surprise_from=3", {"lost"}),
        ("advantage_below=0.1", {"right"}),
        ("step_from=2", {"half", "mute", "held", "open"}),
        ("policy_to=0", {"right", "wrong", "cut", "lost"}),
        ("stage=2", set()),
        ("q=9+*+5", {"right", "wrong"}),
        ("q=9+*+5&outcome=failed", {"wrong"}),
        ("q=9+%2A+5+IS+45", {"right"}),
        ("q=天气", {"cut"}),
        ("q=calc", {"right"}),
        ("q=no_such_city", {"half"}),
        ("q=100%25+of", {"half"}),
        ('q="no_such_city"', {"half"}),
        ("q=question+of+m", set()),  # a short word is found as a whole only
        ("q=question+of+mute", {"mute"}),
        ("q=be+brief", set()),  # the system's message is the same everywhere
        ("q=%25", set()),
    ],
)
def test_filters(played: Played, query: str, found: set[str]) -> None:
    view = view_of(played.run, query)
    rows, following = view.page("", 50)
    assert set(played.names(rows)) == found and not following
    assert view.count == Count(len(found))


def say(played: Played, name: str, text: str) -> None:
    """Let the policy of a rollout have said something else."""
    messages = [{"role": "assistant", "content": text}]
    words = numbers_of(played.run.pk, messages)
    played.rows[name].turn_set.filter(number=1).update(messages=messages, words=words)


def test_a_percent_sign_of_a_phrase_is_itself(played: Played) -> None:
    say(played, "mute", "It was 100 - of all things.")
    rows, _following = view_of(played.run, "q=100%25+of").page("", 50)
    assert played.names(rows) == ["half"]


def test_a_phrase_is_found_inside_json_that_a_text_holds(played: Played) -> None:
    say(played, "mute", json.dumps({"said": 'they say "never" there'}))
    rows, _following = view_of(played.run, 'q=say+"never"+there').page("", 50)
    assert played.names(rows) == ["mute"]


def test_a_phrase_without_a_word_is_refused_in_words(played: Played) -> None:
    searched = view_of(played.run, "q=*").searched
    assert searched is not None and "two Chinese characters" in searched.problem


def test_a_search_says_where_turns_of_its_runs_are_not_indexed_yet(
    played: Played, make_run: Callable[..., Run]
) -> None:
    other = make_run(name="other")
    row = Rollout.objects.create(run=other, attempt=1, step=1, group=0, index=0, started_at=BEGAN, seq=1)
    Turn.objects.create(rollout=row, run=other, number=0, messages=[], words=None, seq=1)

    def behind(run: Run) -> bool:
        searched = view_of(run, "q=calculator").searched
        assert searched is not None
        return searched.behind

    assert (behind(played.run), behind(other)) == (False, True)


def test_what_is_saved_is_in_the_order_that_it_was_played(played: Played, make_run: Callable[..., Run]) -> None:
    found, runs = chosen_of(view_of(played.run, "held_out=no&sort=-reward"))
    order = [played.rows[name].pk for name in ("right", "wrong", "cut", "lost", "half", "mute", "open")]
    assert (found, runs) == (order, [played.run])


@pytest.mark.parametrize("sort", [f"{sign}{name}" for name in SORTS for sign in ("", "-")])
def test_every_order_pages_through_all_rows_once(played: Played, sort: str) -> None:
    view, seen, after = view_of(played.run, f"sort={sort}"), [], ""
    for _page in range(20):
        rows, after = view.page(after, 3)
        seen += rows
        if not after:
            break
    assert sorted(played.names(seen)) == sorted(ROWS)
    values = [getattr(row, SORTS[sort.removeprefix("-")].column) for row in seen]
    known = [value for value in values if value is not None]
    assert known == sorted(known, reverse=sort.startswith("-")) and values[len(known) :] == [None] * (8 - len(known))


def test_a_group_stays_together_newest_step_first(played: Played) -> None:
    rows, _after = view_of(played.run).page("", 50)
    assert played.names(rows) == ["half", "mute", "open", "held", "right", "wrong", "cut", "lost"]


@pytest.mark.parametrize("after", ["nonsense", "1~2", f"x~{uuid.UUID(int=7)}", "1~2~3~4~5~6~7", "~~~~~~", "9e999~a"])
def test_a_forged_place_is_the_beginning(played: Played, after: str) -> None:
    for sort in ("", "sort=reward"):
        assert len(view_of(played.run, sort).page(after, 50)[0]) == 8


def test_steps_that_were_played_again_count_once(played: Played) -> None:
    run = played.run
    again = played.rows["half"]
    again.pk, again.attempt = uuid.uuid4(), 2
    again.save(force_insert=True)
    Attempt.objects.create(run=run, number=2, owner="w", started_at=BEGAN, first_step=1, last_step=2)
    rows, _after = view_of(run, "step_from=2").page("", 50)
    assert [row.pk for row in rows] == [again.pk]
    assert view_of(run, "step_from=2&lost=yes").count == Count(5)
    Attempt.objects.create(run=run, number=3, owner="w", started_at=BEGAN, first_step=0, last_step=0)
    assert [row.pk for row in view_of(run, "step_from=2").page("", 50)[0]] == [again.pk], "it has played no step"


def test_stages_bound_the_steps(played: Played) -> None:
    run = played.run
    run.health = {"stages": [{"stage": 1, "began": 0}, {"stage": 2, "began": 1}]}
    assert view_of(run, "stage=1").count == Count(4) and view_of(run, "stage=2").count == Count(4)
    assert view_of(run, "stage=3").count == Count(0)


def test_other_runs_and_projects_are_not_seen(played: Played, make_run: Callable[..., Run]) -> None:
    other = make_run(name="other")
    Rollout.objects.create(run=other, attempt=1, step=1, group=0, index=0, started_at=BEGAN, seq=1)
    assert view_of(other).count == Count(1) and view_of(other, "q=9+*+5").count == Count(0)
    both = project_scope(played.run.project, [])
    assert {run.name for run in both.runs} == {"night", "other"}
    assert View(both, filters_of(QueryDict("q=9+*+5"))).count == Count(2)
    one = project_scope(played.run.project, [str(other.pk), "no id"])
    assert [run.name for run in one.runs] == ["other"] and project_scope(other.project, ["no id"]).runs == []


def test_a_category_is_read_from_the_dataset(
    played: Played, make_dataset: Callable[..., Dataset], tmp_path: Path
) -> None:
    dataset = make_dataset()
    rows = [{"messages": [], "category": "easy" if number % 2 else "hard"} for number in range(8)]
    dataset.rows_path.parent.mkdir(parents=True, exist_ok=True)
    dataset.rows_path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    played.run.config["data"]["train"] = str(dataset.rows_path)
    scope = run_scope(played.run.project, played.run)
    assert categories_in(scope) == [("hard", 4), ("easy", 4)]
    found, _after = view_of(played.run, "category=easy").page("", 50)
    assert {row.row for row in found} == {1, 3, 5, 7}
    played.run.config["data"]["train"] = str(tmp_path / "rows.jsonl")  # not a dataset of the project
    assert categories_in(scope) == [] and view_of(played.run, "category=easy").count == Count(0)


def test_bars_say_how_rollouts_are_spread(played: Played) -> None:
    found = figures_of(view_of(played.run), ["task_success", "tool_call", "never"])
    assert (found.rows, found.sampled) == (8, False)
    by_name = {item.name: item for item in found.histograms}
    assert set(by_name) == {"reward", "turns", "length", "step", "part_task_success", "part_tool_call"}
    assert (by_name["reward"].low, by_name["reward"].high, by_name["reward"].count) == (0.0, 1.0, 6)
    assert sum(bar.count for bar in by_name["reward"].bars) == 6 and by_name["reward"].bars[-1].count == 1
    assert [bar.count for bar in by_name["turns"].bars] == [1] * 8 and by_name["turns"].bars[3] == Bar(4, 4, 1)
    assert [bar.count for bar in by_name["step"].bars] == [4, 4]
    assert found.values["outcome"][0] == ("failed", 3)
    assert found.values["tool"] == [("calculator", 2), ("get_weather", 1), ("python", 1)]
    assert found.values["boundary"] == [("environment", 1)]


def test_many_rows_are_counted_to_a_bound_and_sampled(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "COUNT_MOST", 4)
    monkeypatch.setattr(finding, "SAMPLE", 1)
    view = view_of(played.run)
    assert view.count == Count(4, more=True)
    found = figures_of(view, [])
    assert found.sampled and found.rows < 8
    monkeypatch.setattr(finding, "_expected_rows", lambda _rows: 8)
    row, edge = played.rows["half"], 2**125  # an eighth of all ids
    for index, number in ((8, edge - 1), (9, edge)):
        row.pk, row.index = uuid.UUID(int=number), index
        row.save(force_insert=True)
    chosen, sampled = finding.sample_rows(view_of(played.run))
    ids = {pk.int for pk in chosen.values_list("pk", flat=True)}
    assert sampled and edge - 1 in ids and edge not in ids
    monkeypatch.setattr(finding, "SEARCH_MOST", 1)
    searched = view_of(played.run, "q=9+*+5").searched
    first = min(str(row.pk) for row in Rollout.objects.filter(run=played.run, turn_set__messages__icontains="9 * 5"))
    assert searched is not None and (searched.ids, searched.more) == (f"{{{first}}}", True)
    assert view_of(played.run, "q=9+*+5").count == Count(1, more=True)


def test_of_turns_that_have_the_words_so_many_are_read(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = "q=9+*+5"  # in two turns, each of a rollout of its own
    for most, found in ((3, Count(2)), (2, Count(2, more=True)), (1, Count(1, more=True))):
        monkeypatch.setattr(finding, "READ_MOST", most)
        assert view_of(played.run, asked).count == found


def test_bars_leave_out_what_is_no_number_and_count_every_other_figure_once(played: Played) -> None:
    rows = list(Rollout.objects.filter(run=played.run))
    rewards = [0.0, 0.05, 0.05, 0.1, 0.95, 1.0, float("nan"), float("inf")]
    for row, reward in zip(rows, rewards, strict=True):
        row.reward, row.parts = reward, {"tool_call": reward} if reward < 0.2 else {}
    Rollout.objects.bulk_update(rows, ["reward", "parts"])
    by_name = {item.name: item for item in figures_of(view_of(played.run), ["tool_call", "never"]).histograms}
    reward = by_name["reward"]
    assert (reward.low, reward.high, reward.count) == (0.0, 1.0, 6) and "part_never" not in by_name
    assert {place: bar.count for place, bar in enumerate(reward.bars) if bar.count} == {0: 1, 1: 2, 2: 1, 19: 2}
    assert by_name["part_tool_call"].count == 4 and by_name["part_tool_call"].high == 0.1


def test_every_number_of_a_small_range_has_its_bar() -> None:
    for span in range(1, 20):
        counts: dict[int, int] = {}
        for value in range(span + 1):
            place = min(19, (20 * value) // span)
            counts[place] = counts.get(place, 0) + value + 1
        bars = finding._histogram("turns", 3, 3 + span, counts).bars
        assert [bar.count for bar in bars] == list(range(1, span + 2)) and bars[0].low == 3


def test_bars_of_whole_numbers_have_whole_edges_around_what_they_count() -> None:
    for span in (20, 33, 100, 4097):
        numbers = range(5, 5 + span + 1)
        places = [min(19, (20 * (number - 5)) // span) for number in numbers]
        counts = {place: places.count(place) for place in places}
        bars = finding._histogram("length", 5, 5 + span, counts).bars
        assert len(bars) == 20 and bars[-1].high == 5 + span
        for place, bar in enumerate(bars):
            inside = [n for n in numbers if bar.low <= n and (n < bar.high or place == 19)]
            assert bar.count == len(inside) and bar.low == int(bar.low)


def test_nothing_is_nothing(make_run: Callable[..., Any]) -> None:
    view = view_of(make_run())
    assert view.page("", 50) == ([], "") and view.count == Count(0)
    assert figures_of(view, ["a"]).histograms == []


@pytest.mark.parametrize("sort", [f"{sign}{name}" for name in SORTS for sign in ("", "-")])
def test_each_rollout_has_links_to_those_before_and_after_it_in_the_list(played: Played, sort: str) -> None:
    view = view_of(played.run, f"sort={sort}")
    rows, _more = view.page("", 50)
    names = played.names(rows)
    assert sorted(names) == sorted(ROWS)
    for at, row in enumerate(rows):
        wanted = [names[at - 1]] if at else [], names[at + 1 : at + 2]
        before, after = view.beside(row)
        assert (played.names([before] if before else []), played.names([after] if after else [])) == wanted, names[at]


def test_a_call_that_could_not_be_read_is_found_by_what_was_written(played: Played) -> None:
    turn = Turn.objects.get(rollout=played.rows["mute"], number=1)
    turn.wrote = 'then <tool_call>{"city": "Xanadu%", <'
    turn.words = numbers_of(played.run.pk, turn.messages, turn.wrote)
    turn.save()
    view = view_of(played.run, "q=Xanadu%25")
    rows, _more = view.page("", 5)
    assert played.names(rows) == ["mute"]
    (line,) = blocks(rows, view.filters)[0].lines
    assert line.snippet is not None and (line.snippet.turn, line.snippet.said) == (1, "Xanadu%")
    assert line.snippet.before == 'then <tool_call>{"city": "'
    assert view_of(played.run, "q=Xanadu_").page("", 5)[0] == [], "nothing in it is a pattern"


def test_a_rollout_that_is_no_longer_in_the_view_leads_on_in_it(played: Played) -> None:
    before, after = view_of(played.run, "outcome=failed&sort=reward").beside(played.rows["half"])
    assert before is not None and after is None and played.names([before]) == ["wrong"]
    before, after = view_of(played.run, "q=9+*+5&sort=-reward").beside(played.rows["right"])
    assert before is None and after is not None and played.names([after]) == ["wrong"]
