"""A dataset is asked for with a click, written by a real worker, checked, and ready on the same page."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.processes import running
from tests.servers import make_child_env
from webapp.datasets.models import Dataset
from webapp.environments.models import Kind
from webapp.environments.services import environment_launch
from webapp.people.teams.models import Project, User

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True)]
LIMIT_MS = 40_000


def test_a_dataset_with_a_click(project: Project, bob: User, page_for: Callable[..., Page], tmp_path: Path) -> None:
    shop = environment_launch(
        project=project, user=bob, name="shop", kind=Kind.PROCESS, program="webshop", arguments={"products": 60}
    )
    argv = [sys.executable, "-m", "celery", "-A", "webapp.celery", "worker", "-Q", "short,long", "-c", "1"]
    with running(argv, tmp_path / "worker.log", make_child_env()):
        page = page_for(bob)
        page.goto(f"/p/{project.slug}/environments/{shop.pk}/datasets/new/")
        page.fill('[name="tasks-count"]', "20")
        page.get_by_role("button", name="Create", exact=True).click()
        page.locator("#orders >> text=shop-tasks@1").wait_for(timeout=LIMIT_MS)
        page.locator("#orders >> text=ready").wait_for(timeout=LIMIT_MS)
    made = Dataset.objects.all()[0]
    assert (made.state, made.rows, made.bad_rows, made.created_by) == ("ready", 20, 0, bob)
