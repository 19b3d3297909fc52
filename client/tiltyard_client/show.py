"""Answers of the server as tables and lines."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from tiltyard_client.connection import Json
from tiltyard_client.words import gettext as _
from tiltyard_client.words import gettext_noop

console = Console(highlight=False)
FIGURES = {
    "success": gettext_noop("success"),
    "reward": gettext_noop("reward"),
    "turns": gettext_noop("turns"),
    "tokens": gettext_noop("tokens"),
    "tool_errors": gettext_noop("tool errors"),
    "cost": gettext_noop("cost"),
}
SHARES = frozenset({"success", "tool_errors"})
SHARE_METRICS = frozenset({"rollouts/task_success", "heldout/success", "rewards/accuracies", "mean_token_accuracy"})
STATES = {
    "draft": gettext_noop("draft"),
    "queued": gettext_noop("queued"),
    "preparing": gettext_noop("preparing"),
    "running": gettext_noop("running"),
    "pausing": gettext_noop("pausing"),
    "paused": gettext_noop("paused"),
    "stopping": gettext_noop("stopping"),
    "succeeded": gettext_noop("succeeded"),
    "failed": gettext_noop("failed"),
    "cancelled": gettext_noop("cancelled"),
    "checking": gettext_noop("checking"),
    "needs_choice": gettext_noop("has bad rows"),
    "needs_mapping": gettext_noop("format not recognised"),
    "ready": gettext_noop("ready"),
    "rejected": gettext_noop("rejected"),
    "untested": gettext_noop("not tested"),
    "ok": gettext_noop("works"),
    "doubt": gettext_noop("works in part"),
    "bad": gettext_noop("does not work"),
    "candidate": gettext_noop("candidate"),
    "production": gettext_noop("production"),
    "waiting": gettext_noop("waiting"),
    "sending": gettext_noop("being sent"),
    "done": gettext_noop("done"),
    "reading": gettext_noop("being read"),
}


PHASES = {
    "generation": gettext_noop("generation"),
    "environment": gettext_noop("environment"),
    "scoring": gettext_noop("scoring"),
    "waiting": gettext_noop("wait for rollouts"),
    "handover": gettext_noop("handover of weights"),
    "training": gettext_noop("training"),
    "saving": gettext_noop("saving"),
    "evaluating": gettext_noop("evaluation"),
}


def state(code: str) -> str:
    """A state's or a mark's word; one that this client does not know is shown as it came."""
    return _(STATES.get(code, code))


def plain_table(*headings: str) -> Table:
    """A table without lines. What is too wide for the terminal is folded: cut names lose the part that differs."""
    return Table(*(Column(heading, overflow="fold") for heading in headings), box=None, header_style="dim")


def table(rows: Sequence[Json], columns: Mapping[str, str]) -> None:
    """Some columns of rows; a word where there is none."""
    if not rows:
        console.print(_("nothing yet"))
        return
    made = plain_table(*columns.values())
    for row in rows:
        made.add_row(*(cell(name, row.get(name)) for name in columns))
    console.print(made)


def cell(name: str, value: Any) -> str:
    """One value as text for a table; nothing is a dash."""
    if value is None or value == "" or value == []:
        return "–"
    if name.endswith("_at"):
        return str(value)[:16].replace("T", " ")
    if name == "bytes":
        return f"{value / 1e6:,.1f} MB"
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    if isinstance(value, list):
        return escape(", ".join(map(str, value)))
    return f"{value:.4g}" if isinstance(value, float) else escape(str(value))


def pairs(values: Mapping[str, Any]) -> None:
    """Names and values, a line each."""
    made = Table.grid(padding=(0, 2))
    made.add_column()
    made.add_column(overflow="fold")
    for name, value in values.items():
        made.add_row(f"[dim]{name}[/]", cell("", value))
    console.print(made)


def runs(rows: Sequence[Json]) -> None:
    """The list of runs."""
    shown = [
        {
            **row,
            "name": f"★ {row['name']}" if row.get("starred") else row["name"],
            "steps": f"{row['step']}/{row['total_steps']}",
            "state": status(row),
        }
        for row in rows
    ]
    columns = {"name": _("run"), "kind": _("kind"), "state": _("state"), "steps": _("step"), "last_reward": _("reward")}
    if any(row.get("tags") for row in rows):
        columns["tags"] = _("tags")
    table(shown, columns | {"started_at": _("started")})


def status(row: Json) -> str:
    """A run's state with why it waits or failed, or its place in the queue."""
    error = row.get("error") or {}
    if row["state"] == "draft" and row.get("phase") == "checking":
        return _("being checked")
    if row.get("queue"):
        return f"{state(row['state'])}: {row['queue']['short']}"
    if row.get("held"):
        return _("{state}, waiting for its environment").format(state=state(row["state"]))
    if error.get("code"):
        return f"{state(row['state'])}: {error['code']}"
    return state(row["state"])


def run(row: Json, url: str) -> None:
    """One run."""
    stages = (row.get("health") or {}).get("stages")
    stage = {_("stage"): _("{stage} of {of}: {name}").format(**stages[-1])} if stages else {}
    pairs(
        {
            _("run"): row["name"],
            _("state"): status(row),
            _("step"): _("{step} of {total}").format(step=row["step"], total=row["total_steps"]),
            **stage,
            **_queue(row.get("queue")),
            _("reward"): row["last_reward"],
            **_time((row.get("health") or {}).get("time")),
            **_why(row),
            _("tags"): row.get("tags"),
            _("notes"): row.get("notes"),
            _("page"): f"{url}{row['url']}" if row.get("url") else None,
        }
    )


def _why(row: Json) -> dict[str, Any]:
    """Why a run failed or paused, and what to do; in the site's words where it sent them."""
    found, error = row.get("failure") or {}, row.get("error") or {}
    why = " ".join(filter(None, (found.get("title"), found.get("detail")))) or error.get("message")
    return {_("why"): why, _("what to do"): found.get("hint") or error.get("hint") or None} if why else {}


def _queue(found: Json | None) -> dict[str, str]:
    """What a queued run waits for, sentence by sentence; nothing for any other run."""
    if not found:
        return {}
    return {_("queue"): "\n".join([found["title"], *(line["text"] for line in found["lines"])])}


def _time(found: Json | None) -> dict[str, str]:
    """How much of the run's time budget is used and left; nothing where it has none."""
    if not found or not found.get("of"):
        return {}
    places = {"used": f"{found['hours']:.2f}", "of": f"{found['of']:g}"}
    if "over" in found:
        text = _("{used} of {of} hours used: it ended after step {step}, because its time was over")
        return {_("time budget"): text.format(**places, step=found["over"])}
    left = max(0.0, found["of"] - found["hours"])
    return {_("time budget"): _("{used} of {of} hours used, {left} left").format(**places, left=f"{left:.2f}")}


def summary(found: Json) -> None:
    """Print the result of a run that has ended, and the suggestions."""
    cost, held, best, model = (found[name] for name in ("cost", "held_out", "best", "model"))
    lines: dict[str, str | None] = {}
    if (said := found.get("diagnosis")) is not None:
        lines[_("diagnosis")] = f"{said['title']}. {said['sentence']}"
    lines |= {gain["title"]: _gain(gain) for gain in found["gains"]}
    if best is not None:
        lines[_("best step")] = _best(best)
    if best is not None or held is not None:
        lines[_("held out")] = _held_out(held)
    seconds = cost["device_seconds"]
    lines[_("device time")] = None if seconds is None else f"{seconds:,.0f} s {cost['device']}".strip()
    if model is not None:
        lines[_("model")] = model["name"] or _("not registered yet")
    worst = found["advisories"]["worst"]
    if worst is not None:
        text = _("{n} open, the most severe: {title}")
        lines[_("advisories")] = text.format(n=found["advisories"]["open"], title=worst["title"])
    pairs(lines)
    notes([_("Try next: {what}").format(what=each["sentence"]) for each in found["next"]])


def _gain(gain: Json) -> str:
    after = _value(gain["name"], gain["after"])
    if gain["before"] is None:
        return after
    text = _("{before} → {after} (the first and the last {steps} of {of} steps)")
    return text.format(before=_value(gain["name"], gain["before"]), after=after, steps=gain["steps"], of=gain["of"])


def _best(best: Json) -> str:
    shown, place = _value(best["metric"], best["value"]), best["checkpoint"]
    if place is None:
        return _("{step}: {value}, no checkpoint was kept").format(step=best["step"], value=shown)
    text = _("{step}: {value}, nearest checkpoint: step {nearest}")
    return text.format(step=best["step"], value=shown, nearest=place["step"])


def _held_out(held: Json | None) -> str | None:
    if held is None:
        return _("nothing yet: tiltyard evaluate RUN")
    shown = interval("success", {"value": held["success"], "low": held["low"], "high": held["high"]})
    learned = held.get("learned_words") or (_("it learned from these tasks") if held["trained_on"] else "")
    return f"{shown} · {learned}" if learned else shown


def _value(metric: str, value: float) -> str:
    return f"{100 * value:.3g}%" if metric in SHARE_METRICS else f"{value:.4g}"


def comparison(found: Json) -> None:
    """The answer and what it leaves out, the verdicts on pairs, then the figures."""
    console.print(found["answer"]["text"], style="bold", markup=False)
    notes(found["answer"]["left_out"])
    for verdict in found["verdicts"]:
        console.print(verdict["text"], markup=False)
    names = [name for name in FIGURES if any(name in item["figures"] for item in found["items"])]
    headings = [_("run"), *(_(FIGURES[name]) for name in names), _("tasks"), _("missing")]
    made = plain_table(*headings)
    for item in found["items"]:
        values = [interval(name, item["figures"].get(name)) for name in names]
        made.add_row(escape(item["name"]), *values, str(item["tasks"]), str(item["missing_tasks"]))
    console.print(made)
    notes(found["notes"])
    if found["specs_differ"]:
        notes([_("Their rewards were made of different specs; --spec weighs all by one.")])
    notes(_lacking(found))
    if not found["items"]:
        console.print(_("To evaluate one: tiltyard evaluate RUN"))


def _lacking(found: Json) -> list[str]:
    """The components without a value under the spec, and how they get one."""
    names = {item["id"]: item["name"] for item in found["items"]}
    lines = []
    for item in found.get("lacking", []):
        for name, lack in item["components"].items():
            if missing := lack["unscored"] + sum(lack["failed"].values()):
                text = _("{run}: {n} rollouts have no value of {component}. {why}")
                why = next(iter(lack["failed"]), "")
                lines.append(text.format(run=names[item["id"]], n=missing, component=name, why=why).strip())
    if found.get("to_score") and lines:
        lines.append(_("--rescore has them scored from their transcripts."))
    return lines


def advisories(found: Sequence[Json]) -> None:
    """Print the advisories: each with its remedy, and the checkpoint to go back to."""
    if not found:
        console.print(_("nothing found"))
    for each in found:
        since = _("since step {first}") if each["open"] else _("steps {first} to {last}, over")
        console.print(f"[bold]{escape(each['title'])}[/bold] ({since.format(**each)})")
        lines = [each["sentence"], *([each["remedy"]] if each["open"] else [])]
        if each["before"]:
            lines.append(_("Checkpoint before it: step {step}.").format(**each["before"]))
        for line in lines:
            console.print(f"  {escape(line)}")


def devices(found: Json) -> None:
    """The answer, and a line for each device: how much it worked, its phases by their share, and what was measured."""
    if not found["devices"]:
        console.print(_("nothing recorded"))
        return
    console.print(found["answer"], style="bold", markup=False)
    made = plain_table(_("host"), _("device"), _("worked"), _("phases"), _("memory"), _("power"))
    for each in found["devices"]:
        memory = max((step["memory"] for step in each["steps"] if step["memory"] is not None), default=None)
        powers = [step["power_w"] for step in each["steps"] if step["power_w"] is not None]
        made.add_row(
            escape(each["host"]),
            escape(each["device"]),
            f"{100 * each['worked']['share']:.0f}%" if each["worked"] else "–",
            _phases(each["steps"]),
            f"{memory / (1 << 30):.1f} GiB" if memory is not None else "–",
            f"{sum(powers) / len(powers):.0f} W" if powers else "–",
        )
    console.print(made)


def _phases(steps: Sequence[Json]) -> str:
    spent: dict[str, float] = {}
    for step in steps:
        for phase, seconds in step["phases"].items():
            spent[phase] = spent.get(phase, 0.0) + seconds
    whole = sum(spent.values())
    if not whole:  # nothing is known of what the time went to
        return "–"
    longest = sorted(spent, key=lambda phase: -spent[phase])
    return ", ".join(f"{_(PHASES.get(phase, phase))} {100 * spent[phase] / whole:.0f}%" for phase in longest)


def notes(lines: Sequence[str]) -> None:
    """Print what the figures above leave out."""
    for line in lines:
        console.print(line, style="dim", markup=False)


def interval(name: str, figure: Json | None) -> str:
    """``78% (73 to 82)``."""
    if not figure or figure["value"] is None:
        return "–"
    scale, unit = (100.0, "%") if name in SHARES else (1.0, "")
    text = f"{scale * figure['value']:.3g}{unit}"
    if figure["low"] is None or figure["low"] == figure["high"]:
        return text
    low, high = f"{scale * figure['low']:.3g}", f"{scale * figure['high']:.3g}"
    return _("{value} ({low} to {high})").format(value=text, low=low, high=high)


def pause() -> None:
    """Wait between two looks at something that still runs."""
    time.sleep(0.5)
