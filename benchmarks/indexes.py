"""How many bytes the indexes of the large tables take next to their rows: ``python benchmarks/indexes.py``.

Starts a PostgreSQL of its own and fills it as ``benchmarks/database.py`` does (``--share`` of ten thousand runs and
five million rollouts, at least 400 runs) with 78 figures a step, gives the turns of a share of the runs (``--words``)
texts of mixed words and what the search finds them by, and prints JSON: bytes of each table with and without what
PostgreSQL keeps apart (TOAST), bytes of each index, and their ratio, all freshly written. ``--folder F`` keeps the
database there for the next time, also for another version, which then migrates it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.kept import kept_services  # noqa: E402

TABLES = ("rollouts_rollout", "rollouts_turn", "rollouts_rolloutgroup", "metrics_metricpoint", "runs_runevent")
"""Tables that get rows with every step of every run."""
SAID = """
UPDATE rollouts_turn SET words = NULL, messages = jsonb_set(messages, '{0,content}', to_jsonb(
    (SELECT string_agg((ARRAY['ba','to','ri','mel'])[1 + (h & 3)] || (ARRAY['n','st','k','lv'])[1 + (h >> 2 & 3)]
        || (ARRAY['a','er','ing','o'])[1 + (h >> 4 & 3)]
        || CASE WHEN h >> 6 & 15 = 0 THEN ' ' || (h >> 10 & 8191) ELSE '' END, ' ')
     FROM (SELECT hashint8(seq * 64 + word) & 2147483647 AS h FROM generate_series(1, 45) AS word) AS dice)))
WHERE run_id = ANY(%s)
"""
"""300 characters of 64 words and of numbers, other ones in each turn."""


MORE = """
INSERT INTO metrics_metricpoint (run_id, attempt, step, name, value, seq)
SELECT run_id, attempt, step, 'rewards/figure_' || n || '/mean', value, seq + 20 + n
FROM metrics_metricpoint, generate_series(1, 58) AS n WHERE name = 'reward'
"""
"""A run records 78 figures a step; the rows of ``benchmarks/database.py`` have twenty of them."""


def give_words(share: float) -> int:
    """Give the turns of some runs texts and what they are found by; how many turns those are."""
    from django.db import connection

    from webapp.runs.models import Run
    from webapp.runs.rollouts.models import Turn
    from webapp.runs.rollouts.words import SET_WORDS, words_of

    runs = list(Run.objects.filter(kind="grpo").order_by("created_at").values_list("pk", flat=True))
    runs = [run for run in runs if Turn.objects.filter(run=run)[10_000:10_001].count() == 0]
    runs = runs[: round(len(runs) * share)]
    with connection.cursor() as cursor:
        cursor.execute(SAID, [runs])
        number = int(cursor.rowcount)
        for run in runs:
            turns = Turn.objects.filter(run=run).only("run", "rollout", "number", "messages", "wrote")
            cursor.execute(SET_WORDS, words_of(list(turns)))
    return number


def sizes() -> dict[str, Any]:
    """Bytes of rows and of indexes, all freshly written."""
    from django.db import connection

    found: dict[str, Any] = {}
    with connection.cursor() as cursor:
        for table in TABLES:
            cursor.execute(f"VACUUM (FULL, ANALYZE) {table}")
            cursor.execute(
                "SELECT reltuples::bigint, pg_relation_size(oid), pg_table_size(oid) FROM pg_class WHERE relname = %s",
                [table],
            )
            rows, main, whole = cursor.fetchone()
            cursor.execute(
                "SELECT indexrelid::regclass::text, pg_relation_size(indexrelid) FROM pg_index"
                " WHERE indrelid = %s::regclass ORDER BY 2 DESC",
                [table],
            )
            indexes = dict(cursor.fetchall())
            found[table] = {"rows": rows, "bytes": main, "bytes_with_toast": whole, "indexes": indexes}
    return found


def ratios(tables: dict[str, Any]) -> dict[str, float]:
    """Index bytes for each byte of rows: TOAST among the rows or left out, the index of words counted or not."""
    indexes = sum(sum(each["indexes"].values()) for each in tables.values())
    words = tables["rollouts_turn"]["indexes"].get("turn_words", 0)
    rows, with_toast = (sum(each[name] for each in tables.values()) for name in ("bytes", "bytes_with_toast"))
    return {
        "of_rows": round(indexes / rows, 3),
        "of_rows_and_toast": round(indexes / with_toast, 3),
        "without_words_index_of_rows_and_toast": round((indexes - words) / with_toast, 3),
    }


def main() -> None:
    """Fill unless filled, measure, print one JSON object."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--share", type=float, default=0.04, help="of the full number of rows (default 0.04)")
    parser.add_argument("--words", type=float, default=0.0, help="of the runs: whose turns are indexed (default 0)")
    parser.add_argument("--folder", type=Path, help="where the database is kept for the next time")
    options = parser.parse_args()
    with kept_services(options.folder) as folder:
        print(json.dumps({"benchmark": "indexes", **_measured(folder, options)}))


def _measured(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    import django
    from django.core.management import call_command
    from django.db import connection

    django.setup()
    began = time.monotonic()
    call_command("migrate", verbosity=0)
    migrated = time.monotonic() - began
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = 0")
    if not (folder / "filled").exists():
        from benchmarks.database_rows import fill

        fill(options.share)
        with connection.cursor() as cursor:
            cursor.execute(MORE)
        (folder / "filled").touch()
    with_words = give_words(options.words) if options.words else 0
    tables = sizes()
    about = {"share": options.share, "migrated_s": round(migrated, 1), "turns_given_words": with_words}
    return {**about, **ratios(tables), "tables": tables}


if __name__ == "__main__":
    main()
