"""The metrics of an ended run as files: what they hold is what the database holds."""

from __future__ import annotations

import csv
import io
import json
import math
import struct
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow.parquet
import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.working import done
from training.imports.base import Notes
from training.imports.trackers import figures_of, records
from webapp.common.storage import attempt_dir, run_dir
from webapp.datasets.models import ExportState
from webapp.foreign import figure_files
from webapp.foreign.figure_files import metrics_order
from webapp.foreign.models import RunExport
from webapp.people.teams.models import AuditEntry, Project, User
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Attempt, Run

pytestmark = pytest.mark.django_db
T0 = 1_780_000_000.0
# The first attempt trained four steps; the second continued after step 2, so steps 3 and 4 of the first are void.
FIGURES = {
    (1, 1): {"reward": 0.1, "rewards/=exact/mean": 1 / 3},
    (1, 2): {"reward": 0.2, "loss": math.nan},
    (1, 3): {"reward": 0.3, "only/lost": 9.0},
    (1, 4): {"reward": 0.4},
    (2, 3): {"reward": 1.3, "loss": -0.5},
    (2, 4): {"reward": 1.4, "loss": math.inf},
    (2, 5): {"reward": 1e300},
}
COUNT = [key for key in FIGURES if key not in {(1, 3), (1, 4)}]


def metrics_line(step: int, at: float, values: dict[str, float]) -> str:
    shown = {name: value if math.isfinite(value) else str(value) for name, value in values.items()}
    return json.dumps(
        {"v": 1, "n": step, "t": at, "type": "metrics", "step": step, "values": shown}, separators=(",", ":")
    )


@pytest.fixture
def run(make_run: Any) -> Run:
    found: Run = make_run(name="lance: 1/2", state="succeeded", attempt=2, step=5)
    for number, (first, last) in {1: (0, 4), 2: (2, 5)}.items():
        spans = {"first_step": first, "last_step": last}
        Attempt.objects.create(run=found, number=number, owner="w", started_at=timezone.now(), **spans)
        folder = attempt_dir(found.pk, number)
        folder.mkdir(parents=True)
        lines = [metrics_line(s, at(a, s), v) for (a, s), v in FIGURES.items() if a == number]
        (folder / "journal.jsonl").write_text(
            "\n".join(['{"v":1,"n":0,"t":1,"type":"log","message":"x"}', *lines, '{"torn'])
        )
    for seq, ((attempt, step), values) in enumerate(FIGURES.items()):
        for name, value in values.items():
            MetricPoint.objects.create(run=found, attempt=attempt, step=step, name=name, value=value, seq=seq)
    return found


def at(attempt: int, step: int) -> float:
    return T0 + attempt * 1000 + step * 10 + 0.25


def written(run: Run, to: str) -> RunExport:
    export = done(metrics_order(run=run, user=None, to=to))
    assert (export.state, export.error) == (ExportState.DONE, None), export.error
    assert export.figures == sum(len(FIGURES[key]) for key in COUNT) == 9
    assert export.bytes == export.path.stat().st_size and export.path.stat().st_mode & 0o777 == 0o600
    return export


def same(found: float, wanted: float) -> bool:
    return found == wanted or (math.isnan(found) and math.isnan(wanted))


def test_csv_has_a_line_for_each_figure_that_counts(run: Run) -> None:
    export = written(run, "csv")
    assert export.file_name == "lance-1-2-metrics.csv"
    rows = list(csv.DictReader(io.StringIO(export.path.read_text(encoding="utf-8-sig"))))
    assert list(rows[0]) == ["step", "time", "attempt", "name", "value"]
    assert [(int(row["attempt"]), int(row["step"])) for row in rows] == [key for key in COUNT for _ in FIGURES[key]]
    for row in rows:
        key = (int(row["attempt"]), int(row["step"]))
        assert same(float(row["value"]), FIGURES[key][row["name"]])
        assert datetime.fromisoformat(row["time"]) == datetime.fromtimestamp(at(*key), UTC)


def test_wide_csv_has_a_line_for_each_step(run: Run) -> None:
    rows = list(csv.DictReader(io.StringIO(written(run, "csv_wide").path.read_text(encoding="utf-8-sig"))))
    assert [(row["step"], row["attempt"], row["reward"], row["loss"]) for row in rows] == [
        ("1", "1", "0.1", ""),
        ("2", "1", "0.2", "nan"),
        ("3", "2", "1.3", "-0.5"),
        ("4", "2", "1.4", "inf"),
        ("5", "2", "1e+300", ""),
    ]
    assert [row["rewards/=exact/mean"] for row in rows] == [repr(1 / 3), "", "", "", ""]


def test_parquet_is_typed(run: Run) -> None:
    table = pyarrow.parquet.read_table(written(run, "parquet").path)
    kinds = ["int64", "timestamp[ms, tz=UTC]", "int32", "dictionary<values=string, indices=int32, ordered=0>", "double"]
    assert [str(field.type) for field in table.schema] == kinds
    rows = table.to_pylist()
    assert len(rows) == 9
    for row in rows:
        key = (row["attempt"], row["step"])
        assert key in COUNT and same(row["value"], FIGURES[key][row["name"]])
        assert row["time"] == datetime.fromtimestamp(at(*key), UTC)


def test_tensorboard_has_each_step_once_at_its_time(run: Run, tmp_path: Path) -> None:
    archive = zipfile.ZipFile(written(run, "tensorboard").path)
    (name,) = archive.namelist()
    assert name.startswith("lance-1-2/events.out.tfevents.")
    found = []
    with archive.open(name) as file:
        for record in records(file):  # type: ignore[arg-type]
            assert not record.reason
            if (figures := figures_of(record.data, Notes("events"))) is not None:
                found.append((figures.step, figures.at, sorted(figures.values)))
    # NaN and infinities are kept, as TensorBoard's own reader keeps them, below.
    assert found == [
        (1, at(1, 1), ["reward", "rewards/=exact/mean"]),
        (2, at(1, 2), ["loss", "reward"]),
        (3, at(2, 3), ["loss", "reward"]),
        (4, at(2, 4), ["loss", "reward"]),
        (5, at(2, 5), ["reward"]),
    ]


def test_tensorboards_own_reader_finds_what_the_database_holds(run: Run, tmp_path: Path) -> None:
    module = "tensorboard.backend.event_processing.event_accumulator"
    reader = pytest.importorskip(module, reason="the optional package tensorboard is not installed")
    zipfile.ZipFile(written(run, "tensorboard").path).extractall(tmp_path)
    read = reader.EventAccumulator(str(tmp_path / "lance-1-2"), size_guidance={"scalars": 0})
    read.Reload()
    found = {
        (item.step, tag): (item.value, item.wall_time) for tag in read.Tags()["scalars"] for item in read.Scalars(tag)
    }
    points = [(p.attempt, p.step, p.name, p.value) for p in MetricPoint.objects.filter(run=run)]
    wanted = {
        (step, name): (value, at(attempt, step)) for attempt, step, name, value in points if (attempt, step) in COUNT
    }
    assert set(found) == set(wanted)
    for key, (value, wall_time) in wanted.items():
        small = math.inf if value > 1e38 else struct.unpack("<f", struct.pack("<f", value))[0]
        assert same(found[key][0], small) and found[key][1] == wall_time


def test_without_journals_figures_have_no_times(run: Run) -> None:
    for number in (1, 2):
        (attempt_dir(run.pk, number) / "journal.jsonl").unlink()
    rows = list(csv.DictReader(io.StringIO(written(run, "csv").path.read_text(encoding="utf-8-sig"))))
    assert {row["time"] for row in rows} == {""}
    assert zipfile.ZipFile(written(run, "tensorboard").path).testzip() is None


@pytest.mark.parametrize("state", ["queued", "running", "pausing"])
def test_a_run_at_work_is_not_exported(run: Run, state: str) -> None:
    run.state = state
    with pytest.raises(ValidationError, match="has not ended yet"):
        metrics_order(run=run, user=None, to="csv")


def test_bad_orders_are_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValidationError, match="no such format"):
        metrics_order(run=run, user=None, to="xlsx")
    for _number in range(figure_files.MAX_OPEN):
        metrics_order(run=run, user=None, to="csv")
    with pytest.raises(ValidationError, match="already"):
        metrics_order(run=run, user=None, to="csv")


def test_a_run_without_metrics_fails_with_a_sentence(make_run: Any) -> None:
    export = done(metrics_order(run=make_run(state="failed"), user=None, to="csv"))
    assert export.state == ExportState.FAILED and export.error["message"] == "The run has no metrics."
    assert not export.path.exists() and [path.name for path in export.path.parent.iterdir()] == []


def test_only_the_newest_are_kept(run: Run, django_capture_on_commit_callbacks: Any) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        for _number in range(figure_files.KEPT + 3):
            written(run, "csv")
    assert RunExport.objects.filter(run=run).count() == figure_files.KEPT + 1
    assert len(list((run_dir(run.pk) / "exports").iterdir())) == figure_files.KEPT + 1


def test_the_page_orders_lists_and_serves(
    run: Run, project: Project, bob: User, client_for: Callable[..., Client]
) -> None:
    client, page = client_for(bob), reverse("run-export", args=[project.slug, run.pk])
    assert (
        reverse("run-export", args=[project.slug, run.pk])
        in client.get(reverse("run-detail", args=[project.slug, run.pk])).content.decode()
    )
    assert b"None yet" in client.get(page).content
    assert client.post(page, {"to": "parquet"}).status_code == 302
    export = done(RunExport.objects.get(run=run))
    assert AuditEntry.objects.filter(action="run_exported", subject__contains=".parquet").count() == 1
    address = reverse("run-export-file", args=[project.slug, run.pk, export.pk])
    part = client.get(reverse("run-exports", args=[project.slug, run.pk])).content.decode()
    assert f'href="{address}"' in part and "hx-get" not in part and "9 figures ·" in part
    RunExport.objects.filter(pk=export.pk).update(state="writing")
    part = client.get(reverse("run-exports", args=[project.slug, run.pk])).content.decode()
    assert f'hx-get="{reverse("run-exports", args=[project.slug, run.pk])}"' in part and address not in part
    assert part.count("<progress") == 1 and "value=" not in part
    RunExport.objects.filter(pk=export.pk).update(state="done")
    answer = client.get(address)
    assert b"".join(answer.streaming_content) == export.path.read_bytes()  # type: ignore[attr-defined]
    assert answer["Content-Disposition"] == 'attachment; filename="lance-1-2-metrics.parquet"'
    assert client.post(page, {"to": "xlsx"}).status_code == 422
    assert client.get(reverse("run-export-file", args=[project.slug, run.pk, uuid4()])).status_code == 404


def test_another_runs_file_is_not_served(
    run: Run, make_run: Any, project: Project, bob: User, client_for: Callable[..., Client]
) -> None:
    export, other = written(run, "csv"), make_run(name="other", state="succeeded")
    assert client_for(bob).get(reverse("run-export-file", args=[project.slug, other.pk, export.pk])).status_code == 404
    for tail in ("", "/file"):
        assert client_for(bob).get(f"/api/v1/runs/{other.pk}/exports/{export.pk}{tail}").status_code == 404


def test_a_run_at_work_says_so_on_its_page(
    run: Run, project: Project, bob: User, client_for: Callable[..., Client]
) -> None:
    Run.objects.filter(pk=run.pk).update(state="running")
    page = client_for(bob).get(reverse("run-export", args=[project.slug, run.pk])).content
    assert b"has not ended yet" in page and b'name="to"' not in page


def test_the_api_orders_lists_and_serves(run: Run, bob: User, client_for: Callable[..., Client]) -> None:
    client, address = client_for(bob), f"/api/v1/runs/{run.pk}/exports"
    made = client.post(address, {"to": "csv_wide"}, content_type="application/json")
    assert made.status_code == 201 and made.json()["state"] == "waiting" and made.json()["url"] is None
    export = done(RunExport.objects.get(pk=made.json()["id"]))
    status = client.get(f"{address}/{export.pk}").json()
    assert (status["state"], status["figures"], status["bytes"]) == ("done", 9, export.bytes)
    assert client.get(address).json()["items"] == [status]
    assert b"".join(client.get(status["url"]).streaming_content) == export.path.read_bytes()  # type: ignore[attr-defined]
    refused = client.post(address, {"to": "xlsx"}, content_type="application/json")
    assert refused.status_code == 422 and "no such format" in refused.content.decode()
