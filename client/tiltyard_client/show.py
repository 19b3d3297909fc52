"""Answers of the server as tables and lines."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from tiltyard_client.api import Json

console = Console(highlight=False)
FIGURES = ("success", "reward", "turns", "tokens", "tool_errors", "cost")
SHARES = frozenset({"success", "tool_errors"})


def table(rows: Sequence[Json], columns: Mapping[str, str]) -> None:
    """Some columns of rows; a word where there is none."""
    if not rows:
        console.print("nothing yet")
        return
    made = Table(*columns.values(), box=None, header_style="dim")
    for row in rows:
        made.add_row(*(cell(name, row.get(name)) for name in columns))
    console.print(made)


def cell(name: str, value: Any) -> str:
    """One value; nothing is a dash."""
    if value is None or value == "":
        return "–"
    if name.endswith("_at"):
        return str(value)[:16].replace("T", " ")
    if name == "bytes":
        return f"{value / 1e6:,.1f} MB"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def pairs(values: Mapping[str, Any]) -> None:
    """Names and values."""
    made = Table.grid(padding=(0, 2))
    made.add_column()
    made.add_column(overflow="fold")
    for name, value in values.items():
        made.add_row(f"[dim]{name}[/]", cell(name, value))
    console.print(made)


def runs(rows: Sequence[Json]) -> None:
    """The list of runs."""
    shown = [{**row, "steps": f"{row['step']}/{row['total_steps']}", "state": status(row)} for row in rows]
    columns = {"name": "run", "kind": "kind", "state": "state", "steps": "step", "last_reward": "reward"}
    table(shown, columns | {"started_at": "started"})


def status(row: Json) -> str:
    """A run's state with why it waits or failed."""
    error = row.get("error") or {}
    if row.get("held"):
        return f"{row['state']}, waiting for its environment"
    return f"{row['state']}: {error['code']}" if error.get("code") else str(row["state"])


def run(row: Json, url: str) -> None:
    """One run."""
    error = row.get("error") or {}
    pairs(
        {
            "run": row["name"],
            "state": status(row),
            "step": f"{row['step']} of {row['total_steps']}",
            "reward": row["last_reward"],
            "why": error.get("message"),
            "page": f"{url}{row['url']}" if row.get("url") else None,
        }
    )


def comparison(found: Json) -> None:
    """The verdicts, then the figures."""
    for verdict in found["verdicts"]:
        console.print(verdict["text"], style="bold" if verdict["told_apart"] else "")
    names = [name for name in FIGURES if any(name in item["figures"] for item in found["items"])]
    made = Table("run", *names, "tasks", "missing", box=None, header_style="dim")
    for item in found["items"]:
        values = [interval(name, item["figures"].get(name)) for name in names]
        made.add_row(item["name"], *values, str(item["tasks"]), str(item["missing_tasks"]))
    console.print(made)
    for note in found["notes"]:
        console.print(note, style="dim")
    if found["specs_differ"]:
        console.print("Their rewards were made of different specs; --spec weighs all by one.", style="dim")
    if not found["items"]:
        console.print("None of these runs is an evaluation: tiltyard evaluate RUN")


def interval(name: str, figure: Json | None) -> str:
    """``78% (73 to 82)``."""
    if not figure or figure["value"] is None:
        return "–"
    scale, unit = (100.0, "%") if name in SHARES else (1.0, "")
    text = f"{scale * figure['value']:.3g}{unit}"
    if figure["low"] is None or figure["low"] == figure["high"]:
        return text
    return f"{text} ({scale * figure['low']:.3g} to {scale * figure['high']:.3g})"


def pause() -> None:
    """Between two looks at something that goes on."""
    time.sleep(0.5)
