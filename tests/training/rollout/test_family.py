"""Which dialect reads what a chat template writes, found by rendering it, for every template of TRL's wheel."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from envs.wire import Message, ToolCall
from tests.training.rollout.templates import HEADER, TEMPLATES, random_call, text_of, tokenizer_for, tool_for
from training.dialects import DIALECTS, FAMILY_DIALECTS
from training.errors import TemplateError
from training.policy.engine import sampled_families
from training.rollout.family import PUBLISHED, Style, family_of_text, reference, turn_end, turn_text
from training.rollout.tokens import ChatTemplate

ROOT = Path(__file__).resolve().parents[3]

WRITES = {
    "deepseekv3": "deepseek",
    "diffusion_gemma": "gemma",
    "gemma4": "gemma",
    "gemma4_v2": "gemma",
    "gemma4_v3": "gemma",
    "gemma4_v4": "gemma",
    "gemma4_v5": "gemma",
    "glm4moe": "glm",
    "gptoss": "harmony",
    "lfm2_2_5": "lfm2-raw",
    "lfm2_2_5_v2": "lfm2-raw",
    "lfm2_2_5_vl": "lfm2",
    "lfm2_v2": "lfm2",
    "llama3_1": "llama",
    "llama3_2": "llama",
    "muse_glimmer": "invoke",
    "nemotron_3_5_lightning": "xml",
    "nemotron_3_nano": "xml",
    "nemotron_3_super": "xml",
    "nemotron_3_ultra": "xml",
    "qwen2_5": "hermes",
    "qwen3": "hermes",
    "qwen3_5_nothink": "xml",
    "qwen3_5_think": "xml",
    "qwen3_6": "xml",
    "qwen3_8": "xml",
    "qwen3_instruct_2507": "hermes",
    "qwen3_vl": "hermes",
}
"""Templates that write calls, and what reads them; the others leave calls out."""
SILENT = {
    "cohere", "cohere2", "deepseek_r1_distill", "gemma", "gemma3", "lfm2", "llama3", "phi3", "phi3_5", "qwen2_5_vl",
}  # fmt: skip
PICTURES = {"idefics3", "llava_next", "smolvlm"}
"""Templates that take no texts as content."""


def base(name: str) -> str:
    return name.removesuffix("_training")


@pytest.fixture(scope="module")
def template(request: pytest.FixtureRequest) -> ChatTemplate:
    return ChatTemplate(tokenizer_for(text_of(request.param)))


def test_every_template_of_the_wheel_is_known() -> None:
    assert {base(name) for name in TEMPLATES} == WRITES.keys() | SILENT | PICTURES


@pytest.mark.parametrize("name", [name for name in TEMPLATES if base(name) not in PICTURES])
def test_the_dialect_follows_from_the_template(name: str) -> None:
    assert ChatTemplate(tokenizer_for(text_of(name))).family.dialect == WRITES.get(base(name), "")


@pytest.mark.parametrize("name", sorted(PICTURES))
def test_a_template_for_pictures_alone_is_refused(name: str) -> None:
    with pytest.raises(TemplateError):
        ChatTemplate(tokenizer_for(text_of(name))).suffix_ids([Message(role="user", content="x")])


@pytest.mark.parametrize("template", sorted(WRITES), indirect=True)
def test_what_is_written_is_read_again_over_200_random_calls(template: ChatTemplate) -> None:
    """Unicode, quotes, backslashes, nesting, numbers, nothing at all."""
    dice, family = random.Random(5), template.family
    for _ in range(200):
        name, arguments = random_call(dice)
        tools = [tool_for(name, arguments)]
        answer = Message(role="assistant", tool_calls=[ToolCall(id="call_0", name=name, arguments=arguments)])
        text = turn_text(template.raw, template._rows([Message(role="user", content="x"), answer]), tools)
        turn = DIALECTS[family.dialect](text, "c", tools)
        assert turn.parse_error is None, (text, turn.parse_error)
        assert [(call.name, call.arguments) for call in turn.tool_calls] == [(name, arguments)], text


@pytest.mark.parametrize("template", sorted(WRITES), indirect=True)
def test_ids_of_a_turn_are_decoded_to_what_was_written(template: ChatTemplate) -> None:
    """Marks that are special tokens were dropped before the parser saw them."""
    arguments = {"city": "Oslo", "days": 3}
    call = ToolCall(id="call_0", name="forecast", arguments=arguments)
    asked, answer = Message(role="user", content="x"), Message(role="assistant", tool_calls=[call])
    tools = [tool_for("forecast", arguments)]
    text = turn_text(template.raw, template._rows([asked, answer]), tools)
    ids: Any = template.tokenizer(text, add_special_tokens=False)["input_ids"]
    end = next((place for place, token in enumerate(ids) if template.ends(token)), len(ids) - 1)
    turn = DIALECTS[template.family.dialect](template.decode(ids[: end + 1]), "c", tools)
    assert (turn.parse_error, [(found.name, found.arguments) for found in turn.tool_calls]) == (
        None,
        [("forecast", arguments)],
    )
    assert turn.text == ""


def test_ids_of_nine_characters_are_made_for_results_whose_calls_are_not_there() -> None:
    """Mistral's templates refuse any other length."""
    results = [{"role": "tool", "tool_call_id": key, "content": "4"} for key in ("call_0", "abcdefghi")]
    assert [row["tool_call_id"] for row in Style(ids="nine").rows(results)] == ["000000000", "abcdefghi"]
    assert [row["tool_call_id"] for row in Style().rows(results)] == ["call_0", "abcdefghi"]


def test_calls_in_marks_that_nothing_reads_are_not_read() -> None:
    """They would be in the text of each turn."""
    call = '<tool_call>{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}</tool_call>'
    for around, dialect in (("{}", "hermes"), ("<|tool_call_start|>{}<|tool_call_end|>", "")):
        calls = "{% for c in m.tool_calls or [] %}" + around.format(call) + "{% endfor %}"
        text = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}" + calls + "<|im_end|>\n{% endfor %}"
        tokenizer = tokenizer_for(text + HEADER)
        assert ChatTemplate(tokenizer).family.dialect == dialect


@pytest.mark.parametrize(
    ("shown", "listed"),
    [
        ("{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}", True),
        ("{% if tools %}{{ tools[0] | tojson }}{% endif %}", False),
        ("", False),
    ],
)
def test_tools_are_listed_where_a_template_shows_all_of_them(shown: str, listed: bool) -> None:
    text = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    assert ChatTemplate(tokenizer_for(shown + text + HEADER)).family.lists_tools is listed


@pytest.mark.parametrize(
    ("text", "begin", "end"),
    [
        ("a<|end|>b", 0, (1, 8)),
        ("a<|end|><|end|>b", 0, (1, 15)),
        ("a<|end|>b<|end|>", 2, (9, 16)),
        ("a<tool_call>b<|end|>", 0, (13, 20)),
        ("a", 0, None),
    ],
)
def test_the_first_control_token_ends_a_turn_and_of_two_there_the_longer_one(
    text: str, begin: int, end: tuple[int, int] | None
) -> None:
    assert turn_end(text, begin, ["<|end|>", "<|end|><|end|>", "<tool_call>"]) == end


def test_the_page_of_models_has_the_tables_of_families() -> None:
    assert reference().strip() in (ROOT / "docs" / "models.md").read_text(encoding="utf-8")


def test_types_of_the_table_can_be_sampled_and_their_dialects_exist() -> None:
    assert PUBLISHED.keys() <= set(sampled_families())
    assert {name for written in PUBLISHED.values() for name in written.split(", ") if name} <= FAMILY_DIALECTS.keys()


@pytest.mark.parametrize("name", ["qwen3", "glm4moe", "gptoss", "gemma4"])
def test_a_template_alone_shows_as_much_as_with_its_tokenizer(name: str) -> None:
    assert family_of_text(text_of(name)) == ChatTemplate(tokenizer_for(text_of(name))).family
