"""The card of a run's devices: its answer, its lanes, and what it says where nothing was recorded. The API agrees."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.utils import timezone, translation

from training.devices import Measured
from training.lanes import DevicePhase, LaneStep, Span
from webapp.runs.metrics.devices import STEPS
from webapp.runs.metrics.models import DeviceStep
from webapp.runs.models import Run
from webapp.site.run_pages.devices import COLUMNS, MOST_LANES, card_of, has_card

pytestmark = pytest.mark.django_db
NOTHING = Measured()
PLAIN: list[tuple[DevicePhase, float]] = [("generation", 2), ("environment", 6), ("training", 2)]


@pytest.fixture
def running(make_run: Any) -> Run:
    run: Run = make_run(state="running", attempt=1, step=30)
    return run


def plant(
    run: Run,
    step: int,
    parts: list[tuple[DevicePhase, float]] | None = None,
    host: str = "a",
    device: str = "0",
    measured: Measured = NOTHING,
) -> None:
    at, spans = 0.0, []
    for phase, seconds in parts or PLAIN:
        spans.append(Span(phase, at, at + seconds))
        at += seconds
    lane = LaneStep.of(step, spans, host, device, measured).model_dump(mode="json")
    now = timezone.now()
    DeviceStep.objects.create(run=run, step=step, host=host, device=device, attempt=1, at=now, lane=lane)


def test_one_device_in_a_sentence_and_a_lane(running: Run) -> None:
    for step in range(1, 31):
        plant(running, step, [("training", 10)] if step <= 30 - STEPS else None)
    card = card_of(running)
    assert card is not None and card.answer == (
        "The device generated or trained for 40% of the time of the last 20 steps, without evaluations. "
        "The longest wait: environment, 60%."
    )
    assert (card.first, card.last, card.seconds, card.more) == (11, 30, "3 min 20 s", 0)
    [row] = card.rows
    assert (row.name, row.figures, row.work, row.shares) == ("a · 0", "", "40%", ["20%", "60%", "20%"])
    assert [(each.phase, each.share) for each in card.legend] == [
        ("generation", "20%"), ("environment", "60%"), ("training", "20%"),
    ]  # fmt: skip
    assert [path.text for path in row.paths] == ["generation 20%", "environment 60%", "training 20%"]
    assert row.paths[0].d.startswith("M0 0h10v10h-10z") and row.paths[1].d.startswith("M10 0h30v10h-30z")
    assert card.borders.startswith("M50.0 0v10M100.0 0v10") and card.borders.count("M") == STEPS - 1


def test_a_single_step(running: Run) -> None:
    plant(running, 7, [("training", 4), ("evaluating", 12), ("saving", 4)])
    card = card_of(running)
    assert card is not None and card.answer == (
        "The device generated or trained for 50% of the time of the last step, without evaluations. "
        "The longest wait: saving, 50%."
    )
    assert (card.first, card.last, card.borders) == (7, 7, "")


def test_what_was_measured_counts_and_the_least_of_several_is_named(running: Run) -> None:
    for step in (1, 2):
        plant(running, step, host="a", measured=Measured(0.5, 40 << 30, 300.0))
        plant(running, step, host="b", measured=Measured(0.25 * step, (40 + step) << 30, 100.0 * step))
        plant(running, step, host="b", device="1", measured=Measured(1.0, None, None))
    card = card_of(running)
    assert card is not None and card.answer == (
        "The 3 devices worked for 62% of the time of the last 2 steps, as NVML measured it. "
        "The one that worked least: b · 0, 38%. The longest wait: environment, 60%."
    )
    assert [(row.name, row.figures, row.work) for row in card.rows] == [
        ("a · 0", "50% busy · 40.0 GiB · 300 W", "50%"),
        ("b · 0", "38% busy · 42.0 GiB · 150 W", "38%"),
        ("b · 1", "100% busy", "100%"),
    ]


def test_of_devices_that_worked_as_much_the_first_is_named(running: Run) -> None:
    for device in ("1", "0"):
        plant(running, 1, device=device)
    card = card_of(running)
    assert card is not None and "The one that worked least: a · 0, 40%." in card.answer


def test_a_step_is_as_wide_as_its_slowest_device(running: Run) -> None:
    plant(running, 1, [("training", 10)])
    plant(running, 2, [("training", 10)])
    plant(running, 1, [("training", 30)], device="1")
    card = card_of(running)
    assert card is not None and card.borders == "M750.0 0v10"
    assert [row.paths[0].d for row in card.rows] == ["M0 0h250v10h-250zM750 0h250v10h-250z", "M0 0h750v10h-750z"]


def test_the_phase_that_fills_most_of_a_column_has_it(running: Run) -> None:
    """However many spans there are, a lane has a path for each phase and no more pieces than columns."""
    parts: list[tuple[DevicePhase, float]] = [("generation", 0.003), ("environment", 0.001)] * 32
    for step in range(1, STEPS + 1):
        plant(running, step, parts)
    plant(running, STEPS + 1, [("training", 100)])
    card = card_of(running)
    assert card is not None
    [row] = card.rows
    assert len(row.paths) <= 3 and sum(path.d.count("M") for path in row.paths) <= COLUMNS
    assert row.paths[0].phase == "generation" and "environment" not in {path.phase for path in row.paths}
    assert ("environment", "1%") in [(each.phase, each.share) for each in card.legend], "its time is not lost"


@pytest.mark.parametrize(("each", "rows"), [(MOST_LANES // 2, MOST_LANES), (MOST_LANES // 2 + 1, 2)])
def test_many_devices_share_the_lane_of_their_host(running: Run, each: int, rows: int) -> None:
    for host in ("a", "b"):
        for device in range(each):
            plant(running, 1, host=host, device=str(device), measured=Measured(0.5, device << 30, 100.0))
    card = card_of(running)
    assert card is not None and len(card.rows) == rows and card.more == 0
    if rows == 2:
        assert [row.name for row in card.rows] == [f"a · {each} devices", f"b · {each} devices"]
        assert card.rows[0].figures == f"50% busy · {each - 1}.0 GiB · 100 W"
        assert card.rows[0].shares == ["20%", "60%", "20%"]


def test_hosts_beyond_the_lanes_are_counted(running: Run) -> None:
    for host in range(MOST_LANES + 2):
        plant(running, 1, host=f"host-{host:02}")
    card = card_of(running)
    assert card is not None and (len(card.rows), card.more) == (MOST_LANES, 2)
    assert card.rows[0].name == "host-00 · 1 device"


def test_only_evaluations_are_no_work_and_no_idleness(running: Run) -> None:
    plant(running, 1, [("evaluating", 5)])
    card = card_of(running)
    assert card is not None and card.answer == "In these steps the devices only evaluated."
    assert (card.rows[0].work, card.rows[0].shares) == ("–", ["100%"])


def test_a_run_that_trains_here_has_the_card(make_run: Any) -> None:
    kinds = ("grpo", "sft", "evaluate", "sample")
    assert [has_card(make_run(kind=kind)) for kind in kinds] == [True, True, False, False]
    assert not has_card(make_run(imported_from="verl"))


def test_the_page_asks_for_it_and_a_stranger_gets_nothing(
    running: Run, alice: Any, charlie: Any, client_for: Any
) -> None:
    address = f"/p/{running.project.slug}/runs/{running.pk}/"
    page = client_for(alice).get(address).content.decode()
    assert f'hx-get="{address}devices/"' in page and "was not recorded" not in page
    card = client_for(alice).get(f"{address}devices/").content.decode()
    assert "What its devices did was not recorded." in card and "<svg" not in card
    Run.objects.filter(pk=running.pk).update(step=0)
    assert "The first step has not ended yet." in client_for(alice).get(f"{address}devices/").content.decode()
    plant(running, 1, host="<b>a</b>")
    card = client_for(alice).get(f"{address}devices/").content.decode()
    assert "&lt;b&gt;a&lt;/b&gt; · 0" in card and '<th scope="row">' in card and card.count("<path") == 4
    assert client_for(charlie).get(f"{address}devices/").status_code == 404
    assert client_for(alice).post(f"{address}devices/").status_code == 405


def test_the_api_has_the_spans_and_the_same_answer(running: Run, alice: Any, client_for: Any) -> None:
    address = f"/api/v1/runs/{running.pk}/devices"
    assert client_for(alice).get(address).json() == {"answer": "", "worked": None, "devices": []}
    for step in (1, 2, 3):
        plant(running, step, measured=Measured(0.5, 7, None) if step == 3 else NOTHING)
    found = client_for(alice).get(address).json()
    card = card_of(running)
    assert card is not None and found["answer"] == card.answer
    assert found["worked"] == {
        "share": 0.4, "measured": False, "steps": 3, "left_out": 0, "waits": {"environment": 0.6},
    }  # fmt: skip
    [device] = found["devices"]
    assert (device["host"], device["device"], [each["step"] for each in device["steps"]]) == ("a", "0", [1, 2, 3])
    newest = device["steps"][-1]
    assert (newest["busy"], newest["memory"], newest["power_w"], newest["left_out"]) == (0.5, 7, None, 0)
    assert newest["phases"] == {"generation": 2.0, "environment": 6.0, "training": 2.0}
    assert newest["spans"][1] == {"phase": "environment", "begin": 2.0, "end": 8.0}
    last = client_for(alice).get(f"{address}?last=1").json()
    assert [each["step"] for each in last["devices"][0]["steps"]] == [3] and last["worked"]["measured"] is True
    assert [client_for(alice).get(f"{address}?last={n}").status_code for n in (0, 50, 51)] == [422, 200, 422]


def test_the_answer_is_in_the_readers_language(running: Run) -> None:
    plant(running, 1)
    with translation.override("zh-hans"):
        card = card_of(running)
    assert card is not None and re.search("[\u4e00-\u9fff]", card.answer) and "device" not in card.answer
