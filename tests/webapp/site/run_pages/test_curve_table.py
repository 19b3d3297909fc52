"""The curves of a chart as CSV: every point that counts."""

from __future__ import annotations

import csv
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Attempt, Run

pytestmark = pytest.mark.django_db


def table(client: Any, run: Run, *names: str) -> Any:
    return client.get(reverse("run-curves-csv", args=[run.project.slug, run.pk]), {"name": names})


def lines(answer: Any) -> list[str]:
    text: str = b"".join(answer.streaming_content).decode()
    return text.removeprefix("\ufeff").splitlines()


def points(run: Run, name: str, values: dict[int, float], attempt: int = 1) -> None:
    MetricPoint.objects.bulk_create(
        [
            MetricPoint(run=run, attempt=attempt, step=step, name=name, value=value, seq=1)
            for step, value in values.items()
        ]
    )


def test_a_row_a_step_and_a_column_a_metric(make_run: Any, client_for: Any, rita: Any) -> None:
    run = make_run(name="My run")
    points(run, "reward", {1: 0.5, 2: float("nan"), 4: 0.1234567890123})
    points(run, "=loss", {1: 2.0, 3: -1.0})
    answer = table(client_for(rita), run, "reward", "=loss", "gone", "reward")
    assert answer["Content-Disposition"] == 'attachment; filename="my-run-curves.csv"'
    assert lines(answer) == [
        """"step","reward","'=loss","gone\"""",
        '"1","0.5","2.0",""',
        '"2","","",""',
        '"3","","-1.0",""',
        '"4","0.1234567890123","",""',
    ]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_no_text_becomes_two_cells(separator: str, make_run: Any, client_for: Any, rita: Any) -> None:
    """Spreadsheets that separate lists by `;` read the second half of such a name as a formula."""
    run, names = make_run(), ("a;=HYPERLINK(1)", "b,=1+1", 'c";=1', 'd;"=1', "e;-1;@x")
    for name in names:
        points(run, name, {1: 0.5})
    head = next(csv.reader(lines(table(client_for(rita), run, *names)), delimiter=separator))
    assert not [text for text in head if text.startswith(("=", "+", "-", "@"))], head
    expected = ["step", "a;'=HYPERLINK(1)", "b,=1+1", "c\";'=1", "d;'\"=1", "e;'-1;'@x"]
    assert separator != "," or head == expected


def test_none_is_thinned_and_lost_steps_are_left_out(make_run: Any, client_for: Any, bob: Any) -> None:
    run = make_run()
    points(run, "loss", {step: float(step) for step in range(1, 3_001)})
    Run.objects.filter(pk=run.pk).update(attempt=2)
    Attempt.objects.create(run=run, number=2, owner="w", started_at=timezone.now(), first_step=2_999, last_step=3_000)
    points(run, "loss", {3_000: 7.0}, attempt=2)
    found = lines(table(client_for(bob), run, "loss"))
    assert len(found) == 3_001 and found[-1] == '"3000","7.0"' and found[-2] == '"2999","2999.0"'


def test_who_may_have_it(make_run: Any, client_for: Any, charlie: Any, bob: Any) -> None:
    run = make_run()
    assert table(client_for(charlie), run, "reward").status_code == 404
    assert table(client_for(None), run, "reward").status_code == 302
    assert lines(table(client_for(bob), run)) == ['"step"']
    points(run, "loss", {1: 2.0})
    assert lines(table(client_for(bob), run)) == ['"step","loss"', '"1","2.0"']
    assert table(client_for(bob), run, "", "x" * 121, "a\u200bb").status_code == 404
    assert lines(table(client_for(bob), run, "a\x00b")) == ['"step","a\u2400b"']  # as a name of a journal is stored
    assert client_for(bob).post(reverse("run-curves-csv", args=[run.project.slug, run.pk])).status_code == 405
