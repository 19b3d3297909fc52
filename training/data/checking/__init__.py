"""The check of an uploaded dataset, its report and its preview, and the identities of its rows that it writes."""

from __future__ import annotations

from training.data.checking.check import Ask, Preview
from training.data.checking.runner import run_check, run_preview
from training.data.identity import IDENTITIES_NAME, Identities, held_out, identities_read, identities_write, known

__all__ = [
    "IDENTITIES_NAME",
    "Ask",
    "Identities",
    "Preview",
    "held_out",
    "identities_read",
    "identities_write",
    "known",
    "run_check",
    "run_preview",
]
