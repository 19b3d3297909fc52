"""The table of methods, and that nothing else asks what kind a job is."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args

import pytest

from training.config import METHODS, JobConfig, Kind, method_of
from training.config.rollout import RolloutConfig
from training.metrics import METRICS

ROOT = Path(__file__).resolve().parents[2]


def test_what_each_method_does() -> None:
    facts = {kind: (one.plays, one.trains, one.learns_from, one.scripted) for kind, one in METHODS.items()}
    assert facts == {
        "grpo": (True, True, "rollouts", False),
        "rloo": (True, True, "rollouts", False),
        "ppo": (True, True, "rollouts", False),
        "dpo": (False, True, "preferences", False),
        "sft": (False, True, "demonstrations", False),
        "sample": (True, False, "nothing", True),
        "evaluate": (True, False, "nothing", True),
    }


def test_every_kind_has_a_row() -> None:
    assert tuple(METHODS) == get_args(Kind)
    assert JobConfig(kind="sft").method is METHODS["sft"]
    assert method_of("of-another-trainer") is METHODS["grpo"]


@pytest.mark.parametrize("kind", METHODS)
def test_a_row_names_only_what_exists(kind: str) -> None:
    method = METHODS[kind]
    assert set(method.groups) <= set(JobConfig.model_fields)
    assert set(method.tiles) | set(method.curves) <= set(METRICS)
    assert callable(method.load())


@pytest.mark.parametrize("folder", ["training", "webapp"])
def test_only_the_table_knows_the_kinds(folder: str) -> None:
    """`kind` was compared in 40 places, so a new method touched 15 files."""
    wrong = []
    for path in (ROOT / folder).rglob("*.py"):
        if "migrations" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare):
                sides = [node.left, *node.comparators]
                about = any(isinstance(side, ast.Attribute) and side.attr == "kind" for side in sides)
                if about and any(isinstance(side, ast.Constant) and side.value in METHODS for side in sides):
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert wrong == []


def test_templates_and_scripts_ask_the_table_too() -> None:
    pattern = re.compile(r"kind\s*(?:===?|!==?)\s*[\"'](?:" + "|".join(METHODS) + r")[\"']")
    paths = [*(ROOT / "templates").rglob("*.html"), *(ROOT / "static/js").rglob("*.js")]
    assert [path.name for path in paths if pattern.search(path.read_text(encoding="utf-8"))] == []


def test_the_options_of_sampling_have_the_names_of_the_field() -> None:
    """Editing all texts at once had called the temperature "Policies"."""
    titles = {name: RolloutConfig.model_fields[name].title for name in ("temperature", "top_p", "top_k")}
    assert titles == {"temperature": "Temperature", "top_p": "Top p", "top_k": "Top k"}
