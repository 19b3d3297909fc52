"""A shop's server process and a client of AgentGym's routes, written from the document of those routes."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from functools import partial
from typing import Any, NamedTuple

from tests.envs.client import Server, running_server

running_shop = partial(running_server, module="envs.webshop")


class Answer(NamedTuple):
    status: int
    body: Any


class AgentGymClient:
    """What AgentGym's WebShop client sends: bodies of JSON, and ``env_idx`` in the query of a GET."""

    def __init__(self, server: Server, token: str | None = None) -> None:
        self._base = f"http://127.0.0.1:{server.port}"
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def get(self, path: str, **query: Any) -> Answer:
        return self._send(f"{path}?{urllib.parse.urlencode(query)}" if query else path, None)

    def post(self, path: str, **body: Any) -> Answer:
        return self.raw(path, json.dumps(body).encode())

    def raw(self, path: str, body: bytes) -> Answer:
        return self._send(path, body)

    def _send(self, path: str, body: bytes | None) -> Answer:
        headers = {**self._headers, "Content-Type": "application/json"}
        method = "GET" if body is None else "POST"
        request = urllib.request.Request(self._base + path, data=body, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return Answer(answer.status, json.load(answer))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, json.load(error))
