"""A file that is fetched: which answers are followed, how large it may be, and what is left of one that was refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from training.errors import EnvironmentProtocolError
from webapp.common import outbound
from webapp.common.outbound import MAX_ADDRESS_CHARS, download


class Served:
    """In place of the network: answers in turn, each a status, headers and a body."""

    def __init__(self, *answers: tuple[int, dict[str, str], bytes]) -> None:
        self.answers, self.asked = list(answers), list[str]()

    def exchange(self, target: str, *_arguments: Any) -> Any:
        self.asked.append(target)
        self.status, self.headers, self._body = self.answers.pop(0)
        return self

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_error: object) -> None: ...

    def body(self, most: int) -> Iterator[bytes]:
        for start in range(0, len(self._body), 4):
            if start + 4 > most:
                raise outbound.TooLarge
            yield self._body[start : start + 4]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Any:
    def begin(*answers: tuple[int, dict[str, str], bytes]) -> Served:
        served = Served(*answers)
        monkeypatch.setattr(outbound, "Exchange", served.exchange)
        monkeypatch.setattr(outbound, "target_with_query", lambda url: url)
        return served

    return begin


def fetched(path: Path, most: int = 8, **options: Any) -> int:
    return download("https://a.example/x", path, most=most, limit_s=9, **options)


@pytest.mark.parametrize("size", ["8", "", "0", "x"])
def test_a_file_of_the_limit_is_kept_for_us_alone(serve: Any, tmp_path: Path, size: str) -> None:
    serve((200, {"content-length": size}, b"12345678"))
    seen: list[tuple[int, int]] = []
    path = tmp_path / "new" / "file"
    assert fetched(path, on_progress=lambda done, total: seen.append((done, total))) == 200
    assert path.read_bytes() == b"12345678" and path.stat().st_mode & 0o777 == 0o600
    total = int(size) if size.isdigit() else 0
    assert seen == [(4, total), (8, total)] and list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(("size", "body"), [("9", b"12345678"), ("", b"123456789")])
def test_a_larger_one_leaves_nothing(serve: Any, tmp_path: Path, size: str, body: bytes) -> None:
    serve((200, {"content-length": size}, body))
    with pytest.raises(EnvironmentProtocolError, match="larger than may be fetched"):
        fetched(tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_redirects_are_followed_five_times(serve: Any, tmp_path: Path) -> None:
    hops = [(300 + 99 * (n % 2), {"location": f"/{n}"}, b"") for n in range(5)]
    served = serve(*hops, (200, {}, b"1"))
    assert fetched(tmp_path / "file") == 200 and (tmp_path / "file").read_bytes() == b"1"
    assert served.asked == ["https://a.example/x", *(f"https://a.example/{n}" for n in range(5))]
    serve(*hops, (302, {"location": "/again"}, b""))
    with pytest.raises(EnvironmentProtocolError, match="redirects too often"):
        fetched(tmp_path / "other")


@pytest.mark.parametrize("status", [204, 299, 400, 404, 500])
def test_another_answer_is_returned_and_kept_nowhere(serve: Any, tmp_path: Path, status: int) -> None:
    serve((status, {"location": "/x"}, b"1"))
    assert fetched(tmp_path / "file") == status and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("place", "followed"),
    [
        ("/" + "x" * (MAX_ADDRESS_CHARS - 18), True),
        ("/" + "x" * (MAX_ADDRESS_CHARS - 17), False),
        ("/a b", False),
        ("/a\x7fb", False),
        ("/a\x01b", False),
    ],
)
def test_an_address_of_a_redirect_is_short_and_plain(serve: Any, tmp_path: Path, place: str, followed: bool) -> None:
    serve((302, {"location": place}, b""), (404, {}, b""))
    if followed:
        assert fetched(tmp_path / "file") == 404
    else:
        with pytest.raises(EnvironmentProtocolError, match="an address that cannot be used"):
            fetched(tmp_path / "file")
