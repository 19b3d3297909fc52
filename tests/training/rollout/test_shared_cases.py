"""Every shared case of a model's turn and of a chat template, by value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.training.rollout.templates import model_with, text_of, tokenizer_for
from tests.training.rollout.test_template_check import template_check
from training.algorithms.lessons import encode_rows
from training.data.learned import IGNORED
from training.data.schema import row_from_dict
from training.dialects import ANYONE, DIALECTS
from training.rollout.tokens import ChatTemplate

CASES = Path(__file__).resolve().parents[4] / "shared" / "cases"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="the shared cases are not here")
STOCK = {
    "type": "function",
    "function": {
        "name": "stock",
        "parameters": {"properties": {"item": {"type": "string"}, "count": {"type": "integer"}}},
    },
}
LAMPS = ("stock", {"item": "lamp", "count": 3})


def text(name: str) -> str:
    return (CASES / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "template"),
    [
        ("a1_turn_xml.txt", "qwen3_5_think_training"),
        ("a2_turn_llama31.txt", "llama3_1"),
        ("a4_turn_pythonic_marks.txt", "lfm2_2_5"),
    ],
)
def test_the_familys_dialect(name: str, template: str) -> None:
    dialect = ChatTemplate(tokenizer_for(text_of(template))).family.dialect
    for read in (DIALECTS[dialect], ANYONE):  # by the model's own template, and for an endpoint
        turn = read(text(name), "c", [STOCK])
        assert ([(call.name, call.arguments) for call in turn.tool_calls], turn.parse_error) == ([LAMPS], None)


@pytest.mark.parametrize(
    ("name", "dialect", "content", "calls"),
    [
        ("f1_call_only_in_think.txt", "hermes", "Nothing to delete.", []),
        ("f2_draft_and_real.txt", "hermes", "", [("pay", {"eur": 2})]),
        ("f4_toolbench_action_in_think.txt", "toolbench", "ask", [("stock", {"item": "lamp"})]),
    ],
)
def test_calls_inside_reasoning(name: str, dialect: str, content: str, calls: Any) -> None:
    turn = DIALECTS[dialect](text(name), "c")
    assert (turn.text, [(call.name, call.arguments) for call in turn.tool_calls], turn.parse_error) == (
        content,
        calls,
        None,
    )
    assert turn.reasoning


@pytest.mark.parametrize("name", ["g1_parameters.txt", "g2_spread.txt", "g3_args.txt"])
def test_arguments_under_other_names(name: str) -> None:
    turn = DIALECTS["hermes"](text(name), "c")
    assert turn.tool_calls == [] and 'no "arguments"' in (turn.parse_error or "")


def test_a_template_without_tools(starter_folder: Path, tmp_path: Path) -> None:
    folder = model_with(text("b1_template_without_tools.jinja"), starter_folder, tmp_path / "model")
    data = tmp_path / "rows.jsonl"
    data.write_text('{"messages": [{"role": "user", "content": "a"}], "tools": [{"name": "stock"}]}\n')
    check = template_check(folder, data)
    assert (check.ok, check.hard) == (False, True) and check.message == "The chat template leaves tool calls out."


def test_the_end_of_a_turn_is_learned() -> None:
    tokenizer = tokenizer_for(text("o1_template_stop_not_learned.jinja"))
    row = row_from_dict({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "hello"}]})
    labels = encode_rows([row], tokenizer, 512).examples[0]["labels"]
    assert tokenizer.decode([label for label in labels if label != IGNORED]) == "hello<|im_end|>"
