"""What a model sees of rows, and what is learned of them, is shown by the functions that train."""

from __future__ import annotations

from typing import Any

import pytest

from tests.training.algorithms.test_lessons import ASKS, STOCK, calling, saying
from tests.training.rollout.templates import text_of, tokenizer_for
from training.algorithms.lessons import encode_rows, render_rows, spelled
from training.data.learned import IGNORED, RenderedRow, why_words
from training.data.schema import row_from_dict

SAID = {"role": "assistant", "content": "Four."}


def words(row: RenderedRow, kind: str) -> str:
    return "".join(token.text for part in row.parts if part.kind == kind for token in part.tokens)


@pytest.mark.parametrize("name", ["qwen2_5", "glm4moe", "gptoss", "llama3_1", "gemma4"])
def test_ids_and_labels_are_those_that_sft_trains_on(name: str) -> None:
    tokenizer = tokenizer_for(text_of(name))
    example = encode_rows([calling(1, 1)], tokenizer, 10_000).examples[0]
    (row,) = render_rows([calling(1, 1)], tokenizer, 1, 5).rows
    tokens = [(token.id, part.kind == "learned") for part in row.parts for token in part.tokens]
    assert [token for token, _ in tokens] == example["input_ids"]
    assert [learned for _, learned in tokens] == [label != IGNORED for label in example["labels"]]
    calls = [part.reading.calls for part in row.parts if part.reading is not None]
    assert calls == [[{"name": "stock", "arguments": {"item": "lamp"}}], []]
    assert all(part.reading.same for part in row.parts if part.reading is not None)


def test_counts_say_what_is_learned_left_out_and_dropped() -> None:
    tokenizer = tokenizer_for(text_of("qwen2_5"))
    bad = row_from_dict({"messages": [ASKS, SAID], "label": False})
    found = render_rows([calling(1, 1), saying(0, 1), bad], tokenizer, 2, 2)
    assert [(row.row, row.why, row.dropped) for row in found.rows] == [(2, "", []), (3, "bad", [])]
    assert (found.sampled, found.left_out, found.unreasoned, found.dialect) == (3, {"bad": 1}, 1, "hermes")
    second, third = found.rows
    assert words(second, "learned") == "Seven then.<|im_end|>"
    assert words(second, "unlearned") == "A wrong draft.<|im_end|>"
    assert words(third, "learned") == "" and words(third, "unlearned") == "Four.<|im_end|>"
    assert 0 < found.learned < found.tokens
    assert why_words("bad", "x") == "marked as bad examples" and why_words("A sentence.", "x") == "A sentence."


def test_a_row_of_which_nothing_can_be_learned_says_why() -> None:
    found = render_rows([calling(1, 1)], tokenizer_for(text_of("llama3")), 1, 1)
    assert found.rows[0].why == "calls" and found.left_out == {"calls": 1} and found.learned == 0
    assert found.dialect == ""


def test_a_turn_that_is_read_otherwise_than_the_row_says_is_marked() -> None:
    """Llama's template drops the words next to a call."""
    call = {"id": "k", "type": "function", "function": {"name": "stock", "arguments": {"item": "lamp"}}}
    message = {"role": "assistant", "content": "I look it up.", "tool_calls": [call]}
    row = row_from_dict({"messages": [ASKS, message], "tools": [STOCK]})
    found = render_rows([row], tokenizer_for(text_of("llama3_1")), 1, 1)
    reading = found.rows[0].parts[-1].reading
    assert reading is not None and (reading.same, reading.text, reading.error) == (False, "", "")
    assert found.unread == 1
    assert render_rows([row], tokenizer_for(text_of("qwen2_5")), 1, 1).unread == 0


def test_pairs_show_both_answers_and_prompts_alone_are_context(tokenizer: Any) -> None:
    pair = row_from_dict(
        {"messages": [ASKS], "chosen": [SAID], "rejected": [{"role": "assistant", "content": "Five."}]}
    )
    found = render_rows([pair, row_from_dict({"messages": [ASKS]})], tokenizer, 1, 2)
    assert [row.title for row in found.rows] == ["chosen", "rejected", "conversation"]
    assert [words(row, "learned") for row in found.rows] == ["Four.<|im_end|>", "Five.<|im_end|>", ""]
    prompt = found.rows[2]
    assert prompt.why == "mute" and words(prompt, "context").endswith("<|im_start|>assistant\n")


def test_a_character_of_several_ids_is_at_the_last_of_them() -> None:
    tokenizer = tokenizer_for(text_of("qwen2_5"))
    ids = tokenizer("né北", add_special_tokens=False)["input_ids"]
    assert [token.text for token in spelled(ids, tokenizer)] == ["n", "", "é", "", "", "北"]
    assert "".join(token.text for token in spelled(ids[:-1], tokenizer)) == "né"
