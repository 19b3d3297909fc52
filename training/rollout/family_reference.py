"""The tables of families in docs/models.md, made of the code and of the chat templates in TRL's wheel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from training.dialects import CALL_MARKS
from training.dialects.thoughts import MARKS
from training.errors import TemplateError
from training.policy.families import sampled_families
from training.rollout.family import Family, Rows, Tools, family_of

CONTROL = re.compile(
    r"<\|[^|<>\s]{1,40}\|>|<[a-z_]{2,30}\|>|<\|[a-z_]{1,30}>|<｜[^｜<>]{1,40}｜>|<(?:start|end)_of_turn>"
)
END = "<EOS>"
"""What the tables have in the place of a tokenizer's own end of turn."""
PUBLISHED = {
    "apertus": "json-list",
    "cohere2_moe": "command",
    "deepseek_v2": "deepseek",
    "deepseek_v3": "deepseek, kimi",
    "gemma": "",
    "gemma2": "",
    "gemma3": "",
    "gemma3_text": "",
    "gemma4": "gemma",
    "gemma4_text": "gemma",
    "gemma4_unified": "gemma",
    "gemma4_unified_text": "gemma",
    "glm4_moe": "glm",
    "glm4_moe_lite": "glm",
    "gpt_oss": "harmony",
    "granite": "hermes",
    "granitemoehybrid": "hermes",
    "hy_v3": "glm",
    "laguna": "glm",
    "lfm2": "lfm2, lfm2-raw",
    "lfm2_moe": "lfm2-raw",
    "llama": "llama",
    "minimax_m2": "invoke",
    "ministral3": "mistral",
    "mistral": "mistral",
    "nemotron_h": "xml, json-list",
    "phi3": "",
    "qwen2": "hermes",
    "qwen3": "hermes",
    "qwen3_5": "xml",
    "qwen3_5_moe": "xml",
    "qwen3_5_moe_text": "xml",
    "qwen3_5_text": "xml",
    "qwen3_moe": "hermes, xml",
    "seed_oss": "xml",
    "smollm3": "",
    "solar_open": "solar",
}
"""What published templates of a model type write, seen in November 2026; empty where they leave calls out."""


def control_marks(template: str) -> set[str]:
    """Control tokens that stand in the text of a template."""
    known = {mark for mark in (*CALL_MARKS, *MARKS, *MARKS.values()) if mark in template and not mark.startswith("to=")}
    marks = {*CONTROL.findall(template), *known}
    return {mark for mark in marks if CONTROL.sub("", mark) in ("", mark)}  # single tokens


def family_of_text(template: str) -> Family:
    """The family of a template without its tokenizer. Raises ``TemplateError``."""
    from transformers.utils.chat_template_utils import render_jinja_template

    compile_and_render: Any = render_jinja_template

    def render(rows: Rows, tools: Tools | None, generate: bool) -> str:
        words = {"bos_token": "<BOS>", "eos_token": END, "pad_token": "<PAD>", "unk_token": ""}
        try:
            texts, _ = compile_and_render(
                conversations=[rows], tools=tools, chat_template=template, add_generation_prompt=generate, **words
            )
        except Exception as exc:  # a template is a program that others wrote: it may raise anything
            raise TemplateError(f"The chat template failed: {type(exc).__name__}") from exc
        return str(texts[0])

    return family_of(render, {*control_marks(template), END})


def templates() -> dict[str, str]:
    """The chat templates of TRL's wheel by name, without its training variants."""
    import trl

    folder = Path(trl.__file__).parent / "chat_templates"
    found = {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.jinja"))}
    return {name: text for name, text in found.items() if not name.endswith("_training")}


def reference() -> str:
    """Both tables."""
    return "\n".join([*_of_templates(), "", *_of_types(), ""])


def _of_templates() -> Iterator[str]:
    yield "| template of TRL 1.16 | dialect | lists tools | answers of tools | two calls | thoughts | turns end with |"
    yield "|---|---|---|---|---|---|---|"
    for name, text in templates().items():
        try:
            family = family_of_text(text)
        except TemplateError:
            yield f"| `{name}` | takes no texts | | | | | |"
            continue
        ends = " ".join(f"`{end}`" for end in family.ends).replace("|", "\\|") or "no control token"
        held = [_yes(family.lists_tools), _yes(family.shows_results), _yes(family.parallel), _thoughts(family)]
        yield "| " + " | ".join([f"`{name}`", _dialect(family), *held, ends]) + " |"


def _of_types() -> Iterator[str]:
    yield "| model type | dialect of its published templates |"
    yield "|---|---|"
    for name, written in PUBLISHED.items():
        said = ", ".join(f"`{dialect}`" for dialect in written.split(", ")) if written else "writes no calls"
        yield f"| `{name}` | {said} |"
    others = ", ".join(f"`{name}`" for name in sorted(sampled_families()) if name not in PUBLISHED)
    yield f"\nOf these types, which can be sampled too, no template was at hand; their own decides: {others}."


def _dialect(family: Family) -> str:
    return f"`{family.dialect}`" if family.dialect else "writes no calls"


def _thoughts(family: Family) -> str:
    if family.in_thought:
        return "each turn begins in one"
    return f"`{family.style.reasoning}`" if family.style.reasoning else "no"


def _yes(held: bool) -> str:
    return "yes" if held else "no"
