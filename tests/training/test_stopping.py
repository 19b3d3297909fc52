"""How long a stop may take, and whether a process works."""

from __future__ import annotations

import pytest

from training.sessions import Works, patience, stop_grace


@pytest.mark.parametrize(
    ("save_s", "update_s", "grace_s"),
    [(None, None, 6.5), (20, 4, 64), (0.1, 120, 120.3), (1, 3.5, 6.5), (1, 3.6, 6.6), (400, 9, 298), (-5, -5, 6.5)],
)
def test_the_grace_follows_the_last_save_and_the_last_update(
    save_s: float | None, update_s: float | None, grace_s: float
) -> None:
    assert stop_grace(save_s, update_s) == pytest.approx(grace_s)


def test_who_asks_may_set_the_least_grace() -> None:
    assert stop_grace(None, None, 0.5) == 0.5 and stop_grace(1, None, 0.5) == 3


@pytest.mark.parametrize(("grace_s", "in_all_s"), [(6.5, 66.5), (238, 298), (239, 298), (298, 298)])
def test_patience_has_an_end(grace_s: float, in_all_s: float) -> None:
    assert patience(grace_s) == in_all_s


def test_a_process_works_while_it_uses_a_hundredth_of_a_core() -> None:
    now, spent = [0.0], [0.0]
    works = Works(lambda: spent[0], clock=lambda: now[0])
    assert works()  # nothing is known yet
    results = []
    for passed, used in [(0.9, 0.0), (0.2, 0.012), (1.0, 0.009), (0.5, 1.0), (0.5, 0.0), (2.0, 0.0)]:
        now[0] += passed
        spent[0] += used
        results.append(works())
    # The fourth is within the second of the third; by the fifth a whole second has passed, with 1.0 s used in it.
    assert results == [True, True, False, False, True, False]
