"""S2: a body that is too large is refused before it is read, also under ASGI, where Django would spool it first."""

from __future__ import annotations

from typing import Any

import pytest

from webapp.datasets.handlers import BodyLimit


async def _run(settings: Any, headers: list[tuple[bytes, bytes]], chunks: int, chunk: int = 50_000) -> tuple[int, int]:
    """Status of the answer and how many chunks were asked for."""
    asked, sent = 0, []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect" or not message.get("more_body"):
                break
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive() -> dict[str, Any]:
        nonlocal asked
        asked += 1
        return {"type": "http.request", "body": b"x" * chunk, "more_body": asked < chunks}

    async def send(message: Any) -> None:
        sent.append(message)

    await BodyLimit(app)({"type": "http", "headers": headers}, receive, send)
    starts = [message["status"] for message in sent if message["type"] == "http.response.start"]
    assert len(starts) == 1
    return starts[0], asked


FORM = (b"content-type", b"multipart/form-data; boundary=x")


@pytest.fixture
def session(settings: Any) -> tuple[bytes, bytes]:
    settings.MAX_UPLOAD_BYTES = 10_000_000
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 500_000
    return (b"cookie", settings.SESSION_COOKIE_NAME.encode() + b"=abc")


async def test_uploads_within_the_limit_pass(settings: Any, session: Any) -> None:
    assert await _run(settings, [FORM, session], chunks=100) == (200, 100)


async def test_announced_size_is_refused_unread(settings: Any, session: Any) -> None:
    assert await _run(settings, [FORM, session, (b"content-length", b"20000000")], chunks=400) == (413, 0)


async def test_unannounced_size_is_cut_off(settings: Any, session: Any) -> None:
    status, asked = await _run(settings, [FORM, session], chunks=100_000)
    assert status == 413 and asked <= 210


async def test_visitors_cannot_fill_the_disk(settings: Any, session: Any) -> None:
    status, asked = await _run(settings, [FORM], chunks=100_000)
    assert status == 413 and asked <= 13


async def test_other_bodies_are_small(settings: Any, session: Any) -> None:
    status, asked = await _run(settings, [session, (b"content-type", b"application/json")], chunks=1000)
    assert status == 413 and asked <= 13
