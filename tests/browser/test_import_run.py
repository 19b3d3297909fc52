"""A real verl log and its rollouts are uploaded, read by a real worker, and stand on the run page."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.servers import make_child_env, running
from webapp.runs.models import Run
from webapp.teams.models import Project, User

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True)]
LIMIT_MS = 60_000


def test_a_verl_run_is_imported(
    project: Project, bob: User, page_for: Callable[..., Page], seed_data: Path, tmp_path: Path
) -> None:
    folder = seed_data / "seed1_envtuning_bfcl"
    files = [*folder.glob("verl_console_log/*.log"), *folder.glob("verl_rollout_dump/*.jsonl")]
    argv = [sys.executable, "-m", "celery", "-A", "webapp.celery", "worker", "-Q", "short", "-c", "1"]
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
        page.locator('#charts [data-chart="reward"] .chart-figures >> text=0.625').wait_for(timeout=LIMIT_MS)
        page.locator("#ended-reward >> text=→").wait_for()
        page.locator('#charts >> text="actor/pg_loss"').wait_for(timeout=LIMIT_MS)
        assert page.locator("#run-stop, #run-pause, .watch-flight:visible, #no-points:visible").count() == 0
        _look(page, "curves")
        page.click('[data-tab="rollouts"]')
        page.locator("#groups .rollout-card, #groups [data-rollout]").first.click(timeout=LIMIT_MS)
        page.locator("#transcript >> text=total_interaction_rounds").wait_for(timeout=LIMIT_MS)
        page.locator('#transcript [data-role="user"]').nth(1).wait_for(timeout=LIMIT_MS)
        _look(page, "rollouts")
        page.click('[data-tab="config"]')
        page.locator("#panel-config >> text=step_15.jsonl").wait_for(timeout=LIMIT_MS)
        assert errors == []
    assert Run.objects.values_list("name", "imported_from", "step").get() == ("EnvTuning stage 1", "verl", 30)


def _look(page: Page, name: str) -> None:
    """A picture for whoever asks for one."""
    folder = os.environ.get("TILTYARD_PICTURES")
    if folder:
        page.screenshot(path=f"{folder}/import-{name}.png", full_page=True)
