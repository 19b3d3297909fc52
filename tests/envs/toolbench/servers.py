"""A server process, plain HTTP, and a client like ToolBench's trainer, written from the documented protocol."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from functools import partial
from typing import Any, NamedTuple

from tests.envs.client import Server, running_server

running_toolbench = partial(running_server, module="envs.toolbench")


class Answer(NamedTuple):
    status: int
    body: Any


def send(server: Server, path: str, body: bytes | None, **headers: str) -> Answer:
    """One request; a body makes it a POST."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}{path}", data=body, headers={"Content-Type": "application/json", **headers}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return Answer(answer.status, json.load(answer))
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, json.load(error))


def call(**over: Any) -> dict[str, Any]:
    """A request to /virtual that is answered."""
    body = {"category": "Data", "tool_name": "weather_desk", "api_name": "forecast", "tool_input": {"city": "Oslo"}}
    return {**body, "strip": "", "toolbench_key": "", **over}


def virtual(server: Server, **over: Any) -> Answer:
    return send(server, "/virtual", json.dumps(call(**over)).encode())


class TrainingClient:
    """Plays a conversation as the published trainer does; the category is that of the query's API list."""

    def __init__(self, server: Server, categories: dict[str, str]) -> None:
        self._server = server
        self._categories = categories
        self.finished: dict[str, Any] | None = None

    def play(self, text: str) -> str:
        """What the trainer puts after the model's text."""
        thought, action = text.find("Thought: "), text.find("\nAction: ")
        given = text.find("\nAction Input: ")
        if -1 in (thought, action, given):
            return "\nMy previous action is invalid. Please provide Thought, Action, and Action Input.\n"
        name = text[action + len("\nAction: ") : given].strip()
        arguments = self._object(text[given + len("\nAction Input: ") :])
        if name == "Finish":
            self.finished = arguments
            return ""
        api, tool = name.rsplit("_for_", 1)
        answer = virtual(
            self._server,
            category=self._categories[name],
            tool_name=tool,
            api_name=api,
            tool_input=arguments,
        )
        if answer.status != 200:
            return json.dumps({"error": f"API call failed with status {answer.status}", "response": ""})
        return json.dumps(answer.body)

    @staticmethod
    def _object(text: str) -> Any:
        """The object up to its matching brace."""
        start, depth = text.index("{"), 0
        for position in range(start, len(text)):
            depth += {"{": 1, "}": -1}.get(text[position], 0)
            if depth == 0:
                return json.loads(text[start : position + 1])
        raise AssertionError("no object")
