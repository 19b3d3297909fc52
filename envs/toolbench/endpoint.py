"""The simulator endpoint: an OpenAI-compatible model that plays APIs for which there is neither record nor shape.

Its address is the operator's and fixed at start. A request has one time limit in all, follows no redirect, uses no
proxy of the environment and reads at most a megabyte. Any failure is an ``EndpointFailure``; nothing is made up.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from envs.base import SettingsError
from envs.base.settings import log
from envs.toolbench.documents import Api
from envs.toolbench.values import MAX_TEXT_LENGTH, ValueFault, load_json

MAX_ANSWER_BYTES = 1024 * 1024
MAX_TOKENS = 1024
MAX_CONNECTIONS = 64
DEFAULT_TIMEOUT_S = 20.0
# A step may take 30 s in all; its calls are asked side by side.
MAX_TIMEOUT_S = 25.0
RULES = (
    "You play the server of a web API. You get its documentation and one request. Answer with a JSON object and "
    'nothing else: {"error": "", "response": ...}. The response is what this API would return for these parameters, '
    "short and with concrete values. Where the request does not fit the documentation, the error says why and the "
    "response is empty."
)


class EndpointFailure(Exception):
    """The endpoint gave no usable answer."""

    def __init__(self, reason: str, *, timed_out: bool = False) -> None:
        super().__init__(reason)
        self.timed_out = timed_out


@dataclass(frozen=True)
class EndpointSettings:
    """Where the model is. Raises ``SettingsError`` for what cannot work."""

    url: str
    model: str
    key: str | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.username
        except ValueError:
            usable = False
        if not usable:
            raise SettingsError("--simulator-url must be an http or https address without credentials.")
        if not self.model:
            raise SettingsError("--simulator-url needs --simulator-model.")
        if not 0 < self.timeout_s <= MAX_TIMEOUT_S:
            raise SettingsError(f"--simulator-timeout-s must be over 0 and at most {MAX_TIMEOUT_S:g}.")


def read_key(path: Path | None) -> str | None:
    """The endpoint's key in a file; raises ``SettingsError``."""
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"The key file {path} cannot be read: {type(error).__name__}.") from error


class Endpoint:
    """Asks the model. One instance for the whole server, used on its event loop."""

    def __init__(self, settings: EndpointSettings, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._settings = settings
        self._url = f"{settings.url.rstrip('/')}/chat/completions"
        headers = {"Authorization": f"Bearer {settings.key}"} if settings.key else {}
        self._client = httpx.AsyncClient(
            headers=headers,
            follow_redirects=False,
            trust_env=False,
            timeout=settings.timeout_s,
            limits=httpx.Limits(max_connections=MAX_CONNECTIONS),
            transport=transport,
        )

    async def ask(self, api: Api, arguments: dict[str, Any]) -> dict[str, Any]:
        """The model's ``{"error", "response"}``; raises ``EndpointFailure``."""
        try:
            # httpx times each read by itself; this is the limit of the whole.
            async with asyncio.timeout(self._settings.timeout_s):
                body = await self._post(self._request(api, arguments))
            return _read_reply(body)
        except (TimeoutError, httpx.TimeoutException):
            raise self._failed("timed out", timed_out=True) from None
        except (httpx.HTTPError, httpx.InvalidURL, ValueFault) as error:
            raise self._failed(type(error).__name__) from None

    async def close(self) -> None:
        """Close its connections."""
        await self._client.aclose()

    def _failed(self, reason: str, *, timed_out: bool = False) -> EndpointFailure:
        log(logging.WARNING, "simulator.failed", reason=reason)
        return EndpointFailure(reason, timed_out=timed_out)

    def _request(self, api: Api, arguments: dict[str, Any]) -> dict[str, Any]:
        document = {
            "api_name": api.document.name,
            "api_description": api.document.description,
            "required_parameters": [parameter.model_dump() for parameter in api.document.required_parameters],
            "optional_parameters": [parameter.model_dump() for parameter in api.document.optional_parameters],
            "tool_description": api.tool_description,
            "tool_name": api.name.tool,
            "tool_category": api.name.category,
        }
        asked = f"API doc:\n{document}\n\nRequest:\n{arguments}"
        messages = [{"role": "system", "content": RULES}, {"role": "user", "content": asked}]
        return {
            "model": self._settings.model,
            "messages": messages,
            "temperature": 0,
            "max_tokens": MAX_TOKENS,
            "seed": 42,
        }

    async def _post(self, request: dict[str, Any]) -> str:
        body = bytearray()
        async with self._client.stream("POST", self._url, json=request) as answer:
            if answer.status_code != httpx.codes.OK:
                raise ValueFault(f"status {answer.status_code}")
            async for chunk in answer.aiter_bytes():
                body += chunk
                if len(body) > MAX_ANSWER_BYTES:
                    raise ValueFault("too long")
        return body.decode("utf-8", "replace")


def _read_reply(body: str) -> dict[str, Any]:
    """The object that the model wrote, out of the endpoint's envelope and a fence of Markdown."""
    try:
        content = load_json(body, limit=MAX_ANSWER_BYTES)["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError):
        raise ValueFault("no completion") from None
    if not isinstance(content, str):
        raise ValueFault("no text")
    text = content.strip().removeprefix("```json").removeprefix("```").removesuffix("```")
    reply = load_json(text, limit=MAX_TEXT_LENGTH)
    if not isinstance(reply, dict) or "response" not in reply:
        raise ValueFault("no response")
    error = reply.get("error") or ""
    return {"error": error if isinstance(error, str) else json.dumps(error), "response": reply["response"]}
