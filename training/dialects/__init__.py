"""Dialects: how families of models write tool calls. A dialect turns completion text into a ``ParsedTurn``.

Adding one is a few forms (``reading.Form``), a line in ``DIALECTS`` and its name in ``training.config.Dialect``; which
models write it follows from their chat templates (``training.rollout.family``). Dialects only read: sampled ids are
carried through, and what is written is written by the model's own template.
"""

from __future__ import annotations

import re

from training.config import JobConfig
from training.dialects import json_calls, notations, protocols, tags
from training.dialects.base import Parse, ParsedTurn
from training.dialects.json_calls import Anyone
from training.dialects.reading import Marked


def _noise(*marks: str) -> re.Pattern[str]:
    return re.compile("|".join(marks))


MARKED: dict[str, Marked] = {
    "xml": Marked(tags.XML),
    "glm": Marked(tags.GLM, _noise(r"</?tool_calls(?::[a-z]+)?>")),
    "mistral": Marked((json_calls.MISTRAL_NAMED, json_calls.MISTRAL_LIST)),
    "deepseek": Marked(json_calls.DEEPSEEK, _noise("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")),
    "kimi": Marked(json_calls.KIMI, _noise(r"<\|tool_calls_section_(?:begin|end)\|>")),
    "invoke": Marked(
        tags.INVOKE,
        _noise(
            r"</?(?:[\w.-]+:|｜DSML｜)?(?:function_calls|tool_calls|tool_call)>",
            r"(?:<\|start\|>assistant)?\s*to=\S*?<\|message\|>",
        ),
    ),
    "harmony": Marked(
        json_calls.HARMONY,
        _noise(r"<\|start\|>assistant", r"<\|channel\|>(?:final|commentary|analysis)", r"<\|message\|>", r"<\|end\|>"),
    ),
    "gemma": Marked(notations.GEMMA),
    "command": Marked(json_calls.COMMAND, _noise(r"<\|(?:START|END)_(?:RESPONSE|TEXT|THINKING)\|>")),
    "lfm2": Marked(notations.LFM2_ESCAPED),
    "lfm2-raw": Marked(notations.LFM2_RAW),
    "function-tag": Marked(json_calls.FUNCTION_TAG),
    "solar": Marked(json_calls.SOLAR, _noise(r"<\|tool_calls\|>", r"<\|think\|>", r"<\|content\|>")),
    "hermes": Marked(json_calls.HERMES),
    "json-list": Marked(json_calls.LISTS),
}
"""Dialects with marks, those whose opening marks are more particular first."""
FAMILY_DIALECTS: dict[str, Parse] = {
    **MARKED,
    "hermes": json_calls.parse_hermes,
    "llama": Marked(json_calls.BARE, _noise(r"<\|python_tag\|>")),
    "bfcl": protocols.parse_bfcl,
}
"""Dialects that a chat template may write, in the order in which they are tried on one."""
CALL_MARKS = frozenset(
    [
        "<tool_call>",
        "</tool_call>",
        "<tool_calls>",
        "</tool_calls>",
        "<TOOLCALL>",
        "</TOOLCALL>",
        "<seed:tool_call>",
        "</seed:tool_call>",
        "<|tool_call|>",
        "<|/tool_call|>",
        "<|tool_call>",
        "<tool_call|>",
        "<|tool_call_start|>",
        "<|tool_call_end|>",
        "<|tool_calls|>",
        "<arg_key>",
        "</arg_key>",
        "<arg_value>",
        "</arg_value>",
        "<minimax:tool_call>",
        "</minimax:tool_call>",
        "<|python_tag|>",
        "[TOOL_CALLS]",
        "[/TOOL_CALLS]",
        "[ARGS]",
        "[CALL_ID]",
        "<|function_call|>",
        "<|tools_prefix|>",
        "<|tools_suffix|>",
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁end｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁call▁end｜>",
        "<｜tool▁sep｜>",
        "｜DSML｜",
        "<|tool_calls_section_begin|>",
        "<|tool_calls_section_end|>",
        "<|tool_call_begin|>",
        "<|tool_call_argument_begin|>",
        "<|START_ACTION|>",
        "<|END_ACTION|>",
        "<|START_RESPONSE|>",
        "<|END_RESPONSE|>",
        "<|START_TEXT|>",
        "<|END_TEXT|>",
        "<|tool_call:begin|>",
        "<|tool_call:name|>",
        "<|tool_call:args|>",
        "<|tool_call:end|>",
        "<|channel|>",
        "<|message|>",
        "<|constrain|>",
        "<tool_calls:opensource>",
        "</tool_calls:opensource>",
        "<tool_call:opensource>",
        "</tool_call:opensource>",
        "<tool_sep:opensource>",
        "<arg_key:opensource>",
        "</arg_key:opensource>",
        "<arg_value:opensource>",
        "</arg_value:opensource>",
    ]
) | {'<|"|>'}
"""Texts of control tokens that belong to a turn: they are read, and none of them ends it."""
DIALECTS: dict[str, Parse] = {
    **FAMILY_DIALECTS,
    "toolbench": protocols.parse_toolbench,
    "webshop": protocols.parse_webshop,
    "text": protocols.parse_text,
}
ANYONE: Parse = Anyone([*MARKED.values()], [FAMILY_DIALECTS["llama"], protocols.parse_bfcl], json_calls.parse_hermes)
TEXT_PROTOCOLS = frozenset({"openenv-text", "agentgym"})

__all__ = [
    "ANYONE",
    "CALL_MARKS",
    "DIALECTS",
    "FAMILY_DIALECTS",
    "Parse",
    "ParsedTurn",
    "choose_dialect",
    "dialect_name",
]


def dialect_name(config: JobConfig, family: str = "hermes") -> str:
    """The job's dialect; ``auto`` is the ``family``'s, and reads no calls where the environment's action is a text."""
    if config.rollout.dialect != "auto":
        return config.rollout.dialect
    text_actions = bool(config.environment.url) and config.environment.protocol in TEXT_PROTOCOLS
    return "text" if text_actions else family


def choose_dialect(config: JobConfig) -> Parse:
    """The parser of turns from a model whose family is not known: an endpoint's."""
    name = dialect_name(config, "")
    return DIALECTS[name] if name else ANYONE
