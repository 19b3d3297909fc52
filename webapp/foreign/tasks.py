"""What workers do for imports of runs."""

from __future__ import annotations

from django.utils.translation import gettext_noop

from webapp.common.work import Kind, register
from webapp.datasets.models import ExportState
from webapp.foreign.figure_files import metrics_failed, metrics_write
from webapp.foreign.models import RunExport
from webapp.foreign.reading import import_ended, import_failed, import_read
from webapp.runs.models import RunImport

TOO_LONG = gettext_noop("Reading the files took too long. Give fewer steps at once.")

EXPORT_TOO_LONG = gettext_noop("Writing the file took too long.")

register(Kind(RunExport, metrics_write, metrics_failed, too_long=EXPORT_TOO_LONG, at_work=ExportState.WRITING))
register(Kind(RunImport, import_read, import_failed, too_long=TOO_LONG, ended=import_ended))
