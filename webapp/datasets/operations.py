"""Datasets that are made of others: asking for them, their lineage, and files to download."""

from __future__ import annotations

import logging
import shutil
import tempfile
import uuid
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext
from pydantic import BaseModel, ConfigDict, Field
from pydantic import ValidationError as ShapeError

from training.config import name_in
from training.data import FORMATS, FilterRule, MixOptions, Options, ReadOptions
from training.data.making import GUIDE, OPERATIONS, OWN, PARTS, Converted, ConvertOptions, convert, writers
from training.errors import DataError, TiltyardError
from webapp.common import work
from webapp.common.pages import clean_name
from webapp.common.work import Claim
from webapp.datasets.models import Dataset, DatasetExport, DatasetState, ExportState
from webapp.datasets.services import KEEP_FREE_BYTES, version_insert
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, User

# --- Lineage --------------------------------------------------------------------------------------------------------
# The lineage of a dataset version: its sources, and the datasets made of it.

MAX_CHILDREN = 50
MAX_IDS_SHOWN = 5


class Parent(NamedTuple):
    """A dataset that another was made of. ``dataset`` is ``None`` where it was deleted since."""

    reference: str
    sha256: str
    rows: int
    taken: int | None
    dataset: Dataset | None


class Lineage(NamedTuple):
    """The lineage as the page shows it."""

    words: str
    parents: list[Parent]
    children: list[Dataset]


def parent_of(dataset: Dataset) -> dict[str, Any]:
    """A parent as a lineage names it: by reference and content, which outlive it, and by id."""
    return {
        "id": str(dataset.pk),
        "reference": dataset.reference,
        "sha256": dataset.sha256,
        "rows": dataset.rows,
    }


def origin_note(dataset: Dataset, **options: Any) -> None:
    """Note which environment wrote a dataset, and with which options."""
    dataset.lineage = {"operation": "order", "options": options, "parents": []}
    dataset.save(update_fields=["lineage"])


def lineage_dict(dataset: Dataset) -> dict[str, Any]:
    """The lineage of any dataset; one without a note was uploaded."""
    kept = dataset.lineage or {"operation": "upload", "options": {"file_name": dataset.file_name}, "parents": []}
    return {**kept, "rows": dataset.rows, "sha256": dataset.sha256}


def children_of(dataset: Dataset) -> QuerySet[Dataset]:
    """The datasets made of a version, the oldest first."""
    found = Dataset.objects.filter(project=dataset.project, lineage__parents__contains=[{"id": str(dataset.pk)}])
    return found.order_by("created_at")


def lineage_of(dataset: Dataset) -> Lineage:
    """Parents, children, and the operation in words."""
    named = lineage_dict(dataset)
    parents = [item for item in named.get("parents") or [] if isinstance(item, dict)]
    ids = [item["id"] for item in parents if item.get("id")]
    there = {str(item.pk): item for item in Dataset.objects.filter(project=dataset.project, pk__in=ids)}
    return Lineage(
        words_of(str(named.get("operation")), named.get("options") or {}),
        [_parent_of(item, there.get(str(item.get("id")))) for item in parents],
        list(children_of(dataset)[:MAX_CHILDREN]),
    )


def _parent_of(item: dict[str, Any], dataset: Dataset | None) -> Parent:
    reference = name_in("dataset", str(item.get("reference", "")))
    return Parent(reference, str(item.get("sha256", "")), int(item.get("rows") or 0), item.get("taken"), dataset)


def words_of(operation: str, options: dict[str, Any]) -> str:
    """The operation, as a sentence."""
    if operation == "split":
        return _split_words(options)
    if operation == "subset":
        return _subset_words(options)
    if operation == "pick":
        ids = options.get("ids") or []
        shown = ", ".join(str(name) for name in ids[:MAX_IDS_SHOWN]) + ("…" if len(ids) > MAX_IDS_SHOWN else "")
        return _("Rows chosen by %(field)s: %(ids)s.") % {"field": options.get("field", "id"), "ids": shown}
    if operation == "filter":
        rules = [rule_words(FilterRule.model_validate(rule)) for rule in options.get("rules") or []]
        return _("Filtered: %(rules)s.") % {"rules": "; ".join(rules)}
    if operation == "mix":
        weights = " : ".join(f"{weight:g}" for weight in options.get("weights") or [])
        values = {"weights": weights, "seed": options.get("seed")}
        return _("Mixed with the weights %(weights)s; seed %(seed)s.") % values
    if operation == "cut":
        return _cut_words(options)
    return _origin_words(operation, options)


def _split_words(options: dict[str, Any]) -> str:
    share = round(100 * float(options.get("train_ratio", 0)), 2)
    values = {"percent": f"{share:g}", "seed": options.get("seed")}
    if options.get("part") == "validation":
        return _("Validation part of a split: shuffled with seed %(seed)s, the rows after %(percent)s%%.") % values
    return _("Training part of a split: shuffled with seed %(seed)s, the first %(percent)s%%.") % values


def _subset_words(options: dict[str, Any]) -> str:
    rows, seed = int(options.get("rows") or 0), options.get("seed")
    if seed is None:
        return ngettext("The first row.", "The first %(n)s rows.", rows) % {"n": rows}
    return ngettext("%(n)s row drawn with seed %(seed)s.", "%(n)s rows drawn with seed %(seed)s.", rows) % {
        "n": rows,
        "seed": seed,
    }


def _cut_words(options: dict[str, Any]) -> str:
    if options.get("cut") == "query":
        return _("Cut at the first assistant turn: the model works the whole task.")
    return _("Cut before the last assistant turn: the model makes one step.")


def _origin_words(operation: str, options: dict[str, Any]) -> str:
    if operation == "append":
        count = int(options.get("rows") or 0)
        return ngettext("%(n)s row added manually.", "%(n)s rows added manually.", count) % {"n": count}
    if operation == "pairs":
        return _pairs_words(options)
    if operation == "rollouts":
        return _rollouts_words(options)
    if operation == "order":
        return _("Written by the environment %(name)s.") % {"name": options.get("environment", "")}
    if operation == "upload":
        return _("Uploaded as %(name)s.") % {"name": options.get("file_name", "")}
    return operation


def _rollouts_words(options: dict[str, Any]) -> str:
    number, values = int(options.get("chosen") or 0), {"runs": options.get("runs", "")}
    if options.get("use") == "tasks":
        text = ngettext("The tasks of %(n)s rollout of %(runs)s.", "The tasks of %(n)s rollouts of %(runs)s.", number)
    else:
        text = ngettext("%(n)s rollout of %(runs)s.", "%(n)s rollouts of %(runs)s.", number)
    shown = text % {"n": number, **values}
    if view := options.get("view"):
        shown = f"{shown} {_('Found by: %(view)s') % {'view': view}}"
    return shown


def _pairs_words(options: dict[str, Any]) -> str:
    values = {"run": options.get("run", ""), "gap": f"{float(options.get('min_gap') or 0):g}"}
    shown = _("Best against worst rollout of each group of the run %(run)s, at least %(gap)s apart.") % values
    if options.get("chosen"):
        chosen = int(options["chosen"])
        shown += " " + ngettext("Of %(n)s group.", "Of %(n)s groups.", chosen) % {"n": chosen}
        shown += f" {_('Found by: %(view)s') % {'view': options['view']}}" if options.get("view") else ""
    unread = int(options.get("unread") or 0)
    if not unread:
        return shown
    text = ngettext(
        "%(n)s rollout with unreadable calls was skipped.",
        "%(n)s rollouts with unreadable calls were skipped.",
        unread,
    )
    return f"{shown} {text % {'n': unread}}"


def rule_words(rule: FilterRule) -> str:
    """One rule of a filter, in words."""
    values = {"field": rule.field, "value": "", "negate": ""}
    parts = []
    if "equals" in rule.model_fields_set:
        template = _("%(field)s is not %(value)s") if rule.negate else _("%(field)s is %(value)s")
        parts.append(template % {**values, "value": repr(rule.equals)})
    if rule.contains is not None:
        template = _("%(field)s does not contain “%(value)s”") if rule.negate else _("%(field)s contains “%(value)s”")
        parts.append(template % {**values, "value": rule.contains})
    if rule.min_length is not None:
        template = (
            _("%(field)s is shorter than %(value)s") if rule.negate else _("%(field)s is at least %(value)s long")
        )
        parts.append(template % {**values, "value": rule.min_length})
    if rule.max_length is not None:
        template = _("%(field)s is longer than %(value)s") if rule.negate else _("%(field)s is at most %(value)s long")
        parts.append(template % {**values, "value": rule.max_length})
    return ", ".join(parts)


# --- Asking ---------------------------------------------------------------------------------------------------------
# Asking for datasets that are made of others.
#
# 1. ``operation_order`` saves the new versions at once, in state ``checking``, with their whole lineage but the rows.
# 2. The check of such a version finds no file yet, so its worker makes it first (``work.py``), from the parents' rows.
# 3. Claims, lost workers and progress are those of any check (``webapp.datasets.services``).

logger = logging.getLogger(__name__)
MAX_MAKING = 6


def operation_order(
    *, parents: Sequence[Dataset], user: User | None, operation: str, options: dict[str, Any], names: Sequence[str]
) -> list[Dataset]:
    """Order the datasets of an operation: two versions of a split, else one. Raises ``ValidationError`` by field."""
    chosen = _parse_options(operation, options)
    parts = PARTS if operation == "split" else ("",)
    names = [clean_name(name) for name in names]
    if len(names) != len(parts):
        raise ValidationError({"name": _("This creates %(n)s datasets; give as many names.") % {"n": len(parts)}})
    if len(set(names)) != len(names):
        raise ValidationError({"name": _("The two parts need different names.")})
    _judge_parents(parents, chosen)
    made = []
    with transaction.atomic():
        for name, part in zip(names, parts, strict=True):
            kept = chosen.model_dump(mode="json", exclude_unset=operation == "filter") | (
                {"part": part} if part else {}
            )
            lineage = {"operation": operation, "options": kept, "parents": [parent_of(item) for item in parents]}
            dataset = Dataset(
                id=uuid.uuid4(),
                project=parents[0].project,
                name=name,
                file_name="rows.jsonl",
                created_by=user,
                reading={"format": "conversation"},
                lineage=lineage,
            )
            version_insert(dataset)
            made.append(dataset)
    logger.info("datasets asked for", extra={"operation": operation, "project_id": parents[0].project_id})
    return made


def _parse_options(operation: str, options: dict[str, Any]) -> Options:
    if operation not in OPERATIONS:
        raise ValidationError(
            {"operation": _("There is no such operation. There are: %(names)s.") % {"names": ", ".join(OPERATIONS)}}
        )
    try:
        return OPERATIONS[operation].model_validate(options)
    except ShapeError as exc:
        error = exc.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in error["loc"])
        text = error["msg"].removeprefix("Value error, ")
        raise ValidationError(f"{where}: {text}" if where else text) from exc


def _judge_parents(parents: Sequence[Dataset], chosen: Options) -> None:
    """Require parents that are ready, of one project and as many as the operation takes, and enough room on the
    server."""
    project_id = parents[0].project_id
    if any(parent.project_id != project_id for parent in parents):
        raise ValidationError(_("Only datasets of one project can be mixed."))
    unready = next((parent for parent in parents if parent.state != DatasetState.READY), None)
    if unready is not None:
        raise ValidationError(_("%(name)s is not ready to be used.") % {"name": unready}, code="conflict")
    if isinstance(chosen, MixOptions):
        if len(parents) < 2 or len(parents) != len(chosen.weights):
            raise ValidationError(_("Choose at least two datasets, and a weight for each."))
        if len({parent.pk for parent in parents}) != len(parents):
            raise ValidationError(_("Choose each dataset once."))
    elif len(parents) != 1:
        raise ValidationError(_("This takes one dataset."))
    waiting = Dataset.objects.filter(project=project_id, state=DatasetState.CHECKING, lineage__parents__0__isnull=False)
    if waiting.count() >= MAX_MAKING:
        raise ValidationError(_("Datasets are being created in this project already; wait until one is done."))
    size = sum(parent.rows_path.stat().st_size for parent in parents if parent.rows_path.is_file())
    if shutil.disk_usage(settings.DATA_DIR).free < size * 2 + KEEP_FREE_BYTES:
        raise ValidationError(_("The server's disk is nearly full, so nothing was created."))


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
MAX_EXPORTING = 3
OPEN = DatasetExport.OPEN


def export_order(*, dataset: Dataset, user: User | None, options: ExportOptions) -> DatasetExport:
    """Ask for a file. Raises ``ValidationError``."""
    if options.to not in {target.name for target in targets()}:
        raise ValidationError({"to": _("There is no such format to write.")})
    if dataset.state != DatasetState.READY:
        raise ValidationError(_("%(name)s is not ready to be used.") % {"name": dataset}, code="conflict")
    if DatasetExport.objects.filter(dataset__project=dataset.project_id, state__in=OPEN).count() >= MAX_EXPORTING:
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
