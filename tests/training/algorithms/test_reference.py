"""docs/algorithms.md is what the code says, and names every method, loss and option of learning."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from training.algorithms.reference import LOSSES, METHODS, PAIR_LOSSES, SETTINGS, reference
from training.config import METHODS as TABLE
from training.config import DpoConfig, GrpoConfig, JobConfig

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_is_current() -> None:
    assert (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8") == reference()


def test_every_method_that_trains_and_every_loss_has_its_row() -> None:
    assert [entry.names[0] for entry in METHODS] == [kind for kind, method in TABLE.items() if method.trains]
    assert [entry.names[0] for entry in LOSSES] == list(get_args(GrpoConfig.model_fields["loss_type"].annotation))
    assert [entry.names[0] for entry in PAIR_LOSSES] == list(get_args(DpoConfig.model_fields["loss_type"].annotation))
    assert all(entry.paper and entry.formula and entry.use for entry in (*METHODS, *LOSSES, *PAIR_LOSSES, *SETTINGS))


def test_every_option_of_learning_is_named_and_no_other() -> None:
    named = {name for entry in (*METHODS, *LOSSES, *PAIR_LOSSES) for name in entry.options}
    named |= {name for entry in SETTINGS for name in entry.names}
    config = JobConfig()
    groups = ("grpo", "rloo", "ppo", "dpo", "sft")
    options = {f"{group}.{name}" for group in groups for name in type(getattr(config, group)).model_fields}
    assert options - named == {"grpo.loss_type"}  # a table of its own
    every = {f"{group}.{name}" for group in type(config).model_fields for name in _fields(getattr(config, group))}
    assert named <= every


def _fields(group: object) -> list[str]:
    return list(getattr(type(group), "model_fields", {}))
