"""Saving a comparison: what is kept of its address, what is refused, and what is shown of runs that went."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from tests.growth import MOST_QUERIES
from webapp.evaluation.comparison import figures
from webapp.evaluation.sharing.models import SavedComparison
from webapp.evaluation.sharing.services import (
    MOST_SAVED,
    Query,
    comment_add,
    comparison_rename,
    comparison_save,
    opened,
    query_of,
)
from webapp.people.teams.models import AuditEntry, Project, Team, User
from webapp.runs.models import Run
from webapp.runs.removal.services import remove
from webapp.runs.states import RunState

pytestmark = pytest.mark.django_db
Evaluation = Callable[..., Run]
HALF = [{"name": "env_success", "weight": 0.5, "params": {}}]


def _address(*runs: Run, more: str = "") -> str:
    return "&".join(f"c={run.pk}" for run in runs) + more


def _save(client: Client, project: Project, name: str, address: str) -> Any:
    return client.post(reverse("compare-save", args=[project.slug]), {"name": name, "address": address})


def test_a_comparison_is_saved_from_its_page_and_opened_by_its_name(
    client_for: Callable[..., Client], bob: User, project: Project, two: tuple[Run, Run]
) -> None:
    client, address = client_for(bob), _address(*two)
    page = client.get(reverse("compare", args=[project.slug]) + "?" + address).content.decode()
    assert 'action="/p/joust/compare/saved/new/"' in page and address.replace("&", "&amp;") in page
    answer = _save(client, project, " week 47 ", address)
    saved = SavedComparison.objects.get()
    assert (answer.status_code, answer["Location"]) == (302, f"/p/joust/compare/saved/{saved.pk}/")
    assert (saved.name, saved.created_by) == ("week 47", bob)
    assert saved.contestants == [{"id": str(run.pk), "name": run.name} for run in two]
    shown = client.get(answer["Location"]).content.decode()
    assert "<h1>week 47</h1>" in shown and "run-b and run-a cannot be told apart" in shown and "saved by bob" in shown
    start = client.get(reverse("compare", args=[project.slug])).content.decode()
    assert "week 47" in start and "run-a, run-b" in start
    assert AuditEntry.objects.filter(action="comparison_saved", subject="week 47", username="bob").count() == 1


def test_the_whole_query_is_kept_and_normalised(
    project: Project, bob: User, evaluation: Evaluation, make_run: Any, make_reward_spec: Any
) -> None:
    trained = make_run(name="trained")
    a, b, c = (evaluation(name, {0: [1], 1: [0]}, components=HALF) for name in "abc")
    make_reward_spec(name="double", components=[{"name": "env_success", "weight": 2.0, "params": {}}])
    # The training run has no place among those that evaluate: the pair 1-2 is b and c.
    address = _address(trained, a, b, c, more="&spec=reward:double&pair=1-2&tasks=both&category=even&page=3&junk=1")
    saved = comparison_save(project=project, user=bob, name="all", query=query_of(project, address))
    assert (saved.spec, saved.spec_name, saved.tasks, saved.category) == ("reward:double@1", "double@1", "both", "even")
    assert saved.pair == [str(b.pk), str(c.pk)]
    found = opened(saved)
    assert found.asked["pair"] == "1-2" and found.found is not None
    assert found.found.task_list is not None
    assert [found.found.task_list.first.run, found.found.task_list.second.run] == [b, c]
    assert "page" not in found.asked and "junk" not in found.asked
    make_reward_spec(name="double", version=2, components=HALF)
    again = opened(saved).found
    assert again is not None and again.rewards is not None and again.rewards.chosen is not None
    assert again.rewards.chosen.components[0].weight == 2.0, "a later version of the spec changed a saved comparison"


def test_the_reader_may_look_at_another_part_without_changing_it(
    client_for: Callable[..., Client], rita: User, project: Project, saved: SavedComparison
) -> None:
    page = client_for(rita).get(reverse("compare-saved", args=[project.slug, saved.pk]) + "?tasks=neither")
    assert page.context["found"].task_list.group == "neither"
    assert SavedComparison.objects.get().tasks == ""
    assert "Rename or delete" not in page.content.decode(), "a viewer is offered what they may not do"


@pytest.mark.parametrize(
    ("more", "part", "sentence"),
    [
        ({"spec": "reward:nothing"}, "spec", "There is no such reward spec"),
        ({"spec": "x" * 300}, "spec", "There is no such reward spec"),
        ({"tasks": "all"}, "tasks", "Choose one of: gained, lost, both, neither, missing."),
        ({"pair": ["x", "y"]}, "pair", "A pair is two of the evaluations"),
    ],
)
def test_a_query_that_means_nothing_is_refused_by_its_part(
    project: Project, bob: User, two: tuple[Run, Run], more: Any, part: str, sentence: str
) -> None:
    query = Query([str(run.pk) for run in two], **more)
    with pytest.raises(ValidationError) as refused:
        comparison_save(project=project, user=bob, name="x", query=query)
    assert list(refused.value.message_dict) == [part] and sentence in refused.value.message_dict[part][0]


def test_fifty_contestants_and_fewer_than_two_are_refused(
    client_for: Callable[..., Client], bob: User, project: Project, two: tuple[Run, Run]
) -> None:
    client = client_for(bob)
    fifty = "&".join(f"c={uuid.uuid4()}" for _n in range(50))
    answer = _save(client, project, "x", fifty)
    assert answer.status_code == 422
    assert "8 can be compared at once, and these are 50; choose fewer." in answer.content.decode()
    one = _save(client, project, "x", _address(two[0], two[0]))
    assert one.status_code == 422 and "Choose at least 2 runs of this project." in one.content.decode()
    for bad in ("", "c=nonsense&c=more", "c=" + "x" * 5000, "&" * 600):
        assert _save(client, project, "x", bad).status_code == 422
    assert not SavedComparison.objects.exists()


def test_runs_of_another_project_are_refused(
    client_for: Callable[..., Client], bob: User, project: Project, two: tuple[Run, Run], team: Team
) -> None:
    """Also of another project of the same team: a comparison belongs to one."""
    other = Project.objects.create(team=team, name="Other", slug="other")
    Run.objects.filter(pk=two[1].pk).update(project=other)
    answer = _save(client_for(bob), project, "x", _address(*two))
    assert answer.status_code == 422 and not SavedComparison.objects.exists()
    assert "Not in this project, or deleted: 1 of the 2 runs." in answer.content.decode()


@pytest.mark.parametrize("name", ["", "<b>", "x" * 81, "week 47"])
def test_a_name_that_is_none_or_taken_comes_back_with_what_was_typed(
    client_for: Callable[..., Client],
    bob: User,
    project: Project,
    saved: SavedComparison,
    two: tuple[Run, Run],
    name: str,
) -> None:
    address = _address(*two)
    answer = _save(client_for(bob), project, name, address)
    assert answer.status_code == 422 and SavedComparison.objects.count() == 1
    assert address.replace("&", "&amp;") in answer.content.decode(), "the comparison itself was forgotten"
    if name == "week 47":
        assert "A saved comparison has this name already" in answer.content.decode()


def test_there_is_an_end_to_saved_comparisons(project: Project, bob: User, saved: SavedComparison) -> None:
    rows = [SavedComparison(project=project, name=str(n), contestants=[]) for n in range(MOST_SAVED - 1)]
    SavedComparison.objects.bulk_create(rows)
    with pytest.raises(ValidationError, match="This project has 200 saved comparisons"):
        comparison_save(project=project, user=bob, name="one more", query=Query(saved.run_ids))
    elsewhere = Project.objects.create(team=project.team, name="Second", slug="second")
    SavedComparison.objects.filter(name="0").update(project=elsewhere)
    comparison_save(project=project, user=bob, name="one more", query=Query(saved.run_ids))


# --- What is gone -----------------------------------------------------------------------------------------------------
def test_a_run_that_was_deleted_is_named(
    client_for: Callable[..., Client], bob: User, project: Project, two: tuple[Run, Run], evaluation: Evaluation
) -> None:
    c = evaluation("run-c", {0: [1, 1], 1: [0, 1], 2: [0, 0], 3: [0, 1]})
    query = Query([str(run.pk) for run in (*two, c)], spec=str(two[0].pk), pair=[str(two[0].pk), str(c.pk)])
    saved = comparison_save(project=project, user=bob, name="three", query=query)
    remove(two[0])
    client = client_for(bob)
    page = client.get(reverse("compare-saved", args=[project.slug, saved.pk])).content.decode()
    assert "Deleted since this comparison was saved, and left out of it: run-a." in page
    assert "The reward spec run-a, by which all tries were weighed, was deleted." in page
    assert "run-b and run-c cannot be told apart" in page
    start = client.get(reverse("compare", args=[project.slug])).content.decode()
    assert "run-b, run-c" in start and "deleted: run-a" in start
    remove(two[1])
    rest = client.get(reverse("compare-saved", args=[project.slug, saved.pk])).content.decode()
    assert "Fewer than two of its runs are left" in rest and "left out of it: run-a, run-b." in rest


def test_a_comparison_by_a_spec_opens_where_no_config_can_be_read_any_more(
    client_for: Callable[..., Client], bob: User, project: Project, two: tuple[Run, Run]
) -> None:
    query = Query([str(run.pk) for run in two], spec=str(two[0].pk))
    saved = comparison_save(project=project, user=bob, name="old", query=query)
    Run.objects.update(resolved={"version": 99})
    answer = client_for(bob).get(reverse("compare-saved", args=[project.slug, saved.pk]))
    assert answer.status_code == 200 and answer.context["found"].rewards is None


def test_a_saved_comparison_does_not_keep_a_run_from_being_deleted(
    saved: SavedComparison, two: tuple[Run, Run]
) -> None:
    remove(two[0])
    assert not Run.objects.filter(pk=two[0].pk).exists() and SavedComparison.objects.filter(pk=saved.pk).exists()


def test_it_follows_an_evaluation_that_continues(
    client_for: Callable[..., Client], bob: User, project: Project, two: tuple[Run, Run], saved: SavedComparison
) -> None:
    Run.objects.filter(pk=two[0].pk).update(state=RunState.RUNNING)
    page = client_for(bob).get(reverse("compare-saved", args=[project.slug, saved.pk])).content.decode()
    assert "run-a is not done: 4 of 4 tasks so far." in page


# --- Renaming and deleting --------------------------------------------------------------------------------------------
def test_the_author_and_owners_rename_and_delete(
    client_for: Callable[..., Client], alice: User, bob: User, project: Project, saved: SavedComparison
) -> None:
    rename = reverse("compare-rename", args=[project.slug, saved.pk])
    assert client_for(bob).post(rename, {"name": "week 48"}).status_code == 302
    assert client_for(alice).post(rename, {"name": "final"}).status_code == 302
    assert SavedComparison.objects.get().name == "final"
    names = AuditEntry.objects.filter(action="comparison_renamed").order_by("at").values_list("subject", flat=True)
    assert list(names) == ["week 47 → week 48", "week 48 → final"]
    delete = reverse("compare-delete", args=[project.slug, saved.pk])
    assert client_for(alice).post(delete)["Location"] == "/p/joust/compare/"
    assert not SavedComparison.objects.exists() and Run.objects.count() == 2


def test_another_editor_may_not(
    client_for: Callable[..., Client], alice: User, bob: User, project: Project, two: tuple[Run, Run]
) -> None:
    query = Query([str(run.pk) for run in two])
    saved = comparison_save(project=project, user=alice, name="alices", query=query)
    for act, body in (("compare-rename", {"name": "bobs"}), ("compare-delete", {})):
        address = reverse(act, args=[project.slug, saved.pk])
        assert (
            client_for(bob).post(address, body).status_code == 403 and client_for(bob).get(address).status_code == 405
        )
    assert SavedComparison.objects.get().name == "alices"


def test_an_author_who_only_reads_now_may_not(
    client_for: Callable[..., Client], bob: User, project: Project, saved: SavedComparison
) -> None:
    bob.memberships.update(role="viewer")
    assert client_for(bob).post(reverse("compare-delete", args=[project.slug, saved.pk])).status_code == 403


def test_a_taken_name_is_reported_and_kept_in_the_form(
    client_for: Callable[..., Client], bob: User, project: Project, saved: SavedComparison
) -> None:
    comparison_save(project=project, user=bob, name="other", query=Query(saved.run_ids))
    answer = client_for(bob).post(reverse("compare-rename", args=[project.slug, saved.pk]), {"name": "other"})
    assert answer.status_code == 422 and SavedComparison.objects.filter(name="week 47").exists()
    text = answer.content.decode()
    assert "A saved comparison has this name already" in text and 'value="other"' in text
    assert "<h1>week 47</h1>" in text, "the page is still that of the comparison under its name"
    with pytest.raises(ValidationError):
        comparison_rename(saved, "other")
    assert saved.name == "week 47"


def test_the_newest_are_first_and_older_ones_are_folded(
    client_for: Callable[..., Client], rita: User, bob: User, project: Project, saved: SavedComparison
) -> None:
    for number in range(6):
        comparison_save(project=project, user=bob, name=f"night {number}", query=Query(saved.run_ids))
    page = client_for(rita).get(reverse("compare", args=[project.slug])).content.decode()
    order = [page.index(f">{name}</a>") for name in [f"night {n}" for n in range(5, -1, -1)] + ["week 47"]]
    assert order == sorted(order) and "2 older ones" in page


def test_how_many_queries_the_pages_need(
    client_for: Callable[..., Client],
    bob: User,
    project: Project,
    saved: SavedComparison,
    django_assert_max_num_queries: Any,
) -> None:
    for number in range(6):
        comparison_save(project=project, user=bob, name=f"night {number}", query=Query(saved.run_ids))
    client = client_for(bob)
    for address in (reverse("compare", args=[project.slug]), reverse("compare-links", args=[project.slug, saved.pk])):
        with django_assert_max_num_queries(15):
            assert client.get(address).status_code == 200


@pytest.mark.parametrize("junk", ["pair=9-1", "pair=0-0", "pair=0", "pair=x-y", "pair=-1-0", "tasks=all"])
def test_an_address_is_read_as_its_page_reads_it(project: Project, two: tuple[Run, Run], junk: str) -> None:
    """What the page does not understand it ignores; the person who saves it sees no error that they cannot fix."""
    query = query_of(project, _address(*two, more="&pair=0-1&tasks=lost"))
    assert (query.pair, query.tasks) == ([str(run.pk) for run in two], "lost")
    strange = query_of(project, _address(*two, more=f"&{junk}"))
    assert (strange.pair, strange.tasks) == ([], "")


def test_a_saved_comparison_is_read_in_few_queries(
    client_for: Callable[..., Client], bob: User, saved: SavedComparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the first time, with its comments and the tasks that only one of them solves."""
    client, address = client_for(bob), reverse("compare-saved", args=["joust", saved.pk])
    comment_add(saved=saved, user=bob, text="ship it")
    client.get(address)
    monkeypatch.setattr(figures, "_kept", OrderedDict())
    with CaptureQueriesContext(connection) as caught:
        page = client.get(address).content.decode()
    assert len(caught) <= MOST_QUERIES and 'id="examples"' in page and "ship it" in page, len(caught)
