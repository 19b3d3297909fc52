"""Runs that were queued, written and projected, as for the engine."""

from __future__ import annotations

from tests.webapp.engine.conftest import job, queued, quick, written

__all__ = ["job", "queued", "quick", "written"]
