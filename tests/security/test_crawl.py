"""Every address that pages lead to, query strings included, followed by five roles from the front page on."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest
from django.test import Client

# The fixtures are those of the matrix: five roles, and one object of each kind.
from tests.security.test_authorisation_matrix import PERSONAS, cast, objects  # noqa: F401

MAX_PAGES, PER_SHAPE = 600, 8
LINK = re.compile(r'\s(?:href|src|action|hx-get|data-url|data-[\w-]*(?:href|url|src))="([^"#]+)')
LEAKS = ("Traceback (most recent call last)", "DoesNotExist", "OperationalError")
# Of every table one view of each column is enough: orders and filters combine without end.
SAME = re.compile(r"(?<==)[^&]*")


def crawled(client: Client, *starts: str) -> Iterator[tuple[str, Any]]:
    """Answers by address, each shape of a query string up to ``PER_SHAPE`` times."""
    waiting, seen, shapes = list(starts), set(starts), dict[str, int]()
    while waiting and len(seen) <= MAX_PAGES:
        address = waiting.pop(0)
        response = client.get(address)
        yield address, response
        for found in _links(address, response):
            shape = SAME.sub("", found)
            if found not in seen and shapes.get(shape, 0) < PER_SHAPE:
                shapes[shape] = shapes.get(shape, 0) + 1
                seen.add(found)
                waiting.append(found)


def _links(address: str, response: Any) -> list[str]:
    if response.status_code in (301, 302):
        targets = [response["Location"]]
    elif "html" in response.get("Content-Type", "") and not response.streaming:
        targets = [html.unescape(target) for target in LINK.findall(response.content.decode())]
    else:
        return []
    whole = [urlsplit(urljoin(f"http://testserver{address}", target)) for target in targets]
    ours = [part for part in whole if part.netloc == "testserver" and not part.path.startswith("/static/")]
    return [f"{part.path}?{part.query}" if part.query else part.path for part in ours]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_role_finds_an_error_of_ours(cast: dict[str | None, Client], objects: dict[str, Any]) -> None:  # noqa: F811
    broken, counts = [], dict.fromkeys(PERSONAS, 0)
    for persona in PERSONAS:
        for address, response in crawled(cast[persona], "/", f"/p/{objects['slug']}/", "/p/elsewhere/"):
            counts[persona] += 1
            text = "" if response.streaming else response.content.decode(errors="replace")
            if response.status_code >= 500 or any(leak in text for leak in LEAKS):
                broken.append(f"{persona} {address}: {response.status_code}")
    print(f"\ncrawled: {sum(counts.values())} requests, {counts}")
    assert not broken, "\n".join(broken)
    assert counts["alice"] > counts["charlie"] and min(counts.values()) > 2
