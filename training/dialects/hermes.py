"""The Hermes dialect, also Qwen2.5's and Qwen3's: ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``."""

from __future__ import annotations

from training.dialects import reading
from training.dialects.base import ParsedTurn, Tools
from training.dialects.json_calls import marked

OPEN, CLOSE = "<tool_call>", "</tool_call>"
MAX_CALLS = reading.MAX_CALLS
FORMS = (marked(OPEN, CLOSE),)


def parse(text: str, call_prefix: str, tools: Tools | None = None, *, in_thought: bool = False) -> ParsedTurn:
    """Split a completion into text and calls; the calls get ids ``<call_prefix>0``, ``<call_prefix>1``, …"""
    return reading.read_turn(text, call_prefix, FORMS, tools, in_thought=in_thought)
