"""The devices of a job's ranks: each named and measured by its own process, and kept apart."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

from training.devices import Measured, Meter
from training.lanes import Span
from training.verl_backend import beats
from training.verl_backend.beats import Ranks, begin_measuring, take_measured

SPANS = [Span("generation", 5.0, 7.0), Span("training", 7.0, 8.0)]


def asking(places: list[tuple[str, str]], measured: list[Measured]) -> tuple[Callable[..., list[Any]], list[str]]:
    """Ranks in these places, and what they are asked for."""
    asked: list[str] = []

    def ask(function: Callable[..., Any], *_given: Any) -> list[Any]:
        asked.append(function.__name__)
        return list(places if function is begin_measuring else measured)

    return ask, asked


def test_each_device_of_each_host_has_the_same_phases_and_figures_of_its_own() -> None:
    ask, asked = asking([("a", "0"), ("a", "1"), ("b", "0")], [Measured(0.5, 7, 300.0), Measured(), Measured(0.25)])
    steps = Ranks(ask, "cuda").steps(4, SPANS)
    assert [(each.step, each.host, each.device, each.busy, each.memory, each.power_w) for each in steps] == [
        (4, "a", "0", 0.5, 7, 300.0), (4, "a", "1", None, None, None), (4, "b", "0", 0.25, None, None),
    ]  # fmt: skip
    assert {str(each.phases) for each in steps} == {"{'generation': 2.0, 'training': 1.0}"}
    assert asked == ["begin_measuring", "take_measured"]


def test_processors_have_numbers_and_are_not_measured() -> None:
    ask, asked = asking([("a", "cpu"), ("b", "cpu"), ("a", "cpu")], [])
    steps = Ranks(ask, "cpu").steps(1, SPANS)
    assert [(each.host, each.device, each.busy) for each in steps] == [
        ("a", "cpu:0", None), ("b", "cpu", None), ("a", "cpu:1", None),
    ]  # fmt: skip
    assert asked == ["begin_measuring"]


def test_in_the_process_of_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beats, "_meters", [])
    monkeypatch.setattr(beats, "own_device", lambda kind: {"cuda": "GPU-1b"}[kind])
    monkeypatch.setattr(Meter, "start", lambda meter: None)
    monkeypatch.setattr(Meter, "take", lambda meter: Measured(0.5 if meter.device == "GPU-1b" else None))
    assert begin_measuring(None, "cuda") == (socket.gethostname(), "GPU-1b")
    assert take_measured(None) == Measured(0.5)
