"""What workers do for deletions."""

from __future__ import annotations

from webapp.common.work import Kind, register
from webapp.deletion.services import removal_run
from webapp.removal.files import removal_failed
from webapp.removal.models import Removal

register(Kind(Removal, removal_run, removal_failed))
