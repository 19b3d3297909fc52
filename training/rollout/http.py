"""One HTTP conversation with one environment server, for the protocols that are plain HTTP.

Bodies are read up to a limit and refused beyond it; redirects, compression and proxies are not used. Deadlines are the
caller's: everything here can be cancelled at any read.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from training.config import EnvironmentConfig
from training.connections import (
    HttpAnswer,
    HttpClient,
    HttpFailed,
    TooLarge,
    Why,
    auth_headers,
    auth_secrets,
    http_parts,
)
from training.errors import (
    EnvironmentFault,
    EnvironmentProtocolError,
    EnvironmentRefused,
    EnvironmentTimeout,
    TiltyardError,
)
from training.redaction import without_bytes
from training.rollout.session import BUSY_STATUSES, GATEWAY_STATUSES, MAX_MESSAGE_BYTES, decode, no_connection, refusal


class Answer(NamedTuple):
    """A whole answer within the limits."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON. Raises ``EnvironmentProtocolError``."""
        return decode(self.body)


class HttpLink:
    """The conversation; connections are opened as they are needed and kept."""

    def __init__(self, config: EnvironmentConfig, url: str, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._url = server_url(url)
        self._limit_s = config.connect_timeout_s
        self._max_bytes = max_bytes
        self._client = HttpClient(config.connect_timeout_s, headers=auth_headers(self._url))
        self.secrets = auth_secrets(self._url)

    async def close(self) -> None:
        """Drop the connections."""
        await self._client.close()

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """One request and its whole answer, whatever its status."""
        async with self.stream(method, path, body, params=params, headers=headers) as answer:
            return Answer(answer.status, answer.headers, await self.whole(answer))

    async def ask_json(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """The JSON of an answer with status 200. Raises environment errors for any other."""
        answer = await self.ask(method, path, body, **more)
        if answer.status != 200:
            raise http_failure(answer.status, f"{method} {path or '/'}")
        return answer.json()

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> AsyncIterator[HttpAnswer]:
        """One request and its answer, read through ``chunks``."""
        content = None if body is None else json.dumps(body).encode()
        typed = {"Content-Type": "application/json"} if content is not None else {}
        try:
            async with self._client.stream(
                method, self._url + path, content=content, params=params, headers={**typed, **(headers or {})}
            ) as answer:
                if answer.headers.get("content-encoding", "identity") != "identity":
                    raise EnvironmentProtocolError("The environment compresses its answers, which was not asked for.")
                yield answer
        except HttpFailed as exc:
            if exc.why is Why.SLOW:
                raise EnvironmentTimeout(f"No connection to the environment within {self._limit_s:g} s.") from exc
            raise no_connection(exc) from exc

    async def whole(self, answer: HttpAnswer) -> bytes:
        """The whole body, up to the limit and without the token that the server was shown."""
        return without_bytes(b"".join([chunk async for chunk in self.chunks(answer)]), self.secrets)

    async def chunks(self, answer: HttpAnswer) -> AsyncIterator[bytes]:
        """The body in pieces, up to the limit."""
        try:
            async for chunk in answer.chunks(self._max_bytes):
                yield chunk
        except TooLarge as exc:
            size = _size(self._max_bytes)
            raise EnvironmentProtocolError(f"The environment's answer is larger than {size}.") from exc


def server_url(url: str) -> str:
    """The address without its last slash. Raises ``EnvironmentRefused`` for what is no http(s) address."""
    scheme, host = http_parts(url)
    if scheme not in ("http", "https") or not host:
        raise EnvironmentRefused(
            f"'{url[:200]}' is no address of an environment.", hint="Set environment.url to http://host:port."
        )
    return url.rstrip("/")


def http_failure(status: int, asked: str) -> TiltyardError:
    """The typed error of a status that is not 200."""
    if status in (400, 404, 405, 406, 413, 415, 422):
        return EnvironmentProtocolError(f"The environment does not answer {asked} (HTTP {status}).")
    if status >= 500 and status not in (*BUSY_STATUSES, *GATEWAY_STATUSES):
        return EnvironmentFault(f"The environment failed at {asked} (HTTP {status}).")
    return refusal(status)


def _size(count: int) -> str:
    return f"{count >> 20} MB" if count >= 1 << 20 else f"{count >> 10} KB"
