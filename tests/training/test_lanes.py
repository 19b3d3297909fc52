"""A lane says what a device did: without gaps, within bounds, and with its shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from training.devices import Measured
from training.journal import DeviceStep, parse_event
from training.lanes import MOST_SPANS, DevicePhase, DeviceUse, Lane, Span, joined, played_spans, worked

NOTHING = Measured()


class Clock:
    """The time is what is said."""

    at = 100.0

    def __call__(self) -> float:
        return self.at


def lane(*turns: tuple[float, DevicePhase]) -> tuple[Clock, Lane]:
    """A lane that began at 100 and entered these phases."""
    clock = Clock()
    made = Lane(clock)
    for clock.at, phase in turns:
        made.turn(phase)
    return clock, made


def test_a_lane_has_no_gaps_and_the_next_step_begins_where_it_ended() -> None:
    clock, made = lane((101, "waiting"), (104, "training"), (104, "saving"), (105, "training"))
    clock.at = 107
    assert made.finish() == [
        ("training", 100, 101), ("waiting", 101, 104), ("saving", 104, 105), ("training", 105, 107),
    ]  # fmt: skip
    clock.at = 109
    assert made.finish() == [("training", 107, 109)]
    clock.at = 120
    made.begin()
    clock.at = 121
    assert made.finish() == [("training", 120, 121)], "what was before belongs to no step"


def test_a_step_without_length_has_one_span() -> None:
    _clock, made = lane((100, "waiting"), (100, "training"))
    assert made.finish() == [("training", 100, 100)]


def test_neighbours_of_one_phase_are_one_span() -> None:
    parts: list[Span] = [Span("training", 0, 1), Span("training", 1, 2), Span("saving", 2, 2), Span("training", 2, 3)]
    assert joined(parts) == [("training", 0, 3)]
    assert joined([Span("saving", 0, 0), Span("training", 0, 1)]) == [("training", 0, 1)]
    assert joined([]) == []


def test_what_was_done_while_the_trainer_waited_takes_the_place_of_waiting_alone() -> None:
    clock, made = lane((101, "waiting"), (105, "handover"), (106, "training"))
    clock.at = 107
    made.fill([Span("environment", 90, 100.5), Span("generation", 100.5, 102), Span("generation", 103, 107)])
    assert made.finish() == [
        ("training", 100, 101), ("generation", 101, 102), ("waiting", 102, 103), ("generation", 103, 105),
        ("handover", 105, 106), ("training", 106, 107),
    ]  # fmt: skip


def test_a_wait_that_is_not_over_is_filled_until_now() -> None:
    clock, made = lane((101, "waiting"))
    clock.at = 103
    made.fill([Span("generation", 101, 110)])
    clock.at = 104
    assert made.finish() == [("training", 100, 101), ("generation", 101, 103), ("waiting", 103, 104)]


def test_what_is_left_of_a_wait_may_have_another_name() -> None:
    clock, made = lane((100, "waiting"))
    clock.at = 103
    made.fill([Span("environment", 101, 102)], "generation")
    assert made.finish() == [("generation", 100, 101), ("environment", 101, 102), ("generation", 102, 103)]


def test_nothing_to_fill_in_leaves_it_waiting() -> None:
    clock, made = lane((100, "waiting"))
    clock.at = 101
    made.fill([])
    assert made.finish() == [("waiting", 100, 101)]


@pytest.mark.parametrize(
    ("sampled", "ended", "spans"),
    [
        ([(1, 3), (2, 4)], [6], [("environment", 0, 1), ("generation", 1, 4), ("environment", 4, 6),
                                 ("scoring", 6, 10)]),
        ([(5, 6), (1, 2)], [6], [("environment", 0, 1), ("generation", 1, 2), ("environment", 2, 5),
                                 ("generation", 5, 6), ("scoring", 6, 10)]),
        ([(1, 9), (2, 3)], [9], [("environment", 0, 1), ("generation", 1, 9), ("scoring", 9, 10)]),
        ([(-5, 2)], [12], [("generation", 0, 2), ("environment", 2, 10)]),
        ([(0, 20)], [20], [("generation", 0, 10)]),
        ([(8, 9)], [7], [("environment", 0, 7), ("scoring", 7, 10)]),
        ([], [], [("scoring", 0, 10)]),
        ([], [4], [("environment", 0, 4), ("scoring", 4, 10)]),
    ],
)  # fmt: skip
def test_what_a_device_does_while_rollouts_are_played(sampled: Any, ended: Any, spans: Any) -> None:
    assert played_spans(sampled, ended, 0, 10) == spans


def of(spans: Sequence[tuple[DevicePhase, float, float]], measured: Measured = NOTHING) -> DeviceStep:
    return DeviceStep.of(3, [Span(*each) for each in spans], "node", "0", measured)


def test_a_step_is_in_seconds_since_it_began() -> None:
    found = of([("generation", 100, 101.5), ("training", 101.5, 103), ("generation", 103, 103.25)])
    assert (found.step, found.seconds, found.phases) == (3, 3.25, {"generation": 1.75, "training": 1.5})
    assert [tuple(span.model_dump().values()) for span in found.spans] == [
        ("generation", 0, 1.5), ("training", 1.5, 3), ("generation", 3, 3.25),
    ]  # fmt: skip
    assert (found.busy, found.memory, found.power_w, found.left_out) == (None, None, None, 0)
    line = of([("training", 0, 1)], Measured(0.5, 7, 300.0)).model_dump_json().encode()
    again = parse_event(line)
    assert isinstance(again, DeviceStep) and (again.busy, again.memory, again.power_w) == (0.5, 7, 300.0)


def test_many_spans_are_cut_to_the_longest_and_the_sums_stay_whole() -> None:
    """A turn of a few milliseconds in each of a thousand rollouts: the line stays short."""
    phases: tuple[DevicePhase, DevicePhase] = ("generation", "environment")
    spans = [(phases[n % 2], n + 0.0, n + 1.0) for n in range(MOST_SPANS)]
    assert of(spans).left_out == 0 and len(of(spans).spans) == MOST_SPANS
    end = float(MOST_SPANS)
    more = of([*spans, ("training", end, end + 0.5), ("saving", end + 0.5, end + 3)])
    assert (len(more.spans), more.left_out) == (MOST_SPANS, 2)
    assert more.spans[-1].phase == "saving" and "training" not in {span.phase for span in more.spans}
    assert more.phases["training"] == 0.5 and sum(more.phases.values()) == more.seconds
    begins = [span.begin for span in more.spans]
    assert begins == sorted(begins)
    assert len(more.model_dump_json()) < 6_000


def test_less_than_a_millisecond_is_no_span() -> None:
    found = of([("handover", 0, 0.0004), ("training", 0.0004, 1), ("saving", 1, 1.001)])
    assert found.phases == {"training": 1.0, "saving": 0.001} and found.left_out == 0
    assert [span.phase for span in found.spans] == ["training", "saving"]


@pytest.mark.parametrize(
    "odd", [{"seconds": -1}, {"seconds": float("nan")}, {"busy": 1.5}, {"phases": {"training": -1}}, {"memory": -1},
            {"phases": {"sleeping": 1}}, {"spans": [{"phase": "training", "begin": 0, "end": 1}] * (MOST_SPANS + 1)}],
)  # fmt: skip
def test_a_line_that_cannot_be_true_is_none(odd: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        DeviceStep.model_validate(of([("training", 0, 1)]).model_dump() | odd)


# How much a device worked.


def use(seconds: float = 10.0, busy: float | None = None, **phases: float) -> DeviceUse:
    return DeviceUse("node", "0", seconds, busy, phases)


def test_without_a_driver_work_is_generation_and_training() -> None:
    found = worked([use(generation=2, training=1, environment=4, scoring=3), use(training=10)])
    assert found is not None and (found.share, found.measured, found.steps, found.left_out) == (0.65, False, 2, 0)
    assert found.waits == {"environment": 0.2, "scoring": 0.15} and found.cause == "environment"


def test_the_time_of_an_evaluation_is_neither() -> None:
    found = worked([use(training=3, saving=1, evaluating=6)])
    assert found is not None and found.share == 0.75 and found.waits == {"saving": 0.25}
    assert worked([use(evaluating=10)]) is None and worked([]) is None


def test_what_the_driver_measured_counts_where_it_covers_half_of_the_time() -> None:
    half = [use(busy=0.25, training=10), use(training=10)]
    found = worked(half)
    assert found is not None and (found.share, found.measured, found.steps, found.left_out) == (0.25, True, 1, 1)
    found = worked([*half, use(0.1, training=0.1)])
    assert found is not None and (found.share, found.measured, found.steps, found.left_out) == (1.0, False, 3, 0)
    found = worked([use(30, 0.5, training=30), use(10, 0.1, training=10)])
    assert found is not None and found.share == 0.4, "a long step counts more"
    found = worked([use(busy=0.0, training=10)])
    assert found is not None and found.share == 0.0 and found.measured, "0 is measured, too"


def test_the_cause_is_the_longest_wait_and_of_equal_ones_the_first_by_name_of_the_list() -> None:
    found = worked([use(training=1, scoring=3, handover=3, saving=3)])
    assert found is not None and list(found.waits) == ["scoring", "handover", "saving"] and found.cause == "scoring"


@pytest.mark.parametrize(("environment", "cause"), [(4.0, "environment"), (3.9, None)])
def test_waiting_that_explains_less_than_half_is_no_cause(environment: float, cause: str | None) -> None:
    found = worked([use(busy=0.2, generation=10 - environment, environment=environment)])
    assert found is not None and found.cause == cause
