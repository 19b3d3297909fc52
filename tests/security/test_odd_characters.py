"""NUL and half surrogate pairs, which PostgreSQL refuses, in addresses and bodies: no answer of ours is a 5xx."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import pytest
from django.db import transaction
from django.test import Client, RequestFactory

from tests.processes import ROOT
from tests.security.routes import API, BODIES, FILES, TABLE
from tests.security.test_authorisation_matrix import ROUTES, _address, cast, objects  # noqa: F401 - fixtures
from webapp.api import urls  # noqa: F401 - adds the operations
from webapp.api.base import api
from webapp.common.middleware import CleanAddressMiddleware
from webapp.common.text import unstorable
from webapp.reading.inspector.filters import CHOICES, MEASURES

ODD = ("%00", "%ED%A0%80", "a%00b")
READ_IN_VIEWS = re.compile(r"GET(?:\.get\(|\.getlist\(|\[)\s*\"(\w+)\"")
BOUNDS = {f"{name}_{end}" for name in (*MEASURES, "part_format") for end in ("from", "to", "below")}


def _names() -> list[str]:
    """Every query parameter that a page reads: those that views name, and the filters of rollouts."""
    sources = [path.read_text() for path in (ROOT / "webapp").rglob("*.py")]
    found = {name for text in sources for name in READ_IN_VIEWS.findall(text)}
    return sorted(found | set(CHOICES) | BOUNDS | {"q", "sort", "state", "tag", "checkpoint", "environment"})


def _pages() -> list[str]:
    """Every page; `readyz` says by its 503 how long ago something ran."""
    return [found for found in ROUTES if "GET" in TABLE[found] and not found.startswith(API) and found != "readyz"]


def _operations() -> Iterator[tuple[str, str, list[str], list[str]]]:
    """Every operation of the schema: method, address, names in its query, and names of text in its path."""
    for path, methods in api.get_openapi_schema(path_prefix="/api/v1/")["paths"].items():
        for method, operation in methods.items():
            parameters = operation.get("parameters", [])
            names = {kind: [item["name"] for item in parameters if item["in"] == kind] for kind in ("query", "path")}
            yield method.upper(), path, names["query"], names["path"]


def _sent(client: Client, method: str, address: str, body: Any = None) -> int:
    """The status of one request whose changes are undone."""
    with transaction.atomic():
        if address.startswith("/api/"):
            content = json.dumps(body or {}) if method != "GET" else ""
            response = client.generic(method, address, content, content_type="application/json")
        else:
            response = client.generic(method, address)
        transaction.set_rollback(True)
    return int(response.status_code)


def _filled(path: str, objects: dict[str, Any], odd: str = "", at: str = "") -> str:  # noqa: F811
    """The address of an operation, with one of its places odd."""
    return re.sub(r"\{(\w+)\}", lambda found: odd if found[1] == at else str(objects[found[1]]), path)


def test_parameters_are_known() -> None:
    """What the other tests send is not empty, and has what was broken."""
    assert {"tool", "boundary", "project", "kind", "q", "reward_from", "page"} <= set(_names()) and len(_names()) > 60
    assert sum(len(query) + len(path) for _m, _a, query, path in _operations()) > 150


def test_every_page_takes_every_parameter_at_once(cast: dict[str | None, Client], objects: dict[str, Any]) -> None:  # noqa: F811
    names, broken = _names(), []
    for route in _pages():
        for odd in ODD[:2]:
            address = _address(route, objects) + "?" + "&".join(f"{name}={odd}" for name in names)
            if (status := _sent(cast["alice"], "GET", address)) >= 500:
                broken.append((route, odd, status))
    assert broken == []


def test_the_parameters_that_were_broken(cast: dict[str | None, Client], objects: dict[str, Any]) -> None:  # noqa: F811
    places = [f"/p/{objects['slug']}/rollouts/", f"/p/{objects['slug']}/runs/{objects['run_id']}/rollouts/"]
    places += [f"/api/v1/projects/{objects['slug']}/rollouts{tail}" for tail in ("", "/spread", "/causes", "/save")]
    asked = [f"{place}?{name}={odd}" for place in places for name in ("tool", "boundary", "run", "q") for odd in ODD]
    asked += [f"{place}?project={odd}" for place in ("/notifications/", "/api/v1/notifications") for odd in ODD]
    statuses = {address: _sent(cast["alice"], "GET", address) for address in asked}
    assert {status for status in statuses.values() if status >= 500} == set(), statuses


@pytest.mark.parametrize("odd", ODD)
def test_every_parameter_of_the_schema(odd: str, cast: dict[str | None, Client], objects: dict[str, Any]) -> None:  # noqa: F811
    """Each by itself, in the query and in the path."""
    tried = []
    for method, path, query, places in _operations():
        addresses = [_filled(path, objects) + f"?{name}={odd}" for name in query]
        addresses += [_filled(path, objects, odd, at) for at in places]
        tried += [(method, address, _sent(cast["alice"], method, address)) for address in addresses]
    assert len(tried) > 150 and [found for found in tried if found[2] >= 500] == []


@pytest.mark.parametrize("odd", ODD)
def test_text_in_the_path_of_a_page(odd: str, cast: dict[str | None, Client], objects: dict[str, Any]) -> None:  # noqa: F811
    """With any value in the place of an address, nothing is there."""
    broken = []
    for route in (found for found in ROUTES if "<" in found and not found.startswith(API)):
        whole = _address(route, objects)
        for place in re.findall(r"<\w+:\w+>", route):
            address = _address(route.replace(place, "PLACE", 1), objects).replace("PLACE", odd)
            for method in TABLE[route]:
                if (status := _sent(cast["alice"], method, address)) >= 500:
                    broken.append((method, whole, address, status))
    assert broken == []


@pytest.mark.parametrize("odd", ["\x00", "\ud800"])
def test_every_text_of_a_body(odd: str, cast: dict[str | None, Client], objects: dict[str, Any]) -> None:  # noqa: F811
    tried = []
    for route, body in BODIES.items():
        for name, value in body.items() if route not in FILES else ():
            if isinstance(value, str):
                for method in set(TABLE[route]) - {"GET"}:
                    status = _sent(cast["alice"], method, _address(route, objects), {**body, name: value + odd})
                    tried.append((route, name, status))
    assert len(tried) > 20 and [found for found in tried if found[2] >= 500] == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_page_takes_each_parameter(cast: dict[str | None, Client], objects: dict[str, Any]) -> None:  # noqa: F811
    """As above, each parameter by itself: one that is refused first cannot hide another. NUL alone: half a surrogate
    pair is replaced where the query is decoded."""
    names, broken = _names(), []
    for route in _pages():
        for name in names:
            address = _address(route, objects) + f"?{name}=%00"
            if (status := _sent(cast["alice"], "GET", address)) >= 500:
                broken.append((address, status))
    assert broken == []


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ("a%00b", "a\u2400b"),
        ("%00", "\u2400"),
        ("%ED%A0%80", "\ufffd\ufffd\ufffd"),
        ("%2500", "%00"),  # a percent sign and two noughts are no NUL
        ("%E6%BC%94%F0%9F%98%80+%26", "演😀 &"),
    ],
)
def test_views_read_what_can_be_stored(sent: str, read: str) -> None:
    """NUL is shown as in texts that are stored, so that a search for one finds it; the rest stays as it was."""
    seen = []
    request = RequestFactory().get(f"/?q={sent}")
    request.path = request.path_info = unquote(f"/p/{sent}/", errors="replace")
    CleanAddressMiddleware(seen.append)(request)  # type: ignore[arg-type]
    assert seen[0].GET["q"] == read and seen[0].path == seen[0].path_info == f"/p/{read.replace(' ', '+')}/"


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ("a", None),
        ("a\x00", ""),
        ({"a": ["b", {"c": "\ud800"}]}, "a.1.c"),
        ({"a": {"b\x00": 1}}, "a"),
        ({"a": "\u2400\ufffd😀", "n": float("nan"), "none": None, "deep": [[[[["x"]]]]]}, None),
        ({"k" * 300: "\x00"}, "k" * 200),
    ],
)
def test_the_place_of_an_odd_text_is_named(value: Any, place: str | None) -> None:
    assert unstorable(value) == place


def test_a_body_with_an_odd_text_is_refused_by_name(cast: dict[str | None, Client], objects: dict[str, Any]) -> None:  # noqa: F811
    body = json.dumps({"name": "r", "components": [{"name": "coherence\x00", "weight": 1}]})
    address = f"/api/v1/projects/{objects['slug']}/rewards"
    response = cast["alice"].post(address, body, content_type="application/json")
    assert response.status_code == 422 and response.json()["detail"][0]["path"] == "components.0.name"
    assert "cannot be stored" in response.json()["message"] and response.json()["code"] == "invalid"
    broken = cast["alice"].post(address, "{", content_type="application/json")
    assert (broken.status_code, broken.json()["code"]) == (400, "invalid")


def test_a_form_with_an_odd_text_is_refused_by_name(cast: dict[str | None, Client], objects: dict[str, Any]) -> None:  # noqa: F811
    """Of operations that take files."""
    response = cast["alice"].post(f"/api/v1/projects/{objects['slug']}/datasets", {"name": "a\x00"})
    assert response.status_code == 422 and response.json()["detail"][0]["path"] == "name"


@pytest.mark.parametrize("asked", ["1\x00", "word", "", "//evil.example", "https://evil.example/", "javascript:a"])
def test_a_page_that_leads_back_leads_to_ours(
    asked: str,
    cast: dict[str | None, Client],  # noqa: F811
    objects: dict[str, Any],  # noqa: F811
) -> None:
    """A word was taken for a view's name, and there was none."""
    again = cast["alice"].post(f"/deletions/{objects['deletions']}/retry/", {"back": asked})
    theme = cast[None].post("/theme/", {"theme": "dark", "next": asked})
    assert (again.status_code, again.headers["Location"]) == (302, "/?all=1")
    assert (theme.status_code, theme.headers["Location"]) == (302, "/")
    assert cast[None].post("/theme/", {"next": "/a?b=c/"}).headers["Location"] == "/a?b=c/"
