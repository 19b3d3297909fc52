"""Worked examples for supervised training: visits that buy exactly what is wanted, as the pages answered them.

A share of them can be *careless*: such a customer buys without choosing any option, or buys something else. A model
that imitates both is careless at times, and reinforcement learning can be seen to take that out.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from envs.webshop.baseline import search_instruction, wanted_options
from envs.webshop.catalogue import Product
from envs.webshop.server import TOOLS, WebshopEnvironment
from envs.webshop.session import Session, Shop
from envs.webshop.validate import perfect_steps
from envs.wire import Message, StepRequest, ToolCall

Speech = Literal["native", "text"]
OTHERS_DRAWN = 20  # enough, unless the shop has one product


def demonstration(
    shop: Shop, session_id: int, speech: Speech = "native", careless: random.Random | None = None
) -> dict[str, Any]:
    """One dataset row in the wire's message form: a tool call is ``{id, name, arguments}``. ``careless`` draws which
    mistake is made in it."""
    environment = WebshopEnvironment(shop)
    conversation = [*environment.reset({"session_id": session_id}, 0, "demonstration").messages]
    steps = _steps(shop, session_id) if careless is None else _careless_steps(shop, session_id, careless)
    for number, step in enumerate(steps, 1):
        request = _in_words(step) if speech == "text" else _numbered(step, number)
        conversation.append(Message(role="assistant", content=request.message, tool_calls=request.tool_calls))
        answer = environment.step(request)
        conversation += answer.messages
        if answer.done:
            break
    shown = [message.model_dump(mode="json", exclude_defaults=True) for message in conversation]
    row = {"session_id": session_id, "conversation": [{"content": "", **message} for message in shown]}
    return row | ({"tools": TOOLS} if speech == "native" else {})


def _steps(shop: Shop, session_id: int) -> list[StepRequest]:
    """The baseline's rules where they find the wanted product, because a model can learn those; else what must be."""
    session = Session(shop, shop.goals[session_id])
    product, instruction = session.goal.product, session.goal.instruction
    wanted = wanted_options(instruction, product)
    if f" {product.query} with " in instruction and shop.searcher.find(product.query, "")[:1] == [product]:
        return _visit(product.query, product, wanted)  # a few words of the instruction find it as well
    if search_instruction(session)[:1] != [product.asin.lower()]:
        return perfect_steps(shop, session_id)
    return _visit(instruction.lower(), product, wanted)


def _careless_steps(shop: Shop, session_id: int, rng: random.Random) -> list[StepRequest]:
    """Half of them buy the right product as it comes, the others what another customer wants, as it comes."""
    bought = session_id
    if not shop.goals[session_id].options or rng.random() < 0.5:
        drawn = (rng.randrange(len(shop.goals)) for _draw in range(OTHERS_DRAWN))
        wanted = shop.goals[session_id].product
        bought = next((other for other in drawn if shop.goals[other].product is not wanted), session_id)
    steps = _steps(shop, bought)
    return [*steps[: -1 - len(shop.goals[bought].options)], steps[-1]]


def _visit(search: str, product: Product, options: list[str]) -> list[StepRequest]:
    clicks = [product.asin.lower(), *options, "buy now"]
    return [_call("search", "keywords", search), *(_call("click", "value", value) for value in clicks)]


def _call(name: str, argument: str, value: str) -> StepRequest:
    return StepRequest(tool_calls=[ToolCall(id="1", name=name, arguments={argument: value})])


def generate_demonstrations(
    shop: Shop, ids: Sequence[int], speech: Speech = "native", *, copies: int = 1, careless_share: float = 0.0
) -> Iterator[dict[str, Any]]:
    """``copies`` rows for each visit, of which each is careless or not by itself."""
    for copy in range(copies):
        for session_id in ids:
            rng = random.Random(f"webshop-careless:{copy}:{session_id}")  # noqa: S311 - reproducible
            yield demonstration(shop, session_id, speech, rng if rng.random() < careless_share else None)


def _numbered(step: StepRequest, number: int) -> StepRequest:
    calls = [call.model_copy(update={"id": f"call_{number}"}) for call in step.tool_calls]
    return StepRequest(tool_calls=calls)


def _in_words(step: StepRequest) -> StepRequest:
    """The step's call as an action in the text."""
    call = step.tool_calls[0]
    return StepRequest(message=f"Action: {call.name}[{next(iter(call.arguments.values()))}]")
