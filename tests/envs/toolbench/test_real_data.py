"""ToolBench's own files: function forms, names, recorded responses, and three queries that play offline."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envs.toolbench.answers import read_template, simulate
from envs.toolbench.bench import Bench, Data
from envs.toolbench.documents import function_schema, plain_name
from envs.toolbench.tasks import Task
from envs.toolbench.validate import validate_data
from envs.toolbench.values import canonical, parse_key
from tests.envs.client import Server, run, running_server, session
from tests.envs.toolbench.servers import TrainingClient, virtual

OFFLINE = (588, 608, 1073)


@pytest.fixture(scope="module")
def real_server(real_data: Data, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    options = ["--tools", str(real_data.tools), "--cache", str(real_data.cache)]
    options += [word for path in real_data.queries for word in ("--queries", str(path))]
    with running_server(tmp_path_factory.mktemp("real"), *options, module="envs.toolbench") as started:
        yield started


def task_of(bench: Bench, query_id: int) -> Task:
    task = bench.tasks.by_id(query_id)
    assert task is not None
    return task


def golden_functions(real: Path) -> Iterator[dict[str, Any]]:
    """The functions that upstream's code made for its published answers and training records."""
    for path in sorted(real.glob("**/answer/**/*.json")):
        for function in json.loads(path.read_text(encoding="utf-8"))["answer_generation"]["function"]:
            yield function.get("function", function)
    records = json.loads((real / "derived/toolllama_conversations_from_data_example.json").read_text(encoding="utf-8"))
    for record in records:
        text = record["conversations"][0]["value"]
        yield from ast.literal_eval(text[text.index("APIs: [") + len("APIs: ") :])


def test_functions_equal_those_of_published_answers(real: Path, real_bench: Bench) -> None:
    known = {function["name"]: function for function in _functions(real, real_bench)}
    compared = {json.dumps(golden, sort_keys=True): golden for golden in golden_functions(real)}.values()
    found = [golden for golden in compared if golden["name"] in known]
    assert len(found) >= 55
    assert [golden["name"] for golden in found if known[golden["name"]] != golden] == []


def _functions(real: Path, bench: Bench) -> Iterator[dict[str, Any]]:
    from envs.toolbench.documents import ListedApi

    for path in sorted((real / "toolbench/instruction").glob("G*_query.json")):
        for query in json.loads(path.read_text(encoding="utf-8")):
            for item in query["api_list"]:
                yield function_schema(ListedApi.model_validate(item).as_api())["function"]
    for index in range(len(bench.tasks)):
        for api in bench.tasks.at(index).apis:
            yield function_schema(api)["function"]


def test_all_queries_are_read(real_bench: Bench) -> None:
    assert len(real_bench.tasks) == 765
    names = [name for index in range(765) for name in real_bench.tasks.at(index).by_function]
    assert max(map(len, names)) == 64 and len(set(names)) > 2000


def test_tool_files_lie_where_their_names_say(real: Path, real_bench: Bench) -> None:
    files = sorted((real / "derived/tools").glob("*/*.json"))
    assert len(files) == 248
    for path in files:
        document = json.loads(path.read_text(encoding="utf-8"))
        for item in document["api_list"]:
            api = real_bench.answerer.library.find(plain_name(path.parent.name, document["tool_name"], item["name"]))
            assert api is not None and api.name.tool == path.stem == document["standardized_name"]


def test_every_recorded_response_is_reachable_in_both_ways(real_data: Data) -> None:
    summary = validate_data(real_data)
    assert (summary["ok"], summary["files"], summary["responses"]) == (True, 303, 546), summary


def test_every_recorded_response_is_reachable_over_http_in_another_order(real_data: Data, real_server: Server) -> None:
    assert real_data.cache is not None
    for path in sorted(real_data.cache.glob("*/*/*.json"))[::6]:
        category, tool = path.parent.parent.name, path.parent.name
        records = {key: (parse_key(key), item) for key, item in json.loads(path.read_text(encoding="utf-8")).items()}
        for arguments, _ in records.values():
            # Some were recorded in two orders, with another response each.
            wanted = [item for others, item in records.values() if others == arguments]
            text = json.dumps(dict(reversed(arguments.items())))
            names = {"category": category, "tool_name": tool, "api_name": path.stem}
            assert virtual(real_server, **names, tool_input=text).body in wanted


def test_every_template_is_simulated(real_bench: Bench) -> None:
    simulated = cut = 0
    for index in range(len(real_bench.tasks)):
        for api in real_bench.tasks.at(index).apis:
            if api.document.template_response is None:
                continue
            simulated += 1
            cut += isinstance(api.document.template_response, str)
            assert read_template(api.document.template_response) != "str"
            arguments = {item.argument: "x" for item in api.document.required_parameters}
            response = simulate(api, arguments, canonical(arguments))
            assert response == simulate(api, arguments, canonical(arguments))
            assert isinstance(response, dict | list) and len(json.dumps(response)) < 20_000
    assert (simulated, cut) == (2748, 230)


def recorded_calls(bench: Bench, data: Data, query_id: int) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Function, arguments and response of what is recorded for a query."""
    assert data.cache is not None
    for function, api in task_of(bench, query_id).by_function.items():
        name = api.name
        path = data.cache / name.category / f"{name.tool}_for_{name.category}" / f"{name.api}.json"
        if path.is_file():
            for key, response in json.loads(path.read_text(encoding="utf-8")).items():
                yield function, ast.literal_eval(key), response


@pytest.mark.parametrize(("query_id", "calls"), list(zip(OFFLINE, (16, 2, 2), strict=True)))
def test_a_trainers_client_plays_offline(
    query_id: int, calls: int, real_bench: Bench, real_data: Data, real_server: Server
) -> None:
    task = task_of(real_bench, query_id)
    client = TrainingClient(real_server, {name: api.name.category for name, api in task.by_function.items()})
    recorded = list(recorded_calls(real_bench, real_data, query_id))
    assert len(recorded) == calls
    for function, arguments, response in recorded:
        answer = client.play(f"Thought: \nAction: {function}\nAction Input: {json.dumps(arguments)}\nObservation: {{}}")
        assert json.loads(answer) == response
    assert client.play('Thought: \nAction: Finish\nAction Input: {"return_type": "give_answer"}') == ""
    assert client.finished == {"return_type": "give_answer"}


def test_sessions_play_offline(real_bench: Bench, real_data: Data, real_server: Server) -> None:
    async def play(query_id: int, speech: str) -> None:
        async with session(real_server) as client:
            first = (await client.reset({"query_id": query_id, "speech": speech}))["observation"]
            assert first["messages"][1]["content"] == task_of(real_bench, query_id).query
            calls = list(recorded_calls(real_bench, real_data, query_id))[:8]
            for function, arguments, response in calls:
                text = f"Thought: \nAction: {function}\nAction Input: {json.dumps(arguments)}"
                native = speech == "native"
                seen = (await (client.step("", (function, arguments)) if native else client.step(text)))["observation"]
                assert seen["info"]["calls"] == [{"function": function, "source": "cache", "status": 0}]
                content = json.dumps(response)
                content = content if len(content) <= 1024 else content[:1024] + "..."
                assert seen["messages"][0]["content"] == (content if native else f"\n\nObservation: {content}\n\n")
            end = await client.step("", ("Finish", {"return_type": "give_answer", "final_answer": "done"}))
            assert (end["done"], end["reward"]) == (True, None)
            parts = end["observation"]["reward_parts"]
            assert parts["function_call"] == pytest.approx(0.1 * len(calls)) and parts["finish"] == 0.5

    for query_id in OFFLINE:
        for speech in ("native", "text"):
            run(play(query_id, speech))


def test_cut_results_of_published_records_are_cut_alike(real: Path) -> None:
    records = json.loads((real / "derived/toolllama_conversations_from_data_example.json").read_text(encoding="utf-8"))
    lengths = [
        len(turn["value"]) for record in records for turn in record["conversations"] if turn["from"] == "function"
    ]
    assert max(lengths) == 1024 + len("...")
