"""Workers with data folders of their own: a run outlives its first host, and the site gets all that was made."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from tests.chaos.house import ROOT, House
from tests.chaos.services import wait_until
from tests.chaos.truth import assert_exact
from tests.processes import wait_for_http
from tests.s3 import keep_files_there, s3_server
from training.algorithms.checkpoints import verify
from training.config import JobConfig
from webapp.common import objects
from webapp.common.host import free_port
from webapp.common.storage import attempt_dir
from webapp.common.workers.beating import training_problem
from webapp.common.workers.models import Worker
from webapp.engine.courier import publish_all
from webapp.engine.services import run_create
from webapp.environments.models import Environment
from webapp.ops.management.commands.prepare_site import site_prepare
from webapp.runs.models import Attempt, Run
from webapp.runs.registry.models import Checkpoint, CheckpointState
from webapp.runs.states import RunState

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, django_db_setup: None, django_db_blocker: Any) -> Iterator[House]:
    """The site's own host: PostgreSQL, Redis, clock, a worker of short and long work, an S3 server, and no trainer."""
    folder, port = tmp_path_factory.mktemp("site"), free_port()
    with s3_server() as s3, django_db_blocker.unblock(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("webapp.engine.history._send_message", lambda row: False)
        patch.setattr("webapp.runs.nudge.Nudger.put", lambda *_: None)
        keep_files_there(patch, s3)
        patch.setenv("TILTYARD_OUTBOUND_ALLOW", f"127.0.0.1:{port}")
        house = House(folder, "webapp.settings")
        try:
            house.open(workers=False)
            site_prepare()
            assert training_problem() == ""
            _fill(house, port)
            house.start("clock", "django", "run_clockwork")
            house.worker("short")
            yield house
        finally:
            house.close()


def _fill(house: House, port: int) -> None:
    house.start("tools", "envs.tools", "--port", str(port))
    wait_for_http(f"http://127.0.0.1:{port}/health", house.processes["tools"], house.folder / "tools.log")
    tasks = house.folder / "tasks.jsonl"
    command = [sys.executable, "-m", "envs.tools", "tasks", "--difficulty", "starter", "--count", "64"]
    subprocess.run([*command, "--output", str(tasks)], cwd=ROOT, check=True)
    house.dataset.rows_path.write_bytes(tasks.read_bytes())
    Environment.objects.filter(project=house.project).update(url=f"http://127.0.0.1:{port}", server_name="tools")
    assert list(publish_all()) == ["d@1"] and list(publish_all()) == []


def _launch(house: House, **over: Any) -> Run:
    config = {
        "model": {"source": "starter"},
        "data": {"train": "dataset:d@1"},
        "environment": {"name": "environment:e"},
        "rollout": {"prompts_per_step": 2, "num_generations": 4, "max_turn_tokens": 24, "max_completion_tokens": 64},
        "run": {"max_steps": 8, "save_every": 2, "threads": 1},
    }
    name = f"far {next(house.numbers)}"
    return run_create(project=house.project, user=house.user, name=name, config=JobConfig.model_validate(config | over))


def test_a_run_outlives_its_host_and_its_model_is_everywhere(site: House, tmp_path: Path) -> None:
    run = _launch(site)
    site.worker("train", name="one", TILTYARD_DATA_DIR=str(tmp_path / "one"))

    def saved() -> bool:
        """A checkpoint has left the first host."""
        run.refresh_from_db()
        return run.step >= 3 and any(p.name.startswith("checkpoint-") for p in objects.published_below(_folder(run, 1)))

    wait_until(saved, 240, what=f"a published checkpoint: {site.tail()}")
    assert Worker.objects.get(name="one@chaos").problem == ""
    site.kill9("one")
    (tmp_path / "one").rename(tmp_path / "lost")
    site.worker("train", name="two", TILTYARD_DATA_DIR=str(tmp_path / "two"))
    site.ends(run, 300)
    assert (run.state, run.attempt, run.step) == (RunState.SUCCEEDED, 2, 8), site.tail()
    assert Attempt.objects.get(run=run, number=2).first_step in range(2, 9), "from a checkpoint, not from the beginning"
    assert run.resolved["data"]["train"] == str(site.dataset.rows_path), "the site's path, not the worker's"

    def copied() -> bool:
        """The site's folder has what both hosts made, and not what retention removed."""
        rows = Checkpoint.objects.filter(run=run, attempt=2, state=CheckpointState.WHOLE)
        return all(row.folder.is_dir() for row in rows) and (_folder(run, 2) / "output.log").is_file()

    wait_until(copied, 60, what=f"copies of the files: {site.tail()}")
    final = Checkpoint.objects.get(run=run, path="2/model")
    assert verify(final.folder) is not None and final.attempt == 2
    assert (_folder(run, 2) / "journal.jsonl").stat().st_size == Attempt.objects.get(run=run, number=2).journal_offset
    assert_exact(run)

    site.kill9("two")
    judged = _launch(site, kind="evaluate", model={"source": f"run:{run.name}"}, evaluate={"tasks": 4, "samples": 1})
    site.worker("train", name="three", TILTYARD_DATA_DIR=str(tmp_path / "three"))
    site.ends(judged, 240)
    assert (judged.state, judged.attempt) == (RunState.SUCCEEDED, 1), site.tail()
    assert judged.evaluation is not None and judged.resolved["model"]["source"] == str(final.folder)
    assert (tmp_path / "three" / final.folder.relative_to(settings.DATA_DIR)).is_dir()


def _folder(run: Run, attempt: int) -> Path:
    return attempt_dir(run.pk, attempt)
