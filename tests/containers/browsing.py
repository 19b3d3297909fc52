"""A person with a session who uses the site's own addresses: login link, REST API."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import httpx


class Visitor:
    """Logs in by a one-time link; every answer must be a success."""

    def __init__(self, link: str) -> None:
        self._http = httpx.Client(base_url=link.split("/login/")[0], timeout=60, trust_env=False)
        page = self._http.get(link)
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page.text)
        assert token is not None, page.text[:2000]
        answer = self._http.post(link, data={"csrfmiddlewaretoken": token[1]})
        assert answer.status_code == 302, answer.text[:2000]

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        """One object of the API."""
        return self._shown(self._http.get(f"/api/v1/{path}", params=query))

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        """Make something; ``files=`` sends a form instead of JSON."""
        headers = {"X-CSRFToken": self._http.cookies["tiltyard-csrf"]}
        files = body.pop("files", None)
        sent: dict[str, Any] = {"json": body} if files is None else {"data": body, "files": files}
        return self._shown(self._http.post(f"/api/v1/{path}", headers=headers, **sent))

    @staticmethod
    def _shown(answer: httpx.Response) -> dict[str, Any]:
        assert answer.is_success, f"{answer.request.url}: {answer.status_code} {answer.text[:3000]}"
        found: dict[str, Any] = answer.json()
        return found

    def wait(self, path: str, check: Callable[[dict[str, Any]], Any], what: str, limit_s: float) -> dict[str, Any]:
        """The object once ``check`` holds for it."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            found = self.get(path)
            if check(found):
                return found
            time.sleep(0.5)
        raise AssertionError(f"not within {limit_s} s: {what}; last: {str(found)[:3000]}")
