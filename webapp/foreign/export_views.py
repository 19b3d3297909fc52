"""A run's data and options as files for other trainers."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path
from typing import IO
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import FileResponse, HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET
from pydantic import ValidationError

from training.config import JobConfig
from training.errors import ConfigError, TiltyardError
from training.exports.verl import export_parts, export_stages, export_verl
from webapp.engine.resolve import dataset_path
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction
from webapp.runs.models import Run
from webapp.runs.records.selectors import own_run

MAX_ROWS_BYTES = 128 << 20
"""Rows that are converted while a person waits; larger ones by the command line."""


@login_required
@require_GET
def run_verl(request: HttpRequest, slug: str, pk: UUID) -> HttpResponseBase:
    """A zip archive for verl: rows, options in its own keys, and a list of what could not be converted."""
    _project, run = own_run(request, slug, pk)
    try:
        file = _open_archive(run)
    except TiltyardError as exc:
        messages.error(request, f"{exc.message} {exc.hint}".strip())
        return redirect("run-detail", slug=slug, pk=pk)
    audit(AuditAction.RUN_EXPORTED, run)
    response = FileResponse(file, as_attachment=True, filename=f"{run.name}-verl.zip", content_type="application/zip")
    response["X-Content-Type-Options"] = "nosniff"
    return response


def _open_archive(run: Run) -> IO[bytes]:
    """The archive as an open file without a name. Raises ``TiltyardError``."""
    if run.imported_from:
        raise ConfigError(_("The options of an imported run are not known, so it cannot be exported."))
    try:
        config = JobConfig.model_validate(run.config)
    except ValidationError as exc:
        raise ConfigError(_("The run's options cannot be read by this version of Tiltyard.")) from exc
    courses = config.courses
    rows = [dataset_path(run.project, course.data.train) for course in courses]
    if sum(path.stat().st_size for path in set(rows)) > MAX_ROWS_BYTES:
        raise ConfigError(_("The dataset is too large to convert here; use `python -m training export-verl`."))
    for course, plain in zip(
        courses, JobConfig.model_validate(run.resolved).courses if run.resolved else (), strict=False
    ):
        course.rewards.components = course.rewards.components or plain.rewards.components
    made = tempfile.TemporaryFile(dir=settings.FILE_UPLOAD_TEMP_DIR)  # noqa: SIM115 - the response closes it
    with tempfile.TemporaryDirectory(dir=settings.FILE_UPLOAD_TEMP_DIR) as folder:
        if config.stages or config.mix.parts:
            export = export_stages if config.stages else export_parts
            names = export(config, courses, rows, Path(folder), name=run.name)
        else:
            names = export_verl(courses[0], rows[0], Path(folder), name=run.name)
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in names:
                archive.write(Path(folder) / name, name)
    made.seek(0)
    return made
