"""Checkpoints that are whole or not there.

How one is written: everything into ``<name>.staging`` → fsync of each file → ``manifest.json`` with sizes and hashes,
fsync → atomic rename to ``<name>`` → fsync of the parent. A process that dies at any point leaves a staging folder,
which nobody reads. One that was damaged later fails its manifest and is set aside as ``<name>.torn``.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from training.errors import StorageFull

MANIFEST = "manifest.json"
PREFIX = "checkpoint-"
FINAL = "model"
MAX_MANIFEST_BYTES = 4 << 20


class ManifestFile(BaseModel):
    """One file of a checkpoint."""

    path: str
    bytes: int
    sha256: str


class Manifest(BaseModel):
    """What a whole checkpoint consists of."""

    version: int = 1
    step: int
    files: list[ManifestFile]


@contextmanager
def _disk_full_is_typed() -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull(
                "The disk filled up while saving.", hint="Free space in the run directory, then resume the run."
            ) from exc
        raise


def write_whole(target: Path, step: int, fill: Callable[[Path], None]) -> int:
    """Write a folder that appears at ``target`` complete or not at all. Returns its size in bytes.

    ``fill`` puts the files into the folder it is given. Raises ``StorageFull``.
    """
    staging = target.with_name(target.name + ".staging")
    with _disk_full_is_typed():
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        fill(staging)
        files = [_record(path, staging) for path in sorted(staging.rglob("*")) if path.is_file()]
        manifest = Manifest(step=step, files=files)
        (staging / MANIFEST).write_text(manifest.model_dump_json(indent=1), encoding="utf-8")
        _sync(staging / MANIFEST)
        _sync(staging)
        old = target.with_name(target.name + ".old")
        if target.exists():  # a repeated run of the same step; rename cannot replace a folder that is not empty
            shutil.rmtree(old, ignore_errors=True)
            os.rename(target, old)
        os.rename(staging, target)
        _sync(target.parent)
        shutil.rmtree(old, ignore_errors=True)
    return sum(file.bytes for file in files)


def verify(folder: Path) -> Manifest | None:
    """The manifest of a whole folder, or ``None`` when a file is missing, short, changed, or not listed."""
    try:
        text = (folder / MANIFEST).read_bytes()[: MAX_MANIFEST_BYTES + 1]
        manifest = Manifest.model_validate_json(text)
        present = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() or path.is_symlink()}
        if present != {file.path for file in manifest.files} | {MANIFEST}:
            return None
        for file in manifest.files:
            path = folder / file.path
            if path.is_symlink() or path.stat().st_size != file.bytes or _sha256(path) != file.sha256:
                return None
    except (OSError, ValidationError):
        return None
    return manifest


def newest_whole(directory: Path) -> tuple[Path | None, list[Path]]:
    """The newest whole checkpoint under ``directory`` and the torn ones, which are renamed ``*.torn``."""
    torn: list[Path] = []
    for folder in sorted(_numbered(directory), key=lambda path: -int(path.name.removeprefix(PREFIX))):
        if verify(folder) is not None:
            return folder, torn
        aside = folder.with_name(folder.name + ".torn")
        shutil.rmtree(aside, ignore_errors=True)
        os.rename(folder, aside)
        torn.append(aside)
    return None, torn


def find_resume(path: Path) -> tuple[Path | None, list[Path]]:
    """Where to resume from: ``path`` itself if it is a whole checkpoint, else the newest whole one in it."""
    if path.name.startswith(PREFIX):
        return (path, []) if verify(path) is not None else (None, [path])
    return newest_whole(path)


def save_checkpoint(trainer: Any, run_dir: Path, step: int) -> tuple[Path, int]:
    """Everything that resuming needs: weights, optimiser, schedule, random states, step. Returns (folder, bytes).

    The layout is the one that ``transformers.Trainer`` resumes from; it loads these files with ``weights_only=True``,
    and we hand it a folder only after checking its manifest.
    """
    target = run_dir / f"{PREFIX}{step}"

    def fill(folder: Path) -> None:
        trainer.accelerator.unwrap_model(trainer.model).save_pretrained(folder)
        trainer.processing_class.save_pretrained(folder)
        trainer._save_optimizer_and_scheduler(str(folder))
        trainer._save_rng_state(str(folder))
        trainer.state.save_to_json(str(folder / "trainer_state.json"))

    return target, write_whole(target, step, fill)


def save_final(trainer: Any, run_dir: Path, step: int) -> tuple[Path, int]:
    """The trained model as safetensors with its tokenizer; adapters are merged in. Returns (folder, bytes)."""
    target = run_dir / FINAL

    def fill(folder: Path) -> None:
        model = trainer.accelerator.unwrap_model(trainer.model)
        if hasattr(model, "merge_and_unload"):
            model = model.merge_and_unload()
        model.save_pretrained(folder)
        trainer.processing_class.save_pretrained(folder)

    return target, write_whole(target, step, fill)


def _numbered(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    return [
        path
        for path in directory.iterdir()
        if path.is_dir() and path.name.startswith(PREFIX) and path.name.removeprefix(PREFIX).isdigit()
    ]


def _record(path: Path, root: Path) -> ManifestFile:
    _sync(path)
    return ManifestFile(path=str(path.relative_to(root)), bytes=path.stat().st_size, sha256=_sha256(path))


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
