"""Prefixes of references are read and written in one place, as configs have always had them."""

from __future__ import annotations

from typing import get_args

import pytest

from training.config.job import Reference, ReferenceKind, kind_in, name_in


@pytest.mark.parametrize("kind", get_args(ReferenceKind))
def test_a_reference_is_the_text_that_a_config_has(kind: ReferenceKind) -> None:
    text = f"{kind}:tasks@2"
    assert Reference.parse(text) == Reference(kind, "tasks@2")
    assert str(Reference(kind, "tasks@2")) == text
    assert kind_in(text) == kind
    assert name_in(kind, text) == "tasks@2"


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "starter",
        "none",
        "model",
        "Model:math",
        " model:math",
        "preset:math",
        "Qwen/Qwen3-0.6B",
        "/models/run:1",
        "https://models.example/model:math",
    ],
)
def test_any_other_text_is_none_and_stays(text: str) -> None:
    assert Reference.parse(text) is None
    assert kind_in(text) is None
    assert name_in("model", text) == text


def test_a_name_is_all_after_the_first_colon_and_may_be_empty() -> None:
    assert Reference.parse("run:") == Reference("run", "")
    assert Reference.parse("model:run:math") == Reference("model", "run:math")
    assert kind_in("run:") == "run"
    assert name_in("run", "run:") == ""


def test_a_reference_of_another_kind_stays() -> None:
    assert name_in("model", "run:math") == "run:math"
    assert name_in("environment", "environment:environment:tools") == "environment:tools"
