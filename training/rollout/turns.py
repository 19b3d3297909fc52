"""A conversation cut into what the model reads and what it writes, by the chat template alone.

It is built as a rollout is: a turn begins where its prompt ends and ends with the token that ends turns, and what
others say in between is appended to it. So a demonstration teaches what will be sampled, under any template, with or
without marks of its own. Each piece is tokenised alone, as in a rollout.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from envs.wire import Message, Observation
from training.dialects.base import MARKS, open_thought, opens_thought
from training.errors import TemplateError
from training.rollout.family import prompt_end, turn_end
from training.rollout.tokens import ChatTemplate, Tools


@dataclass(frozen=True)
class Piece:
    """A text of a conversation; ``turn`` is the place of the assistant's message that it is, ``None`` for what is
    read."""

    text: str
    turn: int | None = None


def pieces_of(template: ChatTemplate, messages: list[Message], tools: Tools | None) -> list[Piece]:
    """All pieces in order, up to the end of the last turn.

    A first turn that answers nothing is read with what follows it, where the template cannot begin with it. Raises
    ``TemplateError`` where a turn does not follow its prompt, or has no token that ends it.
    """
    pieces: list[Piece] = []
    after, stem = 0, ""  # where the messages behind the last turn begin, and all text up to its end
    for place, message in enumerate(messages):
        prompt = _prompt(template, messages[:place], tools) if message.role == "assistant" else None
        if prompt is None:
            continue
        alone = template.text_of(messages[: place + 1], tools)
        between = messages[after:place] if stem else None
        context, begin = _context(template, between, tools, stem, prompt, alone)
        stem, turn = _turn(template, message, alone, begin)
        thought = template.defused(message.reasoning or "").strip()
        pieces += [Piece(context), Piece(_behind(context, alone[:begin], turn, thought), place)]
        after = place + 1
    return pieces


def _context(
    template: ChatTemplate, between: list[Message] | None, tools: Tools | None, stem: str, prompt: str, alone: str
) -> tuple[str, int]:
    """What is read between two turns, or before the first one (``between`` is ``None``), and where the next turn begins
    in ``alone``, the conversation that ends with it."""
    begin = prompt_end(prompt, alone)
    if begin is not None and between is None:
        return prompt, begin
    end = turn_end(prompt, len(stem), template.control) if begin is not None and prompt.startswith(stem) else None
    if begin is not None and end is not None and end[0] == len(stem):
        return prompt[end[1] :], begin
    # The template writes the past in another way now: a rollout would go on with what it has.
    suffix = template.suffix_text(between, tools) if between is not None else ""
    at = alone.rfind(suffix) if suffix else -1
    if at < 0:
        raise TemplateError("The chat template rewrites earlier turns when a message is added.")
    return suffix, at + len(suffix)


def _behind(context: str, rendered: str, turn: str, thought: str) -> str:
    """A turn as it goes on behind a prompt whose thought the template writes in another way once it is said.

    DeepSeek's templates leave a thought out and Nemotron's write an empty one without a line break, so that what comes
    before the turn (``rendered``) ends in front of it. What is sampled goes on inside the thought, and closes it.
    """
    opened = open_thought(context)
    if not opened or opens_thought(rendered):
        return turn
    return turn.removeprefix(opened) if turn.startswith(opened) else f"{thought}\n{MARKS[opened]}\n\n{turn}"


def _prompt(template: ChatTemplate, messages: list[Message], tools: Tools | None) -> str | None:
    """The prompt of the turn behind ``messages``; ``None`` where nothing can be rendered before a first one."""
    try:
        return template.text_of(messages, tools, generate=True)
    except TemplateError:
        if messages:
            raise
        return None


def _turn(template: ChatTemplate, message: Message, alone: str, begin: int) -> tuple[str, str]:
    """All of a conversation before the end of its last turn, and that turn with the token that ends it."""
    ends = template.family.ends
    found = [(at, mark) for mark in ends if (at := alone.find(mark, begin)) >= 0]
    if found:
        at, mark = min(found)
        return alone[:at], alone[begin:at] + mark
    if not ends:
        raise TemplateError("The chat template does not end a model turn with a control token.")
    # The end comes with the next message, and is another one behind a call.
    return alone, alone[begin:] + ends[-1 if message.tool_calls else 0]


# --- Conversation ---------------------------------------------------------------------------------------------------
# How a conversation begins and what the policy hears of an answer; the same for a model and for a person.


def opening(prompt: list[Message], first: Observation) -> list[Message]:
    """The row's messages and the environment's first ones.

    An environment that owns the whole prompt repeats the row's messages; one that does not, adds to them.
    """
    repeated = _same_texts(first.messages[: len(prompt)], prompt)
    return list(first.messages) if repeated else [*prompt, *first.messages]


def heard(answer: Observation) -> list[Message]:
    """The answer's messages; tools that appear mid-episode are written into the last of them.

    The prompt that lists the tools was tokenised already and must not change, so the policy hears of new ones here.
    """
    if not answer.tools or answer.done:
        return list(answer.messages)
    lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in answer.tools)
    note = f"The functions you may call are now:\n{lines}"
    if not answer.messages:
        return [Message(role="user", content=note)]
    *earlier, last = answer.messages
    return [*earlier, last.model_copy(update={"content": f"{last.content}\n{note}"})]


def _same_texts(left: list[Message], right: list[Message]) -> bool:
    return len(left) == len(right) and all(
        a.role == b.role and a.content == b.content for a, b in zip(left, right, strict=True)
    )
