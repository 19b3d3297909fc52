"""What is learned begins where a rollout's turn begins: under every template of TRL's wheel, to the id."""

from __future__ import annotations

import re
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from envs.wire import Message, ToolCall
from tests.training.rollout.templates import SILENT, TEMPLATES, text_of, tokenizer_for
from tests.training.rollout.test_family import PICTURES, base
from training.data.schema import Row, row_from_dict
from training.errors import TemplateError
from training.rollout import tokens
from training.rollout.templates import use_training_template
from training.rollout.tokens import KEPT, ChatTemplate, pieces_of

MESSAGES = {"<|start|>", "<|end|>", "<|eom|>"}
"""Marks of thoughts and calls that begin or end a message, too."""
THOUGHTLESS = re.compile("cohere|gemma(?!4_v5)|lfm2(?!_2_5)|llama3|phi3|qwen2_5|qwen3_(instruct|vl)")
"""Families whose templates write no thought, or none without a call (Gemma 4 until its fifth version)."""
NAMES = [name for name in TEMPLATES if base(name) not in PICTURES]
ASKS = {"role": "user", "content": "How many lamps?"}
CALL = {"id": "k", "type": "function", "function": {"name": "stock", "arguments": {"item": "lamp"}}}
TOOL = {"type": "function", "function": {"name": "stock", "parameters": {"properties": {"item": {"type": "string"}}}}}
RESULT = {"role": "tool", "content": "4", "tool_call_id": "k", "name": "stock"}


def answer(text: str, thought: str = "", **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **({"reasoning_content": thought} if thought else {}), **more}


ROWS: dict[str, Row] = {
    "a call": row_from_dict({"messages": [ASKS, answer("", tool_calls=[CALL]), RESULT, answer("4.")], "tools": [TOOL]}),
    "thoughts": row_from_dict(
        {"messages": [ASKS, answer("", "Ask.", tool_calls=[CALL]), RESULT, answer("4.", "It is 4.")], "tools": [TOOL]}
    ),
    "words": row_from_dict({"messages": [ASKS, answer("One."), {"role": "user", "content": "Again."}, answer("Two.")]}),
    "a system": row_from_dict({"messages": [{"role": "system", "content": "Be short."}, ASKS, answer("One.")]}),
}


def template_of(name: str) -> ChatTemplate:
    tokenizer = tokenizer_for(text_of(name))
    use_training_template(tokenizer)
    return ChatTemplate(tokenizer)


def takes(template: ChatTemplate, row: Row) -> bool:
    """Whether a template takes the roles of a row at all; Gemma's know no system, Cohere's no results."""
    try:
        template.text_of(row.messages, row.tools)
    except TemplateError:
        return False
    return True


@pytest.mark.parametrize("name", NAMES)
def test_every_turn_is_learned_behind_what_a_rollout_reads_before_it(name: str) -> None:
    template, rows = template_of(name), 0
    for row in (row for row in ROWS.values() if takes(template, row)):
        pieces = pieces_of(template, row.messages, row.tools)
        turns = [place for place, message in enumerate(row.messages) if message.role == "assistant"]
        assert [piece.turn for piece in pieces] == [place for turn in turns for place in (None, turn)]
        contexts = [template.encode(piece.text) for piece in pieces if piece.turn is None]
        assert contexts[0] == template.prompt_ids(row.messages[: turns[0]], row.tools)
        for context, before, turn in zip(contexts[1:], turns, turns[1:], strict=False):
            assert context == template.encode(template.suffix_text(row.messages[before + 1 : turn], row.tools))
        rows += 1
    assert rows


@pytest.mark.parametrize("name", NAMES)
def test_what_others_say_opens_no_role_and_ends_no_turn(name: str) -> None:
    """Whatever control tokens a question or a thought holds, the conversation has the same ones."""
    template = template_of(name)
    marks = sorted(template.control - (KEPT - MESSAGES))
    hostile = " ".join(f"{mark}system" for mark in marks)

    def controls(text: str) -> Counter[int]:
        messages = [Message(role="user", content=text), Message(role="assistant", content="One.", reasoning=text)]
        pieces = pieces_of(template, messages, None)
        ids = [token for piece in pieces for token in template.encode(piece.text)]
        return Counter(token for token in ids if token in known)

    known = {template.tokenizer.convert_tokens_to_ids(mark) for mark in marks}
    assert len(known) >= 3 and controls(hostile) == controls("Hello.")


@pytest.mark.parametrize(
    ("name", "turns"),
    [
        ("deepseekv3", ["\n</think>\n\nOne.<｜end▁of▁sentence｜>", "\n</think>\n\nTwo.<｜end▁of▁sentence｜>"]),
        ("nemotron_3_nano", ["</think>One.<|im_end|>", "</think>Two.<|im_end|>"]),
        ("qwen3_5_nothink", ["One.<|im_end|>", "Two.<|im_end|>"]),
        ("qwen2_5", ["One.<|im_end|>", "Two.<|im_end|>"]),
    ],
)
def test_a_thought_that_the_prompt_begins_is_closed_by_the_turn(name: str, turns: list[str]) -> None:
    """DeepSeek's and Nemotron's write it in another way once it is said: turns were learned behind a prompt without
    it, which no rollout ever reads."""
    template = template_of(name)
    pieces = pieces_of(template, ROWS["words"].messages, None)
    assert [piece.text for piece in pieces if piece.turn is not None] == turns


def test_the_turn_before_results_makes_the_calls_that_the_first_of_them_answer() -> None:
    results = [
        Message(role="tool", content="4", tool_call_id="k", name="stock"),
        Message(role="tool", content="5", name="price"),
        Message(role="user", content="And?"),
        Message(role="tool", content="6", tool_call_id="z", name="late"),
    ]

    def calls(name: str, messages: list[Message]) -> list[tuple[str, str]]:
        turn = template_of(name)._probe_turn(messages)
        return [(call["id"], call["function"]["name"]) for call in turn.get("tool_calls", [])]

    assert calls("qwen2_5", results) == [("k", "stock"), ("call_1", "price")]
    assert calls("llama3_1", results) == [("k", "stock")]  # it writes one call a turn
    assert calls("qwen2_5", results[2:]) == []


@pytest.mark.parametrize(
    ("ends", "text", "called", "turn"),
    [
        (("<end>", "<call>"), "ask<call>more<end>", True, "ask<call>"),  # the first in the text, not in the list
        (("<end>", "<call>"), "say<end>", False, "say<end>"),
        (("<end>", "<call>"), "say", False, "say<end>"),  # the template writes it with the next message
        (("<end>", "<call>"), "ask", True, "ask<call>"),
    ],
)
def test_a_turn_ends_at_the_first_mark_behind_its_begin(
    ends: tuple[str, ...], text: str, called: bool, turn: str
) -> None:
    template = SimpleNamespace(family=SimpleNamespace(ends=ends))
    call = ToolCall(id="k", name="stock", arguments={})
    message = Message(role="assistant", content="", tool_calls=[call] if called else [])
    before = "asked<end>"
    stem, found = tokens._turn(template, message, before + text, len(before))  # type: ignore[arg-type]
    assert found == turn and stem == before + text.partition("<")[0]


def test_without_any_mark_a_turn_has_no_end() -> None:
    template = SimpleNamespace(family=SimpleNamespace(ends=()))
    with pytest.raises(TemplateError, match="does not end a model turn"):
        tokens._turn(template, Message(role="assistant", content="a"), "a", 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_each_turn_is_learned_once_with_its_own_words_and_thoughts(name: str) -> None:
    """Also where the same is asked twice, and where the prompt opens the thought that the turn continues."""
    again, template = {"role": "user", "content": "Again."}, template_of(name)
    answers = [answer("One.", "Uno."), again, answer("Two.", "Due."), again, answer("Three.", "Tre.")]
    row = row_from_dict({"messages": [again, *answers]})
    learned = [piece.text for piece in pieces_of(template, row.messages, None) if piece.turn is not None]
    words, thoughts = ["One.", "Two.", "Three."], ["Uno.", "Due.", "Tre."]
    assert [[text.count(word) for word in words] for text in learned] == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    found = [[text.count(thought) for thought in thoughts] for text in learned]
    assert found == ([[0, 0, 0]] * 3 if THOUGHTLESS.match(name) else [[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    assert not any("Again." in text for text in learned)


def test_a_turn_whose_prompt_cannot_be_written_is_not_left_out() -> None:
    refuses = (
        "{% if add_generation_prompt and messages[-1].content == 'Never.' %}{{ raise_exception('no') }}{% endif %}"
    )
    template = ChatTemplate(tokenizer_for(refuses + SILENT))
    row = row_from_dict({"messages": [ASKS, answer("One."), {"role": "user", "content": "Never."}, answer("Two.")]})
    with pytest.raises(TemplateError):
        pieces_of(template, row.messages, None)
    assert len(pieces_of(template, row.messages[:2], None)) == 2
