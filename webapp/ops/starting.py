"""Checks whether a started program is ready, or at least makes progress."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

from training.addresses import parse_place
from training.errors import EnvironmentProtocolError, TiltyardError
from webapp.common.outbound import fetch


class Progress:
    """Whether a program that does not answer yet makes progress: its processor time grows, however slowly.

    On a machine that is busy with something else a start takes minutes, and is no fault.
    """

    def __init__(self, limit_s: float, say_after_s: float) -> None:
        self._limit_s, self._spent_s = limit_s, 0.0
        self._moved_at = time.monotonic()
        self._say_at = self._moved_at + say_after_s

    def stopped(self, spent_s: float) -> bool:
        """Given its processor time: whether that has not grown for the limit."""
        if spent_s > self._spent_s:
            self._spent_s, self._moved_at = spent_s, time.monotonic()
        return time.monotonic() - self._moved_at > self._limit_s

    def slow(self) -> bool:
        """True once, when it has taken so long that a person should get a note."""
        due = time.monotonic() >= self._say_at
        if due:
            self._say_at = float("inf")
        return due


def within(seconds: float, check: Callable[[], bool]) -> bool:
    """Whether a condition becomes true within the time: checked ten times a second."""
    until = time.monotonic() + seconds
    while not (found := check()) and time.monotonic() < until:
        time.sleep(0.1)
    return found


def processor_seconds(pid: int) -> float:
    """Processor time of a process and its children so far; 0 where it cannot be asked."""
    with suppress(psutil.Error, ValueError):
        head = psutil.Process(pid)
        times = [one.cpu_times() for one in (head, *head.children(recursive=True))]
        return float(sum(each.user + each.system for each in times))
    return 0.0


def answers(url: str) -> bool:
    """Whether anything answers there, also with a redirect or a refusal."""
    place = parse_place(url)
    try:  # an HTTP client takes processor time of its own, which the starting program needs
        socket.create_connection((place.host, place.port), timeout=5).close()
    except OSError:
        return False
    try:
        fetch(url, ours=frozenset({(place.host, place.port)}), total_s=5)
    except EnvironmentProtocolError:
        return True
    except TiltyardError:
        return False
    return True
