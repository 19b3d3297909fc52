"""A tab that sleeps while the run continues: on waking it shows everything that it missed, once."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any

import psutil
import pytest

from tests.browser.test_run_page import Trainer, _begin, _finish, tab, trainer
from training.journal import Metrics, PhaseChanged
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.metrics.selectors import MAX_POINTS

__all__ = ["tab", "trainer"]  # fixtures
SLEEP_S = float(os.environ.get("TILTYARD_SLEEP_S", "60"))
STEPS_PER_S = 4
pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(120 + 2 * int(SLEEP_S)),
]


def _until(check: Any, what: str, limit_s: float = 40) -> None:
    deadline = time.monotonic() + limit_s
    while not check():
        assert time.monotonic() < deadline, f"not within {limit_s} s: {what}"
        time.sleep(0.1)


def _chromium() -> list[psutil.Process]:
    """All processes of this test's Chromium: a lid that closes stops every one of them."""
    return [child for child in psutil.Process().children(recursive=True) if "chrom" in child.name()]


def _signal(processes: list[psutil.Process], number: signal.Signals) -> None:
    assert processes
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):  # Chromium lets helpers go that it does not need
            process.send_signal(number)


def _train_meanwhile(trainer: Trainer) -> int:
    """Steps for as long as the tab sleeps; returns the last one."""
    began, step = time.monotonic(), 2
    while time.monotonic() - began < SLEEP_S:
        name = f"r{step}"
        trainer.say(
            PhaseChanged(phase="generating", step=step + 1),
            *_begin(name, step, 0),
            _finish(name, 0.5),
            Metrics(step=step, values={"reward": step / 10_000}),
        )
        step += 1
        time.sleep(1 / STEPS_PER_S)
    return step - 1


def _shows(rewards: list[float], line: list[float]) -> bool:
    """All of them, or, where there are more than a chart draws, enough of them in order, the newest last."""
    shown = [value for value in line if value is not None]
    kept = set(shown)
    return (
        len(shown) >= min(len(rewards), MAX_POINTS // 2)
        and shown == [value for value in rewards if value in kept]
        and shown[-1] == rewards[-1]
    )


def test_a_tab_that_slept_shows_what_it_missed(tab: Any, trainer: Trainer) -> None:
    _until(lambda: "live" in tab.inner_text("#run-live"), "live")
    tab.click("[data-tab=curves]")
    tab.evaluate("() => { window.ticks = 0; setInterval(() => { window.ticks += 1; }, 1000); }")
    asleep = _chromium()
    _signal(asleep, signal.SIGSTOP)
    try:
        last = _train_meanwhile(trainer)
    finally:
        _signal(asleep, signal.SIGCONT)
    woke = time.monotonic()
    assert tab.evaluate("window.ticks") < SLEEP_S / 2, "the tab did not sleep"
    _until(lambda: f"step {last}" in tab.inner_text("#run-steps"), f"step {last}")
    assert time.monotonic() - woke < 30
    _until(lambda: "live" in tab.inner_text("#run-live"), "live again")
    rewards = list(
        MetricPoint.objects.filter(run_id=trainer.lease.run_id, name="reward")
        .order_by("step")
        .values_list("value", flat=True)
    )
    assert len(rewards) == last
    script = "[...document.querySelectorAll('.chart-plot:has(svg)')].flatMap(p => p.data.map(d => Array.from(d.y)))"
    _until(lambda: any(_shows(rewards, line) for line in tab.evaluate(script)), "the rewards on the curve")
    assert [line for line in tab.problems if "WebSocket" not in line] == []
