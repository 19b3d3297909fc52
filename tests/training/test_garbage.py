"""Fewer looks for cyclic garbage while rollouts are played, and all as before afterwards."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from training.garbage import YOUNG, few_collections, freeze, no_collections, rare_collections, unfreeze


class Ring:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def thawed() -> Iterator[None]:
    """As a trainer begins; the process of the tests has frozen what it loaded."""
    unfreeze()
    yield
    freeze()


def test_what_was_loaded_before_is_left_out_and_what_is_new_is_found(thawed: None) -> None:
    before, loaded = gc.get_threshold(), len(gc.get_objects())
    old = Ring()
    old_gone = weakref.ref(old)
    with few_collections():
        assert gc.get_threshold() == (YOUNG, *before[1:]) and gc.get_freeze_count() > 0.9 * loaded
        new_gone = weakref.ref(Ring())
        del old
        gc.collect()
        assert new_gone() is None and old_gone() is not None
    assert gc.get_threshold() == before and gc.get_freeze_count() == 0
    gc.collect()
    assert old_gone() is None


def test_rare_ones_look_at_new_objects_later_and_at_old_ones_as_before() -> None:
    before = gc.get_threshold()
    try:
        rare_collections()
        assert gc.get_threshold() == (50_000, *before[1:])
    finally:
        gc.set_threshold(*before)


def test_what_was_frozen_before_stays_so() -> None:
    """Without it, each training in a process of tests thawed a million objects, and looked through them all."""
    freeze()
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    with few_collections():
        assert gc.get_threshold() == (YOUNG, *before[1:]) and gc.get_freeze_count() <= frozen
    assert gc.get_threshold() == before and gc.get_freeze_count() > frozen / 2


def test_one_within_another_leaves_what_that_has_left_out(thawed: None) -> None:
    loaded = len(gc.get_objects())
    with few_collections():
        with few_collections():
            pass
        assert gc.get_freeze_count() > 0.9 * loaded
    assert gc.get_freeze_count() == 0


def test_an_error_leaves_the_collector_as_it_was(thawed: None) -> None:
    before = gc.get_threshold()
    with pytest.raises(ValueError, match="by hand"), few_collections():
        raise ValueError("by hand")
    assert gc.get_threshold() == before and gc.get_freeze_count() == 0


@pytest.mark.parametrize("on", [True, False])
def test_imports_are_not_looked_through_and_the_collector_is_as_before(on: bool) -> None:
    before = gc.isenabled()
    (gc.enable if on else gc.disable)()
    try:
        with pytest.raises(ImportError), no_collections():
            assert not gc.isenabled()
            raise ImportError
        assert gc.isenabled() is on
    finally:
        (gc.enable if before else gc.disable)()
