"""A real verl log and its rollouts are uploaded, read by a real worker, and are shown on the run page."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.processes import running
from tests.servers import make_child_env
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True)]
LIMIT_MS = 60_000


def test_a_verl_run_is_imported(
    project: Project, bob: User, page_for: Callable[..., Page], seed_data: Path, tmp_path: Path
) -> None:
    folder = seed_data / "seed1_envtuning_bfcl"
    files = [*folder.glob("verl_console_log/*.log"), *folder.glob("verl_rollout_dump/*.jsonl")]
    argv = [sys.executable, "-m", "celery", "-A", "webapp.celery", "worker", "-Q", "short,long", "-c", "1"]
    with running(argv, tmp_path / "worker.log", make_child_env()):
        page = page_for(bob, viewport={"width": 1280, "height": 900})
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"/p/{project.slug}/runs/")
        page.click("text=Import a run >> nth=0")
        page.set_input_files("#id_uploads", files)
        page.fill('[name="name"]', "EnvTuning stage 1")
        page.click("#upload-button")
        page.locator("text=Open the run").wait_for(timeout=LIMIT_MS)
        _look(page, "report")
        page.click("text=Open the run")
        page.locator('[data-chart="reward"] .chart-figures >> text=0.625').wait_for(timeout=LIMIT_MS)
        page.locator("#ended-reward >> text=→").wait_for()
        page.locator('#charts >> text="actor/pg_loss"').wait_for(timeout=LIMIT_MS)
        assert page.locator("#run-stop, #run-pause, .watch-flight:visible, #no-points:visible").count() == 0
        _look(page, "curves")
        page.click('[data-tab="rollouts"]')
        page.locator("#reward >> text=total_interaction_rounds").wait_for(timeout=LIMIT_MS)
        page.locator('#transcript [data-role="user"]').nth(1).wait_for(timeout=LIMIT_MS)
        _look(page, "rollouts")
        page.go_back()
        page.click('[data-tab="config"]')
        page.locator("#panel-config >> text=step_15.jsonl").wait_for(timeout=LIMIT_MS)
        assert errors == []
    assert Run.objects.values_list("name", "imported_from", "step").get() == ("EnvTuning stage 1", "verl", 30)


BLEW_UP = (
    b'{"log_history": [{"step": 10, "loss": 0.5}, {"step": 20, "loss": NaN}, {"step": 30, "loss": 0.4}, '
    b'{"step": 40, "loss": 0.3}]}'
)
THOUGHT = (
    b'{"responses_create_params": {"input": "Lamps?"}, "response": {"output": [{"type": "reasoning", "summary": '
    b'[{"type": "summary_text", "text": "They want a count."}]}, {"type": "message", "role": "assistant", "content": '
    b'[{"type": "output_text", "text": "Four."}]}]}, "reward": 1.0, "step": 40, "answer": "4"}\n'
)
GAPS = """() => document.querySelector('[data-chart=loss] .chart-plot').data
    .filter((trace) => trace.marker?.symbol === 'x-thin-open').map((trace) => trace.x)"""


def test_a_run_that_blew_up_shows_where(
    project: Project, bob: User, page_for: Callable[..., Page], tmp_path: Path
) -> None:
    """The curve has a gap with a mark, the report counts it, and thoughts and the expected answer are shown."""
    (tmp_path / "trainer_state.json").write_bytes(BLEW_UP)
    (tmp_path / "rollouts.jsonl").write_bytes(THOUGHT)
    argv = [sys.executable, "-m", "celery", "-A", "webapp.celery", "worker", "-Q", "short,long", "-c", "1"]
    with running(argv, tmp_path / "worker.log", make_child_env()):
        page = page_for(bob, viewport={"width": 1280, "height": 900})
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"/p/{project.slug}/runs/imports/new/")
        page.set_input_files("#id_uploads", [tmp_path / "trainer_state.json", tmp_path / "rollouts.jsonl"])
        page.click("#upload-button")
        page.locator("text=Open the run").wait_for(timeout=LIMIT_MS)
        page.locator("text=1 figure is not finite (NaN or infinite), at step 20: loss (1).").wait_for()
        page.click("text=Open the run")
        page.locator('[data-chart="loss"] .chart-plot svg').first.wait_for(timeout=LIMIT_MS)
        assert page.evaluate(GAPS) == [[20]]
        _look(page, "gap")
        page.click('[data-tab="rollouts"]')
        page.locator("#transcript [data-reasoning] >> text=They want a count.").wait_for(timeout=LIMIT_MS)
        _look(page, "reasoning")
        page.goto(f"/p/{project.slug}/rollouts/{Rollout.objects.get().pk}/")
        page.locator("[data-reasoning] >> text=They want a count.").wait_for()
        assert page.locator("[data-expected]").inner_text() == "4"
        _look(page, "rollout")
        assert errors == []


def _look(page: Page, name: str) -> None:
    """A picture where TILTYARD_SHOTS asks for one."""
    folder = os.environ.get("TILTYARD_PICTURES")
    if folder:
        page.screenshot(path=f"{folder}/import-{name}.png", full_page=True)
