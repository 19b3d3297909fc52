"""What workers do for deletions."""

from __future__ import annotations

from webapp.common.work import Kind, register
from webapp.runs.deletion.services import removal_run
from webapp.runs.removal.files import removal_failed
from webapp.runs.removal.models import Removal

register(Kind(Removal, removal_run, removal_failed))
