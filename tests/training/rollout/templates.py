"""Chat templates of real families, which TRL's wheel carries, and a tokenizer of bytes for each."""

from __future__ import annotations

import random
import shutil
import string
from functools import lru_cache
from pathlib import Path
from typing import Any

import trl
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from training.rollout.family import control_marks

FOLDER = Path(trl.__file__).parent / "chat_templates"
TEMPLATES = sorted(path.stem for path in FOLDER.glob("*.jinja"))
PLAIN = {"<tool_call>", "</tool_call>", "<think>", "</think>", "<｜User｜>", "<｜Assistant｜>"}
"""Control tokens that Qwen's and DeepSeek's tokenizers do not count as special."""


@lru_cache
def text_of(name: str) -> str:
    """A template of TRL's wheel."""
    return (FOLDER / f"{name}.jinja").read_text(encoding="utf-8")


def tokenizer_for(template: str) -> Any:
    """A tokenizer of single bytes that has the control tokens of a template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={letter: place for place, letter in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<EOS>", bos_token="<BOS>", pad_token="<PAD>")
    made.add_tokens(control_tokens(template))
    made.chat_template = template
    return made


HEADER = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
SILENT = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}" + HEADER
"""Leaves tools and calls out, as Llama 3.0, Phi-3 and Gemma 2 do."""


def control_tokens(template: str) -> list[AddedToken]:
    """Control tokens that a template writes."""
    marks = sorted(control_marks(template))
    return [AddedToken(mark, normalized=False, special=mark not in PLAIN) for mark in marks]


TEXTS = [
    "", " ", "Oslo", "北京 🌧️", 'say "hi"', "it's", "a\\b", "a\nb", "{x: [1]}", "75001", "true", "null", "1e5",
    "<b>é</b>",     "a, b=c", "100%", "C:\\new\\table", "—", "`code`", "x)]", "f(a='b')", '{"a": 1}', "[1, 2]", "end.",
    "\nlines\n", "</parameter>", "</arg_value>", "<tool_call>", "True", "None", "'", '"', "\t",
    "$&", "\u00e9", "🤖" * 3,
]  # fmt: skip


def random_value(dice: random.Random, depth: int = 0) -> Any:
    """A JSON value, nested now and then."""
    kind = dice.randrange(7 if depth < 2 else 5)
    if kind == 0:
        return dice.choice([0, 1, -7, 10**12, 3])
    if kind == 1:
        return dice.choice([0.5, -2.25, 1e-07, 3.0, 1e22])
    if kind == 2:
        return dice.choice([True, False])
    if kind in (3, 4):
        return random_text(dice)
    if kind == 5:
        return [random_value(dice, depth + 1) for _ in range(dice.randrange(3))]
    return {random_name(dice): random_value(dice, depth + 1) for _ in range(dice.randrange(3))}


def random_text(dice: random.Random) -> str:
    """A text with what breaks readers: quotes, backslashes, brackets, other alphabets, lines."""
    return "".join(dice.choice(TEXTS) for _ in range(dice.randrange(1, 3)))


def random_name(dice: random.Random) -> str:
    """A name as tools and parameters have."""
    return "".join(dice.choice(string.ascii_lowercase + "_") for _ in range(dice.randrange(1, 9))) + dice.choice("ax3")


def random_call(dice: random.Random) -> tuple[str, dict[str, Any]]:
    """A name and arguments."""
    return random_name(dice), {random_name(dice): random_value(dice) for _ in range(dice.randrange(5))}


def tool_for(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """A tool that declares the types of a call's arguments."""
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    properties = {key: {"type": kinds[type(value)], "description": "A value."} for key, value in arguments.items()}
    schema = {"type": "object", "properties": properties, "required": []}
    return {"type": "function", "function": {"name": name, "description": "A tool.", "parameters": schema}}


def model_with(template: str | dict[str, str], starter: Path, folder: Path) -> Path:
    """The starter's model with another chat template."""
    shutil.copytree(starter, folder)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    return folder
