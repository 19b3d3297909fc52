"""Evaluations within a run: from the trainer's words to the page, apart from what is learned from."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.urls import reverse

from tests.markup import dense
from training import journal as run_events
from webapp.common.storage import attempt_dir
from webapp.live.feed import snapshot_text
from webapp.rewards.lab.sets import recorded_rollouts
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import RunEvent
from webapp.runs.records.selectors import aged, run_changes_after
from webapp.runs.registry.models import Checkpoint
from webapp.runs.reports import event_text
from webapp.runs.rollouts.models import Rollout, RolloutGroup
from webapp.runs.rollouts.selectors import current_step, step_rollouts

pytestmark = pytest.mark.django_db
ROWS = [4, 7, 9]


def report(success: float, low: float, high: float, excluded: int = 0) -> dict[str, Any]:
    figures = {
        "success": {"value": success, "low": low, "high": high, "tasks": 3},
        "reward": {"value": 0.5, "low": None, "high": None, "tasks": 3},
    }
    return {"figures": figures, "tasks": 3, "missing_tasks": 0, "tries": 3, "excluded": excluded, "most": 1}


def finished(name: str, success: float | None, **over: Any) -> run_events.RolloutFinished:
    parts = {} if success is None else {"task_success": success}
    fields: dict[str, Any] = {"status": "completed", "reward": success, "env_parts": parts, "turns": 2, "tokens": 30}
    return run_events.RolloutFinished(rollout=name, **fields | over)


@pytest.fixture
def evaluated(written: Any) -> Any:
    """A run after two steps, with evaluations after steps 0 and 2."""
    w = written()
    chosen = run_events.TasksHeldOut(source="share", rows=ROWS, groups=3, leaked=0, alike=1, looked_at=90)
    w.write(chosen, run_events.RunStarted(kind="grpo", total_steps=20))
    for step, solved, best in ((0, [0.0, 0.0, 1.0], True), (2, [1.0, 0.0, 1.0], True)):
        if step:
            w.write(
                run_events.RolloutStarted(
                    rollout=f"a1-s{step}-g0-i0", step=step, group=0, index=0, row=1, task="learned"
                ),
                finished(f"a1-s{step}-g0-i0", 1.0),
                run_events.GroupScored(
                    step=step,
                    group=0,
                    rollouts=[f"a1-s{step}-g0-i0"],
                    advantages=[0.5],
                    reward_mean=1.0,
                    reward_std=0.0,
                    zero_variance=True,
                ),
            )
        w.write(run_events.PhaseChanged(phase="evaluating", step=step))
        for place, success in enumerate(solved):
            name = f"a1-e{step}-g{place}-i0"
            w.write(
                run_events.RolloutStarted(
                    rollout=name, step=step, group=place, index=0, row=ROWS[place], task=f"held {place}", held_out=True
                ),
                finished(name, success),
            )
        share = sum(solved) / 3
        w.write(
            run_events.Metrics(step=step, values={"heldout/success": share, "heldout/success_low": share - 0.2}),
            run_events.HeldOutEvaluated(step=step, report=report(share, share - 0.2, share + 0.2), best=best),
        )
    folder = attempt_dir(w.run.pk, 1) / "checkpoint-2"
    folder.mkdir(parents=True)
    w.write(run_events.CheckpointSaved(step=2, path="checkpoint-2", bytes=7, reward=1.0, held_out=2 / 3))
    w.project()
    return w


def test_held_out_rollouts_are_marked_and_their_run_knows_its_best(evaluated: Any) -> None:
    rows = Rollout.objects.filter(run=evaluated.run)
    assert rows.filter(held_out=True).count() == 6 and rows.filter(held_out=False).count() == 1
    health = evaluated.run.health["held_out"]
    assert (health["tasks"], health["groups"], health["alike"], health["looked_at"]) == (3, 3, 1, 90)
    assert health["best"]["step"] == 2 and health["best"]["success"] == pytest.approx(2 / 3)
    assert Checkpoint.objects.get(run=evaluated.run).held_out == pytest.approx(2 / 3)
    assert dict(
        MetricPoint.objects.filter(run=evaluated.run, name="heldout/success").values_list("step", "value")
    ) == pytest.approx({0: 1 / 3, 2: 2 / 3})


def test_the_live_view_and_the_lab_see_only_what_is_learned_from(evaluated: Any) -> None:
    run = evaluated.run
    assert current_step(run) == 2
    assert [row.task for row in step_rollouts(run, 2)["rollouts"]] == ["learned"]
    changes = run_changes_after(run, 0)
    assert [row.task for row in changes.rows["rollouts"]] == ["learned"]
    assert {row.rollout_id for row in changes.rows["turns"]} <= {row.pk for row in changes.rows["rollouts"]}
    assert [row["task"] for row in json.loads(snapshot_text(aged(run)))["rollouts"]] == ["learned"]
    assert [row.task for row in recorded_rollouts(run, None, None)] == ["learned"]
    assert RolloutGroup.objects.filter(run=run).count() == 1


def test_an_evaluation_that_follows_keeps_the_best_and_shows_the_newest(evaluated: Any) -> None:
    evaluated.write(run_events.HeldOutEvaluated(step=4, report=report(1 / 3, 0.1, 0.6), best=False))
    evaluated.project()
    evaluated.run.refresh_from_db()
    health = evaluated.run.health["held_out"]
    assert (health["best"]["step"], health["newest"]["step"]) == (2, 4)


def test_a_report_that_cannot_be_read_is_left_out_with_a_word(evaluated: Any) -> None:
    evaluated.write(run_events.HeldOutEvaluated(step=4, report={"figures": {"success": "high"}}))
    evaluated.project()
    warning = RunEvent.objects.filter(run=evaluated.run, kind="warning").get()
    assert "the report of the held-out tasks cannot be read" in warning.payload["message"]
    assert not RunEvent.objects.filter(run=evaluated.run, kind="held_out_evaluated", payload__step=4).exists()


def test_the_events_say_how_tasks_were_chosen_and_what_came_out(evaluated: Any) -> None:
    events = RunEvent.objects.filter(run=evaluated.run, kind__in=("tasks_held_out", "held_out_evaluated"))
    texts = [event_text({"kind": event.kind, "payload": event.payload}) for event in events.order_by("seq")]
    assert texts == [
        "3 tasks (3 of different text) are held out of the dataset. "
        "1 closely resemble one of the 90 training rows that were compared.",
        "★ after step 0: success 33.3% (13.3% to 53.3%) on 3 held-out tasks, the best so far",
        "★ after step 2: success 66.7% (46.7% to 86.7%) on 3 held-out tasks, the best so far",
    ]


def _url(run: Any, name: str, *more: Any) -> str:
    return reverse(name, args=[run.project.slug, run.pk, *more])


def test_the_run_page_has_a_line_for_each_evaluation_and_a_star_for_the_best(
    evaluated: Any, client_for: Any, rita: Any
) -> None:
    page = dense(client_for(rita).get(_url(evaluated.run, "run-detail")).content.decode())
    card = page[page.index('id="held-out"') :].partition("</section>")[0]
    rows = re.findall(r"<tr( data-best)?>(.*?)</tr>", card, re.DOTALL)[1:]
    assert [bool(best) for best, _row in rows] == [True, False]
    assert "66.7%" in rows[0][1] and "46.7% – 86.7%" in rows[0][1] and "1/checkpoint-2" in rows[0][1]
    assert "33.3%" in rows[1][1] and "checkpoint" not in rows[1][1].partition("Checkpoint")[2].replace("–", "")
    again = client_for(rita).get(_url(evaluated.run, "run-held-out")).content.decode()
    assert "66.7%" in again and "<html" not in again


def test_a_run_without_held_out_tasks_shows_no_card(make_run: Any, client_for: Any, rita: Any) -> None:
    page = client_for(rita).get(_url(make_run(), "run-detail")).content.decode()
    assert re.search(r'id="held-out"[^>]* hidden', page) and "On held-out tasks" not in page


def test_the_page_of_an_evaluation_lists_failures_first_and_what_has_no_verdict_last(
    evaluated: Any, client_for: Any, rita: Any
) -> None:
    Rollout.objects.filter(run=evaluated.run, step=2, held_out=True, group=0).update(outcome="no_verdict")
    page = client_for(rita).get(_url(evaluated.run, "run-held-out-step", 2)).content.decode()
    order = [page.index(f"held {place}") for place in (1, 2, 0)]
    assert order == sorted(order)
    assert ["failed" in page, "solved" in page, "no verdict" in page, ">learned<" in page] == [True, True, True, False]
    rollout = Rollout.objects.get(run=evaluated.run, step=2, held_out=True, group=1)
    detail = client_for(rita).get(reverse("rollout-detail", args=[evaluated.run.project.slug, rollout.pk]))
    assert detail.status_code == 200 and len(detail.context["siblings"]) == 1  # not the group of the same number


@pytest.mark.parametrize("step", [1, 5, 2**31])
def test_a_step_without_an_evaluation_is_not_found(evaluated: Any, client_for: Any, rita: Any, step: int) -> None:
    assert client_for(rita).get(_url(evaluated.run, "run-held-out-step", step)).status_code == 404
