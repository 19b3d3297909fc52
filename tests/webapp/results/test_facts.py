"""From where to where a run went, its best step, what it cost: by value."""

from __future__ import annotations

import math
import random
from datetime import timedelta
from statistics import fmean
from typing import Any

import pytest
from django.utils import timezone

from tests.webapp.results.conftest import Ended, points
from tests.webapp.site.run_pages.test_resume_pages import _saved
from webapp.engine.services import whole_checkpoints
from webapp.results.summary import REWARD, SUCCESS, Cost, best_of, gains_of, held_out_of, nearest, taken_by
from webapp.results.summary import cost_of as cost_from
from webapp.runs.config import config_of
from webapp.runs.metrics.selectors import Ends
from webapp.runs.models import Attempt, Run

pytestmark = pytest.mark.django_db


def ways_of(run: Run) -> dict[str, Ends]:
    return taken_by(run).ends


def cost_of(run: Run) -> Cost:
    return cost_from(run, taken_by(run).spent)


def test_a_tenth_of_the_steps_is_at_each_end(ended: Ended) -> None:
    run = ended(success=[0.1, 0.3, *[0.5] * 16, 0.7, 0.9], reward=[1.0, 2.0])
    way = ways_of(run)[SUCCESS]
    assert (way.total, way.part, way.last) == (20, 2, 20)
    assert (way.before, way.late, way.after) == pytest.approx((0.2, 0.5, 0.8))
    assert way.best == pytest.approx((0.5 * 3 + 0.7 + 0.9) / 5) and (way.best_step, way.window) == (20, 5)
    success, reward = gains_of(ways_of(run))
    assert (success.name, success.texts, success.steps, success.of) == (SUCCESS, ("20%", "80%"), 2, 20)
    assert (reward.name, reward.before, reward.after, reward.steps, reward.of) == (REWARD, 1.0, 2.0, 1, 2)


def test_eleven_steps_have_two_at_each_end_and_one_has_no_way(ended: Ended) -> None:
    run = ended(success=[float(step) / 10 for step in range(11)], reward=[0.5])
    way = ways_of(run)[SUCCESS]
    assert (way.part, way.before, way.after) == (2, pytest.approx(0.05), pytest.approx(0.95))
    reward = gains_of(ways_of(run))[1]
    assert (reward.before, reward.after, reward.texts[0]) == (None, 0.5, "–")


def test_of_equally_good_steps_the_first_is_the_best(ended: Ended) -> None:
    run = ended(success=[0.0] * 3 + [1.0] * 9 + [0.0] * 3)
    best = best_of(run, ways_of(run), [])
    assert best is not None and (best.step, best.value, best.window, best.checkpoint) == (8, 1.0, 5, None)


def test_one_lucky_step_is_not_the_best(ended: Ended) -> None:
    run = ended(success=[1.0] + [0.5] * 9)
    best = best_of(run, ways_of(run), [])
    assert best is not None and (best.step, best.value, best.window) == (5, pytest.approx(0.6), 5)


def test_the_ends_of_a_long_run_are_those_of_its_figures_in_the_order_of_their_steps(ended: Ended) -> None:
    rng = random.Random(3)
    values = [rng.gauss(0.5, 0.2) for _step in range(997)]
    run = ended()
    later, earlier = values[400:], values[:400]  # as they lie in the database
    points(run, SUCCESS, later, first=401)
    points(run, SUCCESS, earlier)
    way = ways_of(run)[SUCCESS]
    assert (way.total, way.part, way.last) == (997, 100, 997)
    means = (fmean(values[:100]), fmean(values[-200:-100]), fmean(values[-100:]))
    assert (way.before, way.late, way.after) == pytest.approx(means, rel=1e-12)
    around = {step: fmean(values[step - 5 : step]) for step in range(5, 998)}
    best = max(around, key=lambda step: around[step])
    assert way.best_step == best and way.best == pytest.approx(around[best], rel=1e-12)


def test_what_is_no_number_counts_for_nothing_and_lost_steps_are_not_counted_twice(ended: Ended) -> None:
    run = ended(success=[0.0, math.nan, 0.2, math.inf, 0.9, 0.9])
    assert ways_of(run)[SUCCESS].total == 4
    run.attempt = 2
    run.save(update_fields=["attempt"])
    Attempt.objects.create(run=run, number=2, owner="w", started_at=timezone.now(), first_step=4, last_step=5)
    points(run, SUCCESS, [0.4], attempt=2, first=5)
    way = ways_of(run)[SUCCESS]
    assert (way.total, way.after, way.last) == (3, 0.4, 5), "steps 5 and 6 of the first attempt were lost"


def test_held_out_tasks_decide_which_step_is_best(ended: Ended) -> None:
    figures = {"step": 2, "success": 0.75, "low": 0.6, "high": 0.85}
    health = {"held_out": {"tasks": 40, "best": figures, "newest": figures | {"step": 4, "success": 0.5}}}
    run = ended(success=[0.1, 0.2, 0.3, 1.0], health=health)
    near, far = _saved(run, 2), _saved(run, 4)
    best = best_of(run, ways_of(run), [far, near])
    assert best is not None and (best.step, best.held_out, best.text, best.checkpoint) == (2, True, "75%", near)
    held = held_out_of(run, None)
    assert held is not None and (held.texts, held.tasks, held.step) == (("75%", "60%", "85%"), 40, 2)
    assert held_out_of(ended(name="other"), None) is None


def test_the_best_step_says_how_sure_it_is_and_whose_weights_are_kept(ended: Ended) -> None:
    """Five steps of 64 rollouts, 0.9 of them: Wilson of 288 of 320."""
    run = ended(success=[0.5] * 10 + [0.9] * 5 + [0.5] * 5)
    before, within, after = _saved(run, 10), _saved(run, 11), _saved(run, 16)
    best = best_of(run, ways_of(run), [within])
    assert best is not None and (best.step, best.of, best.tries) == (15, 16, 320)
    assert (best.low, best.high) == (pytest.approx(0.86224, abs=1e-5), pytest.approx(0.92827, abs=1e-5))
    assert best.kept and not any(best._replace(checkpoint=each).kept for each in (before, after, None))
    assert best._replace(checkpoint=_saved(run, 15)).kept
    by_reward = best_of(ended(name="r", reward=[0.1, 0.9]), ways_of(ended(name="q", reward=[0.1, 0.9])), [])
    assert by_reward is not None and (by_reward.tries, by_reward.low) == (0, None)


def test_the_nearest_whole_checkpoint_is_offered(ended: Ended) -> None:
    run = ended()
    two, six, torn = _saved(run, 2), _saved(run, 6), _saved(run, 5)
    torn.state = "torn"
    torn.save(update_fields=["state"])
    found = whole_checkpoints(run)
    assert [nearest(found, step) for step in (1, 3, 4, 5, 9)] == [two, two, six, six, six]
    assert nearest([], 3) is None
    six.pk, six.path, six.final = None, "1/model", True
    six.save()
    assert nearest(whole_checkpoints(run), 6) == six, "the finished model has the same weights, and a page"


def test_the_reward_is_followed_where_nothing_judged_the_tasks(ended: Ended) -> None:
    run = ended(reward=[0.1, 0.9])
    best = best_of(run, ways_of(run), [])
    assert best is not None and (best.metric, best.step, best.window) == ("reward", 2, 2)
    sft = ended(name="sft", kind="sft", reward=[0.1, 0.9])
    points(sft, "loss", [2.0, 1.0])
    assert [gain.name for gain in gains_of(ways_of(sft))] == ["loss"] and best_of(sft, ways_of(sft), []) is None
    assert ways_of(ended(name="played", kind="evaluate", reward=[0.1])) == {}


def test_the_cost_is_what_was_counted_and_nothing_else(ended: Ended, make_run: Any) -> None:
    run = ended(success=[0.5] * 2)
    cost = cost_of(run)
    assert (cost.device, cost.attempts) == ("cpu", 1) and cost.device_seconds == pytest.approx(300)
    assert (cost.tokens, cost.judge_requests, cost.judge_cost) == (None, None, None)
    points(run, "completions/mean_length", [100.0, 50.0])
    points(run, "rollouts/excluded_share", [0.0, 0.5])
    points(run, "judge/requests", [8.0, 4.0])
    points(run, "judge/cost", [0.25, 0.5])
    Attempt.objects.create(run=run, number=2, owner="w", started_at=timezone.now() - timedelta(seconds=100))
    points(run, "judge/requests", [1.0], attempt=2, first=2)
    cost, config = cost_of(run), config_of(run)
    assert config is not None
    assert cost.device_seconds == pytest.approx(400, abs=5), "an attempt that is at work counts until now"
    assert cost.tokens == pytest.approx(150 * config.rollouts_per_step * 0.75)
    assert (cost.judge_requests, cost.judge_cost) == (13.0, 0.75), "what a lost step asked was paid for too"
    waiting = make_run(state="cancelled")
    assert cost_of(waiting).device_seconds is None
