"""Files to download: a dataset version in another format, written by a worker (``webapp.common.work``)."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from pydantic import BaseModel, ConfigDict, Field

from training.data import FORMATS, ReadOptions
from training.data.convert import GUIDE, OWN, Converted, ConvertOptions, convert, writers
from training.errors import DataError, TiltyardError
from webapp.common import work
from webapp.common.work import Claim
from webapp.datasets.models import Dataset, DatasetExport, DatasetState, ExportState
from webapp.datasets.services import KEEP_FREE_BYTES
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, User

# --- Targets --------------------------------------------------------------------------------------------------------
# The formats that a dataset can be written in, and their options.

_OTHERS = {
    OWN: gettext_noop("Tiltyard's own rows"),
    GUIDE: gettext_noop("verl, as ToolBench's converter writes it"),
    "helloagents_sft": gettext_noop("HelloAgents, for SFT"),
    "helloagents_rl": gettext_noop("HelloAgents, for RL"),
}
_SUFFIXES = {GUIDE: "parquet"}


class Target(NamedTuple):
    """One format to write."""

    name: str
    title: str
    suffix: str

    @property
    def label(self) -> str:
        """As a list of choices shows it."""
        return f"{self.title} (.{self.suffix})"


class ExportOptions(BaseModel):
    """The options of an export: a format, whole or in two parts, and how many rows at most."""

    model_config = ConfigDict(extra="forbid")

    to: str = Field(max_length=40)
    split: bool = False
    train_ratio: float = Field(default=0.9, ge=0, le=1)
    max_samples: int | None = Field(default=None, ge=1)


def targets() -> list[Target]:
    """Every format that can be written, our own rows first."""
    found = []
    for name in writers():
        form = FORMATS.get(name)
        suffix = form.written_as if form else _SUFFIXES.get(name, "jsonl")
        found.append(Target(name, form.title if form else _(_OTHERS[name]), suffix))
    return found


def file_name(stem: str, options: ExportOptions) -> str:
    """The name of the file: two parts come in a zip."""
    named = stem if options.to == OWN else f"{stem}.{options.to}"
    return f"{named}.zip" if options.split else f"{named}.{suffix_of(options.to)}"


def suffix_of(name: str) -> str:
    """The ending of a format's files."""
    return next(target.suffix for target in targets() if target.name == name)


def part_names(stem: str, options: ExportOptions, folder: Path) -> list[Path]:
    """The two parts, named as ToolBench's converter names them."""
    return [folder / f"{stem}_{part}.{suffix_of(options.to)}" for part in ("train", "val")]


KEPT = 5
MAX_LOST = 20
MAX_OPEN = 3
OPEN = DatasetExport.OPEN


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
        work.enqueue(export)
        audit(AuditAction.DATASET_EXPORTED, dataset, by=user, subject=f"{dataset} ({export.file_name})")
    return export


def _forget_old(dataset: Dataset) -> None:
    """Only the newest files are kept."""
    for old in DatasetExport.objects.filter(dataset=dataset).exclude(state__in=OPEN)[KEPT:]:
        path = old.path
        old.delete()
        transaction.on_commit(lambda path=path: path.unlink(missing_ok=True))  # type: ignore[misc]


def export_run(claim: Claim[DatasetExport]) -> None:
    """Write a claimed export."""
    export = claim.item
    done = _write_export(claim)
    first = {"message": f"{done.bad[0].reason} ({done.bad[0].line})"} if done.bad else {}
    lost = {"lost": dict(list(done.lost.items())[:MAX_LOST])} if done.lost else {}
    claim.finish(
        state=ExportState.DONE,
        rows=done.rows,
        left_out=done.bad_rows,
        bytes=export.path.stat().st_size,
        error=first | lost or None,
    )


def export_failed(export: DatasetExport, error: TiltyardError) -> dict[str, Any]:
    """The columns of an export that could not be written."""
    return {"state": ExportState.FAILED, "error": error.info.model_dump(mode="json")}


def _write_export(claim: Claim[DatasetExport]) -> Converted:
    """Convert the checked rows, which were limited when they came in, and move the complete file into its place."""
    export = claim.item
    options = ExportOptions.model_validate(export.options)
    export.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=export.path.parent) as name:
        folder = Path(name)
        stem = f"{export.dataset.name}-{export.dataset.version}"
        outputs = part_names(stem, options, folder) if options.split else [folder / f"rows.{suffix_of(options.to)}"]
        paths = {"train_output": outputs[0], "val_output": outputs[1]} if options.split else {"output": outputs[0]}
        wanted = ConvertOptions(**options.model_dump(), **paths, reading=ReadOptions(format="conversation"))
        done = convert(export.dataset.rows_path, wanted, lambda rows: claim.report({"rows": rows}))
        if not done.rows:
            why = f" {done.bad[0].reason[0].upper()}{done.bad[0].reason[1:]}." if done.bad else ""
            raise DataError(_("No row can be written in this format.") + why)
        made = _single_file(outputs, folder)
        with claim.held():
            made.replace(export.path)
    return done


def _single_file(outputs: list[Path], folder: Path) -> Path:
    """One file: two parts go into a zip."""
    made = outputs[0]
    if len(outputs) > 1:
        made = folder / "parts.zip"
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for part in outputs:
                archive.write(part, part.name)
    made.chmod(0o600)
    return made
