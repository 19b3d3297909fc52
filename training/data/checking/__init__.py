"""The check of an uploaded dataset, its report and its preview."""

from __future__ import annotations

from training.data.checking.check import Ask, Preview
from training.data.checking.runner import run_check, run_preview

__all__ = [
    "Ask",
    "Preview",
    "run_check",
    "run_preview",
]
