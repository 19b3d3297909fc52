"""What workers do for presets that are made ready."""

from __future__ import annotations

from webapp.launch.preparing import preparation_advance, preparation_failed
from webapp.runs.models import Preparation
from webapp.work import Kind, register

register(Kind(Preparation, preparation_advance, preparation_failed))
