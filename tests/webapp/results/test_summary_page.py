"""The card on the page of an ended run, and the same facts over the API."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.growth import MOST_QUERIES, queries_of
from tests.webapp.results.conftest import Ended, points
from tests.webapp.results.test_advice import found
from tests.webapp.site.run_pages.test_resume_pages import _saved
from webapp.results.summary import ENDED
from webapp.runs.models import Run, RunEvent
from webapp.runs.registry.models import Checkpoint
from webapp.runs.states import RunState

pytestmark = pytest.mark.django_db
NEWEST = {"step": 18, "success": 0.5, "low": 0.4, "high": 0.6}
BEST = {"step": 12, "success": 0.75, "low": 0.62, "high": 0.85}


@pytest.fixture
def learned(ended: Ended) -> Run:
    """20 steps from 20% to 80%, with held-out tasks, checkpoints, a finished model and two advisories."""
    health = {"held_out": {"tasks": 40, "newest": NEWEST, "best": BEST}}
    run = ended(success=[0.2, 0.2, *[0.5] * 16, 0.8, 0.8], reward=[0.4] * 10 + [0.9] * 10, health=health)
    points(run, "heldout/success", [0.5, 0.75])
    _saved(run, 12)
    _saved(run, 18)
    final = Checkpoint.objects.get(step=18)
    final.pk, final.path, final.final, final.step = None, "1/model", True, 20
    final.save()
    found(run, "gradient_spike")
    found(run, "collapse", first=15)
    return run


def page_of(client: Client, run: Run) -> str:
    return html.unescape(client.get(reverse("run-detail", args=[run.project.slug, run.pk])).content.decode())


def card_of(page: str) -> str:
    begin = page.index('id="run-summary"')
    return re.sub(r"\s+", " ", page[begin : page.index('id="run-advisories"')])


def fact(card: str, key: str) -> str:
    begin = card.index(f'id="ended-{key}"')
    return re.sub(r"<[^>]+>", " ", card[card.index(">", begin) + 1 : card.index("</div>", begin)]).split("  ", 1)[-1]


def test_an_ended_run_begins_with_what_came_of_it(learned: Run, client_for: Any, bob: Any) -> None:
    page = page_of(client_for(bob), learned)
    card = card_of(page)
    assert "20% → 80%" in fact(card, "rolloutstask_success")
    assert "means of the first 2 and the last 2 of 20 steps" in fact(card, "rolloutstask_success")
    assert "0.400 → 0.900" in fact(card, "reward")
    best = fact(card, "best")
    assert "12" in best and "75%" in best and "by success on held-out tasks" in best
    assert "40 tasks, 95%: 62% – 85%" in best
    assert "its weights: the checkpoint of step 12" in best and "Chat" in best and "Register it" in best
    held = fact(card, "held-out")
    assert "75%" in held and "62% – 85%" in held and "40 tasks · after step 12, the best one" in held
    assert "5 min" in fact(card, "cost") and "CPU" in fact(card, "cost") and "1 attempt" in fact(card, "cost")
    assert "not registered yet" in fact(card, "model") and "Register the model" in fact(card, "model")
    assert "2 open" in fact(card, "advisories") and "the most severe: Collapse" in fact(card, "advisories")
    assert 'data-code="slower"' in card and "Collapse: try half the learning rate." in card
    assert f"checkpoint={Checkpoint.objects.get(step=12).pk}&change=slower" in card


def test_what_the_card_says_is_nowhere_else(learned: Run, client_for: Any, bob: Any) -> None:
    page = page_of(client_for(bob), learned)
    for once in ("run-evaluate", "run-chat", "run-model", "Register the model"):
        assert page.count(once) <= 1, once
    tiles = page[page.index('id="tiles"') : page.index('class="watch-curves"')]
    assert "data-metric" in tiles and not re.search(
        r'data-metric="(reward|rollouts/task_success|heldout/success)"', tiles
    )
    Run.objects.filter(pk=learned.pk).update(state=RunState.RUNNING)
    tiles = page_of(client_for(bob), learned)
    assert 'data-metric="reward"' in tiles and "ended-facts" not in tiles


def test_a_viewer_reads_it_without_the_buttons_of_editors(learned: Run, client_for: Any, rita: Any) -> None:
    card = card_of(page_of(client_for(rita), learned))
    assert "20% → 80%" in card and "/runs/new/" not in card and "Register" not in card and "run-evaluate" not in card
    assert 'data-code="failed"' in card


@pytest.mark.parametrize("state", list(RunState))
def test_every_end_has_a_card_and_no_other_state(ended: Ended, client_for: Any, bob: Any, state: RunState) -> None:
    run = ended(success=[0.1, 0.9], state=state)
    assert ('class="card ended"' in page_of(client_for(bob), run)) == (state in ENDED)


def test_the_lab_has_one_button_wherever_it_is(ended: Ended, client_for: Any, bob: Any) -> None:
    for kind in ("grpo", "evaluate"):
        run = ended(name=kind, kind=kind, reward=[0.1, 0.9])
        assert page_of(client_for(bob), run).count("Open in the lab") == 1, kind


def test_evaluate_is_there_once_with_and_without_a_held_out_result(learned: Run, client_for: Any, bob: Any) -> None:
    assert card_of(page_of(client_for(bob), learned)).count("kind=evaluate") == 1
    Run.objects.filter(pk=learned.pk).update(health={})
    card = card_of(page_of(client_for(bob), learned))
    assert card.count("kind=evaluate") == 1 and "Not evaluated yet" in fact(card, "held-out")


def test_a_late_advisory_brings_the_card_with_it(learned: Run, client_for: Any, bob: Any) -> None:
    page = client_for(bob).get(reverse("run-advisories", args=[learned.project.slug, learned.pk])).content.decode()
    assert 'id="run-advisories"' in page and 'id="run-summary" hx-swap-oob="true"' in page and "2 open" in page


def test_a_run_that_failed_at_once_says_what_there_is_and_what_to_do(
    make_run: Any, ended: Ended, client_for: Any, bob: Any, rita: Any
) -> None:
    run = make_run(state=RunState.FAILED, attempt=1, error={"code": "internal", "message": "x", "hint": ""})
    card = card_of(page_of(client_for(bob), run))
    assert "No step was trained to its end." in card and "No worker ran it." in card
    assert "cannot be resumed: clone it" in card and f"/runs/new/?from={run.pk}" in card and "run-resume" not in card
    assert "ended-held-out" not in card and "held-out tasks" not in card, "of no figures nothing more is said"
    played = card_of(page_of(client_for(bob), ended(success=[0.1, 0.2], state=RunState.FAILED)))
    assert "A run that succeeds leaves a finished model." in played and "none open" in played
    assert "Nothing was held out." in played and "Clone with held-out tasks" in played
    paused = make_run(state=RunState.PAUSED, attempt=1)
    assert "run-resume" in card_of(page_of(client_for(bob), paused))
    assert "run-resume" not in card_of(page_of(client_for(rita), paused))


def next_of(page: str) -> tuple[str, str]:
    """The code of what the page recommends, and the label of its button; there is no other one."""
    code = re.findall(r'id="run-next" data-code="([\w-]+)"', re.sub(r"\s+", " ", page))
    begin = page.index('id="run-next"')
    label = re.sub(r"<[^>]+>|\s+", " ", page[begin : page.index("</div>", begin)]).strip()
    assert len(code) == 1 and page.count("button-primary") <= 1
    return code[0], label.rsplit("  ", 1)[-1]


def test_one_act_is_recommended(learned: Run, ended: Ended, make_run: Any, client_for: Any, bob: Any) -> None:
    """What continues the run, then an evaluation where nothing was held out, then advice, then its model."""
    page = page_of(client_for(bob), learned)
    assert next_of(page) == ("slower", "Roll back to step 12") and page.count("button-primary") == 1
    Run.objects.filter(pk=learned.pk).update(health={})
    page = page_of(client_for(bob), learned)
    assert next_of(page) == ("evaluate", "Evaluate") and 'data-code="slower"' in card_of(page)
    assert card_of(page).count("kind=evaluate") == 1
    failed = ended(name="failed", success=[0.1, 0.2], state=RunState.FAILED)
    assert next_of(page_of(client_for(bob), failed)) == ("clone", "Clone")
    _saved(failed, 1)
    assert next_of(page_of(client_for(bob), failed)) == ("resume", "Resume")
    bare = make_run(name="bare", kind="evaluate", state=RunState.SUCCEEDED, attempt=1)
    assert next_of(page_of(client_for(bob), bare)) == ("compare", "Compare")


def test_a_viewer_reads_why_without_the_button_of_editors(ended: Ended, client_for: Any, rita: Any) -> None:
    run = ended(success=[0.1, 0.2], state=RunState.PAUSED)
    page = page_of(client_for(rita), run)
    assert 'data-code="wait"' in page and "button-primary" not in page


def test_a_run_that_goes_on_recommends_nothing(learned: Run, client_for: Any, bob: Any) -> None:
    Run.objects.filter(pk=learned.pk).update(state=RunState.RUNNING)
    page = page_of(client_for(bob), learned)
    assert "button-primary" not in page and "run-next" not in page


def test_open_advisories_of_an_ended_run_are_folded(learned: Run, client_for: Any, bob: Any) -> None:
    page = page_of(client_for(bob), learned)
    assert "2 advisories were open at the end" in re.sub(r"\s+", " ", page) and 'href="#advisories-open"' in page
    Run.objects.filter(pk=learned.pk).update(state=RunState.PAUSED)
    assert "advisories-open" not in page_of(client_for(bob), learned).replace('href="#advisories-open"', "")


def test_the_parts_of_an_open_page_bring_the_card(learned: Run, client_for: Any, bob: Any) -> None:
    parts = client_for(bob).get(reverse("run-parts", args=[learned.project.slug, learned.pk])).content.decode()
    assert 'id="run-summary" hx-swap-oob="true"' in parts and "20% → 80%" in parts


def test_the_page_with_all_of_it_asks_few_questions(learned: Run, client_for: Any, bob: Any) -> None:
    report = {"figures": {"success": {"value": 0.5, "low": 0.4, "high": 0.6, "tasks": 40}}, "tasks": 40,
              "missing_tasks": 0, "tries": 40, "excluded": 0, "most": 1}  # fmt: skip
    for seq, step in ((5, 12), (6, 18)):
        payload = {"step": step, "best": step == 12, "report": report}
        RunEvent.objects.create(
            run=learned, seq=seq, attempt=1, kind="held_out_evaluated", payload=payload, at=learned.created_at
        )
    assert queries_of(client_for(bob), reverse("run-detail", args=[learned.project.slug, learned.pk])) <= MOST_QUERIES


def test_over_the_api_the_same_facts(learned: Run, client_for: Any, bob: Any, rita: Any, charlie: Any) -> None:
    address = f"/api/v1/runs/{learned.pk}/summary"
    summary = client_for(bob).get(address).json()
    assert [(gain["name"], gain["before"], gain["after"], gain["steps"]) for gain in summary["gains"]] == [
        ("rollouts/task_success", pytest.approx(0.2), pytest.approx(0.8), 2),
        ("reward", pytest.approx(0.4), pytest.approx(0.9), 2),
    ]
    point = Checkpoint.objects.get(step=12)
    assert summary["best"] == {
        "step": 12, "value": 0.75, "metric": "heldout/success", "window": 1,
        "checkpoint": {"id": str(point.pk), "step": 12}, "of": 1, "tries": 40, "low": 0.62, "high": 0.85,
    }  # fmt: skip
    assert (summary["held_out"]["low"], summary["held_out"]["high"], summary["held_out"]["tasks"]) == (0.62, 0.85, 40)
    assert summary["cost"]["device_seconds"] == pytest.approx(300) and summary["cost"]["tokens"] is None
    assert summary["advisories"] == {"open": 2, "worst": {"code": "collapse", "severity": "stop", "title": "Collapse"}}
    assert summary["ended"] and summary["model"]["id"] is None and summary["model"]["checkpoint"]["step"] == 20
    assert summary["next"][0]["code"] == "slower" and summary["next"][0]["url"].startswith("/p/joust/runs/new/?resume=")
    assert {each["code"] for each in client_for(rita).get(address).json()["next"]} == {"failed"}
    assert client_for(charlie).get(address).status_code == 404 and Client().get(address).status_code == 401
    assert client_for(bob).post(address).status_code == 405
    assert client_for(bob).get("/api/v1/runs/x/summary").status_code == 404
