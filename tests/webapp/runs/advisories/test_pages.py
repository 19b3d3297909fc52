"""Advisories on the run page, in the list of runs and over the API."""

from __future__ import annotations

import html
import json
import re
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.training.doctor.planted import FAULTS, healthy, planted
from tests.webapp.site.run_pages.test_resume_pages import _saved
from webapp.engine.doctor import look
from webapp.runs.advisories.models import Advisory
from webapp.runs.advisories.selectors import advisories_of, checkpoint_before
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint
from webapp.runs.states import RunState

pytestmark = pytest.mark.django_db


@pytest.fixture
def advised(running: Run, record: Any) -> Run:
    record(running, planted(FAULTS["shaping_above_outcome"]))
    look()
    evidence = {"curves": [{"name": "kl", "steps": [3, 4], "values": [0.1, 3.0]}], "rollouts": [], "figures": {}}
    Advisory.objects.create(run=running, code="kl_spike", first=3, last=4, open=False, evidence=evidence)
    return running


def part(client: Client, run: Run, **query: str) -> Any:
    return client.get(reverse("run-advisories", args=[run.project.slug, run.pk]), query)


def test_the_run_page_says_what_was_found_with_its_evidence_and_acts(client: Client, advised: Run, bob: Any) -> None:
    client.force_login(bob)
    page = client.get(reverse("run-detail", args=[advised.project.slug, advised.pk])).content.decode()
    row = Advisory.objects.get(code="shaping_above_outcome")
    assert 'data-kind="error"' in page and "Shaping above the outcome" in page and "since step 30" in page
    assert f"In {row.evidence['figures']['cases']} of {row.evidence['figures']['groups']} groups" in page
    for place in row.evidence["rollouts"]:
        assert reverse("rollout-detail", args=[advised.project.slug, place["id"]]) in page
        assert f"Rollout {place['step']}.{place['group']}.{place['index']}" in page
    assert (
        "?tab=rollouts&amp;step=59" in page
        and f"{reverse('lab', args=[advised.project.slug])}?run={advised.pk}" in page
    )
    assert page.count('data-dialog="stop-dialog"') == 2  # the button of the page and that of the advisory
    assert (
        "1 advisory that is over" in page
        and "KL spike" in page
        and "steps 3 to 4" in page
        and 'data-kind="quiet"' in page
    )


def _diagnoses(page: str) -> list[tuple[str, str]]:
    """The diagnoses of a page: their kinds, and their words."""
    found = re.findall(r'data-diagnosis="(\w+)".*?<p>(.*?)</p>', page, re.S)
    return [(kind, html.unescape(" ".join(re.sub("<[^>]+>", " ", words).split()))) for kind, words in found]


@pytest.mark.parametrize(
    ("code", "steps", "kind", "words"),
    [
        ("", 60, "learning", "Learning Success rose from "),
        ("", 19, "early", "Too early to tell 18 steps can be compared so far, and 20 are needed."),
        ("no_spread", 60, "stuck", "Stuck Zero-variance groups"),
        ("over_optimisation", 60, "gamed", "The reward is gamed Reward rises, success does not"),
        ("shaping_above_outcome", 60, "gamed", "The reward is gamed Shaping above the outcome"),
    ],
)
def test_the_page_answers_first_whether_the_run_learns(
    client: Client, running: Run, record: Any, bob: Any, code: str, steps: int, kind: str, words: str
) -> None:
    facts = list(planted(FAULTS[code]) if code else healthy(seed=2))[:steps]
    record(running, facts)
    look()
    client.force_login(bob)
    page = client.get(reverse("run-detail", args=[running.project.slug, running.pk])).content.decode()
    [(found, said)] = _diagnoses(page)
    assert found == kind and said.startswith(words)
    assert page.index("data-diagnosis") < page.index('id="run-reports"') < page.index('id="run-advisories"')
    assert (
        f"{reverse('lab', args=[running.project.slug])}?run={running.pk}" in page.split("data-diagnosis")[1][:600]
    ) == (kind == "gamed")


def test_a_run_that_was_not_looked_at_has_no_diagnosis(client: Client, running: Run, bob: Any) -> None:
    client.force_login(bob)
    page = client.get(reverse("run-detail", args=[running.project.slug, running.pk])).content.decode()
    assert _diagnoses(page) == [] and 'id="run-diagnosis"' in page


def test_an_open_page_gets_the_new_diagnosis(client: Client, running: Run, record: Any, bob: Any) -> None:
    client.force_login(bob)
    steps = list(healthy(seed=2))
    record(running, steps[:15])
    look()
    first = part(client, running)
    assert _diagnoses(first.content.decode())[0][0] == "early" and 'hx-swap-oob="true"' in first.content.decode()
    shown = {"shown": first.context["advised"].key, "answer": first.context["advised"].answer_key}
    assert html.escape(urlencode(shown)) in first.content.decode()
    assert part(client, running, **shown).status_code == 204
    record(running, steps[15:])
    look()
    later = part(client, running, **shown)
    assert later.status_code == 200 and _diagnoses(later.content.decode())[0][0] == "learning"
    assert later["HX-Reswap"] == "none" and "run-advisories" not in later.content.decode(), "what is unfolded stays"
    chinese = client.get(
        reverse("run-advisories", args=[running.project.slug, running.pk]), headers={"Accept-Language": "zh-CN"}
    )
    assert _diagnoses(chinese.content.decode())[0][1].startswith("正在学习 成功率从前 10 步的 ")


def test_a_viewer_sees_it_without_the_buttons_that_stop_and_pause(client: Client, advised: Run, rita: Any) -> None:
    client.force_login(rita)
    page = part(client, advised).content.decode()
    assert "Shaping above the outcome" in page and "stop-dialog" not in page
    assert reverse("run-pause", args=[advised.project.slug, advised.pk]) not in page


def test_what_is_shown_already_is_not_sent_again(client: Client, advised: Run, bob: Any) -> None:
    client.force_login(bob)
    first = part(client, advised)
    key = first.context["advised"].key
    assert f"shown={key}" in first.content.decode()
    assert part(client, advised, shown=key).status_code == 204
    Advisory.objects.filter(code="shaping_above_outcome").update(open=False)
    assert part(client, advised, shown=key).status_code == 200


def test_a_run_that_has_ended_is_not_asked_about_without_end(client: Client, advised: Run, bob: Any) -> None:
    client.force_login(bob)
    ended = timezone.now() - timedelta(minutes=5)
    Run.objects.filter(pk=advised.pk).update(state=RunState.SUCCEEDED, finished_at=ended)
    assert "hx-get" not in part(client, advised).content.decode().split("</section>")[0]
    Run.objects.filter(pk=advised.pk).update(finished_at=timezone.now())
    shown = part(client, advised).content.decode().split("</section>")[0]
    assert "hx-get" in shown, "its last step is examined soon after its end"


def test_of_many_advisories_fifty_are_shown(running: Run) -> None:
    evidence = {"curves": [], "rollouts": [], "figures": {}}
    Advisory.objects.bulk_create(
        Advisory(run=running, code="kl_spike", first=step, last=step, open=False, evidence=evidence)
        for step in range(51)
    )
    assert [each.first for each in advisories_of(running)] == list(range(50, 0, -1)), "the newest ones"


def test_the_checkpoint_before_a_step_is_the_runs_own_and_not_its_final_model(running: Run, make_run: Any) -> None:
    _saved(make_run(), 9)
    own, later, final = (_saved(running, step) for step in (4, 7, 6))
    Checkpoint.objects.filter(pk=final.pk).update(final=True)
    assert [checkpoint_before(running, step) for step in (4, 5, 7, 8)] == [None, own, own, later]


def test_strangers_and_the_anonymous_learn_nothing(client: Client, advised: Run, charlie: Any) -> None:
    assert part(client, advised).status_code == 302
    client.force_login(charlie)
    assert part(client, advised).status_code == 404
    assert client.post(reverse("run-advisories", args=[advised.project.slug, advised.pk])).status_code in (404, 405)
    assert client.get(f"/api/v1/runs/{advised.pk}/advisories").status_code == 404


def test_the_list_of_runs_counts_the_open_ones(client: Client, advised: Run, make_run: Any, bob: Any) -> None:
    make_run(name="calm", state=RunState.SUCCEEDED)
    client.force_login(bob)
    page = client.get(reverse("run-list", args=[advised.project.slug])).content.decode()
    n = Advisory.objects.filter(open=True).count()
    assert page.count('data-state="warning"') == 1 and f"{n} advisor" in page
    items = client.get(f"/api/v1/projects/{advised.project.slug}/runs").json()["items"]
    assert {item["name"]: item["advisories"] for item in items} == {"planted": n, "calm": 0}


def test_the_api_returns_them_in_the_language_that_was_asked_for(client: Client, advised: Run, bob: Any) -> None:
    client.force_login(bob)
    items = client.get(f"/api/v1/runs/{advised.pk}/advisories").json()["items"]
    first, last = items[0], items[-1]
    assert (first["code"], first["severity"], first["first"], first["last"], first["open"]) == (
        "shaping_above_outcome",
        "stop",
        30,
        59,
        True,
    )
    assert first["curves"][0]["name"] == "inverted_share" and first["curves"][0]["steps"][-1] == 59
    assert len(first["rollouts"]) == 3 and first["acts"] == ["rollouts", "lab", "stop"]
    assert (last["code"], last["open"], last["curves"][0]["title"]) == ("kl_spike", False, "KL divergence")
    chinese = client.get(f"/api/v1/runs/{advised.pk}/advisories", headers={"Accept-Language": "zh-CN"})
    assert chinese.json()["items"][0]["title"] == "塑形压过结果"


def test_charts_know_what_to_mark(client: Client, advised: Run, bob: Any) -> None:
    client.force_login(bob)
    text = html.unescape(part(client, advised).content.decode())
    marks = json.loads(re.search(r'data-marks="(.*?\])"', text, re.DOTALL)[1])  # type: ignore[index]
    assert marks[-1] == {
        "first": 3,
        "last": 4,
        "open": False,
        "severity": "warn",
        "title": "KL spike",
        "names": ["kl"],
    }
    assert (marks[0]["first"], marks[0]["severity"], marks[0]["names"]) == (30, "stop", ["inverted_share"])


def test_the_checkpoint_to_return_to_is_shown_with_it(client: Client, advised: Run, bob: Any, rita: Any) -> None:
    points = {step: _saved(advised, step) for step in (2, 10, 20, 40)}
    Run.objects.filter(pk=advised.pk).update(state=RunState.RUNNING)
    client.force_login(bob)
    page = part(client, advised).content.decode()
    assert "Roll back" not in page and reverse("run-pause", args=[advised.project.slug, advised.pk]) in page
    key = part(client, advised).context["advised"].key
    Run.objects.filter(pk=advised.pk).update(state=RunState.PAUSED)
    page = part(client, advised, shown=key).content.decode()
    assert "Roll back to step 20 and change" in page and f"checkpoint={points[20].pk}" in page
    assert f"checkpoint={points[2].pk}&amp;change=slower" in page, "of the spike at step 3, which is over"
    items = client.get(f"/api/v1/runs/{advised.pk}/advisories").json()["items"]
    assert items[0]["before"] == {"id": str(points[20].pk), "step": 20}
    assert (items[0]["kept"], items[0]["paused"]) == (None, False)
    client.force_login(rita)
    assert "Roll back" not in part(client, advised).content.decode()
