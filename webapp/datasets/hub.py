"""Datasets of Hugging Face: the file of a dataset is fetched by a worker and then checked like any upload.

Nothing of the hub's own code is run, and nothing is sent but the name. Every address passes the outbound policy.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from training.data.files.sources import pick
from training.errors import DataError, TiltyardError
from webapp.common.outbound import download
from webapp.common.text import in_words, os_words
from webapp.common.work import Claim
from webapp.datasets.models import Dataset

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
