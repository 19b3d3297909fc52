"""The advisories in words: codes are stable, ``RULES`` is in the order of docs/doctor.md."""

from __future__ import annotations

from training.doctor.rules.rollouts import ROLLOUTS
from training.doctor.rules.signal import SIGNAL
from training.doctor.rules.updates import UPDATES
from training.doctor.rules.words import Rule
from training.words import _

__all__ = ["CURVES", "RULES", "SEVERITIES", "Rule"]

RULES: dict[str, Rule] = {**SIGNAL, **UPDATES, **ROLLOUTS}
SEVERITIES = {"stop": _("stop and look"), "warn": _("look soon"), "note": _("good to know")}
CURVES = {
    "phantom_share": _("Phantom groups"),
    "inverted_share": _("Groups where a failure wins"),
    "repetition_share": _("Rollouts that repeat themselves"),
    "loop_share": _("Rollouts that loop"),
    "unread_share": _("Rollouts with unreadable calls"),
    "tool_failure_share": _("Failed tool calls"),
    "judge_failure_share": _("Unanswered judge requests"),
    "success": _("Solved rollouts"),
}
"""Curves of evidence that are no metric of ``training/metrics.py``; shares from 0 to 1."""
