"""Room on the disk: what is printed is bounded, and a run that a full disk paused continues once there is room."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from webapp.engine import recovery, services, supervisor
from webapp.engine.services import GoingOn
from webapp.runs.models import Run, RunEvent
from webapp.runs.registry.models import Checkpoint
from webapp.runs.states import RunState
from webapp.site.run_pages.page import next_act

GB = 1 << 30
FULL = {"code": "storage_full", "boundary": "storage", "message": "The disk /data has 1 GiB free", "hint": ""}


def test_output_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    """`output.log` had no bound."""
    path = tmp_path / "output.log"
    lines = b"".join(b"line %08d\n" % number for number in range(1_000_000))  # 14 MB
    path.write_bytes(lines)
    assert supervisor.output_trim(path) and not supervisor.output_trim(path)
    data = path.read_bytes()
    assert len(data) <= (5 << 20) + 100
    assert data[: 1 << 20] == lines[: 1 << 20] and data.endswith(b"line 00999999\n")
    head, _dash, rest = data.partition(b"\n--- ")
    left_out, _words, tail = rest.partition(b" bytes left out ---\n")
    assert tail.startswith(b"line ") and len(head) + int(left_out) + len(tail) == len(lines)


def test_a_writer_continues_behind_what_was_kept(tmp_path: Path) -> None:
    """As the trainer does: its handle appends, whatever the supervisor cuts away."""
    path, script = tmp_path / "output.log", "import time\nfor n in range(3000): print('x' * 9990, n, flush=True)"
    with open(path, "ab") as handle:
        writer = subprocess.Popen([sys.executable, "-c", script], stdout=handle)
    sizes = []
    while writer.poll() is None:
        supervisor.output_trim(path)
        sizes.append(path.stat().st_size)
        time.sleep(0.005)
    assert writer.returncode == 0 and max(sizes) < 3 * supervisor.LIMIT_BYTES
    data = path.read_bytes()
    assert b"\0" not in data and int(data.split()[-1]) >= 2990  # a line may fall between the last look and the cut


def test_a_short_output_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    path.write_bytes(b"y" * (9 << 20))
    assert not supervisor.output_trim(path) and not supervisor.output_trim(tmp_path / "none")
    assert path.stat().st_size == 9 << 20


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Any:
    """``free(bytes)``: how much is free on a disk of 100 GB."""
    monkeypatch.setattr("webapp.engine.history._send_message", lambda row: False)
    return lambda count: _set_disk(monkeypatch, services.Disk(100 * GB, int(count), 2 * GB))


def _set_disk(monkeypatch: pytest.MonkeyPatch, found: services.Disk) -> None:
    for module in (services, recovery):
        monkeypatch.setattr(module, "disk", lambda: found)


@pytest.mark.django_db
def test_a_run_that_a_full_disk_paused_continues_once_there_is_room(make_run: Any, free: Any, project: Any) -> None:
    """The hint said "resume the run", which would have paused again at once."""
    run = make_run(state=RunState.PAUSED, attempt=1, error=FULL)
    other = make_run(state=RunState.PAUSED, attempt=1, error={**FULL, "code": "not_finite"})
    fields = {"attempt": 1, "step": 4, "path": "1/checkpoint-4", "seq": 0, "created_at": timezone.now()}
    Checkpoint.objects.create(project=project, run=run, bytes=3 * GB, **fields)
    free(8 * GB)  # the reserve is 2 GB; a checkpoint is written next to the old one
    assert recovery.resume_where_over() == 0
    assert "8.0 GB free of 100.0 GB" in next_act(GoingOn(run)).replace("\xa0", " ")
    free(9 * GB - 1)  # the reserve and a half of it, and two checkpoints
    assert recovery.resume_where_over() == 0
    free(9 * GB)
    assert recovery.resume_where_over() == 1 and recovery.resume_where_over() == 0
    assert dict(Run.objects.values_list("pk", "state")) == {run.pk: "queued", other.pk: "paused"}
    reason = RunEvent.objects.get(run=run, kind="state").payload["reason"]
    assert reason["template"] == "the disk has room again: {free} free"
    assert reason["values"]["free"].replace("\xa0", " ") == "9.0 GB"
