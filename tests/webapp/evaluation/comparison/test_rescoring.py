"""The page of a comparison whose evaluations lack values of the spec: what it says, offers and starts."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest
from django.test import Client
from django.urls import reverse

from tests.chat_stub import Stub, says, stub
from tests.webapp.evaluation.rescoring.conftest import OWN, SOLVED, begun, read, scored, spec, two
from tests.working import done
from webapp.evaluation.rescoring.models import Rescoring, RescoringState
from webapp.evaluation.sharing.services import Query, comparison_save, link_create
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run

__all__ = ["begun", "read", "scored", "spec", "stub", "two"]
pytestmark = pytest.mark.django_db
Maker = Callable[..., Any]
HTMX = {"HTTP_HX_REQUEST": "true"}


def address(name: str, project: Project, two: list[Run], reference: str = "") -> str:
    query = "&".join(f"c={run.pk}" for run in two) + (f"&spec={reference}" if reference else "")
    return f"{reverse(name, args=[project.slug])}?{query}"


def body(two: list[Run], reference: str, **more: str) -> dict[str, Any]:
    return {"c": [str(run.pk) for run in two], "spec": reference, **more}


def test_an_editor_starts_it_and_the_page_then_has_the_rewards(
    project: Project, two: list[Run], spec: Maker, client_for: Callable[..., Client], bob: User
) -> None:
    client, reference = client_for(bob), spec(OWN, SOLVED)
    page = client.get(address("compare", project, two, reference)).content.decode()
    assert "a has not recorded Pattern match with these parameters" in page
    assert "15 recorded rollouts lack values of this spec." in page and "Score the rollouts" in page
    answer = client.post(reverse("compare-rescore", args=[project.slug]), body(two, reference))
    assert answer.status_code == 302
    assert parse_qs(urlparse(answer["Location"]).query) == {"c": [str(run.pk) for run in two], "spec": [reference]}
    made = Rescoring.objects.get()
    assert (made.created_by, made.name, made.runs) == (bob, reference.removeprefix("reward:"), [str(r.pk) for r in two])
    page = client.get(answer["Location"]).content.decode()
    assert "Waiting for a worker to score the recorded rollouts" in page and "Score the rollouts" not in page
    done(made)
    page = client.get(answer["Location"]).content.decode()
    assert "a: Pattern match computed from the transcripts of 8 rollouts." in page
    assert 'id="to-score"' not in page and "Pattern match" in page
    for found in ("compare-report", "compare-figures-csv"):
        text = client.get(address(found, project, two, reference)).content.decode()
        assert ("computed from the transcripts of 8 rollouts" in text) == (found == "compare-report")
    rows = list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))
    means = {(row["run"], row["figure"]): float(row["value"]) for row in rows}
    assert means["a", "reward"] == pytest.approx(0.5625) and means["b", "reward"] == pytest.approx(1.3125)
    assert means["a", "rewards/regex_match"] == pytest.approx(0.375)


def test_the_box_changes_in_place_and_the_page_loads_again_in_the_end(
    project: Project, two: list[Run], spec: Maker, client_for: Callable[..., Client], bob: User, rita: User
) -> None:
    client, reference = client_for(bob), spec(OWN, SOLVED)
    answer = client.post(reverse("compare-rescore", args=[project.slug]), body(two, reference), **HTMX)
    made = Rescoring.objects.get()
    progress = reverse("compare-rescoring", args=[project.slug, made.pk])
    assert answer.status_code == 200 and f'hx-get="{progress}"' in answer.content.decode()
    assert "HX-Refresh" not in client.get(progress)
    Rescoring.objects.update(state=RescoringState.SCORING, progress={"done": 1500, "total": 6000})
    shown = client_for(rita).get(progress).content.decode()
    assert "25% · 1,500 of 6,000 rollouts" in " ".join(shown.split()) and "Cancel" not in shown
    assert "Cancel" in client.get(progress).content.decode()
    done(made)
    Rescoring.objects.update(state=RescoringState.DONE)
    assert client.get(progress)["HX-Refresh"] == "true"


def test_it_is_cancelled_and_can_be_started_again(
    project: Project, two: list[Run], spec: Maker, begun: Maker, client_for: Callable[..., Client], bob: User
) -> None:
    reference = spec(OWN, SOLVED)
    made, client = begun(two, reference), client_for(bob)
    cancel = reverse("compare-rescoring-cancel", args=[project.slug, made.pk])
    assert client.post(cancel, **HTMX)["HX-Refresh"] == "true"
    made.refresh_from_db()
    assert made.state == RescoringState.CANCELLED
    page = client.get(address("compare", project, two, reference)).content.decode()
    assert "It was cancelled; the scores so far are kept." in page and "Score the rollouts" in page
    assert begun(two, reference) != made


def test_a_failure_is_shown_with_what_to_do(
    project: Project, two: list[Run], spec: Maker, begun: Maker, client_for: Callable[..., Client], bob: User
) -> None:
    reference = spec(OWN, SOLVED)
    begun(two, reference)
    error = {"code": "rescoring_failed", "boundary": "reward", "message": "The process ended early."}
    Rescoring.objects.update(state=RescoringState.FAILED, error=error)
    page = " ".join(client_for(bob).get(address("compare", project, two, reference)).content.decode().split())
    assert "The recorded rollouts could not be scored. The scores so far are kept" in page
    assert "The process ended early." in page


def test_what_failed_for_all_is_offered_as_another_try(
    project: Project, two: list[Run], spec: Maker, scored: Maker, client_for: Callable[..., Client], bob: User
) -> None:
    reference = spec({"name": "task_success", "weight": 1.0, "params": {}})
    scored(two, reference)
    page = client_for(bob).get(address("compare", project, two, reference)).content.decode()
    assert "Some rollouts could not be scored" in page and "Try again" in page
    reason = "<code>task_success</code> has no value for this episode."
    assert f"a: 8 rollouts have no value of Task success: {reason}" in page


def test_a_judge_is_named_before_the_button(
    project: Project,
    two: list[Run],
    spec: Maker,
    client_for: Callable[..., Client],
    bob: User,
    stub: Stub,
    settings: Any,
) -> None:
    settings.OUTBOUND_ALLOW = [*settings.OUTBOUND_ALLOW, f"127.0.0.1:{stub.server_address[1]}"]
    stub.replies = [says('{"score": 5}')]
    judge = {"name": "judge", "weight": 1.0, "params": {"url": stub.url, "model": "gpt-oss"}}
    client, reference = client_for(bob), spec(judge)
    asks = "It asks gpt-oss up to 15 times, which takes time and may cost money."
    page = client.get(address("compare", project, two, reference)).content.decode()
    assert asks in page and 'name="confirmed"' in page
    rescore = reverse("compare-rescore", args=[project.slug])
    refused = client.post(rescore, body(two, reference), **HTMX)
    assert refused.status_code == 422 and asks in refused.content.decode()
    assert client.post(rescore, body(two, reference), follow=True).content.decode().count(asks) == 2
    assert not Rescoring.objects.exists()
    client.post(rescore, body(two, reference, confirmed="yes"))
    assert Rescoring.objects.count() == 1


def test_readers_see_what_lacks_and_start_nothing(
    project: Project, two: list[Run], spec: Maker, client_for: Callable[..., Client], rita: User
) -> None:
    reference = spec(OWN, SOLVED)
    page = client_for(rita).get(address("compare", project, two, reference)).content.decode()
    assert "Editors of this project can start that." in page and "Score the rollouts" not in page
    answer = client_for(rita).post(reverse("compare-rescore", args=[project.slug]), body(two, reference))
    assert answer.status_code == 403 and not Rescoring.objects.exists()


def test_a_shared_link_shows_what_was_computed_and_starts_nothing(
    project: Project, two: list[Run], spec: Maker, scored: Maker, alice: User, client: Client
) -> None:
    reference = spec(OWN, SOLVED)
    saved = comparison_save(
        project=project, user=alice, name="kept", query=Query([str(run.pk) for run in two], reference)
    )
    secret = link_create(saved=saved, user=alice, days=7)[1]
    before = client.get(reverse("shared", args=[secret])).content.decode()
    assert "has not recorded Pattern match" in before
    assert "<form" not in before and "Score the rollouts" not in before and not Rescoring.objects.exists()
    scored(two, reference)
    after = client.get(reverse("shared", args=[secret])).content.decode()
    assert "b: Pattern match computed from the transcripts of 7 rollouts." in after and "<form" not in after
    assert "0.563" in after or "0.562" in after


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"spec": ""}, "There is no such reward spec"),
        ({"spec": "reward:none@1"}, "There is no such reward spec"),
        ({"spec": "x" * 300}, "There is no such reward spec"),
        ({"c": []}, "None of these runs is an evaluation"),
        ({"c": ["nobody"]}, "Not in this project, or deleted: 1 of the 1 runs."),
        ({"c": [f"{n}" for n in range(20)]}, "8 can be compared at once, and these are 20"),
    ],
)
def test_bad_requests_are_answered_in_a_sentence(
    project: Project,
    two: list[Run],
    spec: Maker,
    client_for: Callable[..., Client],
    bob: User,
    change: dict[str, Any],
    text: str,
) -> None:
    answer = client_for(bob).post(
        reverse("compare-rescore", args=[project.slug]), body(two, spec(OWN, SOLVED)) | change, **HTMX
    )
    assert answer.status_code == 422 and text in answer.content.decode() and not Rescoring.objects.exists()


def test_runs_of_one_spec_can_be_weighed_by_another(
    project: Project, two: list[Run], spec: Maker, client_for: Callable[..., Client], bob: User
) -> None:
    client = client_for(bob)
    page = client.get(address("compare", project, two)).content.decode()
    assert "Weigh the rewards by another spec" in page and 'id="specs-differ"' not in page
    page = client.get(address("compare", project, two, spec(SOLVED))).content.decode()
    assert "Rewards under another spec" in page and 'id="to-score"' in page
