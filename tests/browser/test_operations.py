"""A dataset is split and mixed again in real Chromium, by a real worker, and distinguished by its lineage."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.processes import running
from tests.servers import make_child_env
from webapp.datasets.models import Dataset
from webapp.people.teams.models import Project, User

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True)]
LIMIT_MS = 40_000


def test_split_and_mix(
    project: Project, bob: User, page_for: Callable[..., Page], make_dataset: Callable[..., Any], tmp_path: Path
) -> None:
    row = {"messages": [{"role": "user", "content": "What is 2 + 3?"}, {"role": "assistant", "content": "5"}]}
    make_dataset(name="tasks", lines=[{**row, "id": number} for number in range(20)])
    page = page_for(bob)
    argv = [sys.executable, "-m", "celery", "-A", "webapp.celery", "worker", "-Q", "short,long", "-c", "1"]
    with running(argv, tmp_path / "worker.log", make_child_env()):
        page.goto(f"/p/{project.slug}/datasets/")
        page.click("text=tasks@1")
        page.click("summary >> text=Derive")
        page.click(".menu-item >> text=Split")
        page.fill("[name=train_ratio]", "0.75")
        page.get_by_role("button", name="Create", exact=True).click()
        page.locator("h1 >> text=ready").wait_for(timeout=LIMIT_MS)
        assert "the first 75%" in page.inner_text("#lineage") and "15 of 20 rows" in page.inner_text("#lineage")
        train = page.url
        page.goto(f"/p/{project.slug}/datasets/")
        page.click("text=tasks-val@1")
        page.locator("h1 >> text=ready").wait_for(timeout=LIMIT_MS)
        assert "the rows after 75%" in page.inner_text("#lineage")
        page.goto(train)
        page.click("summary >> text=Derive")
        page.click(".menu-item >> text=Mix with other datasets")
        page.fill("[name=weight]", "2")
        page.select_option("[name=dataset_1]", label="tasks-val@1")
        page.fill("[name=rows]", "6")
        page.get_by_role("button", name="Create", exact=True).click()
        page.locator("h1 >> text=ready").wait_for(timeout=LIMIT_MS)
        assert re.search(r"tasks-train@1\s+\d of 15 rows", page.inner_text("#lineage"))
        page.goto(page.url + "export/")
        page.select_option("[name=to]", "verl")
        page.click("text=Write the file")
        page.locator("#exports >> text=.verl.parquet").wait_for()
        page.locator("#exports >> text=6 rows").wait_for(timeout=LIMIT_MS)
        with page.expect_download() as download:
            page.click("#exports a")
        assert Path(download.value.path()).read_bytes()[:4] == b"PAR1"
    parts = {item.name: [json.loads(line)["id"] for line in item.rows_path.open()] for item in Dataset.objects.all()}
    assert sorted(parts["tasks-train"] + parts["tasks-val"]) == list(range(20)) and len(parts["tasks-train"]) == 15
    assert len(parts["tasks-train-mix"]) == 6
