"""The REST API of a Tiltyard site (docs/api.md), as Python calls. Answers are the server's JSON, unchanged."""

from __future__ import annotations

import hashlib
import tarfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import httpx

ENDED = frozenset({"succeeded", "failed", "cancelled", "paused"})
TIMEOUT = httpx.Timeout(30.0, read=120.0)
LOOK_S, PATIENCE_S = 2.0, 120.0
PER_PAGE = 200
Json = dict[str, Any]


class Refused(Exception):
    """The server said no. ``code`` is one of docs/errors.md, ``detail`` names the option that it is about."""

    def __init__(self, status: int, code: str, message: str, detail: list[Json] | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.detail = status, code, message, detail or []


class LoginNeeded(Refused):
    """There is no token, or it does not hold (any more)."""


class Unreachable(Exception):
    """Nobody answered, or something that is no Tiltyard did."""


class Tiltyard:
    """One site, as one token sees it. ``project`` is the slug that calls about a project mean."""

    def __init__(self, url: str, token: str, project: str = "", *, language: str = "") -> None:
        headers = {"Authorization": f"Bearer {token}"} | ({"Accept-Language": language} if language else {})
        self.url, self.project = url.rstrip("/"), project
        self._http = httpx.Client(base_url=f"{self.url}/api/v1", headers=headers, timeout=TIMEOUT)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def call(self, method: str, path: str, **options: Any) -> Json:
        """One request. Raises ``Refused``, ``LoginNeeded`` and ``Unreachable``."""
        try:
            answer = self._http.request(method, path, **options)
        except httpx.HTTPError as exc:
            raise Unreachable(f"{self.url} does not answer: {exc or type(exc).__name__}") from exc
        return self._read(answer)

    def _read(self, answer: httpx.Response) -> Json:
        try:
            found = answer.json()
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise Unreachable(f"{self.url} answers {answer.status_code}, but not as a Tiltyard site does.")
        if answer.is_success:
            return found
        detail = found.get("detail") if isinstance(found.get("detail"), list) else []
        kind = LoginNeeded if answer.status_code == 401 else Refused
        raise kind(answer.status_code, str(found.get("code", "")), str(found.get("message", "")), detail)

    def pages(self, path: str, **query: Any) -> list[Json]:
        """All rows of a list."""
        rows: list[Json] = []
        page = 1
        while True:
            found = self.call("GET", path, params={**query, "page": page, "per_page": PER_PAGE})
            rows += found["items"]
            if page >= found["pages"]:
                return rows
            page += 1

    def _in_project(self, rest: str) -> str:
        if not self.project:
            raise Refused(400, "no_project", "Say which project is meant: --project, or TILTYARD_PROJECT.")
        return f"/projects/{self.project}/{rest}"

    def me(self) -> Json:
        """Who the token acts as, and what it may do."""
        return self.call("GET", "/me")

    def projects(self) -> list[Json]:
        """The projects that the token sees."""
        return list(self.call("GET", "/projects")["items"])

    # --- Runs ------------------------------------------------------------------------------------------------------
    def runs(self, **filters: str) -> list[Json]:
        """Runs of the project, newest first; ``state``, ``kind`` and ``q`` choose among them."""
        return self.pages(self._in_project("runs"), **filters)

    def run(self, name: str) -> Json:
        """One run with its config, by its id or its name."""
        try:
            return self.call("GET", f"/runs/{uuid.UUID(name)}")
        except ValueError:
            pass
        found = [row for row in self.runs(q=name) if row["name"] == name]
        if not found:
            raise Refused(404, "not_found", f"There is no run {name!r} in {self.project}.")
        return self.call("GET", f"/runs/{found[0]['id']}")

    def launch(
        self, name: str, *, yaml: str | None = None, config: Json | None = None, launch: bool = True, key: str = ""
    ) -> Json:
        """Create a run and queue it. The same ``key`` gives the same run back, so that a call can be repeated."""
        body = {
            "name": name,
            "yaml": yaml,
            "config": config,
            "launch": launch,
            "idempotency_key": key or uuid.uuid4().hex,
        }
        send = {name: value for name, value in body.items() if value is not None}
        try:
            return self.call("POST", self._in_project("runs"), json=send)
        except Unreachable:  # it may have been made: the key finds it
            return self.call("POST", self._in_project("runs"), json=send)

    def act(self, run_id: str, act: str) -> Json:
        """``stop``, ``pause`` or ``resume`` a run."""
        return self.call("POST", f"/runs/{run_id}/{act}")

    def watch(self, run_id: str, *, every_s: float | None = None) -> Iterator[Json]:
        """The run as it changes, until it ends or pauses. A server that is away is asked again for two minutes."""
        heard, last = time.monotonic(), -1
        pause_s = LOOK_S if every_s is None else every_s
        while True:
            try:
                run = self.call("GET", f"/runs/{run_id}")
            except Unreachable:
                if time.monotonic() - heard > PATIENCE_S:
                    raise
                time.sleep(pause_s)
                continue
            heard = time.monotonic()
            if run["seq"] != last:
                last = run["seq"]
                yield run
            if run["state"] in ENDED:
                return
            time.sleep(pause_s)

    def export(self, run_id: str, to: str, target: Callable[[str], Path]) -> tuple[Json, Path]:
        """The metrics of an ended run as a file: ``csv``, ``csv_wide``, ``parquet`` or ``tensorboard``.

        ``target`` makes a path of the name that the site gave it. Raises ``Refused`` where it could not be written.
        """
        made = self.call("POST", f"/runs/{run_id}/exports", json={"to": to})
        while made["state"] in ("waiting", "writing"):
            time.sleep(LOOK_S / 4)
            made = self.call("GET", f"/runs/{run_id}/exports/{made['id']}")
        if made["state"] != "done":
            error = made.get("error") or {}
            raise Refused(0, str(error.get("code", "failed")), str(error.get("message") or "It could not be written."))
        path = target(made["file_name"])
        part = path.with_name(f"{path.name}.part")
        try:
            with self._http.stream("GET", f"/runs/{run_id}/exports/{made['id']}/file") as answer:
                if not answer.is_success:
                    answer.read()
                    self._read(answer)
                with part.open("wb") as file:
                    for piece in answer.iter_bytes(1 << 20):
                        file.write(piece)
            part.replace(path)
        except httpx.HTTPError as exc:
            raise Unreachable(f"The download broke off: {exc or type(exc).__name__}") from exc
        finally:
            part.unlink(missing_ok=True)
        return made, path

    # --- Data and models -------------------------------------------------------------------------------------------
    def datasets(self) -> list[Json]:
        """All versions of all datasets, newest first."""
        return self.pages(self._in_project("datasets"))

    def upload(self, file: BinaryIO, file_name: str, name: str) -> Json:
        """Upload a file as the next version under a name; it is checked in the background."""
        return self.call(
            "POST", self._in_project("datasets"), data={"name": name}, files={"file": (file_name, file)}, timeout=None
        )

    def dataset(self, dataset_id: str) -> Json:
        """One version with the report of its check."""
        return self.call("GET", f"/datasets/{dataset_id}")

    def models(self) -> list[Json]:
        """The registered models, newest first."""
        return self.pages(self._in_project("models"))

    def download(
        self, model_id: str, target: Path, *, part: str = "model", seen: Callable[[int, int], None] | None = None
    ) -> list[Path]:
        """The files of a model into the folder ``target``, each proved by the hash that the server sent.

        ``seen`` hears the bytes so far and in all. Raises ``Refused`` with ``damaged`` where a file does not match.
        """
        target.mkdir(parents=True, exist_ok=True)
        archive = target / ".download.tar"
        try:
            with self._http.stream("GET", f"/models/{model_id}/download", params={"part": part}) as answer:
                if not answer.is_success:
                    answer.read()
                    self._read(answer)
                total = int(answer.headers.get("Content-Length", 0))
                with archive.open("wb") as file:
                    for piece in answer.iter_bytes(1 << 20):
                        file.write(piece)
                        if seen is not None:
                            seen(file.tell(), total)
            return _unpack(archive, target)
        except httpx.HTTPError as exc:
            raise Unreachable(f"The download broke off: {exc or type(exc).__name__}") from exc
        finally:
            archive.unlink(missing_ok=True)

    def compare(self, runs: list[str], spec: str = "") -> Json:
        """Evaluations side by side: figures, a verdict for each pair, and what is left out."""
        return self.call("GET", self._in_project("compare"), params={"c": runs, "spec": spec})


def _unpack(archive: Path, target: Path) -> list[Path]:
    """The members of the tar as files directly under ``target``, held against its ``SHA256SUMS``."""
    sent: dict[str, str] = {}
    arrived: dict[str, str] = {}
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                name = Path(member.name).name
                source = tar.extractfile(member)
                if source is None or not name:
                    continue
                if name == "SHA256SUMS":
                    sent = {line[66:]: line[:64] for line in source.read().decode().splitlines()}
                    continue
                digest, path = hashlib.sha256(), target / name
                arrived[name] = ""  # begun: what is cut off goes with the others
                with path.open("wb") as file:
                    while piece := source.read(1 << 20):
                        digest.update(piece)
                        file.write(piece)
                arrived[name] = digest.hexdigest()
    except tarfile.TarError as exc:
        _remove(target / name for name in arrived)
        raise Refused(0, "damaged", f"The download is not whole: {exc}") from exc
    wrong = sorted(name for name in sent.keys() | arrived.keys() if sent.get(name) != arrived.get(name))
    if wrong or not arrived:
        _remove(target / name for name in arrived)
        raise Refused(0, "damaged", f"These files did not arrive as they were sent: {', '.join(wrong) or 'all'}.")
    return [target / name for name in arrived]


def _remove(files: Iterable[Path]) -> None:
    """What did not arrive whole must not be taken for a model."""
    for path in files:
        path.unlink(missing_ok=True)
