"""Where the time of a run's last steps goes: what the bars add up to, and what the card says where nothing is known."""

from __future__ import annotations

from typing import Any

import pytest

from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Attempt, Run
from webapp.site.run_pages.parts import STEPS, parts_of, places_of, room_for, times_of

pytestmark = pytest.mark.django_db
PLAIN = {"timing/step": 4.0, "timing/generation": 1.0, "timing/environment": 0.5, "timing/scoring": 0.25}


def test_the_parts_of_a_step_add_up_to_it_and_what_came_after() -> None:
    """The handover lies in what the trainer calls training, saving and evaluating next to the step."""
    parts = parts_of(PLAIN | {"timing/training": 2.25, "sampling/sync_seconds": 0.75, "timing/saving": 3.0})
    assert parts == {
        "generation": 1.0, "environment": 0.5, "scoring": 0.25, "handover": 0.75, "training": 1.5, "saving": 3.0,
    }  # fmt: skip
    assert sum(parts.values()) == 4.0 + 3.0


def test_a_handover_that_is_measured_for_itself_takes_nothing_of_training() -> None:
    """What ran while the trainer trained (``sync_seconds``) took no time of the step."""
    measured = PLAIN | {"timing/training": 1.5, "timing/handover": 0.75, "sampling/sync_seconds": 2.5}
    assert parts_of(measured) == {
        "generation": 1.0, "environment": 0.5, "scoring": 0.25, "training": 1.5, "handover": 0.75,
    }  # fmt: skip
    assert "handover" not in parts_of(measured | {"timing/handover": 0.0})


def test_what_is_left_of_a_step_is_other_and_what_was_not_measured_is_no_zero() -> None:
    assert parts_of(PLAIN | {"timing/training": 1.25}) == {
        "generation": 1.0, "environment": 0.5, "scoring": 0.25, "training": 1.25, "other": 1.0,
    }  # fmt: skip
    assert "handover" not in parts_of(PLAIN) and parts_of({"timing/step": 2.0}) == {"other": 2.0}
    assert parts_of({"timing/evaluating": 9.0}) == {}, "held-out tasks before the first step are no step"
    assert parts_of({"timing/generation": 2.0, "timing/environment": 0.0}) == {"generation": 2.0}


def test_rollouts_played_ahead_take_only_the_wait_for_them() -> None:
    parts = parts_of(PLAIN | {"timing/waiting": 0.5, "timing/training": 3.5})
    assert parts == {"waiting": 0.5, "training": 3.5}


@pytest.fixture
def trained(make_run: Any) -> Any:
    """``trained({step: {name: value}}, attempt=1)``: points of a run that has 30 steps."""
    run = make_run(state="running", attempt=1, step=0, total_steps=30)

    def tell(steps: dict[int, dict[str, float]], attempt: int = 1) -> Run:
        for step, figures in steps.items():
            for name, value in figures.items():
                MetricPoint.objects.create(run=run, attempt=attempt, step=step, name=name, value=value, seq=1)
        run.step = max(run.step, *steps)
        run.save(update_fields=["step"])
        return run

    return tell


def test_the_newest_step_is_first_and_the_lines_stay_as_many(trained: Any) -> None:
    run = trained({step: {"timing/step": float(step), "timing/training": float(step)} for step in range(1, 26)})
    times = times_of(run)
    assert [line.step for line in times.lines] == list(range(25, 5, -1)) and len(times.lines) == STEPS
    newest, oldest = times.lines[0], times.lines[-1]
    assert [newest.pieces[0].width, oldest.pieces[0].width] == ["1000.0", "240.0"], "all bars have one scale"
    assert newest.total == "25 s" and times.shares[0].share == "100%" and times.steps == 20


def test_a_run_that_has_just_begun_keeps_the_room(trained: Any) -> None:
    run = trained({1: PLAIN | {"timing/training": 2.25}})
    times = times_of(run)
    assert [line.step for line in times.lines] == [1] + [None] * 19
    assert [(each.phase, each.share, each.each) for each in times.shares] == [
        ("generation", "25%", "1 s"), ("environment", "12%", "0.5 s"), ("scoring", "6%", "0.25 s"),
        ("training", "56%", "2.2 s"),
    ]  # fmt: skip
    assert [piece.x for piece in times.lines[0].pieces] == ["0.0", "250.0", "375.0", "437.5"]
    assert times.lines[0].pieces[3].text == "step 1 · training 2.2 s (56%)"
    run.total_steps = 3
    assert places_of(run) == 3


def test_steps_that_a_later_attempt_trained_again_count_once(trained: Any) -> None:
    run = trained({1: {"timing/step": 1.0}, 2: {"timing/step": 9.0}, 3: {"timing/step": 9.0, "timing/scoring": 5.0}})
    Attempt.objects.create(run=run, number=1, owner="a", started_at=run.created_at, first_step=0, last_step=3)
    Attempt.objects.create(run=run, number=2, owner="a", started_at=run.created_at, first_step=1, last_step=3)
    trained({2: {"timing/step": 2.0}, 3: {"timing/step": 2.0}}, attempt=2)
    assert [(line.step, line.total) for line in times_of(run).lines[:3]] == [(3, "2 s"), (2, "2 s"), (1, "1 s")]
    assert [each.phase for each in times_of(run).shares] == ["other"], "the lost step's scoring is gone"


def test_the_page_asks_for_it_and_a_stranger_gets_nothing(
    trained: Any, alice: Any, charlie: Any, client_for: Any
) -> None:
    run = trained({2: {"timing/step": 4.0, "timing/training": 3.0, "timing/saving": float("nan")}})
    address = f"/p/{run.project.slug}/runs/{run.pk}/"
    page = client_for(alice).get(address).content.decode()
    assert f'hx-get="{address}times/"' in page and page.count("times-bars") == 1
    card = client_for(alice).get(f"{address}times/").content.decode()
    assert "step 2 · training 3 s (75%)" in card and '<th scope="row">2</th>' in card and "saving" not in card
    assert client_for(charlie).get(f"{address}times/").status_code == 404
    assert client_for(alice).post(f"{address}times/").status_code == 405


def test_a_run_that_trains_nothing_has_no_card(make_run: Any) -> None:
    """The phases of an evaluation are not measured: it kept an empty card as tall as the page."""
    assert [room_for(make_run(kind=kind)) is None for kind in ("grpo", "sft", "evaluate", "sample")] == [
        False, False, True, True,
    ]  # fmt: skip
    assert room_for(make_run(imported_from="verl")) is None


def test_a_card_without_figures_says_why(trained: Any, alice: Any, client_for: Any) -> None:
    run = trained({0: {"heldout/success": 0.5}})
    address = f"/p/{run.project.slug}/runs/{run.pk}/times/"
    assert "The first step has not ended yet." in client_for(alice).get(address).content.decode()
    trained({1: {"reward": 0.5}})
    assert "No times were recorded." in client_for(alice).get(address).content.decode()
