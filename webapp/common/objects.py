"""Files that never change, in a store that all hosts of a site reach (``TILTYARD_FILES``): S3, or a folder.

The site's own data folder stays complete. A host with another, at first empty data folder uses that as a cache: what it
needs is fetched into the same place below it, and what it makes is published.

1. *Publish*: the files first, the manifest (names, sizes, SHA-256) last. What has no manifest is not there.
2. *Fetch*: into a temporary place, verified by the manifest, then renamed. One process of a host at a time fetches an
   object, the others wait for it.
3. *Append-only files* (journals) are shipped in stretches, named by the offset at which they begin, and collected.
4. *Evict*: where the disk's reserve would be touched, the objects that were unused for longest go, if they are
   published and no process uses them. Only caches evict.
5. The object ``site.json`` holds the identity of the site, so a second site on the same place is refused.

Keys are paths relative to the data folder, which ``storage.py`` makes of ids. Without ``TILTYARD_FILES`` no function
here is called but ``enabled``.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import mmap
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args
from uuid import UUID

import obstore
from django.conf import settings
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import from_url
from pydantic import BaseModel, ValidationError

from training.errors import FilesAway, FilesFull, FilesMissing, FilesRefused, FilesTorn
from training.machine import require_room, reserve_bytes
from training.plain import number_in
from training.words import _, sentence

logger = logging.getLogger(__name__)
MANIFEST, PARTS, SITE, TRIAL = ".manifest.json", ".parts", "site.json", "trial"
TRIAL_BYTES = bytes(1 << 20)
KEPT = ".published"
"""Ending of the mark next to an object of a cache that the store has too; its time says when it was used last."""
AT_ONCE = 16
PIECE_BYTES = 16 << 20  # of one request, so that a limit of time holds for files of any size; of each thread in memory
PARTS_AT_ONCE, LEAST_PART_BYTES, MOST_PARTS = 4, 5 << 20, 8000  # of one file that is sent; S3 takes 10,000 parts
REQUEST_S, CONNECT_S, RETRY_S = 120, 5, 60
LOOK_S = 5  # of the question whose site it is
WAIT_S, WAIT_STEP_S = 3600.0, 0.2  # for another process that fetches the same
FULL = ("quota", "507", "insufficient storage", "no space left", "disk quota")
Problem = Literal["", "files_away", "files_refused", "files_unclaimed", "other_site"]
PROBLEMS: tuple[Problem, ...] = get_args(Problem)

# One byte that a worker shares with its children: only they ask the store, since its client does not survive a fork,
# and the worker's main process shows what they found.
_seen = mmap.mmap(-1, 1)


class Listed(BaseModel):
    """One file of an object. ``path`` is relative to the object, and empty where the object is a file."""

    path: str
    bytes: int
    sha256: str


class Manifest(BaseModel):
    """What an object consists of."""

    version: int = 1
    files: list[Listed]


def enabled() -> bool:
    """Whether files are published at all."""
    return bool(settings.FILES)


def key_of(path: Path) -> str:
    """The key of a place in the data folder; ``ValueError`` for any other place."""
    return path.relative_to(settings.DATA_DIR).as_posix()


# --- The store --------------------------------------------------------------------------------------------------------
@lru_cache(maxsize=4)
def _store(url: str, request_s: int, retries: int) -> Any:
    values: Any = {name: value for name, value in settings.FILES_ACCESS.items() if value}
    limits: Any = {"timeout": f"{request_s}s", "connect_timeout": f"{CONNECT_S}s"}
    retry: Any = {"max_retries": retries, "retry_timeout": timedelta(seconds=RETRY_S)}
    if not url.startswith("s3://"):
        Path(url).mkdir(parents=True, exist_ok=True, mode=0o700)
        return from_url(Path(url).absolute().as_uri())
    limits |= {"allow_http": str(values.get("endpoint", "").startswith("http://")).lower()}
    return from_url(url, client_options=limits, retry_config=retry, **values)


def _ours(quick: bool = False) -> Any:
    return _store(settings.FILES, LOOK_S if quick else REQUEST_S, 1 if quick else 5)


@contextmanager
def _named_errors(doing: str) -> Iterator[None]:
    """Turn the errors of the store into ours. A missing object passes as ``FileNotFoundError``."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (BaseError, OSError) as exc:
        said = {"doing": doing, "said": str(exc).partition("\n")[0][:300]}
        logger.warning("the store of files failed", extra={"action": "files"} | said)
        if isinstance(exc, PermissionDeniedError | UnauthenticatedError | PermissionError):
            raise FilesRefused(sentence(_("The store of files refuses us ({doing}): {said}"), **said)) from exc
        if any(word in said["said"].lower() for word in FULL):
            raise FilesFull(sentence(_("The store of files is full ({doing}): {said}"), **said)) from exc
        raise FilesAway(sentence(_("The store of files does not answer ({doing}): {said}"), **said)) from exc


def problem(identity: UUID | None, *, claim: bool) -> Problem:
    """Why this process cannot use the store for the site of this identity. ``claim``: write the identity where the
    store has none."""
    found = _problem_of(str(identity), claim)
    note_problem(found)
    return found


def note_problem(found: Problem) -> None:
    """Have the worker's main process show this."""
    _seen[0] = PROBLEMS.index(found)


def problem_seen() -> Problem:
    """What this process or a child of it found last, without a request."""
    return PROBLEMS[_seen[0]]


def _problem_of(identity: str, claim: bool) -> Problem:
    try:
        with _named_errors("asking whose it is"):
            if claim:
                with suppress(AlreadyExistsError):
                    obstore.put(_ours(quick=True), SITE, json.dumps({"site": identity}).encode(), mode="create")
            text = bytes(obstore.get(_ours(quick=True), SITE).bytes())
        return "" if json.loads(text).get("site") == identity else "other_site"
    except FileNotFoundError:
        return "files_unclaimed"
    except FilesRefused:
        return "files_refused"
    except (FilesAway, FilesFull):
        return "files_away"
    except (ValueError, AttributeError):
        return "other_site"


def takes_files() -> bool:
    """Whether the store takes a file of one part, gives it back and deletes it, as publishing does: it answers, lets
    us, and has some room. Leaves nothing there, unless the store does not delete."""
    store = _ours(quick=True)
    try:
        with _named_errors("trying whether it takes files"):
            try:
                obstore.put(store, TRIAL, TRIAL_BYTES)
                return bytes(obstore.get(store, TRIAL).bytes()) == TRIAL_BYTES
            finally:  # a file that was refused late may be there too
                with suppress(FileNotFoundError):
                    obstore.delete(store, TRIAL)
    except (FileNotFoundError, FilesAway, FilesFull, FilesRefused):
        return False


# --- Publish ----------------------------------------------------------------------------------------------------------
def publish(path: Path, *, files: Iterable[Path] | None = None, key: str = "") -> bool:
    """Put a file or a folder into the store, or of a folder only some ``files``. Returns whether anything was sent:
    what is there already with the same content is not sent again.

    Raises ``FilesAway``, ``FilesRefused``, ``FilesFull``, and ``FileNotFoundError`` where the path is gone.
    """
    key = key or key_of(path)
    chosen = [path] if path.is_file() else sorted(path.rglob("*") if files is None else files)
    chosen = [each for each in chosen if each.is_file() and not each.is_symlink()]
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="publish") as pool:
        listed = list(pool.map(lambda each: _listed(each, path), chosen))
        if not listed:
            raise FileNotFoundError(path)
        made = Manifest(files=listed)
        before = _manifest_or_none(key)
        if before is not None and before.files == made.files:
            return False
        with _named_errors(f"publishing {key}"):
            if before is not None:
                obstore.delete(_ours(), key + MANIFEST)  # at no instant does a manifest name other files
            send = [(_place(key, item), each, item.bytes) for each, item in zip(chosen, listed, strict=True)]
            list(pool.map(lambda pair: _send(*pair), send))
            obstore.put(_ours(), key + MANIFEST, made.model_dump_json().encode())
    logger.info("published", extra={"action": "publish", "key": key, "files": len(listed)})
    return True


def _send(name: str, path: Path, size: int) -> None:
    part = max(LEAST_PART_BYTES, size // MOST_PARTS)
    obstore.put(_ours(), name, path, chunk_size=part, max_concurrency=PARTS_AT_ONCE)


def unpublish(path: Path) -> None:
    """Remove an object, or everything below a folder, from the store: manifests first."""
    key = key_of(path)
    with _named_errors(f"deleting {key}"):
        own = [key + MANIFEST] if (manifest := _manifest_or_none(key)) is not None else []
        own += [key for item in (manifest.files if manifest else []) if not item.path]
        found = [*own, *(str(row["path"]) for place in (key, key + PARTS) for row in _rows(place))]
        for name in sorted(found, key=lambda name: not name.endswith(MANIFEST)):
            with suppress(FileNotFoundError):
                obstore.delete(_ours(), name)


def is_published(path: Path) -> bool:
    """Whether the store has the whole object. Raises as ``publish``."""
    return _manifest_or_none(key_of(path)) is not None


def published_below(folder: Path) -> list[Path]:
    """The places below a folder of the data folder that the store has whole objects for."""
    with _named_errors("listing"):
        names = [str(row["path"]) for row in _rows(key_of(folder))]
    return [Path(settings.DATA_DIR) / name.removesuffix(MANIFEST) for name in names if name.endswith(MANIFEST)]


def _rows(prefix: str) -> list[Any]:
    return [row for page in obstore.list(_ours(), prefix=prefix) for row in page]


def _place(key: str, item: Listed) -> str:
    return f"{key}/{item.path}" if item.path else key


def _listed(path: Path, root: Path) -> Listed:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = file.tell()
    return Listed(path="" if path == root else path.relative_to(root).as_posix(), bytes=size, sha256=digest)


def _manifest_or_none(key: str) -> Manifest | None:
    try:
        with _named_errors(f"reading the manifest of {key}"):
            found = Manifest.model_validate_json(bytes(obstore.get(_ours(), key + MANIFEST).bytes()))
    except FileNotFoundError:
        return None
    except ValidationError as exc:
        raise FilesTorn(sentence(_("The manifest of {key} in the store of files cannot be read."), key=key)) from exc
    return found


# --- Fetch ------------------------------------------------------------------------------------------------------------
def fetch(path: Path) -> Path:
    """Have the file or folder at its place in the data folder; what is there already is not fetched again.

    Raises ``FilesMissing``, ``FilesTorn``, ``StorageFull``, and as ``publish``.
    """
    if not path.exists():
        with _alone(path):
            if not path.exists():
                _fetch_whole(path)
                if is_cache():
                    mark(path)
    used(path)
    return path


def _fetch_whole(path: Path) -> None:
    key = key_of(path)
    manifest = _manifest_or_none(key)
    if manifest is None:
        raise FilesMissing(sentence(_("{key} is not in the store of files."), key=key))
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    make_room(sum(item.bytes for item in manifest.files), key)
    staging = path.with_name(f"{path.name}.fetching")
    _remove(staging)
    try:
        _download(key, manifest.files, staging)
        os.rename(staging, path)
    finally:
        _remove(staging)
    logger.info("fetched", extra={"action": "fetch", "key": key, "files": len(manifest.files)})


def fill(path: Path, key: str = "") -> bool:
    """Put the published files of a folder into it that it lacks or has with another size. Returns whether there is such
    an object. Raises as ``fetch``."""
    key = key or key_of(path)
    with _alone(path):
        manifest = _manifest_or_none(key)
        if manifest is None:
            return False
        places = {item.path: path / item.path for item in manifest.files}
        lacking = [
            item
            for item in manifest.files
            if not places[item.path].is_file() or places[item.path].stat().st_size != item.bytes
        ]
        make_room(sum(item.bytes for item in lacking), key)
        staging = path / ".fetching"
        _remove(staging)
        try:
            _download(key, lacking, staging)
            for item in lacking:
                places[item.path].parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                os.replace(staging / item.path, places[item.path])
        finally:
            _remove(staging)
    return True


def _download(key: str, files: list[Listed], target: Path) -> None:
    for item in files:  # a manifest is data of the store: a name may not lead out of its folder
        if item.path.startswith("/") or ".." in item.path.split("/"):
            raise FilesTorn(sentence(_("The manifest of {key} in the store of files cannot be read."), key=key))
        (target / item.path).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="fetch") as pool:
        list(pool.map(lambda item: _download_file(_place(key, item), item, target), files))


def _download_file(name: str, item: Listed, target: Path) -> None:
    digest, path = hashlib.sha256(), target / item.path if item.path else target
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        for start in range(0, item.bytes, PIECE_BYTES):
            end = min(start + PIECE_BYTES, item.bytes)
            try:
                with _named_errors(f"fetching {name}"):
                    data = obstore.get_range(_ours(), name, start=start, end=end)
            except FileNotFoundError as exc:
                raise FilesTorn(sentence(_("{name} is gone from the store of files."), name=name)) from exc
            digest.update(data)
            file.write(data)
    if digest.hexdigest() != item.sha256:
        raise FilesTorn(sentence(_("{name} in the store of files is not what was published."), name=name))


# --- Stretches --------------------------------------------------------------------------------------------------------
def ship(path: Path, start: int) -> int:
    """Send what an append-only file has beyond ``start``. Returns up to where it is sent. Raises as ``publish``."""
    with open(path, "rb") as file:
        file.seek(start)
        data = file.read(PIECE_BYTES)
    if data:
        name = f"{key_of(path)}{PARTS}/{start:020d}"
        with _named_errors(f"publishing {name}"):
            obstore.put(_ours(), name, data)
    return start + len(data)


def join_parts(path: Path) -> None:
    """Replace the stretches of a file that grows no more by one: a long journal was shipped in thousands."""
    key = f"{key_of(path)}{PARTS}"
    with _named_errors(f"publishing {key}"):
        if len(names := [str(row["path"]) for row in _rows(key)]) < 2:
            return
        _send(whole := f"{key}/{0:020d}", path, path.stat().st_size)
        for name in names:
            if name != whole:
                obstore.delete(_ours(), name)


def collect(path: Path) -> int:
    """Append to a file what was shipped of it and is not in it yet. Returns its size. Raises as ``fetch``."""
    with _alone(path):
        key = f"{key_of(path)}{PARTS}"
        with _named_errors(f"listing {key}"):
            rows = sorted((_offset_of(str(row["path"])), int(row["size"]), str(row["path"])) for row in _rows(key))
        size = path.stat().st_size if path.is_file() else 0
        for start, length, name in rows:
            while start <= size < start + length:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                end = min(length, size - start + PIECE_BYTES)
                with _named_errors(f"fetching {name}"):
                    data = bytes(obstore.get_range(_ours(), name, start=size - start, end=end))
                with open(path, "ab") as file:
                    file.write(data)
                size += len(data)
    return size


def _offset_of(name: str) -> int:
    return number_in(name.rpartition("/")[2], 20) or 0


# --- The cache --------------------------------------------------------------------------------------------------------
_uses: ExitStack | None = None


@contextmanager
def in_use() -> Iterator[None]:
    """What this process fetches in the block is not evicted before it ends."""
    global _uses
    before = _uses
    with ExitStack() as stack:
        _uses = stack
        try:
            yield
        finally:
            _uses = before


def mark(path: Path) -> None:
    """Let the cache evict a file or folder: the store has all of it. The mark is next to it, so that a folder holds
    what was published and nothing else."""
    path.with_name(f".{path.name}{KEPT}").touch(mode=0o600)


def used(path: Path) -> None:
    """Note that something in a cache is used now, if it may be evicted."""
    place = path.with_name(f".{path.name}{KEPT}")
    with suppress(FileNotFoundError):
        handle = os.open(place, os.O_RDONLY)
        os.utime(handle)
        if _uses is None:
            os.close(handle)
            return
        _uses.callback(os.close, handle)
        fcntl.flock(handle, fcntl.LOCK_SH)


def is_cache() -> bool:
    """Whether this host's data folder is a cache, and not the site's own folder, which carries its identity."""
    return enabled() and not (Path(settings.DATA_DIR) / "identity").exists()


def make_room(needed: int, what: str) -> None:
    """Evict until ``needed`` bytes fit above the reserve. Raises ``StorageFull``."""
    folder = Path(settings.DATA_DIR)
    if is_cache() and not _fits(needed):
        for place in sorted(folder.glob(f"**/.*{KEPT}"), key=lambda place: place.stat().st_mtime):
            if _evict(place) and _fits(needed):
                break
    require_room(folder, needed, what)


def _fits(needed: int) -> bool:
    folder = Path(settings.DATA_DIR)
    return shutil.disk_usage(folder).free >= needed + reserve_bytes(folder)


def _evict(mark: Path) -> bool:
    """Delete the object of a mark unless a process uses it. Returns whether it did."""
    path = mark.with_name(mark.name.removesuffix(KEPT).removeprefix("."))
    with suppress(OSError):
        handle = os.open(mark, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            aside = path.with_name(f"{path.name}.evicted")
            os.rename(path, aside)  # at no instant is there half of it under its name
            mark.unlink()
            _remove(aside)
        finally:
            os.close(handle)
        logger.info("evicted", extra={"action": "evict", "key": key_of(path)})
        return True
    return False


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process of this host at a time works on this object. Raises ``FilesAway`` after ``WAIT_S``."""
    locks = Path(settings.DATA_DIR) / "locks"
    locks.mkdir(exist_ok=True, mode=0o700)
    name = hashlib.sha256(key_of(path).encode()).hexdigest()[:2]  # 256 files at most, whatever was fetched
    handle, until = os.open(locks / name, os.O_RDWR | os.O_CREAT, 0o600), time.monotonic() + WAIT_S
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    said = _("Another process of this host has been fetching {key} for an hour.")
                    raise FilesAway(sentence(said, key=key_of(path))) from None
                time.sleep(WAIT_STEP_S)
        yield
    finally:
        os.close(handle)
