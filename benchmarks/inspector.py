"""How fast the rollout inspector answers on one run of a million turns: ``python benchmarks/inspector.py``.

Starts a PostgreSQL of its own, writes the run (``inspector_rows.py``; six minutes at full size), and times what a
person does: filter, sort, search and page (``find``), the bars next to it (``spread``), why they failed (``causes``),
the whole page over HTTP
(``page``), the rollouts next to one that was found (``neighbours``), and any group (``group``). Prints JSON: the median
and the 95th percentile of the milliseconds of each, and what the words of turns cost: bytes, and milliseconds of the
projection for a thousand turns with and without them.
``--turns 100000`` writes fewer, ``--folder F`` keeps the database for the next time.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.kept import kept_services  # noqa: E402

ROUNDS, GROUPS = 12, 100
QUERIES = (
    "",
    "outcome=failed&sort=-surprise",
    "sort=-reward",
    "sort=advantage&tool=calculator",
    "outcome=failed&part_tool_call_below=1&sort=-advantage",
    "truncated=yes&sort=-duration",
    "boundary=environment",
    "reward_from=0.1&reward_below=0.15&turns_to=2&sort=-length",
    "q=9+*+5",
    "q=9+*+5&outcome=failed&sort=-surprise",
    "q=calculator+returned",
    "q=天气&sort=-reward",
    "q=下雨温度&outcome=failed",
    "q=get_weather&sort=-surprise",
    "q=convertCurrency&tool=python",
    "q=error42&sort=-reward",
    "q=answer+question+number",
    "q=nothing+like+this",
)


def milliseconds(work: Callable[[], object], rounds: int = ROUNDS) -> dict[str, float]:
    """Median and 95th percentile, the first time among them."""
    taken = []
    for _round in range(rounds):
        began = time.perf_counter()
        work()
        taken.append((time.perf_counter() - began) * 1000)
    taken.sort()
    return {"p50_ms": round(taken[len(taken) // 2], 1), "p95_ms": round(taken[round(0.95 * (len(taken) - 1))], 1)}


def measure() -> dict[str, Any]:
    """All figures; the database is filled."""
    from django.conf import settings
    from django.http import QueryDict
    from django.test import Client

    from webapp.people.teams.models import User
    from webapp.reading.inspector.clusters import clusters_of
    from webapp.reading.inspector.filters import filters_of, run_scope
    from webapp.reading.inspector.finding import View, figures_of
    from webapp.reading.inspector.page import component_names
    from webapp.runs.models import Run

    settings.ALLOWED_HOSTS = ["testserver"]
    run = Run.objects.select_related("project").get(name="large")
    scope = run_scope(run.project, run)
    names = list(component_names(scope))
    client = Client()
    client.force_login(User.objects.get(username="reader"))
    find: dict[str, Any] = {}
    spread: dict[str, Any] = {}
    causes: dict[str, Any] = {}
    page: dict[str, Any] = {}
    neighbours: dict[str, Any] = {}
    for query in QUERIES:

        def view(query: str = query) -> View:
            return View(scope, filters_of(QueryDict(query)))

        def found(query: str = query) -> None:
            asked = view(query)
            assert asked.page("", 50)[0] or "nothing" in query, query
            assert asked.count is not None

        known = view()
        find[query] = milliseconds(found) | {"rollouts": known.count.number, "more": known.count.more}
        spread[query] = milliseconds(lambda known=known: figures_of(known, names))  # type: ignore[misc]
        sorted_out = clusters_of(view())
        causes[query] = milliseconds(lambda view=view: clusters_of(view())) | {  # type: ignore[misc]
            "judged": sorted_out.judged,
            "failed": sorted_out.failed,
        }
        page[query] = milliseconds(lambda query=query: client.get(f"/p/bench/runs/{run.pk}/rollouts/?{query}"), 5)  # type: ignore[misc]
        if listed := known.page("", 50)[0]:
            carried = f"/p/bench/rollouts/{listed[len(listed) // 2].pk}/found/?{urlencode({'found': query})}"
            neighbours[query] = milliseconds(lambda carried=carried: client.get(carried))  # type: ignore[misc]
    listed = {"find": find, "spread": spread, "causes": causes, "page": page, "neighbours": neighbours}
    worst = {f"{name}_worst_p95_ms": max(each["p95_ms"] for each in found.values()) for name, found in listed.items()}
    return {**listed, "group": groups(client, run), **worst}


def groups(client: Any, run: Any) -> dict[str, float]:
    """Pages of groups that were not asked for before, side by side."""
    from webapp.runs.rollouts.models import Rollout

    places = Rollout.objects.filter(run=run).values_list("step", "group").distinct().order_by("step", "group")
    asked = random.Random(3).sample(list(places), GROUPS)
    addresses = iter([f"/p/bench/runs/{run.pk}/groups/{step}/{group}/" for step, group in asked])

    def page() -> None:
        assert client.get(next(addresses)).status_code == 200

    return milliseconds(page, GROUPS)


def sizes() -> dict[str, Any]:
    """Bytes of the tables, and of the index over words."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = 0")
        cursor.execute("VACUUM ANALYZE")
        cursor.execute(
            "SELECT relname, pg_relation_size(oid), reltuples::bigint FROM pg_class"
            " WHERE relname IN ('rollouts_turn', 'rollouts_rollout', 'turn_words')"
        )
        found = {name: {"mib": round(size / 2**20, 1), "rows": rows} for name, size, rows in cursor.fetchall()}
        cursor.execute("SELECT avg(pg_column_size(words)) FROM (SELECT words FROM rollouts_turn LIMIT 20000) AS looked")
        return found | {"words_bytes_each": round(float(cursor.fetchone()[0]), 1)}


def projection() -> dict[str, Any]:
    """The milliseconds to write a thousand turns, with and without their words."""
    from unittest import mock

    from benchmarks.inspector_rows import turns_projected

    times = {}
    for name, words in (("with", True), ("without", False), ("with again", True), ("without again", False)):
        without = mock.patch("webapp.engine.batch.numbers_of", lambda run, messages: None)
        if words:
            times[f"{name}_ms"] = round(turns_projected(), 1)
        else:
            with without:
                times[f"{name}_ms"] = round(turns_projected(), 1)
    return times


def main() -> int:
    """Start, fill unless filled, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--turns", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="where the database is kept for the next time")
    options = parser.parse_args()
    with kept_services(options.folder):
        print(json.dumps(_measured(options.turns), ensure_ascii=False, indent=1))
    return 0


def _measured(turns: int) -> dict[str, Any]:
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    from benchmarks.inspector_rows import fill
    from webapp.runs.models import Run

    began = time.perf_counter()
    if not Run.objects.filter(name="large").exists():
        fill(turns)
    figures = {"fill_s": round(time.perf_counter() - began, 1), "sizes": sizes()}
    return figures | measure() | {"projection_of_1000_turns": projection()}


if __name__ == "__main__":
    sys.exit(main())
