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


_for_good = False


def freeze_for_good() -> None:
    """Leave all that is loaded out of every collection until the process ends. Call it again for what came since."""
    global _for_good
    _for_good = True
    gc.collect()
    gc.freeze()


@contextmanager
def few_collections() -> Iterator[None]:
    """Leave what was loaded before out of every collection, and look at what is new less often. A process that has
    frozen what it loaded for good stays as it is."""
    before, ours = gc.get_threshold(), not _for_good
    if ours:
        gc.collect()
        gc.freeze()
    gc.set_threshold(YOUNG, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if ours:
            gc.unfreeze()
