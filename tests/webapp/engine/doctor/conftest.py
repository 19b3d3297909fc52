"""Recorded runs, as the advisories' own tests have them."""

from __future__ import annotations

from tests.webapp.runs.advisories.conftest import record, running

__all__ = ["record", "running"]
