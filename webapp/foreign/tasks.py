"""What workers do for imports of runs."""

from __future__ import annotations

from django.utils.translation import gettext_noop

from webapp.foreign.reading import import_ended, import_failed, import_read
from webapp.runs.models import RunImport
from webapp.work import Kind, register

TOO_LONG = gettext_noop("Reading the files took too long. Give fewer steps at once.")

register(Kind(RunImport, import_read, import_failed, too_long=TOO_LONG, ended=import_ended))
