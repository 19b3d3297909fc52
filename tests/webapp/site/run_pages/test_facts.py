"""What the run pages work out before they draw anything: the acts of each state and role, and the dots of a step."""

from __future__ import annotations

import uuid
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.utils import timezone

from training.config import JobConfig
from webapp.people.teams.models import Project
from webapp.results.summary import Advice
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout
from webapp.site.run_pages import flight
from webapp.site.run_pages.ended import Reader, next_steps, rounded
from webapp.site.run_pages.flight import _box_of, _drawn_groups, _Last, _slowest_lines, _Words
from webapp.site.run_pages.list_views import _may_change
from webapp.site.run_pages.page import actions


class Going:
    """A run as its acts look at it."""

    def __init__(self, state: str, **more: Any) -> None:
        self.can_resume = more.pop("can_resume", False)
        self.branch_point = more.pop("branch_point", None)
        config = JobConfig.model_validate({"kind": more.pop("kind", "grpo")}).model_dump(mode="json")
        imported = more.pop("imported", None)
        self.run = Run(state=state, kind=config["kind"], config=config, **{"step": 3, **more})
        if imported:
            self.run.imported_from = imported


def _acts(state: str, *, editor: bool = True, **more: Any) -> set[str]:
    return {name for name, on in actions(Going(state, **more), editor=editor).items() if on}  # type: ignore[arg-type]


def test_a_viewer_may_only_export_and_open_the_lab() -> None:
    assert _acts("succeeded", editor=False, can_resume=True, branch_point=1) == {"export", "lab"}
    assert _acts("running", editor=False) == {"lab"}


def test_an_editor_may_do_what_the_state_allows() -> None:
    assert _acts("running") == {"act", "stop", "pause", "clone", "lab"}
    assert _acts("queued", step=0) == {"act", "stop", "clone"}
    assert _acts("succeeded") == {"clone", "export", "pairs", "lab", "evaluate"}
    assert _acts("failed", can_resume=True) == {"resume", "clone", "export", "pairs", "lab"}
    assert _acts("failed", step=0) == {"clone"}
    assert "branch" in _acts("failed", branch_point=0) and "resume" not in _acts("failed", branch_point=0)


def test_what_is_not_known_of_an_imported_run_is_not_offered() -> None:
    assert _acts("succeeded", imported="trl") == {"export", "lab"}


@pytest.mark.parametrize(
    ("state", "phase", "changes"),
    [
        ("running", "", True),
        ("queued", "", True),
        ("draft", "", False),
        ("draft", "checking", True),
        ("succeeded", "", False),
        ("failed", "checking", False),
    ],
)
def test_a_list_is_asked_for_again_while_a_run_of_it_may_change(state: str, phase: str, changes: bool) -> None:
    assert _may_change({"state": state, "phase": phase}) is changes


NOW = timezone.now()


def _rollout(index: int = 0, group: int = 0, **more: Any) -> Rollout:
    facts = {"pk": uuid.UUID(int=group * 10 + index + 1), "status": "completed", "outcome": "solved", "turns": 2}
    return Rollout(group=group, index=index, step=1, **{"started_at": NOW, **facts, **more})


def _words(phase: str = "", **turns: _Last) -> _Words:
    return _Words({uuid.UUID(int=1): turn for turn in turns.values()}, phase)


def test_a_rollout_in_words_has_its_end_its_turns_and_its_reward() -> None:
    said = _words().of
    assert said(_rollout(reward=0.5)) == "0.0 · solved · 2 turns · reward 0.50"
    assert said(_rollout(reward=None, turns=1)) == "0.0 · solved · 1 turn"
    assert said(_rollout(reward=-0.001, policy="wolf")) == "0.wolf · solved · 2 turns · reward 0.00"
    assert said(_rollout(reward=-1.5)).endswith("reward −1.50") and said(_rollout(reward=1000)).endswith("reward 1000")
    assert said(_rollout(status="truncated")) == "0.0 · solved · truncated · 2 turns"


def test_a_rollout_in_flight_has_its_turn_and_what_it_waits_for() -> None:
    rollout = _rollout(status="running", outcome="in_flight")
    assert _words().of(rollout).startswith("0.0 · turn 3 · ")
    asked, wrote = _Last("user", ""), _Last("assistant", "look")
    assert [_words(t=each).turn(rollout) for each in (asked, wrote)] == [3, 2]
    assert _words(t=wrote).waits(rollout) != _words(t=_Last("assistant", "")).waits(rollout)
    assert "look" in _words(t=wrote).waits(rollout) and "look" not in _words("scoring", t=wrote).waits(rollout)
    assert [_words(phase).state(rollout) for phase in ("", "scoring")] == ["running", "scoring"]
    assert _words("scoring").state(_rollout()) == "completed"
    assert [_words(phase).mark(rollout) for phase in ("", "scoring")] == ["3", ""]
    assert [_words().mark(_rollout(outcome=each)) for each in ("solved", "partly", "failed", "excluded")] == [
        *"✓~✗",
        "",
    ]


def test_a_step_has_a_dot_for_each_rollout_that_will_be() -> None:
    config = JobConfig.model_validate({"kind": "grpo"})
    size, groups = config.group_size, -(-config.rollouts_per_step // config.group_size)
    drawn = _drawn_groups([], config, _words())
    assert [len(group.dots) for group in drawn] == [size] * groups
    assert {dot.status for group in drawn for dot in group.dots} == {"waiting"}
    more = _drawn_groups([_rollout(index=size, group=groups + 1)], config, _words())
    assert [(group.number, len(group.dots)) for group in more[-2:]] == [(groups - 1, size), (groups + 1, size + 1)]
    alone = _drawn_groups([_rollout(index=1)], None, _words())
    assert [[dot.key for dot in group.dots] for group in alone] == [["0.0", "0.1"]]


def test_the_tone_of_a_dot_is_its_place_among_the_rewards() -> None:
    def tones(*rewards: float | None) -> list[int | None]:
        rollouts = [_rollout(index, reward=reward) for index, reward in enumerate(rewards)]
        return [dot.reward_step for dot in _drawn_groups(rollouts, None, _words())[0].dots]

    assert tones(0.0, 0.5, 1.0, None) == [0, 3, 5, None]
    assert tones(-1.0, 0.0, 3.0) == [0, 1, 5]


def test_dots_are_smaller_where_there_are_many() -> None:
    def box(count: int) -> flight.Box:
        dots = [flight.Dot(str(n), "waiting", "") for n in range(count)]
        return _box_of([flight.Group(0, "", dots), flight.Group(2, "", [])])

    assert [box(count).size for count in (64, 65, 192, 193)] == ["large", "middle", "middle", "small"]
    assert box(3).shape == "0:3,2:0"


def test_the_slowest_are_the_three_that_began_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight.timezone, "now", lambda: NOW)
    ages = [10, 61, 60, 30]
    flying = [_rollout(n, status="running", started_at=NOW - timedelta(seconds=s)) for n, s in enumerate(ages)]
    done = _rollout(9, started_at=NOW - timedelta(seconds=900))
    lines = _slowest_lines([*flying, done], "", _words())
    assert [line.rollout and line.rollout.index for line in lines] == [1, 2, 3]
    assert [line.old for line in lines] == [True, False, False]
    none = _slowest_lines([done], "", _words())
    assert [line.rollout for line in none] == [None] * 3 and none[0].about and not none[1].about
    assert none[0].about != _slowest_lines([], "", _words())[0].about


def _steps(
    *, next_act: str = "", editor: bool = True, advice: tuple[str, ...] = (), made: Any = None, **can: bool
) -> Any:
    run = Run(pk=uuid.UUID(int=1), name="first")
    run.project = Project(slug="joust")
    given = [Advice(code, f"why {code}", f"do {code}", f"/{code}/") for code in advice]
    found: Any = SimpleNamespace(advice=given, made=made)
    rights = {"resume": False, "clone": False, **can}
    reader = Reader(rights, editor, "/evaluate/", "/chat/", clone_url="/clone/", next_act=next_act)
    return next_steps(run, found, reader)


@pytest.mark.parametrize(
    ("can", "code", "posts"),
    [({"resume": True, "clone": True}, "resume", True), ({"clone": True}, "clone", False), ({}, "wait", False)],
)
def test_a_run_that_did_not_succeed_is_resumed_rather_than_cloned(can: Any, code: str, posts: bool) -> None:
    (step,) = _steps(next_act="It failed.", **can)
    assert (step.code, step.sentence, step.posts) == (code, "It failed.", posts)
    assert bool(step.label) == bool(step.url) == (code != "wait")


def test_what_continues_it_goes_before_the_evaluation_and_that_before_other_advice() -> None:
    found = _steps(next_act="It failed.", advice=("slower", "evaluate", "longer"), resume=True)
    assert [step.code for step in found] == ["resume", "evaluate", "slower", "longer"]
    assert found[1][:4] == ("evaluate", "why evaluate", "do evaluate", "/evaluate/")


def test_without_advice_the_model_is_next_and_without_one_a_comparison() -> None:
    point = SimpleNamespace(pk=7)
    made = SimpleNamespace(compare_url="/base/", model=None, checkpoint=point)
    assert [step.code for step in _steps(made=made, editor=False)] == ["base"]
    made.compare_url = ""
    (register,) = _steps(made=made)
    assert register.code == "register" and register.url.endswith("/models/new/?kind=run&checkpoint=7&name=first")
    assert [step.code for step in _steps(made=made, editor=False)] == ["compare"]
    made.model = "registered"
    (compare,) = _steps(made=made)
    assert (compare.code, compare.url.partition("?")[2]) == ("compare", f"c={uuid.UUID(int=1)}")
    assert [step.code for step in _steps()] == ["compare"]


def test_a_count_has_three_digits_and_zeros() -> None:
    assert [rounded(number) for number in (0, 999, 1234, 1_234_567)] == ["0", "999", "1,230", "1,230,000"]
