"""Waiting, and what the trainer reports about itself, as sentences: of pages, and of live frames (``answers.py``).

Only the wait is said by a script too (``static/js/lib/held.js``, from the same catalogue), because it counts down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from django.utils import timezone

from webapp.common.strings import report_strings
from webapp.common.text import clean_text, duration, figure, in_words, percent
from webapp.common.words import failure
from webapp.runs.states import RunState

REPORT_KINDS = (
    "stage_started",
    "held",
    "update_skipped",
    "sampler_checked",
    "resumed",
    "checkpoints_removed",
    "tasks_held_out",
    "held_out_evaluated",
    "rollout_order",
)
COURSE_KINDS = ("state", "attempt", "warning", *REPORT_KINDS)
"""The kinds that changed the run's course; phases and log lines would bury them."""


def report_text(key: str, **values: Any) -> str:
    """A sentence of the page's catalogue with its {places} filled."""
    text = report_strings()[key]
    for name, value in values.items():
        text = text.replace("{" + name + "}", clean_text(str(value)))
    return text


def held_text(held: Mapping[str, Any] | None, *, short: bool = False) -> str:
    """The reason why the step waits, the time of the next try and of the pause; empty when it does not wait."""
    if not held:
        return ""
    next_s, left = _seconds_to(held["next_try_at"]), duration(_seconds_to(held["until"]))
    now = "" if next_s > 0 else "_now"
    if short:
        where = f"held.{(held.get('error') or {}).get('boundary')}"
        what = report_text(where if where in report_strings() else "held.other")
        return report_text(f"held_short{now}", what=what, next=duration(next_s), left=left)
    return report_text(f"held{now}", step=held["step"], what=held_reason(held), next=duration(next_s), left=left)


def held_reason(held: Mapping[str, Any] | None) -> str:
    """What the step waits for, with the part of a mix whose rollouts wait; empty when it does not wait."""
    known = failure((held or {}).get("error"))
    return ": ".join(word for word in ((held or {}).get("part", ""), known.title if known else "") if word)


def _seconds_to(iso: str) -> int:
    return max(0, round((datetime.fromisoformat(iso) - timezone.now()).total_seconds()))


def report_lines(health: Mapping[str, Any], error: object = None) -> list[tuple[str, str]]:
    """(name, sentence) of what a person should know: why the last attempt ended, where this one began, updates that
    were skipped. A sampler check that passed is an event; ``error``, the run's own, has a notice of its own."""
    lines: list[tuple[str, str]] = []
    if (found := health.get("ended")) and not error:
        known = failure(found)
        lines.append(("ended", report_text("report.ended", attempt=found["attempt"], why=known.title if known else "")))
    if (found := health.get("files")) and not error:
        known = failure(found)
        values = {"why": known.title if known else "", "worker": found["worker"]}
        lines.append(("files", report_text("report.files", **values)))
    if found := health.get("resumed"):
        lines.append(("resumed", resume_text(found)))
    if found := health.get("skipped"):
        text = report_text(f"report.skipped_{found['what']}", n=found["count"], step=found["step"])
        lines.append(("skipped", text))
    if (found := health.get("time")) and found["of"]:
        lines.append(("time", _time_text(found)))
    return lines


def _time_text(found: Mapping[str, Any]) -> str:
    """How much of the time budget is used and left, or that the run ended because of it."""
    used, most = (duration(float(found[name]) * 3600) for name in ("hours", "of"))
    if "over" in found:
        return report_text("report.time_over", of=most, used=used, step=found["over"])
    left = duration(max(0.0, float(found["of"]) - float(found["hours"])) * 3600)
    return report_text("report.time", of=most, used=used, left=left)


def resume_text(found: Mapping[str, Any]) -> str:
    """Where an attempt continued, what is trained again, what was damaged and what was verified."""
    attempt = found.get("attempt", "")
    if found["source"]:
        parts = [report_text("report.resumed", attempt=attempt, source=found["source"], step=found["step"])]
    else:
        parts = [report_text("report.began", attempt=attempt)]
    if found.get("lost_steps"):
        parts.append(report_text("report.lost", n=found["lost_steps"]))
    if found.get("set_aside"):
        parts.append(report_text("report.aside", names=report_text("report.comma").join(found["set_aside"])))
    if found.get("verified"):
        parts.append(
            report_text(
                "report.verified", what=report_text("report.comma").join(in_words(each) for each in found["verified"])
            )
        )
    return " ".join(parts)


def _sampler_text(found: Mapping[str, Any]) -> str:
    gaps = {"gap": found["max_gap"], "mean": found["mean_gap"], "limit": found["tolerance"]}
    shown = {name: figure(float(value), 2) for name, value in gaps.items()}
    return report_text("report.sampler", step=found["step"], tokens=found["tokens"], **shown)


def _held_text(payload: Mapping[str, Any]) -> str:
    if not payload.get("error"):
        return report_text("event.held_over", step=payload["step"])
    message, wait = payload["error"]["message"], duration(float(payload["next_try_s"]))
    return report_text("event.held", step=payload["step"], tries=payload["tries"], message=message, next=wait)


def _removed_text(payload: Mapping[str, Any]) -> str:
    return report_text("event.torn" if payload["why"] == "torn" else "event.old", names=", ".join(payload["paths"]))


def _skipped_text(payload: Mapping[str, Any]) -> str:
    return report_text(f"event.skipped_{payload['what']}", step=payload["step"], n=payload["in_a_row"])


def _held_out_tasks(payload: Mapping[str, Any]) -> str:
    parts = [report_text(f"event.tasks_held_out_{payload['source']}", n=payload["tasks"], groups=payload["groups"])]
    if payload["leaked"]:
        parts.append(report_text("event.leaked", n=payload["leaked"]))
    key = "event.alike" if payload["alike"] else "event.alike_none"
    parts.append(report_text(key, n=payload["alike"], rows=payload["looked_at"]))
    return (f"{payload['part']}: " if payload.get("part") else "") + " ".join(parts)


def _evaluated_text(payload: Mapping[str, Any]) -> str:
    found = payload["report"]["figures"].get("success") or {}
    places = {"step": payload["step"], "tasks": found.get("tasks", 0), "value": percent(found.get("value"))}
    places |= {end: percent(found.get(end)) for end in ("low", "high")}
    return report_text("event.evaluated_best" if payload["best"] else "event.evaluated", **places)


def _stage_text(payload: Mapping[str, Any]) -> str:
    places = {name: payload[name] for name in ("stage", "of", "name", "step")}
    return report_text(f"event.stage_{payload['why']}", **places)


def _order_text(payload: Mapping[str, Any]) -> str:
    places = {name: payload[name] for name in ("by", "step", "group", "index")}
    return report_text(f"event.order_{payload['act']}", **places)


WORDS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "stage_started": _stage_text,
    "held": _held_text,
    "update_skipped": _skipped_text,
    "sampler_checked": _sampler_text,
    "resumed": resume_text,
    "checkpoints_removed": _removed_text,
    "tasks_held_out": _held_out_tasks,
    "held_out_evaluated": _evaluated_text,
    "rollout_order": _order_text,
}


def event_text(event: Mapping[str, Any]) -> str:
    """One event of ``REPORT_KINDS`` in words."""
    payload = dict(event["payload"])
    if event["kind"] == "resumed":
        payload["attempt"] = event["attempt"]
    return WORDS[event["kind"]](payload)


def event_words(event: Mapping[str, Any]) -> str:
    """The text of an event of any kind, without its time and kind."""
    payload, kind = event["payload"], event["kind"]
    if kind in REPORT_KINDS:
        return clean_text(event_text(event))
    if kind == "state":
        names = [_state_label(str(payload[end])) for end in ("from", "to") if payload.get(end)]
        parts = [" → ".join(names), in_words(payload.get("reason") or ""), _error_words(payload.get("error"))]
        words = [" · ".join(part for part in parts if part)]
    elif kind == "attempt":
        where = "worker" if payload.get("owner") else "device"
        words = [report_text(f"event.{where}", name=payload.get("owner") or payload.get("device") or "–")]
    elif kind == "warning":
        words = [_error_words(payload)]
    else:
        words = [payload.get("level"), payload.get("message")]
    return clean_text(" ".join(str(word) for word in words if word))


def _state_label(name: str) -> str:
    return str(RunState(name).label) if name in RunState.values else name


def _error_words(error: Mapping[str, Any] | None) -> str:
    known = failure(error)
    return " ".join(part for part in (known.title, known.detail) if part) if known else ""
