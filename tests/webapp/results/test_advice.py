"""What to try next: each rule at its threshold, with the one button that begins it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.webapp.results.conftest import Ended
from tests.webapp.site.run_pages.test_resume_pages import _saved
from webapp.engine.services import whole_checkpoints
from webapp.results.summary import Advice, Seen, advice_of, best_of, held_out_of, taken_by
from webapp.runs.advisories.models import Advisory
from webapp.runs.advisories.selectors import advisories_of
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db
CLONE, BRANCH, EVALUATE = "/new?from=1", "/new?resume=1", "/new?kind=evaluate"


def advised(run: Run, **over: Any) -> dict[str, Advice]:
    """The advice for a run by code; an editor's, of a run that left a model."""
    ways, points = taken_by(run).ends, whole_checkpoints(run)
    given = {
        "run": run,
        "ways": ways,
        "best": best_of(run, ways, points),
        "held_out": held_out_of(run, None),
        "advisories": [item for item in advisories_of(run) if item.open],
        "clone": CLONE,
        "branch": BRANCH,
        "evaluate": EVALUATE,
    }
    return {each.code: each for each in advice_of(Seen(**(given | over)))}


def found(run: Run, code: str, first: int = 3) -> None:
    evidence: dict[str, Any] = {"curves": [], "rollouts": [], "figures": {}}
    Advisory.objects.create(run=run, code=code, first=first, last=first, evidence=evidence)


HELD = {"held_out": {"tasks": 9, "newest": {"step": 1, "success": 0.5, "low": 0.2, "high": 0.8}}}


def test_too_easy_tasks_want_harder_ones(ended: Ended) -> None:
    easy = advised(ended(success=[0.5] * 9 + [0.95], health=HELD))
    assert list(easy) == ["harder"] and easy["harder"].url == CLONE and "95%" in easy["harder"].sentence
    assert "harder" not in advised(ended(name="b", success=[0.5] * 9 + [0.94], health=HELD))


def test_tasks_that_hardly_any_rollout_solves_want_easier_ones(ended: Ended) -> None:
    assert "easier" in advised(ended(success=[0.0] * 9 + [0.02], health=HELD))
    assert "easier" not in advised(ended(name="b", success=[0.0] * 9 + [0.03], health=HELD))
    assert "easier" not in advised(ended(name="c", success=[0.03] + [0.0] * 9, health=HELD)), "it solved some at first"


def test_success_that_still_rises_wants_more_steps(ended: Ended) -> None:
    rising = ended(success=[0.1] * 8 + [0.50, 0.71], health=HELD)
    advice = advised(rising)["longer"]
    assert advice.url == BRANCH and "50%, then 71%" in advice.sentence
    assert "(64 rollouts each, 95%: ± 16.5%)" in advice.sentence
    noise = ended(name="n", success=[0.1] * 8 + [0.406, 0.477], health=HELD)
    assert "longer" not in advised(noise), "64 rollouts move by more than this"
    assert "longer" not in advised(rising, branch=""), "nothing to go on from"
    assert "longer" not in advised(ended(name="b", success=[0.1] * 8 + [0.50, 0.51], health=HELD))
    assert "longer" not in advised(ended(name="c", success=[0.1] * 8 + [0.5, 0.6], health=HELD, state="cancelled"))


def test_an_end_that_is_worse_than_the_best_step_wants_to_go_back(ended: Ended) -> None:
    run = ended(success=[0.8] * 10 + [0.5] * 10, health={})
    assert "back" not in advised(run), "no checkpoint was kept"
    point = _saved(run, 5)
    advice = advised(run)["back"]
    assert advice.url == f"{BRANCH}&checkpoint={point.pk}&change=slower" and "80%, then 50%" in advice.sentence
    near = ended(name="b", success=[0.8] * 10 + [0.75] * 10, health={})
    _saved(near, 5)
    assert "back" not in advised(near)


def test_an_end_that_chance_explains_does_not_want_to_go_back(ended: Ended) -> None:
    """64 rollouts a step, the best 5 of 20 steps against the last 2: 16 means share the level, so z = 2.955; the spread
    of 60% of 320 and 44% of 128 rollouts is √(0.24 / 320 + 0.2464 / 128) = 0.0517, and the limit 0.153."""
    for name, after, goes in (("a", 0.44, True), ("b", 0.45, False)):
        run = ended(name=name, success=[0.6] * 10 + [after] * 10, health={})
        _saved(run, 5)
        assert ("back" in advised(run)) is goes, after


def test_without_held_out_tasks_the_model_is_to_be_evaluated(ended: Ended) -> None:
    run = ended(success=[0.5] * 10, health={})
    assert advised(run)["evaluate"].url == EVALUATE
    assert advised(run, evaluate="")["held-out"].url == f"{CLONE}&change=held-out"
    other = ended(name="b", success=[0.5] * 10, health=HELD)
    assert {"evaluate", "held-out"}.isdisjoint(advised(other))


def test_failures_of_the_last_steps_are_to_be_read(ended: Ended) -> None:
    run = ended(success=[0.25] * 20, health=HELD)
    advice = advised(run)["failed"]
    assert advice.url.endswith(f"/runs/{run.pk}/rollouts/?outcome=failed&outcome=partly&step_from=19")
    assert advice.sentence.startswith("75% of the last rollouts")


@pytest.mark.parametrize(
    ("code", "success", "advice", "url"),
    [
        ("no_spread", 0.8, "harder", CLONE),
        ("no_spread", 0.5, "refill", f"{CLONE}&change=refill"),
        ("no_spread", 0.2, "easier", CLONE),
        ("phantom_share", 0.5, "outcome", f"{CLONE}&change=outcome"),
        ("truncation", 0.5, "room", f"{CLONE}&change=room"),
        ("shaping_above_outcome", 0.5, "lab", "/p/joust/rewards/lab/?run="),
        ("over_optimisation", 0.5, "lab", "/p/joust/rewards/lab/?run="),
        ("collapse", 0.5, "slower", f"{CLONE}&change=slower"),
        ("entropy_fall", 0.5, "slower", f"{CLONE}&change=slower"),
    ],
)
def test_an_advisory_comes_first_with_what_helps(
    ended: Ended, code: str, success: float, advice: str, url: str
) -> None:
    run = ended(success=[success] * 10, health=HELD)
    found(run, code)
    first = next(iter(advised(run).values()))
    assert first.code == advice and first.url.startswith(url)
    Advisory.objects.update(open=False)
    assert advice not in advised(run), "what is over asks for nothing"


def test_a_fall_of_the_entropy_at_full_success_is_no_fault(ended: Ended) -> None:
    run = ended(success=[0.96] * 10, health=HELD)
    found(run, "entropy_fall")
    assert "slower" not in advised(run)


def test_a_roll_back_goes_before_the_advisory(ended: Ended) -> None:
    run = ended(success=[0.5] * 10, health=HELD)
    before = _saved(run, 2)
    _saved(run, 5)
    found(run, "kl_spike", first=5)
    advice = advised(run)["slower"]
    assert advice.url == f"{BRANCH}&checkpoint={before.pk}&change=slower" and advice.label == "Roll back to step 2"


def test_ppo_has_no_groups_to_leave_out(ended: Ended) -> None:
    run = ended(kind="ppo", success=[0.5] * 10, health=HELD)
    found(run, "phantom_share")
    assert "outcome" not in advised(run)


def test_four_at_most_none_without_a_button_and_none_twice(ended: Ended) -> None:
    run = ended(success=[0.5] * 10, health={})
    for code in ("no_spread", "phantom_share", "truncation", "collapse", "kl_spike", "over_optimisation"):
        found(run, code)
    made = list(advised(run).values())
    assert len(made) == 4 and len({each.url for each in made}) == 4 and all(each.label for each in made)
    assert {each.code for each in advised(run, clone="", branch="", evaluate="").values()} == {"lab", "failed"}


def test_a_model_of_demonstrations_can_be_trained_on(ended: Ended) -> None:
    run = ended(kind="sft")
    assert advised(run, model="model:warm")["train"].url == "/p/joust/runs/new/?model=model%3Awarm"
    assert advised(run) == {} and advised(run, model="model:warm", clone="") == {}
