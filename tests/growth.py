"""Does eight times the text take at most 15.6 times as long? By processor time, which a busy machine disturbs least.

And does a page ask the database as few questions with many objects as with few?
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import json
import re
import time
from collections.abc import Callable, Iterator

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

PARTS = 8
"""How much larger the text is than the small one. A square costs 64 times as much then; caches that the large text does
not fit, and a neighbour who fills them, at most double a linear cost."""
GROWTH = 2.5**3
"""Of the time, at most: 2.5 for each doubling."""
STANDARD_S = 0.005
"""What ``standard_work`` takes on the machine whose seconds limits are in. Others took up to twice as long."""
MOST_QUERIES = 15
"""Of one page."""
SURE, MOST = 3, 12
"""Rounds at least, and rounds at most while the ratio is too large: a pause of the machine makes it so in some of them,
a cost that grows with the square in all."""


@functools.cache
def _keep_arenas() -> list[bytes]:
    """One small object in each of Python's own arenas (1 MiB) for 40 MiB, so that none of them is given back either:
    splitting a text makes thousands of objects, and each round would have fresh pages for them."""
    return [bytes(64) for _ in range(400_000)][::4_000]


@contextlib.contextmanager
def memory_kept() -> Iterator[None]:
    """Within, freed memory stays with the process. Else the C library gives large pieces back to the kernel and asks
    for them again in each round: a text of twice the size may cross that line and cost four times as much."""
    _keep_arenas()
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not glibc
        yield
        return
    trim, mmap, usual, never = -1, -3, 128 << 10, 1 << 30  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of malloc.h
    mallopt(trim, never)
    mallopt(mmap, never)
    try:
        yield
    finally:
        mallopt(trim, usual)
        mallopt(mmap, usual)


def seconds(work: Callable[[], object], clock: Callable[[], float] = time.thread_time) -> float:
    """What doing it once takes, without the garbage collector: it walks all that other tests left in this process."""
    gc.collect(0)
    gc.disable()
    try:
        began = clock()
        work()
        return clock() - began
    finally:
        gc.enable()


def standard_work() -> None:
    """JSON, regular expressions and dictionaries of Python: what the code under test is made of, too."""
    rows = [{"id": number, "text": f"word {number} and more " * 3, "values": [number, None]} for number in range(1500)]
    words: dict[int, int] = {}
    for row in json.loads(json.dumps(rows)):
        words[row["id"] % 97] = words.get(row["id"] % 97, 0) + len(re.findall(r"\w+", row["text"]))


def slower(standard_s: float) -> float:
    """How many times slower this machine is than the one whose seconds limits are in; 1 for a quicker one."""
    return max(1.0, standard_s / STANDARD_S)


def assert_quick(work: Callable[[], object], limit_s: float, *, clock: Callable[[], float] = time.thread_time) -> None:
    """The best of several turns of ``work`` takes at most ``limit_s``, on a machine whose standard work takes
    ``STANDARD_S``; on a slower one as many times longer as that takes there, in turns between."""
    took = standard = float("inf")
    for _ in range(MOST):
        took = min(took, seconds(work, clock))
        standard = min(standard, seconds(standard_work, clock))
        if took <= limit_s * slower(standard):
            return
    raise AssertionError(f"{took:.3f} s (limit {limit_s} s), and {standard * 1000:.1f} ms for the standard work")


def assert_linear(
    work: Callable[[int], Callable[[], object]],
    size: int,
    *,
    limit_s: float,
    quiet_s: float = 0.01,
    clock: Callable[[], float] = time.thread_time,
) -> None:
    """What ``work(size)`` returns takes at most ``GROWTH`` times as long as that for an eighth of it, and ``limit_s``
    as ``assert_quick`` has it.

    The best of several turns of each counts; ``quiet_s`` is what memory and caches may add, whatever the text.
    """
    little, much = work(size // PARTS), work(size)
    small = large = standard = float("inf")
    with memory_kept():
        for count in range(1, MOST + 1):
            large = min(large, seconds(much, clock))
            if large <= min(quiet_s, limit_s):
                return
            small = min(small, seconds(little, clock))
            standard = min(standard, seconds(standard_work, clock))
            if count >= SURE and large <= min(limit_s * slower(standard), GROWTH * small + quiet_s):
                return
    raise AssertionError(
        f"{small * 1000:.1f} ms, and {large * 1000:.1f} ms for {PARTS} times as much (limit {limit_s} s), and "
        f"{standard * 1000:.1f} ms for the standard work"
    )


def queries_of(client: Client, address: str) -> int:
    """How many questions a page asks the database, once what is kept for later is there."""
    assert client.get(address).status_code == 200, address
    with CaptureQueriesContext(connection) as caught:
        client.get(address)
    return len(caught)


def assert_few_queries(
    client: Client, addresses: list[str], more: Callable[[], object], most: int = MOST_QUERIES
) -> None:
    """No page asks more than ``most``, nor any more once ``more`` has added objects."""
    before = {address: queries_of(client, address) for address in addresses}
    more()
    after = {address: queries_of(client, address) for address in addresses}
    many = {address: count for address, count in after.items() if count > MOST_QUERIES}
    assert not many, many
    assert {address: (before[address], count) for address, count in after.items() if count > before[address]} == {}
