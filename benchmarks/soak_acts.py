"""What people do in ``benchmarks/soak.py``: upload, delete, import and rescore, by the client; and what came of it."""

from __future__ import annotations

import io
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import httpx
from tiltyard_client.api import Refused, Tiltyard, Unreachable

T = TypeVar("T")
ROWS, POINTS = 2_000, 400
KEPT = 3  # datasets and imported runs that are there at the same time
PATIENCE_S = 240.0
EVERY_S = {"upload": 10.0, "import": 20.0, "rescore": 30.0}


class Acts:
    """Three people at work until ``ended``. ``say`` takes a line for what is wrong."""

    def __init__(self, origin: str, token: str, project: str, evaluation: str, say: Callable[[str], None]) -> None:
        self.origin, self.token, self.project, self.evaluation = origin, token, project, evaluation
        self.say = say
        self.ended = threading.Event()
        self.done: Counter[str] = Counter()
        self.statuses: Counter[int] = Counter()
        self.again: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.slowest: dict[str, float] = {}

    @property
    def all(self) -> list[Callable[[], None]]:
        """The action of each of them."""
        return [
            lambda: self._go_on("upload", self._upload),
            lambda: self._go_on("import", self._import),
            lambda: self._go_on("rescore", self._rescore),
        ]

    def report(self) -> dict[str, Any]:
        """The counts of actions, and their faults."""
        return {
            "done": dict(self.done),
            "statuses": {str(status): n for status, n in sorted(self.statuses.items())},
            "asked_again": dict(self.again),
            "slowest_s": {name: round(took, 1) for name, took in self.slowest.items()},
            "wrong": self.wrong,
        }

    def _go_on(self, name: str, act: Callable[[Tiltyard, int, list[str]], None]) -> None:
        site = Tiltyard(self.origin, self.token, self.project)
        site._http.event_hooks["response"].append(self._count)
        there: list[str] = []
        number = 0
        while not self.ended.is_set():
            number += 1
            began = time.monotonic()
            try:
                act(site, number, there)
            except Exception as exc:
                self.wrong.append(
                    f"{name} {number}: {type(exc).__name__}: {str(exc)[:300]} {getattr(exc, 'detail', '')}"
                )
                self.say(self.wrong[-1])
            took = time.monotonic() - began
            self.slowest[name] = max(took, self.slowest.get(name, 0.0))
            self.ended.wait(max(0.0, EVERY_S[name] - took))
        site.close()

    def _count(self, answer: httpx.Response) -> None:
        self.statuses[answer.status_code] += 1

    def _ask(self, what: Callable[[], T]) -> T:
        """Ask until there is an answer: a service may be away for a moment, and says so by a 503 with its name."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return what()
            except Unreachable:
                if time.monotonic() > deadline:
                    raise
                self.again["no connection"] += 1
            except Refused as exc:
                if exc.status != 503 or time.monotonic() > deadline:
                    raise
                self.again[exc.code] += 1
            time.sleep(1)

    def _until(self, ask: Callable[[], dict[str, Any]], ended: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_S
        while not ended(found := self._ask(ask)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"Not within {PATIENCE_S:g} s: {found.get('state')}")
            time.sleep(1)
        return found

    def _upload(self, site: Tiltyard, number: int, there: list[str]) -> None:
        """A file that is whole when it is ready; the oldest one is deleted, and gone."""
        dice = random.Random(number)
        texts = [f"{number}.{n}: " + "word " * dice.randint(5, 90) for n in range(ROWS)]
        rows = [json.dumps({"messages": [{"role": "user", "content": text}]}) for text in texts]
        data = "\n".join(rows).encode() + b"\n"
        made = self._ask(lambda: site.upload(io.BytesIO(data), "rows.jsonl", f"soak-{number}"))
        found = self._until(lambda: site.dataset(made["id"]), lambda row: row["state"] != "checking")
        if (found["state"], found["rows"]) != ("ready", ROWS):
            raise ValueError(f"{found['state']} with {found['rows']} rows of {ROWS}")
        self.done["uploads"] += 1
        there.append(made["id"])
        if len(there) > KEPT:
            self._delete(site, "datasets", there.pop(0))

    def _delete(self, site: Tiltyard, kind: str, pk: str) -> None:
        tried: list[int] = []

        def gone() -> dict[str, Any]:
            tried.append(1)
            try:
                return site.call("DELETE", f"/{kind}/{pk}")
            except Refused as exc:
                if exc.status == 404 and len(tried) > 1:  # an earlier try was done, and its answer lost
                    return {}
                raise

        self._ask(gone)
        self.done[f"{kind} deleted"] += 1

    def _import(self, site: Tiltyard, number: int, there: list[str]) -> None:
        """A run of another trainer; what it ended with is what the file ends with."""
        last = round(number / 1000, 6)
        lines = [f"{step},{last if step == POINTS else step / POINTS}" for step in range(1, POINTS + 1)]
        data = ('"Step","theirs - train/reward"\n' + "\n".join(lines) + "\n").encode()
        made = self._ask(lambda: site.run_import([("chart.csv", io.BytesIO(data))], name=f"imported {number}"))
        ended = self._until(
            lambda: site.call("GET", f"/run-imports/{made['id']}"), lambda row: row["state"] in ("done", "rejected")
        )
        if ended["state"] != "done":
            raise ValueError(f"{ended['state']}: {ended['message']}")
        run = self._ask(lambda: site.call("GET", f"/runs/{ended['run']}"))
        if (run["step"], run["last_reward"]) != (POINTS, last):
            raise ValueError(f"step {run['step']} with {run['last_reward']}, the file has {POINTS} with {last}")
        self.done["imports"] += 1
        there.append(run["id"])
        if len(there) > KEPT:
            self._delete(site, "runs", there.pop(0))

    def _rescore(self, site: Tiltyard, number: int, there: list[str]) -> None:
        """The evaluation by a spec that is new."""
        component = {
            "name": f"has_{number}",
            "function": "regex_match",
            "weight": 1.0,
            "params": {"pattern": f"of {number}\\b"},
        }
        body = {"name": "soak", "components": [component]}
        spec = self._ask(lambda: site.call("POST", f"/projects/{self.project}/rewards", json=body))
        made = self._ask(lambda: site.rescore([self.evaluation], f"reward:{spec['name']}@{spec['version']}"))
        ended = self._until(
            lambda: site.call("GET", f"/rescorings/{made['id']}"),
            lambda row: row["state"] not in ("waiting", "scoring"),
        )
        if ended["state"] != "done":
            raise ValueError(f"{ended['state']}: {ended}")
        self.done["rescorings"] += 1
