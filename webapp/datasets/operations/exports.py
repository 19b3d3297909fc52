"""Files to download: a dataset version in another format, written in the background.

1. ``export_order`` writes what is wanted and sends a message, which is only a hint.
2. ``export_run`` claims it with a fresh token; while its worker reports in time, nobody else can.
3. ``lost_exports`` finds those that nobody took, or whose worker fell silent, and they are sent again.
"""

from __future__ import annotations

import logging
import secrets
import shutil
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from billiard.exceptions import SoftTimeLimitExceeded
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from training.data.making.convert import Converted, ConvertOptions, convert
from training.data.options import ReadOptions
from training.errors import DataError, TiltyardError
from webapp.claims import progress_writer, silent
from webapp.datasets.models import Dataset, DatasetExport, DatasetState, ExportState
from webapp.datasets.operations.targets import ExportOptions, file_name, part_names, suffix_of, targets
from webapp.datasets.selectors import LOST_AFTER_S
from webapp.datasets.services import KEEP_FREE_BYTES, CheckLost
from webapp.teams.models import User

logger = logging.getLogger(__name__)
KEPT = 5
MAX_LOST = 20
MAX_OPEN = 3
PROGRESS_EVERY_S = 0.5
OPEN = (ExportState.WAITING, ExportState.WRITING)


def export_order(*, dataset: Dataset, user: User | None, options: ExportOptions) -> DatasetExport:
    """Ask for a file. Raises ``ValidationError``."""
    if options.to not in {target.name for target in targets()}:
        raise ValidationError({"to": _("There is no such format to write.")})
    if dataset.state != DatasetState.READY:
        raise ValidationError(_("%(name)s is not ready to be used.") % {"name": dataset}, code="conflict")
    if DatasetExport.objects.filter(dataset__project=dataset.project_id, state__in=OPEN).count() >= MAX_OPEN:
        raise ValidationError(_("Files are being written for this project already; wait until one is done."))
    if shutil.disk_usage(settings.DATA_DIR).free < dataset.bytes * 4 + KEEP_FREE_BYTES:
        raise ValidationError(_("The server's disk is nearly full, so nothing was written."))
    export = DatasetExport(
        dataset=dataset,
        created_by=user,
        options=options.model_dump(),
        file_name=file_name(f"{dataset.name}-{dataset.version}", options),
    )
    with transaction.atomic():
        export.save(force_insert=True)
        _forget_old(dataset)
        transaction.on_commit(lambda: export_enqueue(export.pk))
    return export


def _forget_old(dataset: Dataset) -> None:
    """Only the newest files are kept."""
    for old in DatasetExport.objects.filter(dataset=dataset).exclude(state__in=OPEN)[KEPT:]:
        path = old.path
        old.delete()
        transaction.on_commit(lambda path=path: path.unlink(missing_ok=True))  # type: ignore[misc]


def export_enqueue(export_id: UUID) -> None:
    """Tell a worker. A broker that is down costs only time: lost exports are found again."""
    from kombu.exceptions import OperationalError

    from webapp.datasets.tasks import export

    try:
        export.apply_async((str(export_id),), retry=False)
    except (OperationalError, OSError) as exc:
        logger.warning("export not sent: %s", exc, extra={"export_id": export_id})


def lost_exports() -> QuerySet[DatasetExport]:
    """Exports of which nobody has said anything for too long."""
    return silent(DatasetExport.objects.filter(state__in=OPEN), LOST_AFTER_S)


def export_run(export_id: UUID | str) -> None:
    """Write an export, unless somebody is at it."""
    export = _claim(export_id)
    if export is None:
        return
    token = str(export.progress["token"])
    try:
        done = _write(export, token)
    except CheckLost:
        logger.info("export given up", extra={"export_id": export.pk})
    except TiltyardError as exc:
        _fail(export, token, exc)
    except SoftTimeLimitExceeded:
        raise
    except Exception as exc:  # whatever a library says: an export that nobody ends would be tried for ever
        logger.exception("export could not be written", extra={"export_id": export.pk})
        why = getattr(exc, "strerror", None) or type(exc).__name__
        _fail(export, token, DataError(_("The file could not be written: %(why)s.") % {"why": why}))
    else:
        first = {"message": f"{done.bad[0].reason} ({done.bad[0].line})"} if done.bad else {}
        lost = {"lost": dict(list(done.lost.items())[:MAX_LOST])} if done.lost else {}
        _ours(export, token).update(
            state=ExportState.DONE,
            progress={},
            rows=done.rows,
            left_out=done.bad_rows,
            bytes=export.path.stat().st_size,
            error=first | lost or None,
        )


def _claim(export_id: UUID | str) -> DatasetExport | None:
    with transaction.atomic():
        waiting = DatasetExport.objects.select_for_update(of=("self",)).filter(pk=export_id, state__in=OPEN)
        export = waiting.select_related("dataset").first()
        if export is None or time.time() - float(export.progress.get("at", 0)) < LOST_AFTER_S:
            return None
        export.progress = {"token": secrets.token_hex(8), "at": time.time(), "rows": 0}
        export.state = ExportState.WRITING
        export.save(update_fields=["progress", "state"])
    return export


def _ours(export: DatasetExport, token: str) -> QuerySet[DatasetExport]:
    return DatasetExport.objects.filter(pk=export.pk, state=ExportState.WRITING, progress__token=token)


def _fail(export: DatasetExport, token: str, error: TiltyardError) -> None:
    info = error.info.model_dump(mode="json")
    _ours(export, token).update(state=ExportState.FAILED, progress={}, error=info)


def export_time_out(export_id: str) -> None:
    """The task's own limit ran out."""
    error = DataError(_("Writing the file took too long."), hint=_("Ask for fewer rows."))
    open_exports = DatasetExport.objects.filter(pk=export_id, state__in=OPEN)
    open_exports.update(state=ExportState.FAILED, progress={}, error=error.info.model_dump(mode="json"))


def _write(export: DatasetExport, token: str) -> Converted:
    """Convert the checked rows, which were limited when they came in, and put the file in its place whole."""
    options = ExportOptions.model_validate(export.options)
    export.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=export.path.parent) as name:
        folder = Path(name)
        stem = f"{export.dataset.name}-{export.dataset.version}"
        outputs = part_names(stem, options, folder) if options.split else [folder / f"rows.{suffix_of(options.to)}"]
        paths = {"train_output": outputs[0], "val_output": outputs[1]} if options.split else {"output": outputs[0]}
        wanted = ConvertOptions(**options.model_dump(), **paths, reading=ReadOptions(format="conversation"))
        done = convert(export.dataset.rows_path, wanted, _reporter(export, token))
        if not done.rows:
            why = f" {done.bad[0].reason[0].upper()}{done.bad[0].reason[1:]}." if done.bad else ""
            raise DataError(_("No row can be written in this format.") + why)
        _place(outputs, export.path, folder)
    return done


def _place(outputs: list[Path], path: Path, folder: Path) -> None:
    made = outputs[0]
    if len(outputs) > 1:
        made = folder / "parts.zip"
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for part in outputs:
                archive.write(part, part.name)
    made.chmod(0o600)
    made.replace(path)


def _reporter(export: DatasetExport, token: str) -> Callable[[int], None]:
    write = progress_writer(lambda: _ours(export, token), token, CheckLost, PROGRESS_EVERY_S)
    return lambda rows: write({"rows": rows})
