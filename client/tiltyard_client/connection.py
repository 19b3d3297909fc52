"""Requests to a Tiltyard site: which site, token and project, and what can go wrong."""

from __future__ import annotations

import json
import os
import ssl
import time
import uuid
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from tiltyard_client.words import gettext as _

# Which site, which token, which project: the environment first, then what ``tiltyard login`` stored.

FOLDER_VARIABLE = "XDG_CONFIG_HOME"


class Place(NamedTuple):
    """The site that commands go to."""

    url: str
    token: str
    project: str


def path() -> Path:
    """The file that ``login`` writes."""
    return Path(os.environ.get(FOLDER_VARIABLE) or Path.home() / ".config") / "tiltyard" / "client.json"


def stored() -> Place:
    """The content of the file; empty where there is none or it cannot be read."""
    try:
        found = json.loads(path().read_text(encoding="utf-8"))
        return Place(*(str(found.get(name, "")) for name in Place._fields))
    except (OSError, ValueError, AttributeError):
        return Place("", "", "")


def place(project: str = "") -> Place:
    """The site that this command goes to; ``project`` is the value of its option."""
    kept, here = stored(), os.environ
    url = here.get("TILTYARD_URL") or kept.url
    token = here.get("TILTYARD_TOKEN") or (kept.token if url == kept.url else "")
    return Place(url, token, project or here.get("TILTYARD_PROJECT") or kept.project)


def store_login(found: Place) -> Path:
    """Keep it for later commands, readable by its owner alone."""
    target = path()
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(found._asdict(), file, indent=1)
    fresh.replace(target)
    return target


# Requests to a Tiltyard site, and what can go wrong with them.

TIMEOUT = httpx.Timeout(30.0, read=120.0)
PER_PAGE = 200
PAUSES_S, PATIENCE_S = (0.5, 2.0), 120.0
"""Before each further try of a call that can be sent again, and how long its first one may take."""
UNAVAILABLE = 503
Json = dict[str, Any]


class Refused(Exception):
    """The server refused. ``code`` is one of docs/errors.md, ``detail`` names the option that it is about, and
    ``wait_s`` says after how many seconds to ask again, where that may help."""

    def __init__(
        self, status: int, code: str, message: str, detail: list[Json] | None = None, wait_s: float = 0.0
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.detail = status, code, message, detail or []
        self.wait_s = wait_s


class LoginNeeded(Refused):
    """There is no token, or it is not valid (any more)."""


class Unreachable(Exception):
    """There was no answer, or it is not from a Tiltyard."""


@cache
def _tls() -> ssl.SSLContext:
    """One for all connections of a process: reading the certificates takes 27 ms each time."""
    return httpx.create_ssl_context()


class Connection:
    """One site, as one token sees it. Raises ``Refused``, ``LoginNeeded`` and ``Unreachable``."""

    def __init__(
        self,
        url: str,
        token: str,
        project: str = "",
        *,
        language: str = "",
        timeout: httpx.Timeout | float = TIMEOUT,
        retry: bool = True,
    ) -> None:
        headers = {"Authorization": f"Bearer {token}"} | ({"Accept-Language": language} if language else {})
        self.url, self.project, self._retry = url.rstrip("/"), project, retry
        self._http = httpx.Client(base_url=f"{self.url}/api/v1", headers=headers, timeout=timeout, verify=_tls())

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def call(self, method: str, path: str, **options: Any) -> Json:
        """One request and its JSON. A ``GET`` is sent again where the site's database is away for a moment."""
        pauses = list(PAUSES_S) if method == "GET" and self._retry else []
        while True:
            try:
                return self._read(self._sent(method, path, **options))
            except Refused as exc:
                _pause(exc, pauses)

    def once(self, path: str, **options: Any) -> Json:
        """One ``POST`` that makes, begins or pays for something, done once however often it is sent: under a key of its
        own it is sent again where the connection broke or the site's database is away, and while the first one is still
        being answered."""
        options["headers"] = {"Idempotency-Key": uuid.uuid4().hex}
        pauses, until = list(PAUSES_S), time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.call("POST", path, **options)
            except Refused as exc:
                if exc.code != "in_progress":
                    _pause(exc, pauses)
                elif time.monotonic() > until:
                    raise
                else:
                    time.sleep(max(PAUSES_S[0], exc.wait_s))
            except Unreachable as exc:
                _pause(exc, pauses)

    def rows(self, path: str, **query: Any) -> list[Json]:
        """The rows of a list that comes whole, or of the first page of one that does not."""
        return list(self.call("GET", path, params=query)["items"])

    def text(self, path: str) -> str:
        """One request whose answer is not JSON."""
        answer = self._sent("GET", path)
        if not answer.is_success:
            self._read(answer)
        return answer.text

    def _sent(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            return self._http.request(method, path, **options)
        except httpx.HTTPError as exc:
            why = str(exc) or type(exc).__name__
            raise Unreachable(_("{url} does not answer: {why}").format(url=self.url, why=why)) from exc

    def _read(self, answer: httpx.Response) -> Json:
        try:
            found: Any = answer.json()
        except ValueError:
            found = None
        if not isinstance(found, dict):
            sentence = _("{url} answers {status}, but not as a Tiltyard site does.")
            raise Unreachable(sentence.format(url=self.url, status=answer.status_code))
        if answer.is_success:
            return found
        detail = found.get("detail") if isinstance(found.get("detail"), list) else []
        kind = LoginNeeded if answer.status_code == 401 else Refused
        wait = answer.headers.get("Retry-After", "")
        wait_s = float(wait) if wait.isdecimal() else 0.0
        raise kind(answer.status_code, str(found.get("code", "")), str(found.get("message", "")), detail, wait_s)

    def fetch(self, path: str, target: Path, *, seen: Callable[[int, int], None] | None = None, **options: Any) -> None:
        """A file of the site at ``target``, only once it is here whole. ``seen`` hears the bytes so far and in all."""
        part = target.with_name(f"{target.name}.part")
        try:
            with self._http.stream("GET", path, **options) as answer:
                if not answer.is_success:
                    answer.read()
                    self._read(answer)
                total = int(answer.headers.get("Content-Length", 0))
                with part.open("wb") as file:
                    for piece in answer.iter_bytes(1 << 20):
                        file.write(piece)
                        if seen is not None:
                            seen(file.tell(), total)
            part.replace(target)
        except httpx.HTTPError as exc:
            why = str(exc) or type(exc).__name__
            raise Unreachable(_("The download broke off: {why}").format(why=why)) from exc
        finally:
            part.unlink(missing_ok=True)

    def pages(self, path: str, **query: Any) -> list[Json]:
        """All rows of a list."""
        rows: list[Json] = []
        cursor: str | None = ""
        while cursor is not None:
            place = {"cursor": cursor} if cursor else {}
            found = self.call("GET", path, params={**query, **place, "per_page": PER_PAGE})
            rows += found["items"]
            cursor = found["next"]
        return rows

    def named(self, rest: str, name: str, **query: Any) -> Json | None:
        """The first row of a list of the project that has this name; ``None`` where none has it."""
        found = self.rows(self.in_project(rest), **query, name=name, per_page=1) if name else []
        return found[0] if found else None

    def in_project(self, rest: str) -> str:
        """A path of the project that calls mean. Raises ``Refused`` where none was named."""
        if not self.project:
            raise Refused(400, "no_project", _("Say which project is meant: --project, or TILTYARD_PROJECT."))
        return f"/projects/{self.project}/{rest}"


def _pause(failure: Unreachable | Refused, pauses: list[float]) -> None:
    """Sleep before the next try, as long as the site asks for. Raises the failure again where trying again cannot help,
    or no try is left."""
    if not pauses or (isinstance(failure, Refused) and failure.status != UNAVAILABLE):
        raise failure
    time.sleep(max(pauses.pop(0), getattr(failure, "wait_s", 0.0)))
