"""The proof of a server with data: each recorded response comes back through ``/virtual`` and through a session.

Nobody knows the answers to upstream's queries, so there is no gold reward to look at.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from envs.toolbench.bench import Bench, Data, open_bench
from envs.toolbench.server import Rules, ToolbenchEnvironment
from envs.toolbench.validate import MAX_LISTED_FAILURES
from envs.toolbench.values import ValueFault, parse_key
from envs.toolbench.virtual import Virtual, VirtualBody
from envs.wire import StepRequest, ToolCall

UNCUT = Rules(max_observation=64 * 1024 * 1024)


def validate_data(data: Data, files: int | None = None) -> dict[str, Any]:
    """Ask for every recorded response of the first ``files`` cache files (all without a number), in two ways."""
    return asyncio.run(_validate(open_bench(data), data.cache, files))


async def _validate(bench: Bench, cache: Path | None, files: int | None) -> dict[str, Any]:
    virtual = Virtual(bench.answerer)
    failures: list[str] = []
    responses = 0
    read = list(islice(_files(cache), files)) if cache is not None else []
    for category, tool, api, records in read:
        for key, expected in records.items():
            responses += 1
            try:
                arguments = parse_key(key)
            except ValueFault as fault:
                failures.append(f"{tool}/{api}: key: {fault}")
                continue
            body = {"category": category, "tool_name": tool, "api_name": api, "strip": "", "toolbench_key": ""}
            answer = await virtual.answer(VirtualBody.model_validate({**body, "tool_input": arguments}))
            if answer.body != expected:
                failures.append(f"{tool}/{api}: /virtual")
            if await _in_session(bench, (category, tool, api), arguments) != json.dumps(expected):
                failures.append(f"{tool}/{api}: session")
    return {
        "ok": not failures,
        "task_set": bench.tasks.name,
        "queries": len(bench.tasks),
        "files": len(read),
        "responses": responses,
        "episodes": responses,
        "gold_score_mean": None,
        "bad_score_max": None,
        "gold_failures": failures[:MAX_LISTED_FAILURES],
    }


def _files(cache: Path) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    for path in sorted(cache.glob("*/*/*.json")):
        category, folder = path.parent.parent.name, path.parent.name
        records = json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda _: None)
        if isinstance(records, dict):
            yield category, folder.removesuffix(f"_for_{category}"), path.stem, records


async def _in_session(bench: Bench, names: tuple[str, str, str], arguments: dict[str, Any]) -> str:
    """The content of the tool message of one call."""
    category, tool, api = names
    listed = {"category_name": category, "tool_name": tool, "api_name": api, "required_parameters": []}
    environment = ToolbenchEnvironment(bench.answerer, bench.tasks, UNCUT)
    opened = environment.reset({"query": "validate", "api_list": [listed]}, 0, "validate")
    function = (opened.tools or [{}])[0]["function"]["name"]
    call = ToolCall(id="1", name=function, arguments=arguments)
    return (await environment.step(StepRequest(tool_calls=[call]))).messages[0].content
