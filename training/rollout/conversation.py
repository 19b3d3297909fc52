"""How a conversation begins and what the policy hears of an answer; the same for a model and for a person."""

from __future__ import annotations

import json

from envs.wire import Message, Observation


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
