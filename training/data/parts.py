"""Contents in parts: OpenAI's parts of text, LLaMA-Factory's of text, reasoning and calls, Anthropic's blocks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from envs.wire import Message, ToolCall
from training.data.problems import RowError, kind, shown
from training.data.tools import call_of, text_or_none

TEXT = {"text", "input_text", "output_text"}
"""Types of parts that are text, in OpenAI's two APIs and elsewhere."""
THOUGHT = {"reasoning", "thinking", "think", "reasoning_text", "summary_text"}
HIDDEN = {"redacted_thinking"}
"""Types of parts that hold nothing to read."""
CALL = {"tool_use", "tool_call", "function_call"}
RESULT = {"tool_result"}
MEDIA = {"image", "image_url", "input_image", "audio", "audio_url", "input_audio", "video", "video_url", "file"}
MEDIA |= {"input_file", "document", "output_audio", "image_file"}
_KNOWN = ", ".join(sorted(TEXT | THOUGHT | CALL | RESULT))


@dataclass
class Parts:
    """What the parts of a content are together: texts are joined as chat templates put them."""

    text: str = ""
    reasoning: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    results: list[Message] = field(default_factory=list)


def parts_of(given: list[Any], where: str) -> Parts:
    """The parts of a message's content. Raises ``RowError``."""
    parts = Parts()
    for part in given:
        if isinstance(part, str):
            parts.text += part
        elif isinstance(part, dict):
            _add(parts, part, where)
        else:
            raise RowError("content_type", where=where, kind=kind(part))
    return parts


def joined_parts(given: list[Any], where: str) -> str:
    """The text of parts that are nothing but text. Raises ``RowError``."""
    parts = parts_of(given, where)
    if parts.reasoning or parts.calls or parts.results:
        raise RowError("part_of_another", where=where, role="text")
    return parts.text


def _add(parts: Parts, part: dict[str, Any], where: str) -> None:
    what = part.get("type") or "text"
    if not isinstance(what, str):
        raise RowError("content_part_unknown", where=where, type=shown(what), known=_KNOWN)
    if what in TEXT:
        parts.text += _words(part, where)
    elif what in THOUGHT:
        parts.reasoning += _words(part, where)
    elif what in CALL:
        value = part.get("value") if part.get("value") is not None else part
        parts.calls.append(call_of(value, f"a call of {where}", f"call_{len(parts.calls) + 1}"))
    elif what in RESULT:
        found = part.get("content")
        text = joined_parts(found, where) if isinstance(found, list) else text_or_none(found, f"a result of {where}")
        call_id = text_or_none(part.get("tool_use_id", part.get("tool_call_id")), f"the id of a result of {where}")
        parts.results.append(Message(role="tool", content=text or "", tool_call_id=call_id))
    elif what in MEDIA:
        raise RowError("content_part", where=where, type=shown(what))
    elif what not in HIDDEN:
        raise RowError("content_part_unknown", where=where, type=shown(what), known=_KNOWN)


def _words(part: dict[str, Any], where: str) -> str:
    """The words of a part, under `text`, `value` or its type, there perhaps in parts again. Raises ``RowError``."""
    names = ("text", "value", str(part.get("type")), "summary", "content")
    found = next((part[name] for name in names if part.get(name) is not None), None)
    if isinstance(found, list):
        return joined_parts(found, where)
    if not isinstance(found, str):
        raise RowError("content_missing", where=where)
    return found
