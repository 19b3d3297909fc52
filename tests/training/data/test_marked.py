"""Conversations that are one text, split at the marks of a chat template."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.training.data.test_nothing_lost import checked, lines, turns_of
from tests.training.data.test_spellings import LAMP, Value, spelled
from training.data.options import ReadOptions

MARKED = {
    "ChatML": "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nq\n2<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n",
    "Llama 3": "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nq\n2<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\na<|eot_id|>",
    "Zephyr": "<|system|>\nS</s>\n<|user|>\nq\n2</s>\n<|assistant|>\na</s>\n",
}


@pytest.mark.parametrize("name", MARKED)
@pytest.mark.parametrize("column", ["text", "conversation", "sample"])
def test_marked_texts_are_split_into_turns(tmp_path: Path, name: str, column: str) -> None:
    kept, codes, evidence = spelled(tmp_path, {column: MARKED[name], "id": 1}, {column: MARKED[name] + " ", "id": 2})
    assert turns_of(kept[0]) == [("system", "S"), ("user", "q\n2"), ("assistant", "a")] and kept[0]["id"] == 1
    assert column not in kept[0] and "split at the marks" in " ".join(evidence) and codes.keys() <= {"duplicate"}


def test_gemma_has_no_system_and_calls_its_assistant_model(tmp_path: Path) -> None:
    text = "<bos><start_of_turn>user\nq\n<end_of_turn>\n<start_of_turn>model\na<end_of_turn>\n"
    assert turns_of(spelled(tmp_path, {"text": text})[0][0]) == [("user", "q"), ("assistant", "a")]


def test_calls_and_results_in_marked_texts_are_read(tmp_path: Path) -> None:
    text = (
        "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"
        f"<tool_call>\n{json.dumps(LAMP)}\n</tool_call><|im_end|>\n"
        "<|im_start|>user\n<tool_response>\n4\n</tool_response><|im_end|>\n<|im_start|>assistant\nFour.<|im_end|>\n"
    )
    turns = spelled(tmp_path, {"text": text})[0][0]["messages"]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "tool", "assistant"]
    assert turns[1]["tool_calls"][0]["arguments"] == {"item": "lamp"} and turns[2]["content"] == "4"


@pytest.mark.parametrize(
    ("answer", "shape", "last", "truth"),
    [
        ({"response": "a"}, "rl", "user", "a"),
        ({"response": "a"}, "sft", "assistant", "a"),
        ({"answer": "a<|im_end|>"}, "sft", "assistant", "a<|im_end|>"),
        ({"completion": "a<|im_end|>"}, "rl", "assistant", None),
        ({"response": "a", "ground_truth": "b"}, "rl", "user", "b"),
        ({"response": 3}, "sft", "user", None),
        ({}, "rl", "user", None),
    ],
)
def test_an_answer_follows_a_prompt_that_asks_the_model_to_speak(
    tmp_path: Path, answer: Value, shape: Any, last: str, truth: str | None
) -> None:
    prompt = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"
    report, kept = checked(tmp_path, lines({"prompt": prompt, **answer}), reading=ReadOptions(shape=shape))
    assert report.format.rows == "marked" and turns_of(kept[0])[-1] == (last, "a" if last == "assistant" else "q")
    assert kept[0].get("ground_truth") == truth and ("completion" in kept[0]) is False


@pytest.mark.parametrize(
    "mark", ["<|im_start|>", "<|start_header_id|>", "<start_of_turn>", "<|user|>", "[INST]", "[/INST]"]
)
def test_marks_that_are_not_split_at_are_remarked(tmp_path: Path, mark: str) -> None:
    for role in ("user", "assistant"):
        turn = {"role": role, "content": f"a {mark} b"}
        kept, codes, _evidence = spelled(tmp_path, {"messages": [turn]})
        assert kept[0]["messages"] == [turn] and codes["template_mark"] == 1
    whole = {"question": f"<s>{mark} q", "answer": "a"}
    assert spelled(tmp_path, whole)[1] == {"template_mark": 1}
    assert "template_mark" not in spelled(tmp_path, {"messages": [{"role": "user", "content": "a [b] <c>"}]})[1]


def test_a_row_without_marks_among_marked_ones_is_refused(tmp_path: Path) -> None:
    report, _kept = checked(tmp_path, lines({"text": MARKED["ChatML"]}, {"text": "plain"}, {"text": MARKED["ChatML"]}))
    assert report.rows == 2 and report.bad[0].reason.endswith("no column of it has such marks")
