"""Makes training/config/verl_keys.txt of the installed verl: ``python -m tests.training.verl_backend.verl_keys``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.training.verl_backend.conftest import PYTHON
from training.exports.verl_options import VERL

TREES = {"fsdp2": "_generated_ppo_trainer.yaml", "megatron": "_generated_ppo_megatron_trainer.yaml"}


def installed() -> Path | None:
    """The folder of verl's package; ``None`` where it is not installed."""
    return next(iter(PYTHON.parents[1].glob("lib/python*/site-packages/verl")), None)


def tree_of_verl(verl: Path, sharding: str) -> dict[str, Any]:
    """verl's own options with a sharding."""
    found: dict[str, Any] = yaml.safe_load((verl / "trainer/config" / TREES[sharding]).read_text(encoding="utf-8"))
    return found


def keys_text(verl: Path) -> str:
    """The file: a line for each key, with the shardings that have it."""
    trees = {sharding: set(_leaves(tree_of_verl(verl, sharding))) for sharding in TREES}
    both = set.intersection(*trees.values())
    named = {key: "both" if key in both else of for of, keys in trees.items() for key in keys}
    head = f"# Keys of verl {VERL} and the sharding that has each: python -m tests.training.verl_backend.verl_keys"
    return "\n".join([head, *(f"{named[key]} {key}" for key in sorted(named))]) + "\n"


def _leaves(tree: dict[str, Any], above: str = "") -> Iterator[str]:
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}"


if __name__ == "__main__":
    found = installed()
    if found is None:
        sys.exit("There is no .venv-verl: run make setup-verl.")
    sys.stdout.write(keys_text(found))
