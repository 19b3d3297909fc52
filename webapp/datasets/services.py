"""Writing datasets: the row and its file now, the check by a worker (``webapp.common.work``)."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import uuid
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO, Any, cast
from urllib.parse import quote

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.files.base import File
from django.core.files.uploadedfile import TemporaryUploadedFile
from django.db import IntegrityError, transaction
from django.db.models import Max
from django.utils.translation import gettext as _

from training.data import ENDINGS, CheckLimits, part_of, pick
from training.data.checking import IDENTITIES_NAME, Ask, run_check
from training.data.making import OPERATIONS, Made, make
from training.errors import DataError, TiltyardError
from webapp.common import objects, work
from webapp.common.outbound import download
from webapp.common.pages import clean_name
from webapp.common.storage import companion, dataset_dir, file_store
from webapp.common.text import in_words, os_words
from webapp.common.work import Claim
from webapp.datasets.choices import Choices, choices_clean, documents_named, resolved
from webapp.datasets.models import Dataset, DatasetState
from webapp.datasets.recorded import PAIRS, ROLLOUTS, pairs_make, rollouts_make
from webapp.datasets.selectors import runs_using
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project, User
from webapp.runs.removal.services import removal_add

# --- Hub ------------------------------------------------------------------------------------------------------------
# Datasets of Hugging Face: the file of a dataset is fetched by a worker and then checked like any upload.
#
# Nothing of the hub's own code is run, and nothing is sent but the name. Every address passes the outbound policy.

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
REVISION = re.compile(r"[\w][\w./-]{0,99}", re.ASCII)
SPLIT = re.compile(r"[\w./-]{0,100}", re.ASCII)
MAX_LISTING_BYTES = 16 << 20
LISTING_LIMIT_S = 30.0
FETCH_LIMIT_S = 600.0


def source_clean(identifier: str, revision: str = "", split: str = "") -> dict[str, str]:
    """The checked id, revision and split to fetch. Raises ``ValidationError`` by field."""
    identifier, revision, split = identifier.strip(), revision.strip() or "main", split.strip()
    if not HUB_ID.fullmatch(identifier) or ".." in identifier or "--" in identifier:
        raise ValidationError({"hub": _("Write the id as owner/name, for example openai/gsm8k.")})
    if not REVISION.fullmatch(revision) or ".." in revision:
        raise ValidationError({"revision": _("A revision is a commit, a tag or a branch name.")})
    if not SPLIT.fullmatch(split) or ".." in split:
        raise ValidationError({"split": _("A split is a word such as train, or a part of the file's name.")})
    return {"id": identifier, "revision": revision, "split": split}


def file_ready(claim: Claim[Dataset]) -> None:
    """Fetch the file of a dataset that comes from the hub and is not here yet. Raises ``ValidationError``."""
    dataset = claim.item
    source = dataset.source.get("hub")
    if not source or dataset.upload_path.exists():
        return
    try:
        _fetch_file(claim, source)
    except DataError as exc:
        raise ValidationError([in_words(text) for text in (exc.message, exc.hint) if text]) from exc
    except TiltyardError as exc:
        raise ValidationError([_unreachable_sentence(source["id"]), f"{exc.message} {exc.hint}".strip()]) from exc
    except OSError as exc:
        sentence_of = _("The file could not be stored: %(reason)s.") % {"reason": os_words(exc)}
        raise ValidationError(sentence_of) from exc


def _unreachable_sentence(identifier: str) -> str:
    return _(
        "The dataset %(id)s could not be fetched from %(hub)s. "
        "Fetch it where there is a connection, and upload the file."
    ) % {"id": identifier, "hub": settings.HUB_URL}


def _fetch_file(claim: Claim[Dataset], source: dict[str, str]) -> None:
    dataset, part = claim.item, claim.item.upload_path.with_name(f"fetched.{claim.token}")
    claim.report({"bytes": 0, "total": 0})
    listing = _fetch_listing(source)
    names = [str(item.get("rfilename")) for item in listing.get("siblings") or [] if isinstance(item, dict)]
    name = pick(sorted(names), source["id"], source["split"])
    commit = str(listing.get("sha") or source["revision"])
    most = min(settings.MAX_UPLOAD_BYTES, max(0, shutil.disk_usage(settings.DATA_DIR).free - (1 << 30)) // 2)
    try:
        status = download(
            f"{settings.HUB_URL}/datasets/{source['id']}/resolve/{quote(commit, safe='')}/{quote(name)}",
            part,
            most=most,
            limit_s=FETCH_LIMIT_S,
            on_progress=lambda done, total: claim.report({"bytes": done, "total": total}),
        )
        if status != 200:
            raise ValidationError(
                _("The hub answered %(status)s for the file %(name)s.") % {"status": status, "name": name}
            )
        dataset.bytes, dataset.file_name = part.stat().st_size, Path(name).name[-255:]
        dataset.source = {**dataset.source, "hub": {**source, "commit": commit[:64], "file": name[:300]}}
        with claim.held():
            claim.keep(bytes=dataset.bytes, file_name=dataset.file_name, source=dataset.source)
            os.replace(part, dataset.upload_path)
    finally:
        part.unlink(missing_ok=True)


def _fetch_listing(source: dict[str, str]) -> dict[str, Any]:
    """The hub's listing of the dataset at its revision. Raises ``ValidationError`` where the hub has no such
    dataset."""
    with TemporaryDirectory(prefix="tiltyard-hub-") as folder:
        path = Path(folder) / "listing"
        url = f"{settings.HUB_URL}/api/datasets/{source['id']}/revision/{quote(source['revision'], safe='')}"
        status = download(url, path, most=MAX_LISTING_BYTES, limit_s=LISTING_LIMIT_S)
        if status in (401, 403, 404):
            raise ValidationError(_("Hugging Face has no public dataset %(id)s at %(revision)s.") % source)
        try:
            found = json.loads(path.read_bytes()) if status == 200 else None
        except (ValueError, RecursionError):
            found = None
    if not isinstance(found, dict):
        raise ValidationError(_("The hub answered %(status)s instead of a list of files.") % {"status": status})
    return found


# --- Deriving -------------------------------------------------------------------------------------------------------
# Making the file of a dataset from its parents' rows, in the worker that then checks it.


def rows_make(claim: Claim[Dataset]) -> None:
    """Make the file of a claimed dataset where it is to be made of others and is not there yet."""
    dataset = claim.item
    operation = str(dataset.lineage.get("operation", ""))
    if operation not in (*OPERATIONS, PAIRS, ROLLOUTS) or dataset.upload_path.exists():
        return
    part = dataset.upload_path.with_name(f"upload.{claim.token}")
    try:
        dataset.upload_path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        for left in dataset.upload_path.parent.glob("upload.*"):  # files of workers that were killed
            left.unlink(missing_ok=True)
        if operation == PAIRS:
            made = _make_pairs(dataset, part)
        elif operation == ROLLOUTS:
            made = rollouts_make(dataset, part, lambda done, total: claim.report({"bytes": done, "total": total}))
        else:
            made = _make_rows(claim, operation)
        with claim.held():
            _keep_counts(claim, made)
            os.replace(part, dataset.upload_path)
    finally:
        part.unlink(missing_ok=True)


def _make_pairs(dataset: Dataset, part: Path) -> Made:
    made = pairs_make(dataset, part)
    dataset.lineage["options"] |= {"groups": made.groups, "unread": made.unread}
    return Made(made.pairs, made.bytes, [])


def _make_rows(claim: Claim[Dataset], operation: str) -> Made:
    dataset = claim.item
    options = dict(dataset.lineage["options"])
    part = options.pop("part", "")
    parents = dataset.lineage["parents"]
    there = {
        str(item.pk): item
        for item in Dataset.objects.filter(
            project=dataset.project_id, pk__in=[parent["id"] for parent in parents], state=DatasetState.READY
        )
    }
    gone = next((parent["reference"] for parent in parents if parent["id"] not in there), None)
    if gone is not None:
        raise DataError(_("%(name)s, the source of this dataset, was deleted.") % {"name": gone})
    return make(
        operation,
        OPERATIONS[operation].model_validate(options),
        [there[parent["id"]].rows_path for parent in parents],
        dataset.upload_path.with_name(f"upload.{claim.token}"),
        part=part,
        limit_bytes=settings.MAX_UPLOAD_BYTES,
        on_progress=lambda done, total: claim.report({"bytes": done, "total": total, "stage": "making"}),
    )


def _keep_counts(claim: Claim[Dataset], made: Made) -> None:
    """Store the size of the file, and how many rows each parent gave."""
    dataset = claim.item
    for parent, taken in zip(dataset.lineage["parents"], made.taken, strict=True):
        parent["taken"] = taken
    dataset.lineage["rows"], dataset.bytes = made.rows, made.bytes
    claim.keep(lineage=dataset.lineage, bytes=made.bytes, progress={"bytes": 0, "total": made.bytes})


# --- Storing --------------------------------------------------------------------------------------------------------
# Putting uploaded files in their places.


def companions_store(dataset: Dataset, choices: Choices) -> None:
    """Put the companion files of a dataset in their places; those of earlier choices are replaced."""
    for kind, files in choices.companions.items():
        place = companion(dataset.pk, kind)
        if kind == "documents":
            shutil.rmtree(place, ignore_errors=True)
            for stem, file in documents_named(files).items():
                file_store(file, place / f"{stem}.json")
        else:
            place.unlink(missing_ok=True)
            file_store(files[0], place)


# --- Several --------------------------------------------------------------------------------------------------------
# Several files that are uploaded together as one dataset: packed as the zip archive that the check reads anyway.

KEEP_FREE_BYTES = 1024**3
_COPY_BYTES = 1 << 20


def files_clean(files: list[File[bytes]]) -> None:
    """Refuse files that are not parts of one table: of another kind, or the parts of a benchmark that stay apart.

    The ending decides here, as it does in an archive. Raises ``ValidationError``.
    """
    if len(files) < 2:
        return
    if len(files) > settings.DATA_UPLOAD_MAX_NUMBER_FILES:
        too_many = _("At most %(most)s files at once; pack more of them into one zip archive.")
        raise ValidationError(too_many % {"most": settings.DATA_UPLOAD_MAX_NUMBER_FILES})
    endings = {_file_suffix(file) for file in files}
    if strange := [str(file.name) for file in files if _file_suffix(file) not in ENDINGS]:
        sentence = _("Of several files each must end in %(endings)s; this one does not: %(name)s.")
        raise ValidationError(sentence % {"endings": ", ".join(ENDINGS), "name": strange[0]})
    if len(endings) > 1:
        sentence = _("Several files make one dataset only if all are of one format; these are %(endings)s.")
        raise ValidationError(sentence % {"endings": ", ".join(sorted(endings))})
    parts = {part_of(str(file.name)) for file in files}
    if len(parts) > 1 and parts & {"train", "training"}:
        sentence = _("These are parts of a dataset (%(parts)s): upload each part as a dataset of its own.")
        raise ValidationError(sentence % {"parts": ", ".join(sorted(part for part in parts if part))})


@contextmanager
def packed(files: list[File[bytes]]) -> Iterator[tuple[File[bytes], str]]:
    """One file with all rows, and its name; a single file is itself."""
    first = str(files[0].name)
    if len(files) == 1:
        yield files[0], first
        return
    _require_room(files)
    with TemporaryUploadedFile("upload.zip", "application/zip", 0, None) as target:
        _write_zip(target, files)
        yield target, f"{first} + {len(files) - 1}"


def _require_room(files: list[File[bytes]]) -> None:
    if empty := next((file for file in files if not file.size), None):
        raise ValidationError({"file": _("The file %(name)s is empty.") % {"name": empty.name}})
    size = sum(int(file.size or 0) for file in files)
    if shutil.disk_usage(settings.DATA_DIR).free < 3 * size + KEEP_FREE_BYTES:
        raise ValidationError({"file": _("The server's disk is nearly full, so the file was not kept.")})


def _write_zip(target: TemporaryUploadedFile, files: list[File[bytes]]) -> None:
    """Write each file as a member, under its own name if all names differ: the name gives a member's place."""
    names = [PurePosixPath(str(file.name)).name for file in files]
    alike = len(set(names)) < len(names)
    spool = cast(IO[bytes], target.file)
    with zipfile.ZipFile(spool, "w", zipfile.ZIP_STORED) as archive:
        for number, (name, file) in enumerate(zip(names, files, strict=True)):
            with archive.open(f"{number}-{name}" if alike else name, "w", force_zip64=True) as member:
                for chunk in file.chunks(_COPY_BYTES):
                    member.write(chunk)
    target.size = spool.seek(0, os.SEEK_END)
    spool.flush()
    spool.seek(0)


def _file_suffix(file: File[bytes]) -> str:
    return PurePosixPath(str(file.name).lower().removesuffix(".gz")).suffix


logger = logging.getLogger(__name__)
CHECK_WALL_S = 840
MAX_PREVIEW_ROWS = 10
MAX_PREVIEW_BYTES = 256 * 1024
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def dataset_create(
    *, project: Project, user: User | None, name: str, file: File[bytes], file_name: str, choices: Choices | None = None
) -> Dataset:
    """Store an upload as the next version under a name and have it checked. Raises ``ValidationError`` by field."""
    choices = choices or Choices()
    choices_clean(project, choices)
    if not file.size:
        raise ValidationError({"file": _("The file is empty.")})
    size = int(file.size) + sum(int(sent.size or 0) for files in choices.companions.values() for sent in files)
    if size > settings.MAX_UPLOAD_BYTES:
        raise ValidationError({"file": too_large_sentence()}, code="too_large")
    if shutil.disk_usage(settings.DATA_DIR).free < size * 2 + KEEP_FREE_BYTES:
        raise ValidationError({"file": _("The server's disk is nearly full, so the file was not kept.")})
    shown = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", file_name)[-255:] or "upload"
    dataset = Dataset(
        id=uuid.uuid4(),
        project=project,
        name=clean_name(name),
        file_name=shown,
        bytes=int(file.size),
        created_by=user,
        reading=choices.reading,
        checking=choices.checking,
        source=_look_source(choices),
    )
    try:
        file_store(file, dataset.upload_path)
        companions_store(dataset, choices)
        version_insert(dataset)
    except BaseException:
        shutil.rmtree(dataset_dir(dataset.id), ignore_errors=True)
        raise
    logger.info("dataset uploaded", extra={"dataset_id": dataset.pk, "project_id": project.pk, "bytes": size})
    return dataset


def dataset_fetch(
    *, project: Project, user: User | None, name: str, hub: dict[str, str], choices: Choices | None = None
) -> Dataset:
    """Have a worker fetch a dataset of Hugging Face (``hub`` is ``source_clean``'s) and check it."""
    choices = choices or Choices()
    choices_clean(project, choices)
    dataset = Dataset(
        id=uuid.uuid4(),
        project=project,
        name=clean_name(name),
        file_name=hub["id"],
        created_by=user,
        reading=choices.reading,
        checking=choices.checking,
        source={"hub": hub, **_look_source(choices)},
    )
    try:
        companions_store(dataset, choices)
        version_insert(dataset)
    except BaseException:
        shutil.rmtree(dataset_dir(dataset.id), ignore_errors=True)
        raise
    return dataset


def _look_source(choices: Choices) -> dict[str, Any]:
    return {"look": True} if choices.look else {}


def too_large_sentence() -> str:
    """The sentence for a file that is larger than the limit."""
    limit = settings.MAX_UPLOAD_BYTES
    size = f"{limit / 1024**3:g} GB" if limit >= 1024**3 else f"{limit / 1024**2:.4g} MB"
    return _("The file is larger than %(limit)s, the most that may be uploaded. Split it into several files.") % {
        "limit": size
    }


def version_insert(dataset: Dataset) -> None:
    """Save the row under the next version; of two uploads at once, the later one takes the number after."""
    for last_try in (False, False, False, True):
        newest = Dataset.objects.filter(project=dataset.project, name=dataset.name).aggregate(top=Max("version"))["top"]
        dataset.version = (newest or 0) + 1
        try:
            with transaction.atomic():
                dataset.save(force_insert=True)
                audit(AuditAction.DATASET_ADDED, dataset, by=dataset.created_by)
                work.enqueue(dataset)
            return
        except IntegrityError:
            if last_try:
                raise


def check_run(claim: Claim[Dataset]) -> None:
    """Make or fetch the file where it is not here yet, check it in a process of its own, and write the outcome."""
    dataset = claim.item
    checks = dataset_dir(dataset.id) / "checks"
    shutil.rmtree(checks, ignore_errors=True)  # files of earlier checks that were killed
    folder = checks / claim.token
    limits = CheckLimits(max_rows=settings.MAX_DATASET_ROWS, wall_s=CHECK_WALL_S)
    try:
        rows_make(claim)
        file_ready(claim)
        options = resolved(dataset)
        ask: Ask = "always" if dataset.source.get("look") else "unsure"
        report = run_check(
            dataset.upload_path,
            folder,
            limits=limits,
            on_progress=lambda progress: claim.report(progress._asdict()),
            tokenizer=options.tokenizer,
            reading=options.reading,
            checking=options.checking,
            ask=ask,
        )
        _finish_check(claim, report, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_failed(dataset: Dataset, error: TiltyardError) -> dict[str, Any]:
    """The columns of a dataset that could not be made, fetched or checked."""
    words = " ".join(in_words(text) for text in (error.message, error.hint) if text)
    return {"state": DatasetState.REJECTED, "report": {"verdict": "rejected", "message": words}}


def _finish_check(claim: Claim[Dataset], report: dict[str, Any], folder: Path) -> None:
    """Write the outcome and move the good rows to their place, in this order of safety: lock, move, commit."""
    states = {"ok": DatasetState.READY, "bad_rows": DatasetState.NEEDS_CHOICE, "unsure": DatasetState.NEEDS_MAPPING}
    state = states.get(str(report.get("verdict")), DatasetState.REJECTED)
    if objects.enabled() and state in (DatasetState.READY, DatasetState.NEEDS_CHOICE):
        objects.publish(folder / "rows.jsonl", key=objects.key_of(claim.item.rows_path))
    with claim.held():
        if state in (DatasetState.READY, DatasetState.NEEDS_CHOICE):
            _move_into_place(folder / "rows.jsonl", claim.item.rows_path)
            _move_into_place(folder / IDENTITIES_NAME, claim.item.identities_path)
        if (folder / "findings.jsonl").exists():
            _move_into_place(folder / "findings.jsonl", claim.item.findings_path)
        claim.finish(
            state=state,
            rows=report.get("rows", 0),
            bad_rows=report.get("bad_rows", 0),
            sha256=report.get("sha256", ""),
            report=_storable_report(report),
        )


def _move_into_place(made: Path, path: Path) -> None:
    os.replace(made, path)
    os.chmod(path, 0o600)


def _storable_report(report: dict[str, Any]) -> dict[str, Any]:
    """The report as the database keeps it: few preview rows, and no NUL, which PostgreSQL does not store."""
    preview = list(report.get("preview") or [])[:MAX_PREVIEW_ROWS]
    while preview and len(json.dumps(preview)) > MAX_PREVIEW_BYTES:
        preview.pop()
    return dict(json.loads(json.dumps({**report, "preview": preview}).replace("\\u0000", "\\ufffd")))


def dataset_keep_good_rows(*, dataset: Dataset) -> Dataset:
    """Use a dataset without its bad rows. Raises ``ValidationError`` when there is no choice to make any more."""
    changed = Dataset.objects.filter(pk=dataset.pk, state=DatasetState.NEEDS_CHOICE).update(state=DatasetState.READY)
    if not changed:
        raise ValidationError(_("This version has no open decision about bad rows."), code="conflict")
    audit(AuditAction.DATASET_KEPT, dataset)
    dataset.refresh_from_db()
    return dataset


def dataset_delete(*, dataset: Dataset) -> None:
    """Delete one version and its files. Refused while a run that has not ended uses it."""
    names = list(runs_using(dataset, active=True).values_list("name", flat=True)[:3])
    if names:
        raise ValidationError(
            _("It is used by a run that has not ended: %(runs)s.") % {"runs": ", ".join(names)}, code="conflict"
        )
    with transaction.atomic():
        audit(AuditAction.DATASET_DELETED, dataset)
        removal_add(str(dataset), [dataset_dir(dataset.id)], dataset.project)
        dataset.delete()
