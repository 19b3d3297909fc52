"""The newest text of a run, next to its rollouts in flight."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, RolloutStatus, Turn
from webapp.runs.states import RunState
from webapp.site.run_pages.flight import newest_said

pytestmark = pytest.mark.django_db
Play = Callable[..., Rollout]
NOW = timezone.now()


@pytest.fixture
def run(make_run: Any) -> Run:
    """A run in its third step."""
    found: Run = make_run(name="first", state=RunState.RUNNING, attempt=1, step=2, total_steps=9)
    return found


@pytest.fixture
def play(run: Run) -> Play:
    """``play("words", …)``: a rollout that ended, of which this is the last text; ``None`` for calls alone."""

    def make(words: str | None, **over: Any) -> Rollout:
        fields = {
            "attempt": 1, "step": 3, "group": 0, "index": Rollout.objects.count(), "task": "What is 9 * 5?",
            "status": RolloutStatus.COMPLETED, "outcome": "failed", "turns": 1, "started_at": NOW, "finished_at": NOW,
        }  # fmt: skip
        rollout = Rollout.objects.create(run=run, seq=1, **(fields | over))
        message = {"role": "assistant", "content": words or "", "tool_calls": [{"name": "calculator"}]}
        Turn.objects.create(run=run, rollout=rollout, number=1, messages=[message], seq=1)
        return rollout

    return make


def test_before_anything_was_written_there_is_no_text(run: Run, play: Play) -> None:
    assert newest_said(run) is None
    play("nothing yet", status=RolloutStatus.RUNNING, turns=0, finished_at=None)
    assert newest_said(run) is None


def test_it_is_that_of_the_rollout_that_ended_last(run: Run, play: Play) -> None:
    play("The result is 44.", finished_at=NOW - timedelta(seconds=2))
    last = play("The result is 45.", outcome="solved")
    play("of a step before", step=2, finished_at=NOW + timedelta(seconds=9))
    play("still going", status=RolloutStatus.RUNNING, turns=7, finished_at=None)
    play("left out", status=RolloutStatus.EXCLUDED)
    play("played to evaluate", held_out=True, step=4)
    said = newest_said(run)
    assert said is not None and (said.rollout, said.words) == (last, "The result is 45.")
    assert said.rollout.outcome == "solved"


def test_while_none_has_ended_it_is_that_of_the_furthest(run: Run, play: Play) -> None:
    play("first turn", status=RolloutStatus.RUNNING, outcome="in_flight", turns=1, finished_at=None)
    far = play("third turn", status=RolloutStatus.RUNNING, outcome="in_flight", turns=3, finished_at=None)
    said = newest_said(run)
    assert said is not None and said.rollout == far


def test_among_those_that_ended_together_it_is_the_one_written_last(run: Run, play: Play) -> None:
    play("a time is not known", finished_at=None)
    play("written first")
    last = play("written last")
    play("written before it")
    Rollout.objects.filter(pk=last.pk).update(seq=2)
    said = newest_said(run)
    assert said is not None and (said.rollout, said.flying) == (last, False)


def test_the_furthest_is_of_the_newest_step_and_the_first_of_equals(run: Run, play: Play) -> None:
    going = {"status": RolloutStatus.RUNNING, "finished_at": None, "turns": 3}
    play("of a step before", **going | {"step": 2, "turns": 9})
    play("evaluates", **going | {"turns": 9, "held_out": True})
    play("second group", **going | {"group": 1, "index": 0})
    play("second of the first", **going | {"index": 5})
    first = play("first of the first", **going | {"index": 4})
    said = newest_said(run)
    assert said is not None and (said.rollout, said.flying) == (first, True)


def test_the_expected_answer_comes_from_the_row(make_dataset: Any, run: Run, play: Play) -> None:
    data = make_dataset([{"messages": [{"role": "user", "content": "9 * 5?"}], "answer": "45"}])
    Run.objects.filter(pk=run.pk).update(config={"kind": "grpo", "data": {"train": str(data.rows_path)}})
    run.refresh_from_db()
    play("The result is 44.", row=0)
    said = newest_said(run)
    assert said is not None and said.expected == "45"


@pytest.mark.parametrize("state", [RunState.RUNNING, RunState.SUCCEEDED])
def test_the_page_of_a_live_run_has_it_at_once_and_others_when_they_are_looked_at(
    run: Run, play: Play, client_for: Any, rita: Any, charlie: Any, state: RunState
) -> None:
    Run.objects.filter(pk=run.pk).update(state=state)
    play("答案是 45。\u202e<b>", task="م" * 80, expected="45" * 200)
    address = reverse("run-detail", args=[run.project.slug, run.pk])
    page = html.unescape(client_for(rita).get(address).content.decode())
    assert ("答案是 45。" in page) == (state == RunState.RUNNING)
    assert ("intersect once" in page) == (state != RunState.RUNNING)
    answer = client_for(rita).get(reverse("run-said", args=[run.project.slug, run.pk])).content.decode()
    assert "答案是 45。" in answer and "U+202E" in answer and "&lt;b&gt;" in answer and "<b>" not in answer
    assert "intersect once" not in answer and "step 3 · 0.0" in answer
    assert client_for(charlie).get(reverse("run-said", args=[run.project.slug, run.pk])).status_code == 404


def test_calls_alone_and_no_answer_are_said(run: Run, play: Play, client_for: Any, bob: Any) -> None:
    address = reverse("run-said", args=[run.project.slug, run.pk])
    assert "No rollout has written anything yet." in client_for(bob).get(address).content.decode()
    play(None)
    page = client_for(bob).get(address).content.decode()
    assert "It wrote only calls, no text." in page and "its task names no answer" in page


def test_the_chart_that_answers_is_the_methods(make_run: Any, client_for: Any, bob: Any) -> None:
    wanted = {
        "grpo": (["success", "reward"], "reward"),
        "dpo": (["rewards/accuracies", "loss"], ""),
        "sft": (["losses", "mean_token_accuracy"], ""),
        "evaluate": (["rollouts/task_success", "groups/pass_share", "reward"], ""),
    }
    for kind, (leads, behind) in wanted.items():
        run = make_run(name=kind, kind=kind)
        page = client_for(bob).get(reverse("run-detail", args=[run.project.slug, run.pk])).content.decode()
        data = json.loads(page.split('<script id="run-data" type="application/json">')[1].split("</script>")[0])
        assert (data["leads"], data["behind"]) == (leads, behind), kind
        assert set(leads) & set(data["curves"]) and "rollouts/task_success" in data["shares"]
