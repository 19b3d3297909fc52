"""What a policy writes in its worst moments costs every server milliseconds, and twice as much of it twice as long.

Texts are read on the event loop, for all clients. A quadratic search in one of them froze the server for minutes.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable
from typing import Any

import pytest

from envs.base import EnvironmentRefusal, ToolEnvironment
from envs.base.frames import FrameError, check_frame
from envs.base.settings import MAX_FRAME_BYTES
from envs.bfcl.server import BfclEnvironment, Defaults
from envs.toolbench.bench import Bench, open_bench
from envs.toolbench.server import Rules, ToolbenchEnvironment
from envs.tools.server import ToolsEnvironment
from envs.webshop.generator import generated_catalogue
from envs.webshop.server import WebshopEnvironment
from envs.webshop.session import Shop, parse_action
from envs.wire import StepRequest, ToolCall
from tests.growth import assert_linear, assert_quick

REPEATS = 32_000
LIMIT_S = 0.1
THOUGHT = "<think>a</think>"
TEXTS: dict[str, Callable[[int], str]] = {
    "<think>": lambda n: "<think>" * n,
    "think opened, then closed": lambda n: "<think>" * n + "</think>" * n,
    "empty thoughts": lambda n: "<think></think>" * n,
    "<tool_call>": lambda n: THOUGHT + "<tool_call>" * n,
    "<answer>": lambda n: THOUGHT + "<answer>" * n,
    "Thought:": lambda n: "Thought:" * n,
    "Action:": lambda n: "\nThought:\nAction:" * n,
    "Action Input:": lambda n: "Thought: a\nAction: b" + "\nAction Input: " * n,
    "brackets": lambda n: "[" * 2 * n,
    "brackets in a call": lambda n: THOUGHT + "<tool_call>" + "[" * 2 * n + "</tool_call>",
    "objects in a call": lambda n: THOUGHT + "<tool_call>" + '{"a":' * n + "</tool_call>",
    "objects in an input": lambda n: 'Thought: a\nAction: b\nAction Input: {"a":' + '{"a":' * n,
    "quotes in an input": lambda n: "Thought: a\nAction: b\nAction Input: {" + '"a": "' * n,
    "spaces": lambda n: " " * 4 * n,
    "spaces in an input": lambda n: 'Thought: a\nAction: b\nAction Input: {"a":' + " " * 4 * n + "b",
    "search[": lambda n: "search[" * n,
    "search[a] and": lambda n: "search[a] and " * n,
    "search of brackets": lambda n: "search[" + "[a]" * n,
    "search of words": lambda n: "search[" + "a " * n + "]",
    "backslashes": lambda n: '{"' + "\\" * 4 * n,
    "digits": lambda n: "1" * 4 * n,
    "commas": lambda n: "1,111" * n,
    "exponents": lambda n: "1e" * 2 * n,
    "marks": lambda n: "a" + "\u0315\u0300" * n,
}


@pytest.fixture(scope="module")
def bench() -> Bench:
    return open_bench()


@pytest.fixture(scope="module")
def small_shop() -> Shop:
    return Shop(generated_catalogue(50))


def makers(bench: Bench, small_shop: Shop) -> dict[str, Callable[[], ToolEnvironment]]:
    rules = Rules(speech="text")
    return {
        "tools": ToolsEnvironment,
        "toolbench": lambda: ToolbenchEnvironment(bench.answerer, bench.tasks),
        "toolbench text": lambda: ToolbenchEnvironment(bench.answerer, bench.tasks, rules),
        "bfcl": BfclEnvironment,
        "bfcl text": lambda: BfclEnvironment(Defaults(speech="text", errors="augmented")),
        "webshop": lambda: WebshopEnvironment(small_shop),
    }


@pytest.fixture(params=["tools", "toolbench", "toolbench text", "bfcl", "bfcl text", "webshop"])
def make(request: pytest.FixtureRequest, bench: Bench, small_shop: Shop) -> Callable[[], ToolEnvironment]:
    return makers(bench, small_shop)[request.param]


def play(make: Callable[[], ToolEnvironment], request: StepRequest, task: dict[str, Any] | None = None) -> None:
    """Reset and one step."""

    async def episode() -> None:
        environment = make()
        try:
            for result in (environment.reset(dict(task or {}), 1, "e"), environment.step(request)):
                if inspect.isawaitable(result):
                    await result
        except EnvironmentRefusal:
            pass

    asyncio.run(episode())


def assert_cheap(work: Callable[[int], Callable[[], object]]) -> None:
    assert_linear(work, REPEATS, limit_s=LIMIT_S)


@pytest.mark.parametrize("name", TEXTS)
def test_a_degenerate_message_costs_milliseconds(make: Callable[[], ToolEnvironment], name: str) -> None:
    play(make, StepRequest(message="warm"))
    assert_cheap(lambda n: lambda: play(make, StepRequest(message=TEXTS[name](n))))


@pytest.mark.parametrize("name", TEXTS)
def test_a_degenerate_argument_costs_milliseconds(make: Callable[[], ToolEnvironment], name: str) -> None:
    """In every field, and as the name of the call and of its argument."""
    play(make, StepRequest(message="warm"))

    def calls_of(n: int) -> Callable[[], object]:
        text = TEXTS[name](n)
        calls = [("search", ("query", "keywords")), ("click", ("value",)), ("calculator", ("expression",))]
        calls += [("Finish", ("final_answer",)), ("cat", ("file_name",)), (text, (text,))]
        more = {"return_type": "give_answer"}
        made = [
            ToolCall(id=text, name=tool, arguments={**more, **dict.fromkeys(fields, text)}) for tool, fields in calls
        ]
        return lambda: [play(make, StepRequest(tool_calls=[call], parse_error=text)) for call in made]

    assert_cheap(calls_of)


@pytest.mark.parametrize("name", TEXTS)
def test_a_degenerate_row_costs_milliseconds(make: Callable[[], ToolEnvironment], name: str) -> None:
    """Rows are people's files: no message of one is longer than 65,536 characters."""

    def row_of(n: int) -> Callable[[], object]:
        text = TEXTS[name](n // 2)[:65_536]
        row = {"messages": [{"role": "user", "content": text}], "query": text, "answer": {"contains": [text]}}
        return lambda: play(make, StepRequest(final=True), row)

    assert_cheap(row_of)


@pytest.mark.parametrize("name", TEXTS)
def test_a_degenerate_agentgym_action_costs_milliseconds(name: str) -> None:
    """Upstream's own expression, ``(.+)\\[(.+)\\]``, takes seconds for brackets that are not closed."""
    assert_cheap(lambda n: lambda: parse_action(TEXTS[name](n)))


FILLINGS = {"arrays": "[],", "objects": "{},", "numbers": "1,", "texts": '"",'}


@pytest.mark.parametrize("filling", FILLINGS)
def test_a_megabyte_of_values_is_refused_before_anybody_walks_it(filling: str) -> None:
    """A reset of a megabyte of empty arrays held the loop for a second."""
    values = FILLINGS[filling] * (MAX_FRAME_BYTES // len(FILLINGS[filling]) - 50)
    frame = f'{{"type": "reset", "data": {{"task": {{"\\u00e9": [{values}1]}}}}}}'

    def refuse() -> None:
        with pytest.raises(FrameError, match="more than 50000 values"):
            check_frame(frame)

    assert_quick(refuse, LIMIT_S)


def test_long_texts_are_no_values() -> None:
    message = "[,{" * 100_000
    assert check_frame(json.dumps({"type": "step", "data": {"message": message}})).kind == "step"
    row = {"messages": [{"role": "user", "content": "a, b"}] * 5000}
    assert check_frame(json.dumps({"type": "reset", "data": {"task": row}})).kind == "reset"
