"""What workers do in the background: each kind of row, and what turns it into a result.

Runs themselves are supervised by ``webapp/engine/tasks.py``; rooms whose work has more to it have tasks of their own.
"""

from __future__ import annotations

from django.utils.translation import gettext_noop

from webapp.common.work import Kind, register
from webapp.datasets.models import ExportState
from webapp.foreign.figure_files import metrics_failed, metrics_write
from webapp.foreign.importing import import_ended, import_failed, import_read
from webapp.foreign.models import RunExport, RunImport
from webapp.launch.background import check_failed, check_run, preparation_advance, preparation_failed
from webapp.launch.estimates import estimate_failed, estimate_make
from webapp.launch.models import LaunchCheck, MemoryEstimate, Preparation
from webapp.people.notifications.delivering import delivery_failed, delivery_run, reader_failed, reader_test
from webapp.people.notifications.events import event_failed, event_spread
from webapp.people.notifications.models import Delivery, Event, Reader
from webapp.runs.registry.models import ModelPush, PushState
from webapp.runs.registry.sending import push_failed, push_run
from webapp.runs.removal.models import Removal
from webapp.runs.removal.services import removal_failed, removal_run

# What workers do for notifications.

register(Kind(Event, event_spread, event_failed))
register(Kind(Delivery, delivery_run, delivery_failed))
register(Kind(Reader, reader_test, reader_failed))


# What workers do before a run is launched: presets are made ready, configs are checked, memory is estimated.

register(Kind(Preparation, preparation_advance, preparation_failed))
register(Kind(LaunchCheck, check_run, check_failed))
register(Kind(MemoryEstimate, estimate_make, estimate_failed))


# What workers do for imports of runs.

IMPORT_TOO_LONG = gettext_noop("Reading the files took too long. Give fewer steps at once.")

EXPORT_TOO_LONG = gettext_noop("Writing the file took too long.")

register(Kind(RunExport, metrics_write, metrics_failed, too_long=EXPORT_TOO_LONG, at_work=ExportState.WRITING))
register(Kind(RunImport, import_read, import_failed, too_long=IMPORT_TOO_LONG, ended=import_ended))


# What workers do for models.

PUSH_TOO_LONG = gettext_noop("Sending the files took too long.")
PUSH_AGAIN = gettext_noop("Try again: files that arrived are not sent again.")

register(Kind(ModelPush, push_run, push_failed, too_long=PUSH_TOO_LONG, hint=PUSH_AGAIN, at_work=PushState.SENDING))


# What workers do for deletions.

register(Kind(Removal, removal_run, removal_failed))
