"""The cases that people brought, file by file: what a check keeps of each, and what SFT learns of it.

The files lie next to the repository; literal variants of each kind are in the other modules of this folder.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trl

from tests.training.data.test_nothing_lost import turns_of
from training.algorithms.lessons import Encoded, encode_rows
from training.data.checking.check import check_file
from training.data.checking.report import Report
from training.data.learned import IGNORED
from training.data.options import ReadOptions
from training.data.reader import load_rows
from training.rollout.templates import use_training_template

CASES = Path(__file__).resolve().parents[4] / "shared" / "cases"
TEMPLATES = Path(trl.__file__).parent / "chat_templates"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason=f"needs the cases in {CASES}")
Value = dict[str, Any]


def case(tmp_path: Path, name: str, **options: Any) -> tuple[Report, list[Value]]:
    """The report of a case, and the rows that are kept: all of them."""
    path = next(CASES.glob(f"{name}.*"))
    report = check_file(path, tmp_path, **options)
    assert (report.verdict, report.bad_rows) == ("ok", 0), report.bad
    return report, [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]


def names(row: Value) -> list[str]:
    return [tool["function"]["name"] for tool in row["tools"]]


def arguments(row: Value) -> list[Value]:
    return [call["arguments"] for turn in row["messages"] for call in turn.get("tool_calls", [])]


@pytest.fixture
def learn(tmp_path: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What SFT with Qwen3's template learns of the rows that a check has kept: texts, and what was left out."""
    monkeypatch.setattr(tokenizer, "chat_template", (TEMPLATES / "qwen3.jinja").read_text(encoding="utf-8"))
    use_training_template(tokenizer)

    def learned() -> tuple[list[str], Encoded]:
        encoded = encode_rows(load_rows(tmp_path / "rows.jsonl"), tokenizer, 8192)
        kept = [[label for label in example["labels"] if label != IGNORED] for example in encoded.examples]
        return [tokenizer.decode(labels) for labels in kept], encoded

    return learned


def test_the_reasoning_is_learned(tmp_path: Path, learn: Any) -> None:
    report, rows = case(tmp_path, "c1_reasoning_content")
    assert rows[0]["messages"][1]["reasoning_content"] == "Stock must be asked first."
    assert any("1 rows hold reasoning" in text for text in report.format.evidence)
    texts, encoded = learn()
    assert "<think>\nStock must be asked first.\n</think>" in texts[0] and "<think>\nThe tool said 4.\n" in texts[0]
    assert encoded.unreasoned == 0


@pytest.mark.parametrize(
    ("name", "off", "on"),
    [("c2_weight_zero", "WRONG", "right"), ("c6_trainable_false", "teacher's draft", "final")],
)
def test_a_turn_that_is_marked_is_not_learned(tmp_path: Path, learn: Any, name: str, off: str, on: str) -> None:
    report, _rows = case(tmp_path, name)
    assert any("1 rows have assistant turns that are marked as not learned" in text for text in report.format.evidence)
    texts, _encoded = learn()
    assert off not in texts[0] and on in texts[0]


def test_a_bad_example_is_no_demonstration(tmp_path: Path, learn: Any) -> None:
    report, _rows = case(tmp_path, "c3_label_false")
    assert any("1 rows are marked as bad examples" in text for text in report.format.evidence)
    texts, encoded = learn()
    assert encoded.left_out == {"bad": 1} and len(texts) == 1 and "4" in texts[0] and "5" not in texts[0]


@pytest.mark.parametrize("name", ["d1_struct_tools", "d2_struct_as_json"])
def test_tools_and_calls_have_their_own_parameters(tmp_path: Path, learn: Any, name: str) -> None:
    report, rows = case(tmp_path, name)
    found = [list(row["tools"][0]["function"]["parameters"]["properties"]) for row in rows]
    assert found == [["item"], ["a", "b"]]
    assert [arguments(row) for row in rows] == [[{"item": "lamp"}], [{"a": 2, "b": 3}]]
    assert sum("left by Arrow" in text for text in report.format.evidence) == 2 and report.codes == {}
    assert not any("null" in text for text in learn()[0])


def test_tools_kwargs_name_the_row_s_own_tools(tmp_path: Path) -> None:
    _report, rows = case(tmp_path, "d3_struct_tools_kwargs")
    assert [list(row["extra_info"]["tools_kwargs"]) for row in rows] == [["calc"], ["find"]]


@pytest.mark.parametrize("name", ["e1_tool_defs", "e2_functions"])
def test_tools_under_another_name_are_tools(tmp_path: Path, name: str) -> None:
    report, rows = case(tmp_path, name)
    assert names(rows[0]) == ["stock"] and arguments(rows[0]) == [{"item": "lamp"}] and report.codes == {}


def test_calls_of_tools_that_are_not_offered_are_remarked(tmp_path: Path) -> None:
    report, rows = case(tmp_path, "e4_calls_without_any_tools")
    assert report.codes == {"tools_missing": 1} and arguments(rows[0]) == [{"item": "lamp"}]


def test_a_list_of_calls_is_one_turn(tmp_path: Path) -> None:
    _report, rows = case(tmp_path, "h1_sharegpt_list")
    assert [turn["role"] for turn in rows[0]["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert arguments(rows[0]) == [{"born": "1990-05-15"}, {"born": "1992-01-10"}] and names(rows[0]) == ["age"]


def test_parallel_calls_are_one_turn(tmp_path: Path) -> None:
    report, rows = case(tmp_path, "n1_parallel_function_calls")
    roles = [turn["role"] for turn in rows[0]["messages"]]
    assert roles == ["user", "assistant", "tool", "tool", "assistant"] and report.codes == {}
    assert arguments(rows[0]) == [{"item": "lamp"}, {"item": "rug"}]


def test_calls_and_results_in_texts_are_read(tmp_path: Path, learn: Any) -> None:
    report, rows = case(tmp_path, "p1_hermes_v1")
    assert arguments(rows[0]) == [{"item": "lamp"}] and rows[0]["messages"][3]["content"] == "{'count': 4}"
    assert report.codes == {} and report.tools == {"1": 1}
    assert '{"name": "stock", "arguments": {"item": "lamp"}}' in learn()[0][0]


def test_a_text_with_marks_is_split(tmp_path: Path) -> None:
    report, rows = case(tmp_path, "q1_text_chatml")
    assert report.format.rows == "marked"
    assert [turns_of(row) for row in rows] == [[("user", f"hi {n}"), ("assistant", "hello")] for n in (1, 2)]


def test_llama_factory_s_parts_are_read(tmp_path: Path, learn: Any) -> None:
    _report, rows = case(tmp_path, "r1_llamafactory_v1")
    assert turns_of(rows[0]) == [("user", "hi"), ("assistant", "hello")]
    assert rows[0]["messages"][1]["reasoning_content"] == "think"
    assert learn()[0] == ["<think>\nthink\n</think>\n\nhello<|im_end|>"]


def test_anthropic_s_blocks_are_read(tmp_path: Path) -> None:
    report, rows = case(tmp_path, "r2_anthropic")
    roles = ["system", "user", "assistant", "tool", "assistant"]
    assert turns_of(rows[0]) == list(zip(roles, ("Be brief.", "Lamps?", "Looking.", "4", "Four."), strict=True))
    assert arguments(rows[0]) == [{"item": "lamp"}] and names(rows[0]) == ["stock"] and report.codes == {}
    assert rows[0]["tools"][0]["function"]["parameters"]["properties"] == {"item": {"type": "string"}}


def test_recorded_rollouts_are_named_and_learned_by_reward(tmp_path: Path, learn: Any) -> None:
    report, rows = case(tmp_path, "s1_nemo_rollouts")
    assert any("2 rows are recorded rollouts" in text for text in report.format.evidence)
    assert turns_of(rows[0]) == [("user", "Lamps?")]
    case(tmp_path, "s1_nemo_rollouts", reading=ReadOptions(shape="sft"))
    texts, encoded = learn()
    assert encoded.left_out == {"bad": 1} and len(texts) == 1 and "Four." in texts[0] and "lamp" in texts[0]
