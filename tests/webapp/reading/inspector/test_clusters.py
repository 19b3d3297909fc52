"""Failures are sorted by their cause, and each cause is a filter, with what some of its rollouts say."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any
from uuid import UUID

import pytest
from django.http import QueryDict
from django.test import Client
from django.urls import reverse

from tests.growth import MOST_QUERIES, queries_of
from tests.markup import dense
from tests.webapp.reading.inspector.conftest import BEGAN, LATE
from webapp.people.teams.models import User
from webapp.reading.inspector import causes, clusters
from webapp.reading.inspector.causes import cause_title, runs_with_calls
from webapp.reading.inspector.clusters import Clusters, clusters_of
from webapp.reading.inspector.filters import filters_of, project_scope, run_scope
from webapp.reading.inspector.finding import View
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, Turn

Made = Callable[..., Rollout]


def view_of(run: Run, query: str = "") -> View:
    return View(run_scope(run.project, run), filters_of(QueryDict(query)))


def counted(run: Run, query: str = "") -> dict[str, int]:
    """How many rollouts have each cause."""
    return {item.cause: item.count for item in clusters_of(view_of(run, query)).items}


@pytest.fixture
def run(make_run: Callable[..., Run]) -> Run:
    return make_run(name="night", state="succeeded", attempt=1, step=20)


@pytest.fixture
def make(run: Run) -> Made:
    """Makes a failed rollout of the run, each of another group; ``says`` are the messages of its one turn."""
    places = iter(range(10_000))

    def made(*says: dict[str, str], step: int = 1, **fields: Any) -> Rollout:
        known: dict[str, Any] = {
            "status": "completed",
            "outcome": "failed",
            "calls": 1,
            "failed_calls": 0,
            "reward": 0.0,
        }
        rollout = Rollout.objects.create(
            run=run, attempt=1, step=step, group=next(places), index=0, task="What is 9 * 5?", started_at=BEGAN, seq=1,
            **known | fields,
        )  # fmt: skip
        Turn.objects.create(rollout=rollout, run=run, number=0, messages=[{"role": "user", "content": "?"}], seq=1)
        if says:
            Turn.objects.create(rollout=rollout, run=run, number=1, messages=list(says), seq=1)
        return rollout

    return made


def say(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"status": "excluded", "outcome": "excluded", "error": LATE}, "error:environment_timeout"),
        ({"status": "excluded", "outcome": "excluded", "error": None}, "error:"),
        (
            {"status": "excluded", "outcome": "excluded", "error": LATE, "env_parts": {"an_error": 1}},
            "error:environment_timeout",
        ),
        ({"env_parts": {"bfcl_error/state": 1.0, "valid": 0.0}, "status": "truncated"}, "named:bfcl_error/state"),
        ({"env_parts": {"error_b": 1, "error_a": 0.5, "error_c": 0}}, "named:error_a,error_b"),
        ({"status": "truncated", "parse_errors": 1}, "cut"),
        ({"parse_errors": 1, "failed_calls": 1, "tools": ["calculator"]}, "unreadable"),
        ({"failed_calls": 2, "tools": ["calculator"], "env_parts": {"valid": 0}}, "call_failed:calculator"),
        ({"failed_calls": 2, "tools": ["calculator", "python"]}, "call_failed"),
        ({"failed_calls": 2, "tools": []}, "call_failed"),
        ({"calls": 0, "env_parts": {"valid": 0}}, "no_call"),
        ({"env_parts": {"r_type": 0.0, "r_att": -0.5, "r_price": 0.01, "task_success": 0}}, "zero:r_att,r_type"),
        ({"env_parts": {"task_success": 0}}, "answer:silent"),
        ({"env_parts": {"r_type": None}}, "answer:silent"),
        ({"calls": None, "failed_calls": None}, "answer:silent"),
        ({"outcome": "partly", "status": "truncated"}, "cut"),
    ],
)  # fmt: skip
def test_a_failure_has_the_first_cause_that_is_recorded(run: Run, make: Made, fields: Any, cause: str) -> None:
    make(outcome="solved", reward=1.0)
    failed = make(**fields)
    assert counted(run) == {cause: 1}
    assert [row.pk for row in view_of(run, f"cause={cause}").rows] == [failed.pk]


@pytest.mark.parametrize("outcome", ["solved", "no_verdict", "in_flight"])
def test_other_outcomes_have_no_cause(run: Run, make: Made, outcome: str) -> None:
    make(outcome=outcome, status="truncated", parse_errors=3)
    found = clusters_of(view_of(run))
    assert (found.failed, found.judged, list(found.items)) == (0, int(outcome == "solved"), [])
    assert not view_of(run, "cause=cut").rows.exists()


@pytest.mark.parametrize(
    ("text", "expected", "kind"),
    [
        ("", "45", "silent"),
        ("  \n", "45", "silent"),
        ("I do not know.", "45", "no_number"),
        ("It is 54.", "45", "other_number"),
        ("It is 45.0", "45", "held"),
        ("It is 1,053 metres", "1053", "held"),
        ("结果是54。", "45", "other_number"),
        ("Rome", "Paris", "other_words"),
        ("It is paris.", "Paris", "held"),
        ("Parisian", "Paris", "other_words"),
        ("a dog", "A", "held"),
        ("bad", "A", "other_words"),
        ("在北京市", "北京", "held"),
        ("12:31", "12:30", "other_words"),
        ("It is 54.", "", "unknown"),
        ("It is 54.", '{"value": 45}', "unknown"),
        ("It is 54.", "[45]", "unknown"),
    ],
)
def test_the_kind_of_an_answer(run: Run, make: Made, text: str, expected: str, kind: str) -> None:
    make(say(text), expected=expected)
    assert counted(run) == {f"answer:{kind}": 1}


def test_where_no_rollout_calls_tools_no_call_is_no_cause(run: Run, make: Made) -> None:
    make(say("It is 54."), calls=0, expected="45")
    assert counted(run) == {"answer:other_number": 1}
    assert not Run.objects.filter(pk__in=runs_with_calls([run])).exists()
    make(outcome="solved", calls=1)
    assert counted(run) == {"no_call": 1}


def test_the_largest_comes_first_and_equal_ones_by_name(run: Run, make: Made) -> None:
    for fields in ({"status": "truncated"}, {"parse_errors": 1}, {"calls": 0}, {"calls": 0}):
        make(**fields)
    make()  # calls a tool
    assert list(counted(run).items()) == [("no_call", 2), ("answer:silent", 1), ("cut", 1), ("unreadable", 1)]


def test_more_causes_than_are_listed_are_counted(run: Run, make: Made) -> None:
    for number in range(clusters.MOST_CLUSTERS):
        for _each in range(2):
            make(failed_calls=1, tools=[f"tool{number}"])
    assert (clusters_of(view_of(run)).others, clusters_of(view_of(run)).other_rollouts) == (0, 0)
    make(parse_errors=1)
    make(status="truncated")
    make(status="truncated", outcome="partly")
    found = clusters_of(view_of(run))
    assert (len(found.items), found.failed, found.others, found.other_rollouts) == (clusters.MOST_CLUSTERS, 19, 2, 3)


def test_the_trend_counts_all_judged_rollouts_of_its_steps(run: Run, make: Made) -> None:
    for step in range(1, 25):
        make(step=step, status="truncated", outcome="failed" if step <= 12 else "solved")
        if step != 3 and step != 4:
            make(step=step, outcome="solved")
    (cut,) = clusters_of(view_of(run)).items
    assert cut.shares == [0.5, 1.0, *[0.5] * 4, *[0.0] * 6]
    assert (cut.first, cut.last) == ((2, 4), (0, 4))


def test_steps_without_a_judged_rollout_have_no_share_and_one_step_no_trend(run: Run, make: Made) -> None:
    make(step=7, status="truncated")
    (only,) = clusters_of(view_of(run)).items
    assert list(only.shares) == []
    make(step=9, status="truncated")
    (both,) = clusters_of(view_of(run)).items
    assert both.shares == [1.0, None, 1.0]


def quotes(found: Clusters) -> list[tuple[str, str]]:
    return [(quote.text, quote.expected) for quote in found.items[0].quotes]


def test_quotes_are_the_newest_of_different_groups(run: Run, make: Made) -> None:
    for number in range(5):
        make(say(f"It is {number}."), step=1 + number // 2, expected="45")
    assert quotes(clusters_of(view_of(run))) == [("It is 4.", "45"), ("It is 2.", "45"), ("It is 3.", "45")]
    newest = Rollout.objects.get(step=3)
    for index, text in enumerate(("It is 6.", "It is 7."), 1):
        Turn.objects.create(
            rollout=make(step=3, expected="45"), run=run, number=1, messages=[say(text)], seq=1,
        )  # fmt: skip
        Rollout.objects.filter(step=3).exclude(pk=newest.pk).update(group=newest.group, index=index)
    assert [text for text, _ in quotes(clusters_of(view_of(run)))][1:] == ["It is 2.", "It is 3."]
    Rollout.objects.filter(step__lt=3).delete()
    assert {text for text, _ in quotes(clusters_of(view_of(run)))} == {"It is 4.", "It is 6.", "It is 7."}


def test_of_one_step_the_groups_are_quoted_in_their_order(run: Run, make: Made) -> None:
    for number in range(5):
        make(say(f"It is {number}."), expected="45", id=UUID(int=9 - number))
    assert [text for text, _ in quotes(clusters_of(view_of(run)))] == ["It is 0.", "It is 1.", "It is 2."]


def test_a_failed_call_is_quoted_with_its_error_and_an_exclusion_with_its_reason(run: Run, make: Made) -> None:
    error = {"role": "tool", "content": "Error: division by zero", "name": "calculator"}
    make(
        say("I divide."), error, {"role": "tool", "content": "45"}, say("Sorry."), failed_calls=1, tools=["calculator"]
    )
    assert quotes(clusters_of(view_of(run))) == [("Error: division by zero", "")]
    make(outcome="excluded", status="excluded", error=LATE | {"message": "no answer in 30 s"})
    assert quotes(clusters_of(view_of(run, "outcome=excluded"))) == [("no answer in 30 s", "")]


def test_other_filters_hold_and_that_of_the_cause_does_not_narrow_what_is_counted(run: Run, make: Made) -> None:
    make(step=1, status="truncated")
    make(step=2, status="truncated")
    make(step=2, parse_errors=1)
    assert counted(run, "step_from=2&cause=cut") == {"cut": 1, "unreadable": 1}
    assert view_of(run, "step_from=2&cause=cut").rows.count() == 1
    assert not view_of(run, "cause=nothing+like+this").rows.exists()
    assert not view_of(run, "cause=answer:nothing").rows.exists()


def test_only_so_many_answers_are_read_for_a_filter(run: Run, make: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (1, 2, 3):
        make(say("It is 54."), step=step, expected="45")
    monkeypatch.setattr("webapp.reading.inspector.finding.SEARCH_MOST", 2)
    assert sorted(view_of(run, "cause=answer:other_number").rows.values_list("step", flat=True)) == [2, 3]


def test_a_sample_is_said_to_be_one(run: Run, make: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    make(status="truncated")
    assert not clusters_of(view_of(run)).sampled
    monkeypatch.setattr(clusters, "sample_rows", lambda view, whole: (view.rows, True))
    assert clusters_of(view_of(run)).sampled


def test_causes_have_titles() -> None:
    assert cause_title("call_failed:计算器") == "计算器 answered with an error"
    assert cause_title("zero:r_att,r_type") == "The environment gave 0 for r_att, r_type"
    assert cause_title("zero:r_att,r_type,+3") == "The environment gave 0 for r_att, r_type and 3 more"
    assert cause_title("zero:7") == "The environment gave 0 for 7"
    assert cause_title("named:bfcl_error/state") == "The environment names bfcl_error/state"
    assert cause_title("error:environment_timeout") != "environment_timeout"
    assert cause_title("error:") == "It failed outside the policy, and no reason is recorded"
    assert all(cause_title(cause) != cause for cause in causes.TITLES)
    assert cause_title("unheard of") == "unheard of"


# --- Pages ----------------------------------------------------------------------------------------------------------


def test_the_list_asks_for_the_causes_only_where_something_failed(
    run: Run, make: Made, rita: User, client_for: Callable[..., Client]
) -> None:
    address = reverse("run-rollouts", args=[run.project.slug, run.pk])
    make(outcome="solved")
    assert "rollouts/causes/" not in client_for(rita).get(address).content.decode()
    make(outcome="partly")
    assert (
        f'hx-get="{address}causes/?outcome=partly"'
        in client_for(rita).get(f"{address}?outcome=partly").content.decode()
    )
    assert "rollouts/causes/" not in client_for(rita).get(f"{address}?outcome=solved").content.decode()


def test_the_part_shows_causes_quotes_and_where_to_go(
    run: Run, make: Made, rita: User, client_for: Callable[..., Client]
) -> None:
    rollout = make(say("It is <b>54</b>."), expected="45", step=1)
    make(outcome="solved", step=2)
    address = reverse("run-rollouts-causes", args=[run.project.slug, run.pk])
    page = unescape(
        dense(client_for(rita).get(f"{address}?step_to=9", headers={"HX-Request": "true"}).content.decode())
    )
    assert "<html" not in page and "1 of 2 did not solve their task" in page
    assert "Another number than expected" in page and "first 1 of 1, last 0 of 1" in page
    assert "It is <b>54</b>." in page and "expected: 45" in page
    assert f"/rollouts/{rollout.pk}/" in page
    assert "?step_to=9&cause=answer%3Aother_number" in page or "cause=answer%3Aother_number&step_to=9" in page
    whole = client_for(rita).get(address)
    assert b"<html" in whole.content and b"&lt;b&gt;54" in whole.content and b"<b>54" not in whole.content


def test_who_may_only_look_gets_no_buttons_that_save(
    run: Run, make: Made, bob: User, rita: User, client_for: Callable[..., Client]
) -> None:
    make(status="truncated")
    address = reverse("run-rollouts-causes", args=[run.project.slug, run.pk])
    assert b"kind=lab" in client_for(bob).get(address).content
    shown = client_for(rita).get(address).content
    assert b"kind=" not in shown and b"cause=cut" in shown


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (4, "part_000, part_001, part_002, part_003"),
        (5, "part_000, part_001, part_002, part_003 and 1 more"),
        (200, "part_000, part_001, part_002, part_003 and 196 more"),
    ],
)
def test_a_cause_names_four_parts_and_is_a_filter_however_many_there_are(
    run: Run, make: Made, rita: User, client_for: Callable[..., Client], count: int, words: str
) -> None:
    rollout = make(env_parts={f"part_{number:03}": 0.0 for number in range(count)})
    make(env_parts={f"an_error_{'م' * 80}_{number}": 1.0 for number in range(9)})
    address = reverse("run-rollouts", args=[run.project.slug, run.pk])
    page = unescape(dense(client_for(rita).get(f"{address}causes/").content.decode()))
    assert f"The environment gave 0 for {words}</h3>" in page and "The environment names an_error_م" in page
    links = re.findall(r'href="([^"]+)">Show it<', page)
    found = [client_for(rita).get(link).content.decode() for link in links]
    assert len(links) == 2 and all(text.count('class="found-row"') == 1 for text in found)
    assert str(rollout.pk) in found[1]


def test_the_page_of_all_causes_has_three_in_full_and_that_of_one_has_only_it(
    run: Run, make: Made, rita: User, client_for: Callable[..., Client]
) -> None:
    for number in range(9):
        for _each in range(9 - number):
            make(failed_calls=1, tools=[f"tool{number}"])
    address = reverse("run-rollouts-causes", args=[run.project.slug, run.pk])
    answer = client_for(rita).get(address)
    assert "HX-Request" in answer["Vary"], "a part that a browser keeps is not the page"
    page = dense(answer.content.decode())
    seen, folded = page.split('<details class="more-causes">')
    assert [part.count("answered with an error</h3>") for part in (seen, folded)] == [3, 5]
    assert "1 more cause is not listed (rollouts: 1)." in page and "All causes" not in page
    one = dense(client_for(rita).get(f"{address}?cause=call_failed:tool4").content.decode())
    assert one.count("answered with an error</h3>") == 1 and "tool4 answered with an error" in one
    assert "more cause" not in one and "All causes" in one and "45 of 45 did not solve their task" in one


def test_the_pages_that_save_begin_with_the_kind_that_was_asked_for(
    run: Run, make: Made, bob: User, client_for: Callable[..., Client]
) -> None:
    make(status="truncated")
    address = reverse("run-rollouts-save", args=[run.project.slug, run.pk])
    for asked, chosen in (("lab", "lab"), ("tasks", "tasks"), ("nothing", "view"), ("", "view")):
        page = dense(client_for(bob).get(f"{address}?cause=cut&kind={asked}").content.decode())
        assert re.findall(r'value="(\w+)"[^>]*checked', page) == [chosen]


def test_the_questions_to_the_database_do_not_grow_with_the_failures(
    run: Run, make: Made, rita: User, client_for: Callable[..., Client]
) -> None:
    address = reverse("run-rollouts-causes", args=[run.project.slug, run.pk])
    client = client_for(rita)
    make(say("54"), expected="45")
    make(failed_calls=1, tools=["a"])
    few = queries_of(client, address)
    for number in range(30):
        make(say(str(number)), expected="99", step=number)
        make(failed_calls=1, tools=[f"t{number}"])
    assert queries_of(client, address) == few <= MOST_QUERIES


def test_causes_of_a_projects_runs(make_run: Callable[..., Run], run: Run, make: Made) -> None:
    make(status="truncated")
    other = make_run(name="day", state="succeeded", attempt=1, step=1)
    Rollout.objects.create(
        run=other, attempt=1, step=1, group=0, index=0, status="truncated", outcome="failed", started_at=BEGAN, seq=1
    )
    (cut,) = clusters_of(View(project_scope(run.project, []), filters_of(QueryDict("")))).items
    assert (cut.cause, cut.count, {quote.rollout.run.name for quote in cut.quotes}) == ("cut", 2, {"night", "day"})
