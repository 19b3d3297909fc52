"""A streaming answer is read as it is sent: Django's handler took a whole model into memory first, and warned of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.http import FileResponse, StreamingHttpResponse

from webapp.common.serving import GATHERED_BYTES, CsvResponse, Handler

PIECE = b"x" * (GATHERED_BYTES // 4)


def sent(response: Any, notes: list[int]) -> list[bytes]:
    """The bodies in their order; ``notes`` gets how much had been read when each was sent."""
    bodies: list[bytes] = []

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.body" and message.get("more_body"):
            bodies.append(message["body"])
            notes.append(read[0])

    asyncio.run(Handler.send_response(Handler.__new__(Handler), response, send))
    return bodies


read = [0]


def pieces(count: int) -> Iterator[bytes]:
    read[0] = 0
    for _number in range(count):
        read[0] += 1
        yield PIECE


def test_no_more_is_read_than_is_sent() -> None:
    notes: list[int] = []
    assert b"".join(sent(StreamingHttpResponse(pieces(10)), notes)) == PIECE * 10
    ends = [4, 8, 10]
    assert sorted(set(notes)) == ends, "four pieces at a time, and the rest"


@pytest.mark.django_db  # closing an answer looks at the connection that an earlier test left
def test_a_file_arrives_whole(tmp_path: Path) -> None:
    data = bytes(range(256)) * 4099
    (tmp_path / "file").write_bytes(data)
    with (tmp_path / "file").open("rb") as file:
        response = FileResponse(file, filename="file")
        assert b"".join(sent(response, [])) == data
        assert not file.closed
        response.close()
        assert file.closed


def test_an_empty_answer_ends() -> None:
    assert sent(StreamingHttpResponse(iter(())), []) == []


def test_a_table_sends_its_head_before_its_rows_are_read() -> None:
    bodies = sent(CsvResponse(iter(["head\n", "row\n", "row\n"]), "x.csv"), [])
    assert bodies == [b"head\n", b"row\nrow\n"]


@pytest.mark.parametrize("size", [GATHERED_BYTES - 1, GATHERED_BYTES, GATHERED_BYTES + 1])
def test_around_the_limit(size: int) -> None:
    assert b"".join(sent(StreamingHttpResponse(iter([b"y" * size, b"z"])), [])) == b"y" * size + b"z"
