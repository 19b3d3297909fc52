"""Worked examples for supervised training: visits that buy exactly what is wanted, as the pages answered them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from envs.webshop.baseline import search_instruction, wanted_options
from envs.webshop.server import TOOLS, WebshopEnvironment
from envs.webshop.session import Session, Shop
from envs.webshop.validate import perfect_steps
from envs.wire import Message, StepRequest, ToolCall

Speech = Literal["native", "text"]


def demonstration(shop: Shop, session_id: int, speech: Speech = "native") -> dict[str, Any]:
    """One dataset row in the wire's message form: a tool call is ``{id, name, arguments}``."""
    environment = WebshopEnvironment(shop)
    conversation = [*environment.reset({"session_id": session_id}, 0, "demonstration").messages]
    for number, step in enumerate(_steps(shop, session_id), 1):
        said = _in_words(step) if speech == "text" else _numbered(step, number)
        conversation.append(Message(role="assistant", content=said.message, tool_calls=said.tool_calls))
        answer = environment.step(said)
        conversation += answer.messages
        if answer.done:
            break
    shown = [message.model_dump(mode="json", exclude_defaults=True) for message in conversation]
    row = {"session_id": session_id, "conversation": [{"content": "", **message} for message in shown]}
    return row | ({"tools": TOOLS} if speech == "native" else {})


def _steps(shop: Shop, session_id: int) -> list[StepRequest]:
    """The baseline's rules where they find the wanted product, because a model can learn those; else what must be."""
    session = Session(shop, shop.goals[session_id])
    product = session.goal.product
    if search_instruction(session)[:1] != [product.asin.lower()]:
        return perfect_steps(shop, session_id)
    clicks = [product.asin.lower(), *wanted_options(session.goal.instruction, product), "buy now"]
    search = _call("search", "keywords", session.goal.instruction.lower())
    return [search, *(_call("click", "value", value) for value in clicks)]


def _call(name: str, argument: str, value: str) -> StepRequest:
    return StepRequest(tool_calls=[ToolCall(id="1", name=name, arguments={argument: value})])


def generate_demonstrations(shop: Shop, ids: Sequence[int], speech: Speech = "native") -> Iterator[dict[str, Any]]:
    """A row for each visit."""
    return (demonstration(shop, session_id, speech) for session_id in ids)


def _numbered(step: StepRequest, number: int) -> StepRequest:
    calls = [call.model_copy(update={"id": f"call_{number}"}) for call in step.tool_calls]
    return StepRequest(tool_calls=calls)


def _in_words(step: StepRequest) -> StepRequest:
    """The step's call as an action in the text."""
    call = step.tool_calls[0]
    return StepRequest(message=f"Action: {call.name}[{next(iter(call.arguments.values()))}]")
