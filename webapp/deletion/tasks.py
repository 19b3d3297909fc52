"""What workers do for deletions."""

from __future__ import annotations

from webapp.deletion.services import removal_run
from webapp.removal.files import removal_failed
from webapp.removal.models import Removal
from webapp.work import Kind, register

register(Kind(Removal, removal_run, removal_failed))
