"""Charts that are pinned to a project's page: over the API, on the page, and off it again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from webapp.runs.models import Run
from webapp.runs.pins.models import PinnedChart
from webapp.runs.pins.services import MOST

pytestmark = pytest.mark.django_db
CHART = {"key": "reward", "names": ["reward"], "smooth": 0.6, "log": True, "x": "tokens", "stack": False}


def pin(client: Client, run: Run, **over: Any) -> Any:
    return client.post(f"/api/v1/runs/{run.pk}/pins", json.dumps(CHART | over), content_type="application/json")


def test_a_chart_is_pinned_as_it_was_and_shown_on_the_projects_page(make_run: Any, client_for: Any, bob: Any) -> None:
    spec = {"components": [{"name": "task_success", "weight": 1.0}]}
    run = make_run(name="first", config={"kind": "grpo", "rewards": spec}, state="succeeded")
    made = pin(client_for(bob), run)
    assert made.status_code == 201
    found = made.json()
    assert (found["name"], found["title"], found["names"], found["ended"]) == ("first", "Reward", ["reward"], True)
    assert found["view"] == {"smooth": 0.6, "log": True, "x": "tokens", "stack": False}
    assert (found["pinned_by"], found["components"]) == ("bob", {"task_success": "Task success"})
    assert client_for(bob).get(f"/api/v1/projects/{run.project.slug}/pins").json()["items"] == [found]
    page = client_for(bob).get(reverse("project-page", args=[run.project.slug])).content.decode()
    assert f'id="pin-{found["id"]}"' in page and found["url"] in page and "js/pages/project" in page


def test_pinned_again_it_takes_the_new_view(make_run: Any, client_for: Any, bob: Any, alice: Any) -> None:
    run = make_run()
    first = pin(client_for(bob), run).json()
    again = pin(client_for(alice), run, smooth=0, x="step").json()
    assert (again["id"], again["view"]["smooth"], again["pinned_by"]) == (first["id"], 0, "bob")
    assert PinnedChart.objects.count() == 1


def test_a_page_without_pins_fetches_no_charts(make_run: Any, client_for: Any, bob: Any) -> None:
    page = client_for(bob).get(reverse("project-page", args=[make_run().project.slug])).content.decode()
    assert "pins-data" not in page and "js/pages/project" not in page


def test_the_page_has_room_for_twelve_and_says_so(make_run: Any, client_for: Any, bob: Any) -> None:
    run, bob = make_run(), client_for(bob)
    for number in range(MOST):
        assert pin(bob, run, key=f"m/{number}").status_code == 201
    full = pin(bob, run)
    assert full.status_code == 409 and "Unpin one there first" in full.json()["message"]
    assert pin(bob, run, key="m/3", log=False).status_code == 201  # no new one


def test_a_page_shows_and_counts_the_pins_of_its_own_project_and_of_runs_that_are_there(
    make_run: Any, client_for: Any, bob: Any, charlie: Any
) -> None:
    run, gone, bob = make_run(), make_run(), client_for(bob)
    kept = pin(bob, run).json()
    elsewhere = make_run(project=charlie.teams.get().projects.get())
    theirs = pin(client_for(charlie), elsewhere).json()
    for person, of, found in ((bob, run, kept), (client_for(charlie), elsewhere, theirs)):
        assert person.get(f"/api/v1/projects/{of.project.slug}/pins").json()["items"] == [found]
    for number in range(MOST - 1):
        assert pin(bob, gone, key=f"m/{number}").status_code == 201
    Run.objects.filter(pk=gone.pk).update(removed_at=timezone.now())
    assert pin(bob, run, key="m/1").status_code == 201


def test_viewers_see_pins_and_change_none(make_run: Any, client_for: Any, rita: Any, bob: Any) -> None:
    run = make_run()
    found = pin(client_for(bob), run).json()
    rita = client_for(rita)
    assert pin(rita, run).status_code == 403
    assert rita.delete(f"/api/v1/pins/{found['id']}").status_code == 403
    assert rita.post(reverse("pin-remove", args=[run.project.slug, found["id"]])).status_code == 403
    page = rita.get(reverse("project-page", args=[run.project.slug])).content.decode()
    assert found["id"] in page and "Unpin" not in page


def test_strangers_and_those_who_are_not_logged_in(make_run: Any, client_for: Any, charlie: Any, bob: Any) -> None:
    run = make_run()
    found = pin(client_for(bob), run).json()
    stranger = client_for(charlie)
    assert pin(stranger, run).status_code == 404
    assert stranger.get(f"/api/v1/projects/{run.project.slug}/pins").status_code == 404
    assert stranger.delete(f"/api/v1/pins/{found['id']}").status_code == 404
    assert stranger.post(reverse("pin-remove", args=[run.project.slug, found["id"]])).status_code == 404
    assert pin(client_for(None), run).status_code == 401
    assert PinnedChart.objects.count() == 1


def test_unpinned_over_the_api_and_on_the_page(make_run: Any, client_for: Any, bob: Any) -> None:
    run, bob = make_run(), client_for(bob)
    address = f"/api/v1/pins/{pin(bob, run).json()['id']}"
    assert bob.get(address).status_code == 405
    assert bob.delete(address).json() == {"deleted": "reward"} and not PinnedChart.objects.exists()
    assert bob.delete(address).status_code == 404
    remove = reverse("pin-remove", args=[run.project.slug, pin(bob, run).json()["id"]])
    assert bob.get(remove).status_code == 405
    answer = bob.post(remove, follow=True)
    assert "no longer pinned" in answer.content.decode() and not PinnedChart.objects.exists()


def test_the_pins_of_a_deleted_run_are_gone(make_run: Any, client_for: Any, bob: Any) -> None:
    run, bob = make_run(), client_for(bob)
    pin(bob, run)
    Run.objects.filter(pk=run.pk).update(removed_at=timezone.now())
    assert bob.get(f"/api/v1/projects/{run.project.slug}/pins").json()["items"] == []
    assert bob.get(reverse("project-page", args=[run.project.slug])).status_code == 200


@pytest.mark.parametrize(
    "bad",
    [
        {"key": ""},
        {"key": "a\x00b"},
        {"names": []},
        {"names": ["x" * 121]},
        {"names": ["x"] * 33},
        {"smooth": 1},
        {"x": "loss"},
        {"colour": "red"},
    ],
)
def test_what_is_no_chart_is_refused(make_run: Any, client_for: Any, bob: Any, bad: dict[str, Any]) -> None:
    assert pin(client_for(bob), make_run(), **bad).status_code == 422
