"""The run page in a real browser, fed by the real consumer from a real journal."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone
from playwright.sync_api import expect

from envs.wire import Message, ToolCall
from tests.training.doctor.planted import healthy
from tests.webapp.runs.advisories.conftest import record, running
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
from webapp.common.storage import attempt_dir
from webapp.engine.attempts import claim
from webapp.engine.doctor import look
from webapp.engine.history import run_transition
from webapp.engine.projection import Projector
from webapp.people.teams.models import User
from webapp.runs.advisories.models import Advisory
from webapp.runs.models import Run
from webapp.runs.states import RunState

__all__ = ["record", "running"]
pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
ABORTED = {"htmx:afterRequest", "htmx:sendAbort"}  # htmx's words on a request that another one replaced
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


def _begin(rollout: str, step: int, index: int, group: int = 0) -> list[Event]:
    prompt = TurnAdded(rollout=rollout, turn=0, messages=[Message(role="user", content="Buy red shoes")])
    return [RolloutStarted(rollout=rollout, step=step, group=group, index=index, task="Buy red shoes"), prompt]


def _finish(rollout: str, reward: float) -> Event:
    return RolloutFinished(
        rollout=rollout,
        status="completed",
        reward=reward,
        parts={"env_success": reward},
        env_parts={"task_success": reward},
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
    page.on(
        "console",
        lambda line: (
            page.problems.append(line.text) if line.type in {"error", "warning"} and line.text not in ABORTED else None
        ),
    )
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
    _wait(tab, "#flight-count", "0 / ")
    assert tab.locator(".flight-cell[data-status=running]").count() == 2
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
    _wait(tab, "#flight-slow", "turn 1 · waits for search")
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
    failure = tab.inner_text("#run-failure")
    assert "The trainer ended without reporting a result." in failure and "It died. Try again." in failure
    assert tab.get_attribute("#run-failure", "data-kind") == "error"
    assert not tab.is_visible("button[data-action=stop]")
    assert tab.problems == []


def test_why_a_run_paused_is_a_warning_and_goes_when_it_continues(tab: Any, trainer: Trainer) -> None:
    run = trainer.lease.run_id
    full = ErrorInfo(code="storage_full", boundary=Boundary.STORAGE, message="No room.", hint="Make room.")
    run_transition(run, RunState.PAUSED, lease=trainer.lease, error=full)
    _wait(tab, "#run-state", "paused")
    _wait(tab, "#run-failure .reported", "No room.")
    for _look in ("as it happens", "as the server draws it"):
        assert tab.is_visible("#run-failure") and tab.get_attribute("#run-failure", "data-kind") == "warning"
        tab.reload()
        _wait(tab, "#run-live", "live")
    run_transition(run, RunState.QUEUED)
    _wait(tab, "#run-state", "queued")
    tab.wait_for_selector("#run-failure", state="hidden")
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
    _wait(tab, "#pane-title", "2.0.1")  # the first that failed
    _wait(tab, "#transcript", "<img src=x")  # next to the one of its group that did not
    tab.click(".found-place >> nth=0")
    _wait(tab, "#pane-title", "2.0.0")
    _wait(tab, "#transcript", "<img src=x")
    assert tab.locator("#transcript img").count() == 0 and tab.locator("#transcript .hidden-char").count() == 1
    _wait(tab, ".found-row", "+1.00")
    _wait(tab, ".parts-total", "1.00")
    address = tab.url
    assert "newest=yes" in address and "rollout=" in address
    tab.goto(address)
    _wait(tab, "#pane-title", "2.0.0")
    tab.keyboard.press("ArrowLeft")
    expect(tab.locator("#step-input")).to_have_value("1")
    expect(tab.locator("#step-summary")).to_contain_text("1 solved")
    assert "step_from=1&step_to=1" in tab.url
    tab.go_back()
    expect(tab.locator("#step-summary")).to_contain_text("1 failed")
    tab.click("#pane-page")
    _wait(tab, "h1", "Step 2, group 0, rollout")
    assert tab.problems == []


def test_a_step_whose_answer_was_lost_is_asked_for_again(
    trainer: Trainer, page_for: Callable[..., Any], bob: User
) -> None:
    lines: list[Any] = []
    lost: list[str] = []
    came: list[str] = []

    def follow(line: Any) -> None:
        server = line.connect_to_server()

        def pass_on(frame: str) -> None:
            if '"type": "step"' in frame.replace('":"', '": "'):
                (lost if len(lines) == 1 else came).append(frame)
                if len(lines) == 1:
                    return
            line.send(frame)

        server.on_message(pass_on)
        lines.append(line)

    page = page_for(bob)
    page.route_web_socket("**/ws/**", follow)
    run = Run.objects.select_related("project").get(pk=trainer.lease.run_id)
    page.goto(f"/p/{run.project.slug}/runs/{run.pk}/")
    _wait(page, "#run-live", "live")
    page.wait_for_timeout(500)
    assert lost and not came
    lines[0].close()
    for _ in range(100):
        page.wait_for_timeout(100)
        if came:
            break
    assert came


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


def test_buttons_follow_the_state_of_a_page_opened_in_the_queue(
    make_run: Callable[..., Any], page_for: Callable[..., Any], bob: User
) -> None:
    run = make_run(name="webshop-2", state=RunState.QUEUED, total_steps=10)
    page = page_for(bob)
    page.goto(f"/p/{run.project.slug}/runs/{run.pk}/")
    _wait(page, "#run-live", "live")
    assert not page.is_visible("#run-pause") and page.is_visible("#run-stop")
    page.click("#run-stop")
    trainer = Trainer(run)
    trainer.say(RunStarted(kind="grpo", total_steps=10), PhaseChanged(phase="generating", step=1))
    page.wait_for_selector("#run-pause", state="attached")
    assert "it can be resumed later" in page.inner_text("#stop-dialog")  # still open: updates do not close a dialog
    page.click("text=Keep it running")
    page.click("#run-pause")
    _wait(page, "#run-state", "pausing")
    page.wait_for_selector("#run-pause", state="detached")
    run_transition(run.pk, RunState.PAUSED, lease=trainer.lease)
    page.wait_for_selector("#run-resume")
    page.click("#run-resume")
    _wait(page, "#run-state", "queued")
    page.click("#run-stop")
    page.click("text=Stop the run")
    _wait(page, "#run-state", "cancelled")
    page.wait_for_selector("#run-next >> text=Clone")
    assert page.locator("#run-actions > form, #run-actions > button, #stop-dialog").count() == 0


def test_the_output_of_a_trainer_that_failed_comes_by_itself(tab: Any, trainer: Trainer) -> None:
    _wait(tab, "#run-live", "live")
    (trainer.journal.path.parent / "output.log").write_text(f"CUDA out of memory {HOSTILE}\n")
    error = ErrorInfo(code="trainer_died", boundary=Boundary.TRAINER, message="It died.")
    run_transition(trainer.lease.run_id, RunState.FAILED, lease=trainer.lease, error=error)
    _wait(tab, "#failure-output", "CUDA out of memory <img")
    tab.click("#failure-output summary")
    assert tab.is_visible("#failure-output pre")
    tab.click("[data-tab=log]")
    assert "CUDA out of memory" in tab.inner_text("#log-output")
    assert tab.locator("#run img").count() == 0 and tab.problems == []


def test_a_run_that_stalls_says_so_and_stops_saying_so(tab: Any, trainer: Trainer) -> None:
    _wait(tab, "#run-live", "live")
    assert not tab.is_visible("#run-stalled") and not tab.is_visible("#run-stall-help")
    at = timezone.now() - timedelta(minutes=7, seconds=5)
    Run.objects.filter(pk=trainer.lease.run_id).update(last_event_at=at, lease_started_at=at)
    _wait(tab, "#run-stalled", "No progress for 7 min")
    assert tab.is_visible("#run-stalled") and tab.is_visible("#run-stall-help")
    tab.reload()
    assert "No progress for 7 min" in tab.inner_text("#run-stalled")
    trainer.say(LogLine(message="still here"))
    tab.wait_for_selector("#run-stalled", state="hidden")
    assert not tab.is_visible("#run-stall-help") and tab.problems == []


def test_live_charts_show_the_same_steps(tab: Any, trainer: Trainer) -> None:
    """Each had an axis of its own: figures that come more rarely were drawn next to other steps."""
    for step in range(2, 9):
        rare = {"loss": 0.1} if step == 4 else {}
        trainer.say(Metrics(step=step, values={"reward": step / 10, "entropy": 0.5, **rare}))
    seen = "filter(plot => plot.getBoundingClientRect().bottom < innerHeight)"  # others are drawn once they are seen
    axes = f"[...document.querySelectorAll('.chart-plot:has(svg)')].{seen}.map(plot => plot.layout.xaxis.range.join())"
    tab.wait_for_function(f"() => {axes}.length > 1 && {axes}.every(axis => axis === '1,8')", timeout=15_000)
    trainer.say(Metrics(step=9, values={"reward": 0.9}))
    tab.wait_for_function(f"() => {axes}.every(axis => axis === '1,9')", timeout=15_000)
    assert tab.problems == []


def test_an_ended_run_offers_nothing_live(tab: Any, trainer: Trainer) -> None:
    """ "Follow live" was shown on runs that had ended, on a page that saw the end and on one opened later."""
    tab.click("[data-tab=rollouts]")
    tab.wait_for_selector("#step-following:visible")
    run_transition(trainer.lease.run_id, RunState.FAILED, lease=trainer.lease)
    tab.wait_for_selector("#step-following", state="detached")
    assert not tab.is_visible("#step-follow") and tab.locator("#found-list [hx-trigger]").count() == 0
    tab.go_back()
    tab.click("[data-tab=log]")
    assert not tab.is_visible("#log-follow")
    tab.click("[data-tab=rollouts]")
    _wait(tab, "#step-follow", "Newest step")
    assert tab.problems == []


def test_the_list_follows_the_newest_step_and_the_transcript_its_turns(tab: Any, trainer: Trainer) -> None:
    tab.click("[data-tab=rollouts]")
    expect_rows = "count => document.querySelectorAll('.found-row').length === count"
    tab.wait_for_function(expect_rows, arg=2)
    _wait(tab, "#pane-title", "2.0.0")
    _wait(tab, "#transcript", "waiting for the next turn")
    said = Message(role="assistant", content="I look for shoes.")
    trainer.say(TurnAdded(rollout="b", turn=1, messages=[said], tokens=9, seconds=0.4))
    _wait(tab, "#transcript", "I look for shoes.")
    trainer.say(_finish("c", 0.0))
    expect(tab.locator("#step-summary")).to_contain_text("1 failed")
    _wait(tab, "#pane-title", "2.0.0")  # what is read stays
    trainer.say(_finish("b", 1.0), Metrics(step=2, values={"reward": 0.5}), *_begin("d", 3, 0))
    tab.wait_for_function(expect_rows, arg=1)
    _wait(tab, "#found-list", "Step 3, group 0")
    _wait(tab, "#pane-title", "3.0.0")  # nothing was chosen, so the page chooses again
    tab.click(".found-place")
    trainer.say(_finish("d", 1.0), *_begin("e", 4, 0))
    _wait(tab, "#found-list", "Step 4, group 0")
    _wait(tab, "#pane-title", "3.0.0")
    assert tab.problems == []


def test_a_notice_about_the_pause_ends_with_it(tab: Any, trainer: Trainer) -> None:
    """ "The run pauses at the next safe point" stayed on the page of a run that continued."""
    _wait(tab, "#run-live", "live")
    tab.click("#run-pause")
    _wait(tab, "#main", "pauses at the next safe point")
    run_transition(trainer.lease.run_id, RunState.PAUSED, lease=trainer.lease)
    _wait(tab, "#run-state", "paused")
    tab.wait_for_function(
        "() => !document.querySelector('#main').textContent.includes('next safe point')", timeout=15_000
    )
    tab.wait_for_selector("#run-resume")
    tab.click("#run-resume")
    _wait(tab, "#main", "queued again")
    trainer.lease = claim(trainer.lease.run_id)
    run_transition(trainer.lease.run_id, RunState.RUNNING, lease=trainer.lease)
    _wait(tab, "#run-state", "running")
    tab.wait_for_function("() => !document.querySelector('#main').textContent.includes('queued again')", timeout=15_000)


STOPS = """() => [...document.querySelectorAll("#main :is(a[href], button, input, select, summary, [tabindex])")]
    .filter(node => node.tabIndex >= 0 && !node.disabled && node.checkVisibility())"""


def test_all_rows_of_a_step_are_one_tab_stop(tab: Any, trainer: Trainer) -> None:
    """26 stops came before the first card, and every card was one more: 64."""
    trainer.say(*(event for number in range(2, 42) for event in _begin(f"r{number}", 2, number)))
    tab.click("[data-tab=rollouts]")
    tab.wait_for_function("() => document.querySelectorAll('.found-row').length === 42")
    _wait(tab, "#pane-title", "2.0.0")
    assert tab.evaluate(f"({STOPS})().filter(node => node.matches('.found-place, .found-members > a')).length") == 1
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("ArrowDown")
    _wait(tab, "#pane-title", "2.0.2")
    assert tab.evaluate("document.activeElement.textContent.trim()") == "2"
    assert tab.input_value("#step-input") == "2", "the step stays"
    tab.keyboard.press("ArrowUp")
    _wait(tab, "#pane-title", "2.0.1")
    tab.keyboard.press("k")
    _wait(tab, "#pane-title", "2.0.0")
    assert "rollout=" in tab.url
    tab.keyboard.press("Enter")
    _wait(tab, "h1", "Step 2, group 0, rollout 0")
    assert tab.problems == []


def test_a_chinese_page_names_failures_in_chinese(trainer: Trainer, page_for: Callable[..., Any], bob: User) -> None:
    page = page_for(bob, locale="zh-CN")
    run = Run.objects.select_related("project").get(pk=trainer.lease.run_id)
    page.goto(f"/p/{run.project.slug}/runs/{run.pk}/?tab=rollouts")
    page.wait_for_selector("#step-following")
    timeout = ErrorInfo(code="environment_timeout", boundary=Boundary.ENVIRONMENT, message="No answer in 30 s.")
    trainer.say(RolloutFinished(rollout="b", status="excluded", error=timeout))
    _wait(page, ".found-why", "等待环境应答超时")
    page.click(".found-place >> nth=0")
    _wait(page, "#found-pane .notice", "等待环境应答超时")
    assert "No answer in 30 s." in page.inner_text("#found-pane .reported")
    page.goto(f"/p/{run.project.slug}/runs/{run.pk}/")
    _wait(page, "#run-live", "实时")
    error = ErrorInfo(code="too_many_failures", boundary=Boundary.ENVIRONMENT, message="9 of 10 failed.")
    run_transition(run.pk, RunState.FAILED, lease=trainer.lease, error=error)
    _wait(page, "#run-failure", "大多数轨迹因模型以外的原因失败")
    assert "9 of 10 failed." in page.inner_text("#run-failure .reported")


def test_a_new_diagnosis_leaves_what_is_unfolded(running: Run, record: Any, page_for: Any, bob: Any) -> None:
    """The section of advisories was swapped with each new figure of the line above it."""
    steps = list(healthy(seed=2))
    record(running, steps[:15])
    look()
    evidence = {"curves": [], "rollouts": [], "figures": {}}
    Advisory.objects.create(run=running, code="kl_spike", first=3, last=4, open=False, evidence=evidence)
    page = page_for(bob)
    page.goto(reverse("run-detail", args=[running.project.slug, running.pk]))
    page.click(".advisories-over > summary")
    record(running, steps[15:])
    look()
    page.evaluate("document.dispatchEvent(new CustomEvent('slow-tick'))")
    page.wait_for_selector("[data-diagnosis=learning]")
    assert page.locator(".advisories-over").get_attribute("open") is not None
