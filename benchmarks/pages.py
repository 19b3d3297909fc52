"""Processor time of the pages that people open most, above an empty page: ``python -m benchmarks.pages``.

Asks each page of the database of ``benchmarks/database.py`` in turn (``--folder F`` keeps it, ``--share`` sizes it),
with the static files of an installation, and prints JSON: median milliseconds of Python's and of PostgreSQL's processor
time, queries and bytes of each page, and how many of them two cores that do nothing else answer in a second. ``floor``
is a page of nothing but the login and the shell. ``standard_ms`` is the standard work of ``tests/growth.py``, 5 ms on
the machine of reference. The web server's own work on HTTP is not in it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.kept import kept_services

CORES = 2


def floor(request: Any, slug: str) -> Any:
    """The shell of every page of a project, around nothing."""
    from django.shortcuts import render

    from webapp.people.teams.access import project_for

    return render(request, "base.html", {"project": project_for(request.user, slug)})


def addresses() -> dict[str, str]:
    """The pages, by the name under which they are reported."""
    from webapp.runs.models import Run

    of = Run.objects.filter(project__slug="project-00", kind="grpo", name__startswith="run-").order_by("-created_at")
    run = of.filter(state="succeeded")[0]
    runs = "/p/project-00/runs/"
    return {
        "floor": "/bench-floor/project-00/",
        "run list": runs,
        "run list, its table alone": runs,
        "run page": f"{runs}{run.pk}/",
        "run page, rollouts": f"{runs}{run.pk}/?tab=rollouts",
        "project": "/p/project-00/",
        "front": "/?all=1",
        "models": "/p/project-00/models/",
        "datasets": "/p/project-00/datasets/",
        "rewards": "/p/project-00/rewards/",
        "environments": "/p/project-00/environments/",
        "chats": "/p/project-00/chats/",
        "new run": f"{runs}new/",
    }


def measure(rounds: int, only: str) -> dict[str, Any]:
    """All pages in turn, ``rounds`` times: what the machine does meanwhile meets them alike."""
    from django.conf import settings
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext
    from django.urls import path

    from benchmarks.database import backend_clock
    from webapp import urls
    from webapp.people.teams.models import User

    settings.ALLOWED_HOSTS = ["testserver"]
    urls.urlpatterns.append(path("bench-floor/<slug:slug>/", floor))
    client = Client()
    client.force_login(User.objects.get(username="person-00"))
    asked = {name: address for name, address in addresses().items() if only in name or name == "floor"}
    figures: dict[str, dict[str, Any]] = {}
    for name, address in asked.items():
        with CaptureQueriesContext(connection) as caught:
            answer = _get(client, name, address)
        figures[name] = {"status": answer.status_code, "bytes": len(answer.content), "queries": len(caught)}
    taken = _rounds(client, asked, rounds, backend_clock())
    standard = _standard()
    base = statistics.median(own for own, _database in taken["floor"])
    for name, found in taken.items():
        own, database = (statistics.median(column) for column in zip(*found, strict=True))
        figures[name] |= {
            "python_ms": round(own, 1),
            "above_floor_ms": round(own - base, 1),
            "postgres_ms": round(database, 1),
            "a_second": round(CORES * 1000 / (own + database)),
        }
    return {"standard_ms": standard, "pages": figures}


def _standard() -> float:
    from tests.growth import standard_work

    taken = []
    for _ in range(7):
        began = time.process_time()
        standard_work()
        taken.append((time.process_time() - began) * 1000)
    return round(statistics.median(taken), 1)


def _rounds(
    client: Any, asked: dict[str, str], rounds: int, backend: Callable[[], float]
) -> dict[str, list[tuple[float, float]]]:
    """Milliseconds of Python and of PostgreSQL, by page."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in asked}
    for _ in range(rounds):
        for name, address in asked.items():
            began, database = time.process_time(), backend()
            _get(client, name, address)
            taken[name].append(((time.process_time() - began) * 1000, (backend() - database) * 1000))
    return taken


def _get(client: Any, name: str, address: str) -> Any:
    return client.get(address, headers={"HX-Request": "true"} if "alone" in name else {})


def main() -> int:
    """Start the database, fill it unless it is, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--share", type=float, default=0.03, help="of the full number of rows")
    parser.add_argument("--folder", type=Path, help="where the database is kept for the next time")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--only", default="", help="ask pages whose name contains this")
    options = parser.parse_args()
    with kept_services(options.folder, TILTYARD_STATIC_FINDERS="0") as folder:
        print(json.dumps(_measured(folder, options)))
    return 0


def _measured(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    from benchmarks.database import filled

    filled(folder, options.share)
    from django.core.management import call_command

    call_command("collectstatic", interactive=False, verbosity=0)
    return measure(options.rounds, options.only)


if __name__ == "__main__":
    raise SystemExit(main())
