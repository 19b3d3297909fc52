"""What workers do before a run is launched: presets are made ready, configs are checked, memory is estimated."""

from __future__ import annotations

from webapp.common.work import Kind, register
from webapp.launch.checked import check_failed, check_run
from webapp.launch.memory import estimate_failed, estimate_make
from webapp.launch.preparing import preparation_advance, preparation_failed
from webapp.runs.models import LaunchCheck, MemoryEstimate, Preparation

register(Kind(Preparation, preparation_advance, preparation_failed))
register(Kind(LaunchCheck, check_run, check_failed))
register(Kind(MemoryEstimate, estimate_make, estimate_failed))
