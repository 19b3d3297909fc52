"""The run page in a real browser, fed by the real consumer from a real journal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from envs.wire import Message, ToolCall
from training.errors import Boundary, ErrorInfo
from training.journal import (
    Event,
    GroupScored,
    Journal,
    LogLine,
    Metrics,
    PhaseChanged,
    RolloutFinished,
    RolloutStarted,
    RunStarted,
    TurnAdded,
)
from webapp.runs.history import run_transition
from webapp.runs.lease import claim
from webapp.runs.models import Run
from webapp.runs.projection import Projector
from webapp.runs.states import RunState
from webapp.storage import attempt_dir
from webapp.teams.models import User

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
HOSTILE = "<img src=x onerror=alert(1)>\u202eevil"


class Trainer:
    """A trainer that only talks."""

    def __init__(self, run: Run) -> None:
        lease = claim(run.pk)
        assert lease is not None
        self.lease = lease
        self.journal = Journal(attempt_dir(run.pk, lease.attempt))
        self.projector = Projector(lease)

    def say(self, *events: Event) -> None:
        """Write events and project them at once."""
        for event in events:
            self.journal.write(event)
        self.projector.drain()


def _begin(rollout: str, step: int, index: int) -> list[Event]:
    prompt = TurnAdded(rollout=rollout, turn=0, messages=[Message(role="user", content="Buy red shoes")])
    return [RolloutStarted(rollout=rollout, step=step, group=0, index=index, task="Buy red shoes"), prompt]


def _finish(rollout: str, reward: float) -> Event:
    return RolloutFinished(
        rollout=rollout,
        status="completed",
        reward=reward,
        parts={"env_success": reward},
        turns=1,
        tokens=9,
        seconds=1.0,
    )


@pytest.fixture
def trainer(make_run: Callable[..., Any]) -> Trainer:
    """A run in its second step with two rollouts in flight."""
    trainer = Trainer(make_run(name="webshop-1", state=RunState.QUEUED, total_steps=10))
    trainer.say(
        RunStarted(kind="grpo", total_steps=10),
        LogLine(message="model loaded"),
        PhaseChanged(phase="generating", step=1),
        *_begin("a", 1, 0),
        _finish("a", 1.0),
        Metrics(step=1, values={"reward": 0.5, "kl": float("nan")}),
        PhaseChanged(phase="generating", step=2),
        *_begin("b", 2, 0),
        *_begin("c", 2, 1),
    )
    return trainer


@pytest.fixture
def tab(trainer: Trainer, page_for: Callable[..., Any], bob: User) -> Any:
    """Bob's tab on the run; its console must stay silent."""
    page = page_for(bob, viewport={"width": 1280, "height": 900})
    page.problems = []
    page.on("console", lambda line: page.problems.append(line.text) if line.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    run = Run.objects.select_related("project").get(pk=trainer.lease.run_id)
    page.address = f"/p/{run.project.slug}/runs/{run.pk}/"
    page.goto(page.address)
    return page


def _wait(page: Any, selector: str, text: str) -> None:
    page.wait_for_function(
        "([selector, text]) => document.querySelector(selector)?.textContent.includes(text)",
        arg=[selector, text],
        timeout=15_000,
    )


def test_the_page_follows_the_run(tab: Any, trainer: Trainer) -> None:
    _wait(tab, "#run-live", "live")
    _wait(tab, "#run-phase", "generating 0 of")
    _wait(tab, "#flight-count", "2")
    _wait(tab, '.tile[data-metric="reward"] .tile-value', "0.500")
    call = ToolCall(id="1", name="search", arguments={"q": "shoes"})
    trainer.say(
        TurnAdded(
            rollout="b",
            turn=1,
            messages=[Message(role="assistant", content="", tool_calls=[call])],
            tokens=9,
            seconds=0.4,
        )
    )
    _wait(tab, ".flight-tool", "search")
    trainer.say(_finish("b", 1.0), Metrics(step=2, values={"reward": 0.75}))
    _wait(tab, '.tile[data-metric="reward"] .tile-value', "0.750")
    _wait(tab, "#run-steps", "step 2 of 10")
    tab.click("[data-tab=log]")
    trainer.say(LogLine(message=f"saved {HOSTILE}"))
    _wait(tab, "#log", "saved <img")
    assert "U+202E" in tab.inner_text("#log")
    run_transition(
        trainer.lease.run_id,
        RunState.FAILED,
        lease=trainer.lease,
        error=ErrorInfo(code="trainer_died", boundary=Boundary.TRAINER, message="It died.", hint="Try again."),
    )
    _wait(tab, "#run-state", "failed")
    _wait(tab, "#run-live", "ended")
    assert "It died." in tab.inner_text("#run-failure") and "Try again." in tab.inner_text("#run-failure")
    assert not tab.is_visible("button[data-action=stop]")
    assert tab.problems == []


def test_reading_a_transcript_and_sending_its_address(tab: Any, trainer: Trainer) -> None:
    trainer.say(
        TurnAdded(rollout="b", turn=1, messages=[Message(role="assistant", content=HOSTILE)], tokens=9, seconds=0.4),
        _finish("b", 1.0),
        _finish("c", 0.0),
        GroupScored(
            step=2,
            group=0,
            rollouts=["b", "c"],
            advantages=[1.0, -1.0],
            reward_mean=0.5,
            reward_std=0.5,
            zero_variance=False,
        ),
    )
    tab.click("[data-tab=rollouts]")
    tab.click(".rollout >> nth=0")
    _wait(tab, "#transcript", "<img src=x")
    assert tab.locator("#transcript img").count() == 0 and tab.locator("#transcript .hidden-char").count() == 1
    _wait(tab, ".rollout-advantage", "+1.00")
    _wait(tab, ".parts-total", "1.00")
    address = tab.url
    assert "step=2" in address and "rollout=" in address
    tab.goto(address)
    _wait(tab, "#reader-title", "2.0.0")
    tab.click("#step-back")
    _wait(tab, "#step-summary", "1 completed")
    tab.go_back()
    tab.click("#reader-page")
    _wait(tab, "h1", "Step 2, group 0, rollout 0")
    assert tab.problems == []


def test_stopping_asks_first(tab: Any, trainer: Trainer) -> None:
    tab.click("button[data-action=stop]")
    tab.click("text=Keep it running")
    assert Run.objects.get(pk=trainer.lease.run_id).state == "running"
    tab.click("button[data-action=stop]")
    tab.click("text=Stop the run")
    _wait(tab, "#run-state", "stopping")


def test_two_tabs_and_a_phone_see_the_same(tab: Any, trainer: Trainer, page_for: Callable[..., Any], bob: User) -> None:
    phone = page_for(bob, viewport={"width": 390, "height": 844}, locale="zh-CN")
    phone.goto(tab.address)
    _wait(phone, "#run-live", "实时")
    trainer.say(Metrics(step=2, values={"reward": 0.875}))
    for page in (tab, phone):
        _wait(page, '.tile[data-metric="reward"] .tile-value', "0.875")
    assert phone.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_the_list_refreshes_by_itself(trainer: Trainer, page_for: Callable[..., Any], bob: User) -> None:
    page = page_for(bob)
    run = Run.objects.select_related("project").get(pk=trainer.lease.run_id)
    page.goto(f"/p/{run.project.slug}/runs/")
    assert "0.500" in page.inner_text("#run-list")
    trainer.say(Metrics(step=2, values={"reward": 0.625}))
    _wait(page, "#run-list", "0.625")
    page.fill("#run-q", "nothing like it")
    _wait(page, "#run-list", "No run matches")
