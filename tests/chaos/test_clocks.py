"""Training hosts whose clocks are an hour wrong: nothing depends on it, and it is named."""

from __future__ import annotations

import shutil
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from tests.chaos.house import House
from tests.chaos.services import wait_until
from tests.chaos.truth import assert_exact
from webapp.common.workers.models import Worker
from webapp.runs.models import Attempt, RunEvent
from webapp.runs.rollouts.models import Rollout
from webapp.runs.states import RunState
from webapp.site.workers import worker_lines

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What turns the clock of a process that it is loaded into."""
    if shutil.which("cc") is None:
        pytest.skip("Needs a C compiler.")
    made = tmp_path_factory.mktemp("clock") / "turned.so"
    source = Path(__file__).with_name("turned_clock.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-Wall", "-o", str(made), str(source)], check=True)
    return made


def turned(shim: Path, hours: int) -> dict[str, Any]:
    """A worker, and trainers of its own, that read such a clock."""
    command = ("env", f"LD_PRELOAD={shim}", f"TURNED_S={3600 * hours}")
    return {"within": command, "CHAOS_TRAINER_WITHIN": " ".join(command)}


@pytest.mark.parametrize("hours", [1, -1])
def test_a_host_whose_clock_is_an_hour_wrong_trains_as_any_other(house: House, shim: Path, hours: int) -> None:
    house.kill9("train")
    house.worker("train", name="turned", **turned(shim, hours))
    began = timezone.now()
    run = house.launch("sleep-100", 100, save_every=20)
    house.reaches(run, 10, 60)

    def named() -> list[str]:
        return [line.clock for line in worker_lines(house.user) if line.worker.name == "turned@chaos" and line.clock]

    assert wait_until(named, 30, what="the sentence on the page of workers") == [
        f"Its clock is 1 h 0 min {'ahead of' if hours > 0 else 'behind'} the database's."
    ]
    assert abs(Worker.objects.get(name="turned@chaos").clock_s - 3600 * hours) < 10
    assert Attempt.objects.get(run=run, number=1).clock_s == pytest.approx(3600 * hours, abs=10)
    # Its host is lost, and a host with a right clock continues: the earlier attempt's times are put right by it, too.
    house.kill9("turned")
    house.worker("train")
    house.ends(run, 120)
    assert (run.state, run.attempt, run.step) == (RunState.SUCCEEDED, 2, 100), house.tail()
    assert_exact(run)
    slack = timedelta(seconds=10)
    events = RunEvent.objects.filter(run=run).order_by("seq").values_list("at", flat=True)
    times = [*events, *Rollout.objects.filter(run=run).values_list("started_at", flat=True)]
    assert began - slack < min(times) and max(times) < timezone.now() + slack
    of_first = Rollout.objects.filter(run=run, attempt=1).values_list("finished_at", flat=True)
    assert of_first and all(began - slack < at < timezone.now() + slack for at in of_first)
    house.kill9("train")
    house.worker("train")
