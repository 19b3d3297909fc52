"""One text as the chat that it was made from.

Trainers record what the tokenizer decoded: a whole conversation as a text. Where the marks of a chat template stand in
it (ChatML, Llama 3) it is split there. Where special tokens were left out of the text, as verl does, a line that is
nothing but a role begins a turn; a model that writes such a line itself cannot be told from the template then.
"""

from __future__ import annotations

import re
from typing import Any

from envs.wire import Message, ToolCall
from training.data.native import ROLE, ROLES, Markup, markup_of, pieces
from training.dialects import hermes
from training.dialects.base import json_decoder
from training.imports.base import BadRow
from training.imports.rows import check
from training.reasoning import REASONING
from training.words import _, sentence

PLAIN = Markup(_("plain roles"), re.compile(rf"\n{ROLE}(?=\n)"), lead="\n", tail=1, repeats=False)


def split_texts(prompt: str, completion: str) -> tuple[list[Message], int, str]:
    """Messages of a prompt and what followed it, how many of them are the prompt, and which marks told so.

    Without marks: one user message and one assistant message.
    """
    markup = _markup(prompt)
    if markup is None:
        return [Message(role="user", content=prompt), _assistant_message(completion, 0)], 1, ""
    begun = pieces(markup, prompt, "")
    if begun and begun[-1][0] == "assistant" and not begun[-1][1].strip():
        begun.pop()  # the mark that asks the model to speak
    followed = pieces(markup, completion, "assistant")
    messages = [Message(role=role, content=text) for role, text in begun]  # type: ignore[arg-type]
    number = len(messages)
    for index, (role, text) in enumerate(followed):
        if role == "assistant":
            messages.append(_assistant_message(text, index))
        elif text or index:
            messages.append(Message(role=role, content=text))  # type: ignore[arg-type]
    return messages, number, markup.name


def _markup(prompt: str) -> Markup | None:
    """The marks that the prompt has. Plain roles count only where it begins with one and asks for an answer."""
    if (markup := markup_of(prompt)) is not None:
        return markup
    begins_so = PLAIN.begins.match(PLAIN.lead + prompt) is not None
    return PLAIN if begins_so and prompt.endswith("\nassistant\n") else None


def _assistant_message(text: str, turn: int) -> Message:
    """What the model said, with the calls in it; a call that cannot be read, or too many of them, stay text."""
    parsed = hermes.parse(text, f"call_{turn}_") if 0 < text.count(hermes.OPEN) <= hermes.MAX_CALLS else None
    if parsed is None or parsed.parse_error or not parsed.tool_calls:
        return Message(role="assistant", content=text)
    return parsed.message()


def messages_of(value: Any, role: str) -> list[Message]:
    """Messages of a column that holds a text or a list of chat messages. Raises ``BadRow``."""
    if isinstance(value, str):
        return [_assistant_message(value, 0) if role == "assistant" else Message(role=role, content=value)]  # type: ignore[arg-type]
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise BadRow(_("it holds neither a text nor a list of messages"))
    return [_message(item, number) for number, item in enumerate(value, 1)]


def _message(item: dict[str, Any], number: int) -> Message:
    role = ROLES.get(str(item.get("role") or item.get("from") or "")[:20])
    if role is None:
        raise BadRow(sentence(_("message {number} has no role that is known"), number=number))
    text = shown_text(item.get("content") if item.get("content") is not None else item.get("value"))
    calls = [call_of(call, f"call_{number}_{index}") for index, call in enumerate(item.get("tool_calls") or [])]
    reasoning = (
        next((shown_text(item[key]) for key in REASONING if item.get(key)), None) if role == "assistant" else None
    )
    if role == "assistant" and not calls:
        said = _assistant_message(text, number)
        return said.model_copy(update={"reasoning": reasoning or said.reasoning})
    name = item.get("name")
    return Message(
        role=role,  # type: ignore[arg-type]
        content=text,
        reasoning=reasoning,
        tool_calls=calls or None,
        name=name if isinstance(name, str) and role == "tool" else None,
    )


def shown_text(content: Any) -> str:
    """A message's text, which may stand there in parts; what is no text is named in its place."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list):
        parts = [part if isinstance(part, dict) else {"text": str(part)} for part in content]
        return "\n".join(str(part.get("text") or f"[{part.get('type', 'part')}]") for part in parts)
    return str(content)


def call_of(call: Any, call_id: str) -> ToolCall:
    """A call; the whole of it, or its arguments, may be JSON in a text."""
    if isinstance(call, str):
        try:
            call = json_decoder.decode(call)
        except (ValueError, RecursionError):
            raise BadRow(_("a tool call is not valid JSON")) from None
    function = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise BadRow(_("a tool call has no name"))
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json_decoder.decode(arguments)
            check(arguments)
        except (ValueError, RecursionError):
            arguments = {"arguments": function["arguments"]}
    if not isinstance(arguments, dict):
        arguments = {}
    # Parquet gives every call of a column the arguments of all of them, those of others as null.
    return ToolCall(id=call_id, name=function["name"], arguments={k: v for k, v in arguments.items() if v is not None})
