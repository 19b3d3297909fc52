"""Python's collector of cyclic garbage in a process that plays thousands of rollouts at once.

CPython looks for cycles each time 700 objects more have been made, and through all objects whenever their number has
grown by a quarter. Those that torch, transformers and TRL load, a million, are never garbage; those of rollouts live
for a whole sampling.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG = 50_000
"""New objects between two looks at the young ones: about those of a hundred turns."""
_frozen = False
"""Noted here, because `gc.get_freeze_count` walks through all that is frozen: 30 ms for a million objects."""


def freeze() -> None:
    """Leave what is loaded now out of every later collection of this process."""
    global _frozen
    gc.collect()
    gc.freeze()
    _frozen = True


def unfreeze() -> None:
    """Have collections look at everything again."""
    global _frozen
    gc.unfreeze()
    _frozen = False


@contextmanager
def no_collections() -> Iterator[None]:
    """For imports: nothing of what they load is garbage, and to look through all of it again and again as it grows
    takes a fifth of a trainer's start."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def rare_collections() -> None:
    """Look at new objects less often, as long as this process lives: a sixth of the start of a command with Django went
    into walks through what it had just loaded, and a fifth of a new database's migrations."""
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])


@contextmanager
def few_collections() -> Iterator[None]:
    """Leave what was loaded before out of every collection, and look at what is new less often. What ``freeze`` has
    left out before stays so."""
    before, ours = gc.get_threshold(), not _frozen
    if ours:
        freeze()
    rare_collections()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if ours:
            unfreeze()
