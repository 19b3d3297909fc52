"""Runs of other trainers, read into the journal that our own trainer writes.

``python -m training import --input FILE… --output FOLDER`` makes a folder that ``manage.py import_run`` shows in the
browser. A file is recognised by its content; a new kind of file is a ``Reader`` in the module of its
family and a line in ``report.READERS``.
"""

from __future__ import annotations

from training.imports.read import REPORT_NAME, run_import
from training.imports.report import READERS, ImportReport

__all__ = ["READERS", "REPORT_NAME", "ImportReport", "run_import"]
