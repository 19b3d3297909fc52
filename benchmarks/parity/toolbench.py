"""StableToolBench's own server against ours, where its answer is decided: what is recorded, and what is refused.

Everything else upstream asks of an API on the internet or of a model; here neither answers it, and such a request is
left out of the count.
"""

from __future__ import annotations

import ast
import importlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from fastapi.testclient import TestClient

from benchmarks.parity.upstream import Tally, folder, importable, inside, quiet
from tests.envs.client import running_server
from tests.envs.toolbench.servers import Answer, send

DATA = ("seed0_toolbench", "derived")
FIELDS = ("category", "tool_name", "api_name", "tool_input", "strip", "toolbench_key")
SETTINGS = """
api_key: none
api_base: http://127.0.0.1:9/v1
model: none
temperature: 0
toolbench_url: http://127.0.0.1:9/rapidapi
tools_folder: {tools}
cache_folder: {cache}
is_save: false
port: 0
log_file: {log}
"""
REFUSED = ("nothing", "{", "{'a': 1}", '{"a": }', "[1, 2", '{"a": 1} x', "\x00", "tru", "'", "--")
Request = dict[str, Any]


class Undecided(Exception):
    """Upstream would ask the internet or a model."""


def measure(upstream: Path | None, data: Path) -> dict[str, Any]:
    """Both servers on the recorded responses; ours as a process of its own."""
    source = folder(upstream, "StableToolBench", "server")
    tools, cache = folder(data, *DATA, "tools"), folder(data, *DATA, "tool_response_cache")
    with tempfile.TemporaryDirectory(prefix="tiltyard-parity-") as name:
        place = Path(name)
        settings = SETTINGS.format(tools=tools, cache=cache, log=place / "upstream.log")
        (place / "config.yml").write_text(settings, encoding="utf-8")
        shutil.copy(source / "utils.py", place)
        options = ("--tools", str(tools), "--cache", str(cache))
        with (
            importable(source),
            inside(place),
            quiet(),
            running_server(place, *options, module="envs.toolbench") as server,
        ):
            main = importlib.import_module("main")
            with mock.patch.object(main.requests, "post", _undecided):
                return _compare(TestClient(main.app), server, cache)


def _undecided(*_args: Any, **_kwargs: Any) -> None:
    raise Undecided


def _compare(client: TestClient, server: Any, cache: Path) -> dict[str, Any]:
    recorded, refused, undecided = Tally(), Tally(), 0
    for tally, requests in ((recorded, _recorded(cache)), (refused, _refused())):
        for request in requests:
            try:
                theirs = client.post("/virtual", json=request)
            except Undecided:
                undecided += 1
                continue
            ours = send(server, "/virtual", json.dumps(request).encode())
            same = _faults(ours) == _faults(Answer(theirs.status_code, theirs.json()))
            tally.add(same, {"request": request, "ours": str(ours)[:300], "upstream": theirs.text[:300]})
    return {
        "recorded answers": recorded.report(),
        "refused requests": refused.report(),
        "left out: upstream would ask elsewhere": undecided,
    }


def _faults(answer: Answer) -> Any:
    """An answer; of a refusal what was wrong with which field: ours does not repeat what was sent, and what comes
    behind the field is how Python's annotation is written there.
    """
    if answer.status != 422:
        return answer
    return answer.status, [(fault["type"], fault["loc"][:2], fault["msg"]) for fault in answer.body["detail"]]


def _recorded(cache: Path) -> Iterator[Request]:
    """Every record in each of the spellings that clients use."""
    for path in sorted(cache.glob("*/*/*.json")):
        category = path.parent.parent.name
        tool = path.parent.name.removesuffix(f"_for_{category}")
        for key in json.loads(path.read_text(encoding="utf-8")):
            given = ast.literal_eval(key)
            for names, form in _spellings(category, tool, path.stem, given):
                yield {**dict(zip(FIELDS, names, strict=False)), "tool_input": form, "strip": "", "toolbench_key": ""}


def _spellings(category: str, tool: str, api: str, given: Any) -> Iterator[tuple[tuple[str, str, str], Any]]:
    text, words = json.dumps(given), category.replace("_", " ")
    yield (category, tool, api), text
    yield (category, tool, api), given
    yield (category, f"{tool}_for_{category}", api), json.dumps(given, indent=2)
    yield (words, tool, api), json.dumps(given, ensure_ascii=False)
    yield (category, tool.replace("_", " ").title(), api.replace("_", " ").upper()), text
    yield (category, tool, f"{api}_for_{tool}"), text
    yield (words, f"{tool}_for_{category}", api), given
    yield (category, f" {tool.upper()}!", api.replace("_", "--")), text
    yield (category.replace("_", ","), tool.replace("_", "-"), api.replace("_", "/")), f" {text}\n"


def _refused() -> Iterator[Request]:
    """Arguments that cannot be parsed, and bodies with a field missing or of another type."""
    whole: Request = {**dict.fromkeys(FIELDS, ""), "category": "Data", "tool_name": "a_tool", "api_name": "an_api"}
    for text in REFUSED:
        yield {**whole, "tool_input": text}
    for field in FIELDS:
        yield {name: value for name, value in whole.items() if name != field}
        yield {**whole, field: 5}
        yield {**whole, field: None}
    yield {}
