"""Where a rollout set comes from, in the words of the lab's list."""

from __future__ import annotations

import uuid
from typing import Any

from tests.markup import drawn, words


def _source(**facts: Any) -> str:
    given = {
        "kind": "run",
        "run_name": "run 1",
        "get_kind_display": "test cases",
        "first_step": None,
        "last_step": None,
    }
    return drawn("rewards/lab/_source.html", set={**given, **facts})


def test_a_rollout_set_names_its_run_and_its_steps() -> None:
    assert words(_source()) == "run 1" and "<a" not in _source()
    assert "/runs/" in _source(run_id=uuid.UUID(int=1))
    assert words(_source(first_step=0, last_step=3)) == "run 1 · steps 0 to 3"
    assert words(_source(first_step=0)) == "run 1 · from step 0"
    assert words(_source(last_step=0)) == "run 1 · up to step 0"
    assert words(_source(found_by="solved")) == "run 1 · solved"
    assert words(_source(kind="cases", found_by="solved")) == "test cases"
