"""Every page and endpoint with 10,000 runs and 5 million rollouts in the database: ``python benchmarks/database.py``.

Starts a PostgreSQL and a Redis of its own, fills them (``database_rows.py``; a quarter of an hour and 12 GB at full
size), asks every address that answers to GET with several objects in turn, and some with filters, orders and late
pages. Prints JSON: the 95th percentile of the milliseconds and the most queries of each, the slowest first; ``busy`` is
processor time of Python and PostgreSQL together, which other work on the machine disturbs little. Tables that are sent
while they are made count whole, with the time until their first row.
``--share 0.1`` makes a tenth of the rows, ``--folder F`` keeps them there for the next time, ``--only text`` asks the
addresses that contain it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.kept import kept_services  # noqa: E402

ASKED, OBJECTS = 20, 5
BAR_MS, BAR_QUERIES = 150, 15
SKIPPED = {
    "environments/<uuid:pk>/play/": "asks the environment's server",
    "environments/<uuid:pk>/play/row/": "asks the environment's server",
    "datasets/<uuid:pk>/count/": "reads the file",
    "datasets/<uuid:pk>/findings": "reads the file",
    "datasets/<uuid:pk>/quality/": "reads the file",
    "exports/<uuid:export_id>/": "sends a file",
    "models/<uuidstr:model_id>/download": "sends the weights",
    "rewards/lab/<uuid:pk>/rollouts/": "reads the set's files",
    "login/": "for people who are not logged in",
    "styleguide/": "only while developing",
    "runs/<uuid:pk>/check/": "of a run that is being checked",
    "runs/imports/<uuid:pk>/": "no import was made",
    "verl/": "reads the dataset's file",
    "rewards/cases/": "no test case was saved",
    "report.html": "asked below",
    "compare/tasks/": "asked below",
}
RUN_LISTS = (
    "", "?page=40", "?sort=-success", "?sort=-device", "?sort=owner", "?sort=model", "?sort=-duration", "?q=note",
    "?q=nothing-like-this", "?tag=best", "?spec=spec-3@2", "?starred=1", "?archived=1", "?state=failed&kind=grpo",
    "?state=active", "?owner=person-07", "?cols=state,success,spec,model,dataset,device,started",
)  # fmt: skip
API_LISTS = ("?per_page=200", "?sort=-success", "?page=20", "?tag=best")
TABLES = ("runs_run", "rollouts_rollout", "rollouts_turn", "metrics_metricpoint", "registry_registeredmodel")


def addresses(made: dict[str, Any]) -> dict[str, list[str]]:
    """Every address to ask, by the name under which it is reported, each for several objects."""
    from tests.security.routes import TABLE, Who

    found = {}
    for route, methods in TABLE.items():
        if methods.get("GET") in (None, Who.NOBODY, Who.ANYONE) or any(part in route for part in SKIPPED):
            continue
        asked = [f"/{address}" for address in _filled(route, made)]
        if asked:
            found[route] = asked
    runs, rollouts = "/p/project-00/runs/", "api/v1/runs/{}/steps/{}/rollouts"
    found |= {f"p/<slug>/runs/{query}": [runs + query] for query in RUN_LISTS}
    found |= {
        f"p/<slug>/runs/<pk>/?tab={tab}": [f"{runs}{pk}/?tab={tab}" for pk in made["large"]]
        for tab in ("rollouts", "log")
    }
    found["p/<slug>/runs/<pk>/ of 10,000 rollouts"] = [f"{runs}{pk}/" for pk in made["large"]]
    found["api rollouts of a run of 10,000"] = ["/" + rollouts.format(pk, 200) for pk in made["large"]]
    found["api metrics of a run of 10,000"] = [f"/api/v1/runs/{pk}/metrics" for pk in made["large"]]
    api = "/api/v1/projects/project-00/runs"
    found |= {
        f"api runs{query}": [api + query] for query in ("?per_page=200", "?sort=-success", "?page=20", "?tag=best")
    }
    compared = "&".join(f"c={pk}" for pk in made["compared"])
    trained = "&".join(f"c={pk}" for pk in made["trained"])
    compare = "/p/project-00/compare/"
    found["compare 8 evaluations"] = [f"{compare}?{compared}"]
    found["compare 8 evaluations, tasks filtered"] = [f"{compare}?{compared}&pair=0-7&tasks=neither"]
    found["compare 8 evaluations, one task"] = [f"{compare}tasks/{task}/?{compared}" for task in (7, 400)]
    found["compare 8 that trained"] = [f"{compare}?{trained}"]
    found["api compare 8 evaluations"] = [f"/api/v1/projects/project-00/compare?{compared}"]
    found["site/?project=…&page=9"] = ["/site/?project=Project+03&page=9", "/site/?who=person-07"]
    found["new run, cloned"] = [f"{runs}new/?from={pk}" for pk in made["trained"][:3]]
    found["p/<slug>/runs/runs.csv?all=1, 2,500 runs"] = [f"{runs}runs.csv?all=1"]
    return found


def _filled(route: str, made: dict[str, Any]) -> Iterator[str]:
    """The route with its places filled from the objects that were made."""
    for turn in range(OBJECTS):
        holes = re.findall(r"<\w+:(\w+)>", route)
        values = {}
        for hole in holes:
            kind = (
                route.partition(f":{hole}>")[0].rsplit("<", 1)[0].rstrip("/").rsplit("/", 1)[-1]
                if hole == "pk"
                else hole
            )
            if kind not in made:
                print(f"no object for {route}", file=sys.stderr)
                return
            values[hole] = made[kind][turn % len(made[kind])]
        yield re.sub(r"<\w+:(\w+)>", lambda found: str(values[found[1]]), route)  # noqa: B023 - used at once
        if not holes:
            return


def objects() -> dict[str, Any]:
    """Objects to ask for, by the part of an address that comes before an id, all of the largest project."""
    from benchmarks.database_around import around
    from webapp.datasets.models import Dataset
    from webapp.environments.models import Environment, Replica
    from webapp.people.teams.models import Project, User
    from webapp.rewards.models import RewardSpec, RolloutSet
    from webapp.runs.models import Run
    from webapp.runs.registry.models import Checkpoint, RegisteredModel
    from webapp.runs.rollouts.models import Rollout

    def some(rows: Any, number: int = OBJECTS) -> list[Any]:
        return list(rows.order_by("pk").values_list("pk", flat=True)[:number])

    runs = Run.objects.filter(project__slug="project-00")
    large = some(Run.objects.filter(project__slug="project-00", step__gt=300, kind="grpo"))
    if not large:  # the largest project may have none: runs are dealt by their number
        Run.objects.filter(step__gt=300, kind="grpo", pk__in=some(Run.objects.filter(step__gt=300))).update(
            project=runs.first().project
        )
        large = some(Run.objects.filter(project__slug="project-00", step__gt=300, kind="grpo"))
    trained = some(runs.filter(kind="grpo", state="succeeded", name__startswith="run-"), 8)
    of = {"project__slug": "project-00"}
    environments = some(Environment.objects.filter(**of))
    Replica.objects.get_or_create(environment_id=environments[0], number=1)
    user = User.objects.get(username="person-00")
    compared = list(runs.filter(name__startswith="model-").order_by("name").values_list("pk", flat=True))
    return {
        **around(Project.objects.get(slug="project-00"), user, compared),
        "user": user,
        "slug": ["project-00"],
        "runs": trained[:OBJECTS],
        "run_id": trained[:OBJECTS],
        "large": large,
        "trained": trained,
        "compared": compared,
        "rollouts": some(Rollout.objects.filter(run__in=trained[:2])),
        "step": [3],
        "number": [1],
        "datasets": some(Dataset.objects.filter(**of, name__startswith="data-")),
        "dataset_id": some(Dataset.objects.filter(**of, name__startswith="data-")),
        "operation": ["split", "mix", "filter"],
        "rewards": some(RewardSpec.objects.filter(**of)),
        "spec_id": some(RewardSpec.objects.filter(**of)),
        "lab": some(RolloutSet.objects.filter(**of)) or some(RolloutSet.objects.all()),
        "environments": environments[:1],
        "environment_id": environments,
        "models": some(RegisteredModel.objects.filter(**of)),
        "model_id": some(RegisteredModel.objects.filter(**of)),
        "checkpoints": some(Checkpoint.objects.filter(**of)),
        "checkpoint_id": some(Checkpoint.objects.filter(**of)),
    }


def ask(client: Any, asked: list[str]) -> dict[str, Any]:
    """The times of one kind of page: the first answer apart, then each of its addresses in turn."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    queries, statuses = 0, set()
    for address in asked:
        with CaptureQueriesContext(connection) as caught:
            statuses.add(_status(client, address))
        queries = max(queries, len(caught))
    backend = backend_clock()
    wall, busy = [], []
    for turn in range(max(ASKED, len(asked))):
        began, worked = time.perf_counter(), time.process_time() + backend()
        _status(client, asked[turn % len(asked)])
        wall.append((time.perf_counter() - began) * 1000)
        busy.append((time.process_time() + backend() - worked) * 1000)
    times = {"p95_ms": _rank(wall, 0.95), "p50_ms": _rank(wall, 0.5), "busy_p95_ms": _rank(busy, 0.95)}
    first = [taken for address in asked for _ in range(5) if (taken := _first_row(client, address)) is not None]
    streamed = {"first_row_p95_ms": _rank(first, 0.95)} if first else {}
    return times | streamed | {"queries": queries, "status": sorted(statuses)}


def _first_row(client: Any, address: str) -> float | None:
    """Milliseconds until the header and the first row of a table are there that is sent while it is made."""
    began = time.perf_counter()
    answer = client.get(address)
    if not answer.streaming:
        return None
    rows = iter(answer.streaming_content)
    next(rows)
    next(rows, None)
    taken = (time.perf_counter() - began) * 1000
    for _rest in rows:
        pass
    return taken


def _rank(taken: list[float], share: float) -> float:
    return round(sorted(taken)[round(share * (len(taken) - 1))], 1)


def backend_clock() -> Callable[[], float]:
    """A clock of the processor time of the database's process that answers us, in seconds."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SET max_parallel_workers_per_gather = 0")  # helpers would work on another clock
        cursor.execute("SELECT pg_backend_pid()")
        file = Path(f"/proc/{cursor.fetchone()[0]}/schedstat")
    return lambda: int(file.read_text().split()[0]) / 1e9 if file.exists() else 0.0


def _status(client: Any, address: str) -> int:
    answer = client.get(address)
    if answer.streaming:
        for _part in answer.streaming_content:
            pass
    return int(answer.status_code)


def measure(only: str) -> dict[str, Any]:
    """All figures, the slowest page first."""
    from django.conf import settings
    from django.test import Client

    settings.ALLOWED_HOSTS = ["testserver"]
    made = objects()
    client = Client(raise_request_exception=False)
    client.force_login(made["user"])
    found = {name: ask(client, asked) for name, asked in addresses(made).items() if only in name}
    worst = dict(sorted(found.items(), key=lambda item: -item[1]["p95_ms"]))
    return {
        "addresses": len(found),
        "above_150_ms": [name for name, figures in worst.items() if figures["p95_ms"] > BAR_MS],
        "above_15_queries": [name for name, figures in worst.items() if figures["queries"] > BAR_QUERIES],
        "not_200": {name: figures["status"] for name, figures in worst.items() if figures["status"] != [200]},
        "pages": worst,
    }


def rows() -> dict[str, Any]:
    """How many rows there are, and how much disk they take."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_database_size(current_database())")
        found: dict[str, Any] = {"gib": round(cursor.fetchone()[0] / 2**30, 1)}
        for table in TABLES:
            cursor.execute("SELECT reltuples::bigint FROM pg_class WHERE oid = %s::regclass", [table])
            found[table] = cursor.fetchone()[0]
    return found


def main() -> int:
    """Start, fill unless filled, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--share", type=float, default=1.0, help="of the full number of rows")
    parser.add_argument("--folder", type=Path, help="where the database is kept for the next time")
    parser.add_argument("--only", default="", help="ask addresses that contain this")
    options = parser.parse_args()
    with kept_services(options.folder) as folder:
        print(json.dumps({"database": _measured(folder, options)}))
    return 0


def filled(folder: Path, share: float) -> float:
    """Migrate the database of this folder and fill it, unless it is: the seconds that the filling took."""
    from django.core.management import call_command

    import webapp.asgi  # noqa: F401 - what the web server loads, and as it does

    call_command("migrate", verbosity=0)
    if (folder / "filled").exists():
        return 0.0
    from benchmarks.database_rows import fill

    began = time.monotonic()
    fill(share)
    (folder / "filled").touch()
    return time.monotonic() - began


def _measured(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    took = filled(folder, options.share)
    return {"share": options.share, "filled_s": round(took), "rows": rows(), **measure(options.only)}


if __name__ == "__main__":
    raise SystemExit(main())
