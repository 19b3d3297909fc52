"""What the run page says and offers where a run waits, paused or ended (one rule for failures)."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from tests.markup import dense
from training.algorithms.checkpoints import write_whole
from webapp.common.answers import in_shape
from webapp.common.storage import run_dir
from webapp.runs import answers
from webapp.runs.models import Run, RunEvent
from webapp.runs.records.selectors import aged
from webapp.runs.registry.models import Checkpoint
from webapp.runs.reports import report_lines
from webapp.runs.states import RunState

pytestmark = pytest.mark.django_db
UNREACHABLE = {"code": "environment_unreachable", "boundary": "environment", "message": "refused", "hint": ""}


def _url(run: Run, name: str = "run-detail") -> str:
    return reverse(name, args=[run.project.slug, run.pk])


def _held(next_s: float, left_s: float, **over: Any) -> dict[str, Any]:
    now = timezone.now()
    times = {name: (now + timedelta(seconds=s)).isoformat() for name, s in (("next_try_at", next_s), ("until", left_s))}
    return {"step": 7, "tries": 3, "error": UNREACHABLE, **times, **over}


def _saved(run: Run, step: int = 4, attempt: int = 1) -> Checkpoint:
    path = f"{attempt}/checkpoint-{step}"
    write_whole(run_dir(run.pk) / path, step, lambda folder: (folder / "w").write_bytes(b"w") and None)
    fields = {"attempt": attempt, "step": step, "path": path, "bytes": 1, "seq": 0, "created_at": timezone.now()}
    return Checkpoint.objects.create(project=run.project, run=run, **fields)


def test_a_held_step_is_shown_with_its_countdown(
    client_for: Any, make_run: Any, rita: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = timezone.now()
    monkeypatch.setattr(timezone, "now", lambda: began)  # two pages may take a second to be made
    run = make_run(state=RunState.RUNNING, attempt=1, held=_held(12.4, 480))
    page = client_for(rita).get(_url(run)).content.decode()
    box = page[page.index('id="run-held"') :][:400]
    assert "hidden" not in box.split(">")[0]
    assert "Step 7 waits: No connection to the environment. Next try in 12 s" in box and "pauses in 8 min" in box
    rows = client_for(rita).get(reverse("run-list", args=[run.project.slug])).content.decode()
    assert "waiting for environment … next try in 12 s, pauses in 8 min" in rows
    assert in_shape(answers.RunView, aged(run))["held"]["tries"] == 3


def test_a_run_that_waits_for_nothing_shows_no_wait(client_for: Any, make_run: Any, rita: Any) -> None:
    run = make_run(state=RunState.RUNNING, attempt=1)
    page = client_for(rita).get(_url(run)).content.decode()
    assert re.search(r'id="run-held"[^>]* hidden', page) and re.search(r'id="run-reports"[^>]* hidden', page)


def test_what_the_trainer_reported_is_shown_where_a_person_looks(client_for: Any, make_run: Any, rita: Any) -> None:
    """The log alone said "was set aside", of a folder that had not moved."""
    resumed = {
        "source": "1/checkpoint-6",
        "step": 6,
        "lost_steps": 3,
        "set_aside": ["1/checkpoint-8"],
        "verified": ["manifest", {"template": "position in the data: step {step}", "values": {"step": 6}}],
        "attempt": 2,
    }
    sampler = {"step": 7, "tokens": 96, "max_gap": 2e-5, "mean_gap": 1e-6, "tolerance": 1e-3}
    ended = {"attempt": 1, "code": "trainer_killed", "message": "Killed."}
    health = {
        "ended": ended,
        "resumed": resumed,
        "sampler": sampler,
        "skipped": {"count": 2, "step": 9, "what": "gradient"},
    }
    run = make_run(state=RunState.RUNNING, attempt=2, health=health)
    recorded = [
        ("resumed", {key: value for key, value in resumed.items() if key != "attempt"}),
        ("sampler_checked", sampler),
        ("update_skipped", {"step": 9, "what": "gradient", "in_a_row": 1}),
        ("checkpoints_removed", {"why": "torn", "paths": ["1/checkpoint-8"]}),
        ("held", {"step": 7, "error": UNREACHABLE, "tries": 1, "next_try_s": 5.0, "patience_left_s": 60.0}),
    ]
    for seq, (kind, payload) in enumerate(recorded, start=1):
        RunEvent.objects.create(run=run, seq=seq, attempt=2, kind=kind, payload=payload, at=timezone.now())
    page = client_for(rita).get(_url(run)).content.decode()
    assert "Attempt 2 continued from 1/checkpoint-6 at step 6. Steps trained again: 3." in page
    assert "Attempt 1 ended: The trainer was killed from outside." in page
    assert "Skipped updates: 2, the last one at step 9" in page
    assert report_lines({"ended": ended}, UNREACHABLE) == []  # a run's error has a notice of its own
    events = client_for(rita).get(_url(run, "run-events")).content.decode()
    assert "at most 2e-5 nats" in events.replace("2.0e-5", "2e-5") and "over 96 tokens" in events
    assert "damaged, set aside: 1/checkpoint-8" in events and "Damaged and set aside: 1/checkpoint-8" in events
    assert "step 9: update skipped because the gradient was not finite (1 in a row)" in events
    assert "step 7 waits (try 1): refused Next try in 5 s." in events


def test_the_page_says_how_much_of_its_time_a_run_has_used(client_for: Any, make_run: Any, rita: Any) -> None:
    run = make_run(state=RunState.RUNNING, attempt=1, step=3, health={"time": {"hours": 1.5, "of": 8.0}})
    page = client_for(rita).get(_url(run)).content.decode()
    assert "Time budget: 1 h 30 min of 8 h 0 min used, 6 h 30 min left." in page
    over = {"hours": 8.25, "of": 8.0, "over": 40}
    assert report_lines({"time": over}) == [
        ("time", "Time budget of 8 h 0 min reached after 8 h 15 min: the run ended after step 40.")
    ]
    assert "0 s left" in report_lines({"time": {"hours": 8.25, "of": 8.0}})[0][1]
    assert report_lines({"time": {"hours": 1.0, "of": None}}) == []


def test_the_page_offers_resume_only_where_there_is_something_to_go_on_from(
    client_for: Any, make_run: Any, bob: Any, rita: Any
) -> None:
    """Messages promised to resume a failed run, and no button did."""
    error = {"code": "too_many_failures", "boundary": "environment", "message": "12 of 16", "hint": ""}
    without = make_run(state=RunState.FAILED, attempt=1, step=3, error=error)
    page = client_for(bob).get(_url(without)).content.decode()
    assert 'id="run-resume"' not in page and "cannot be resumed: clone it" in page and "run-branch" not in page
    saved = make_run(state=RunState.FAILED, attempt=2, step=9, error=error)
    _saved(saved, 4)
    page = client_for(bob).get(_url(saved)).content.decode()
    assert 'id="run-resume"' in page and "from the checkpoint of step 4, attempt 1" in page
    assert 'id="run-resume"' not in client_for(rita).get(_url(saved)).content.decode()
    assert client_for(bob).post(_url(saved, "run-resume")).status_code == 302
    saved.refresh_from_db()
    assert (saved.state, saved.error) == ("queued", None)
    done = make_run(state=RunState.SUCCEEDED, attempt=1)
    _saved(done)
    page = client_for(bob).get(_url(done)).content.decode()
    assert 'id="run-resume"' not in page and "run-branch" in page


def test_resume_of_what_no_longer_resolves_says_why(client_for: Any, make_run: Any, bob: Any) -> None:
    run = make_run(state=RunState.CANCELLED)
    page = client_for(bob).post(_url(run, "run-resume"), follow=True).content.decode()
    assert "choose a dataset" in page


@pytest.fixture
def parent(make_run: Any, make_dataset: Any) -> Run:
    """A finished warm-up of the starter model, with a checkpoint of step 4."""
    config = {"kind": "sft", "data": {"train": make_dataset().reference}, "run": {"max_steps": 5}}
    from training.config import JobConfig

    run = make_run(name="warm", config=JobConfig.model_validate(config), state=RunState.SUCCEEDED, attempt=1, step=5)
    _saved(run, 4)
    return run


def _form_values(page: str) -> dict[str, str]:
    """What a browser would send for this form without a change."""
    from html.parser import HTMLParser

    values: dict[str, str] = {}

    class Fields(HTMLParser):
        select, area = "", ""

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            named = dict(attrs)
            if tag == "input" and named.get("name") and (named.get("type") != "checkbox" or "checked" in named):
                values.setdefault(str(named["name"]), named.get("value") or "")
            elif tag == "select":
                self.select = str(named.get("name"))
            elif tag == "option" and "selected" in named:
                values[self.select] = named.get("value") or ""

    Fields().feed(page[page.index('id="run-form"') :])
    return values


def test_a_child_is_launched_from_the_form_and_shows_what_changed(
    client_for: Any, parent: Run, bob: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("webapp.engine.history._send_message", lambda row: False)
    client, url = client_for(bob), reverse("run-new", args=[parent.project.slug])
    page = client.get(url, {"resume": str(parent.pk)}).content.decode()
    assert "continues from step 4 of" in page
    values = _form_values(page) | {"optim.learning_rate": "0.0003", "name": "warmer", "launch_anyway": "yes"}
    assert values["run.max_steps"] == "10"
    response = client.post(url, values)
    assert response.status_code == 302, response.content.decode()[:3000]
    child = Run.objects.get(name="warmer")
    assert (child.parent, child.resume_step, child.resume_checkpoint.step) == (parent, 4, 4)
    page = client.get(_url(child), {"tab": "config"}).content.decode()
    table = page[page.index('id="changed-options"') :]
    assert "optim.learning_rate" in table and "<mark>0.0003</mark>" in table and "run.max_steps" in table
    assert "data.train" not in table[: table.index("</section>")]
    assert 'continues from <a href="' in page
    assert 'continued by <a href="' in client.get(_url(parent)).content.decode()


def test_a_child_that_cannot_be_is_refused_at_the_option(client_for: Any, parent: Run, bob: Any) -> None:
    client, url = client_for(bob), reverse("run-new", args=[parent.project.slug])
    values = _form_values(client.get(url, {"resume": str(parent.pk)}).content.decode())
    response = client.post(url, values | {"run.max_steps": "4", "launch_anyway": "yes"})
    assert response.status_code == 422 and "must be above 4" in response.content.decode()
    assert Run.objects.count() == 1


def test_checkpoints_of_other_projects_are_not_found(client_for: Any, parent: Run, charlie: Any) -> None:
    client, url = client_for(charlie), reverse("run-new", args=["elsewhere"])
    assert client.get(url, {"resume": str(parent.pk)}).status_code == 404
    checkpoint = Checkpoint.objects.get()
    response = client.post(url, {"name": "mine", "kind": "sft", "checkpoint": str(checkpoint.pk)})
    assert response.status_code == 422 and not Run.objects.filter(name="mine").exists()


def test_a_page_that_was_opened_at_the_launch_gets_its_baselines(client_for: Any, make_run: Any, rita: Any) -> None:
    """They are resolved after the page was drawn, and were there only once it was loaded again."""
    run = make_run(state=RunState.DRAFT)
    page = dense(client_for(rita).get(_url(run)).content.decode())
    assert re.search(r'<span id="run-baseline"[^>]*></span>', page)
    Run.objects.filter(pk=run.pk).update(baselines=[{"name": "rules", "reward": 0.79, "success": 0.58}])
    parts = dense(client_for(rita).get(_url(run, "run-parts")).content.decode())
    fresh = r'<span id="run-baseline" hx-swap-oob="true"[^>]*>Baseline rules: reward 0\.79, success 58%'
    assert re.search(fresh, parts)
