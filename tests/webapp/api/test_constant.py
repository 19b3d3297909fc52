"""What is sent to all clients, and never changes while the process lives: built once, and not sent twice."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client

from webapp.api import reference, urls
from webapp.api.base import api
from webapp.people.teams.models import User

pytestmark = pytest.mark.django_db
ADDRESSES = ("/api/v1/openapi.json", "/api/v1/docs")
BUILT = (
    reference.openapi_schema,
    reference.subjects,
    urls.schema_json,
    reference._operations_html,
    reference._stranger_page,
    reference._stranger_page_at,
)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is built from now on, by a process that has built nothing yet."""
    found: list[str] = []

    def noted(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def act(*arguments: Any, **named: Any) -> Any:
            found.append(name if name != "render_to_string" else arguments[0])
            return real(*arguments, **named)

        monkeypatch.setattr(owner, name, act)

    for kept in BUILT:
        kept.cache_clear()
    noted(api, "get_openapi_schema")
    noted(reference, "render_to_string")
    noted(reference, "constant")
    yield found


def test_the_second_request_builds_nothing(built: list[str], alice: User, client_for: Callable[..., Client]) -> None:
    for address in ADDRESSES:
        assert client_for(None).get(address).status_code == 200
    assert sorted(built) == ["api/_operations.html", "api/docs.html", "constant", "get_openapi_schema"]
    first = list(built)
    for address in ADDRESSES:
        assert client_for(None).get(address).status_code == 200
        assert client_for(alice).get(address).status_code == 200
    assert built == first
    client_for(None).get(ADDRESSES[1], headers={"host": "localhost"})
    assert built == [*first, "constant"], "another name of the server: the same page with another address in it"
    assert b"http://localhost/api/v1/me" in client_for(None).get(ADDRESSES[1], headers={"host": "localhost"}).content
    client_for(None).get(ADDRESSES[1], headers={"accept-language": "zh-CN"})
    assert sorted(built[len(first) + 1 :]) == ["api/_operations.html", "api/docs.html", "constant"]


@pytest.mark.parametrize("address", ADDRESSES)
def test_who_has_it_is_not_sent_it_again(address: str, client_for: Callable[..., Client]) -> None:
    client = client_for(None)
    whole = client.get(address)
    assert whole["ETag"].startswith('"') and "Accept-Encoding" in whole["Vary"]
    again = client.get(address, headers={"if-none-match": whole["ETag"]})
    assert (again.status_code, again.content, again["ETag"]) == (304, b"", whole["ETag"])
    assert again["Cache-Control"] == whole["Cache-Control"]
    assert client.get(address, headers={"if-none-match": '"other"'}).status_code == 200
    packed = client.get(address, headers={"accept-encoding": "br, gzip"})
    assert packed["Content-Encoding"] == "gzip" and gzip.decompress(packed.content) == whole.content
    assert len(packed.content) < len(whole.content) / 5 and packed["ETag"] != whole["ETag"]
    known = client.get(address, headers={"accept-encoding": "gzip", "if-none-match": packed["ETag"]})
    assert known.status_code == 304


def test_how_long_it_may_be_kept(client_for: Callable[..., Client]) -> None:
    schema, page = (client_for(None).get(address) for address in ADDRESSES)
    assert (schema["Cache-Control"], page["Cache-Control"]) == ("public, max-age=300", "private, no-cache")
    assert "Cookie" in page["Vary"] and "Cookie" not in schema["Vary"]
    assert json.loads(schema.content)["openapi"].startswith("3.")


def test_a_strangers_page_has_nothing_of_a_person_and_a_persons_has_their_menu(
    alice: User, client_for: Callable[..., Client]
) -> None:
    stranger = client_for(None).get(ADDRESSES[1])
    assert not stranger.cookies and b"csrfmiddlewaretoken" not in stranger.content
    own = client_for(alice).get(ADDRESSES[1])
    assert b'<div class="menu-label">alice</div>' in own.content and "ETag" not in own.headers
    assert b"alice" not in client_for(None).get(ADDRESSES[1]).content
    dark = client_for(None)
    dark.cookies["tiltyard-theme"] = "dark"
    assert b'data-theme="dark"' in dark.get(ADDRESSES[1]).content and b'data-theme="system"' in stranger.content
    dark.cookies["tiltyard-density"] = "compact"
    assert b'data-density="compact"' in dark.get(ADDRESSES[1]).content
