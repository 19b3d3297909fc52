"""Checkpoints that are whole or not there.

How one is written: everything into ``<name>.staging`` → fsync of each file → ``manifest.json`` with sizes and hashes,
fsync → atomic rename to ``<name>`` → fsync of the parent. A process that dies at any point leaves a staging folder,
which is never read. One that was damaged later fails its manifest and is set aside as ``<name>.torn``.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ValidationError

from training.config import StageGoal
from training.journal import JOURNAL_NAME, VERIFIED, last_step
from training.machine import disk_fault
from training.plain import number_in
from training.words import Sentence, sentence

MANIFEST = "manifest.json"
PREFIX = "checkpoint-"
FINAL, ADAPTER = "model", "adapter"
ADAPTER_CONFIG = "adapter_config.json"
PINNED = ".pinned"
"""Ending of the file next to a checkpoint that something else starts from: retention leaves that one."""
MAX_MANIFEST_BYTES = 4 << 20


class HubModel(NamedTuple):
    """A model of Hugging Face at a commit."""

    name: str
    commit: str


class ManifestFile(BaseModel):
    """One file of a checkpoint."""

    path: str
    bytes: int
    sha256: str


class StageMark(BaseModel):
    """The stage of a run that trained some weights, counted from 1, and the step after which it began.

    ``streak`` evaluations in a row had reached the figure that ends it; ``ended``: the next stage continues from here.
    """

    number: int
    name: str
    began: int
    streak: int = 0
    ended: bool = False

    def reached(self, goal: StageGoal | None) -> bool:
        """Whether the figure that ends the stage was reached often enough."""
        return goal is not None and self.streak >= goal.times


class Manifest(BaseModel):
    """The parts of a whole checkpoint."""

    version: int = 1
    step: int
    files: list[ManifestFile]
    reward: float | None = None
    """Mean reward of the steps since the checkpoint before it; the highest one is the best checkpoint."""
    held_out: float | None = None
    """Success on held-out tasks. Where a run has one, the best checkpoint is the one with the highest, whatever its
    reward: a reward may rise for reasons that solve no task."""
    stage: StageMark | None = None
    """Where a run has stages: the best checkpoint is one of the latest, for they have figures of their own."""


@contextmanager
def _disk_fault_is_typed(target: Path) -> Iterator[None]:
    try:
        yield
    except Exception as exc:  # the libraries that write weights have their own errors for a disk that takes nothing
        fault = disk_fault(exc, target.parent)  # as the disk is now: what is half written holds the room that lacks
        shutil.rmtree(staging_of(target), ignore_errors=True)
        if fault is not None:
            raise fault from exc
        raise


def staging_of(target: Path) -> Path:
    """Where a folder is written before it appears at ``target``."""
    return target.with_name(target.name + ".staging")


def write_whole(
    target: Path,
    step: int,
    fill: Callable[[Path], None],
    reward: float | None = None,
    held_out: float | None = None,
    stage: StageMark | None = None,
) -> int:
    """Write a folder that appears at ``target`` complete or not at all. Returns its size in bytes.

    ``fill`` puts the files into the folder it is given. Raises ``StorageFull``.
    """
    staging = staging_of(target)
    with _disk_fault_is_typed(target):
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        fill(staging)
        files = [_record(path, staging) for path in sorted(staging.rglob("*")) if path.is_file()]
        manifest = Manifest(step=step, files=files, reward=reward, held_out=held_out, stage=stage)
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


def remove_leftovers(directory: Path) -> None:
    """Delete what a save or a removal that was cut short left behind."""
    for ending in ("staging", "removed"):
        for folder in directory.glob(f"*.{ending}"):
            shutil.rmtree(folder, ignore_errors=True)


def outdated(directory: Path, keep: int, earlier: Sequence[Path] = ()) -> tuple[list[Path], Path | None]:
    """Checkpoints of a run that are neither among its ``keep`` newest nor the best, and the best one.

    ``earlier`` are the directories of the attempts before, oldest first: a checkpoint of a later attempt is newer,
    whatever its step. The best has the highest held-out success in its manifest, or where none has any, the highest
    reward; of equal ones it is the older. ``None`` where no checkpoint has either. ``keep`` 0 keeps all, and what is
    pinned stays.
    """
    places = [directory, *reversed(earlier)]
    folders = [folder for place in places for folder in sorted(numbered(place), key=step_of, reverse=True)]
    best = _best(folders)
    old = [folder for folder in folders[keep:] if folder != best and not _pin_of(folder).exists()] if keep else []
    return old, best


def _best(folders: list[Path]) -> Path | None:
    """The best of some checkpoints, newest first, among those of the latest stage that has any figure."""
    manifests = {folder: found for folder in reversed(folders) if (found := _manifest_of(folder)) is not None}
    for value in (lambda found: found.held_out, lambda found: found.reward):
        known = {
            folder: (found.stage.number if found.stage is not None else 0, each)
            for folder, found in manifests.items()
            if (each := value(found)) is not None
        }
        if known:
            return max(known, key=lambda folder: known[folder])
    return None


def pin(folder: Path) -> None:
    """Have retention leave a checkpoint, because something outside its run starts from it."""
    _pin_of(folder).touch()


def unpin(folder: Path) -> None:
    """Nothing starts from it any more."""
    _pin_of(folder).unlink(missing_ok=True)


def _pin_of(folder: Path) -> Path:
    return folder.with_name(folder.name + PINNED)


def remove(folder: Path) -> None:
    """Delete a checkpoint; at no instant is there half of one under its name."""
    aside = folder.with_name(folder.name + ".removed")
    os.rename(folder, aside)
    shutil.rmtree(aside, ignore_errors=True)


def step_of(folder: Path) -> int:
    """The step of a checkpoint by its folder's name."""
    return int(folder.name.removeprefix(PREFIX))


def stage_of(folder: Path) -> StageMark | None:
    """The stage that trained a checkpoint; ``None`` where its run had none."""
    manifest = _manifest_of(folder)
    return manifest.stage if manifest is not None else None


def _manifest_of(folder: Path) -> Manifest | None:
    try:
        return Manifest.model_validate_json((folder / MANIFEST).read_bytes()[: MAX_MANIFEST_BYTES + 1])
    except (OSError, ValidationError):
        return None


def numbered(directory: Path) -> list[Path]:
    """The folders in ``directory`` that have a checkpoint's name."""
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


# Where a run continues: the newest whole checkpoint by (attempt, step), walking down past torn ones.
#
# A place to resume from is a checkpoint, a folder that holds checkpoints, or a folder whose numbered subfolders
# (attempts) hold them. What is newer than the checkpoint that is taken and not whole is renamed ``<name>.torn``.

_STATES = {"optimizer.pt", "scheduler.pt", "rng_state.pth"}


@dataclass
class Found:
    """The checkpoint to continue from, if any; those that were not whole, by their former names; what was checked.

    ``trained`` is the last step that any attempt in the places had trained.
    """

    folder: Path | None = None
    torn: list[Path] = field(default_factory=list)
    verified: list[Sentence] = field(default_factory=list)
    trained: int = 0

    @property
    def step(self) -> int:
        """The step to continue from; 0 without a checkpoint."""
        return step_of(self.folder) if self.folder is not None else 0


def find_resume(*places: Path) -> Found:
    """The newest whole checkpoint in the places. Torn ones that are newer are set aside, where that is allowed."""
    candidates = sorted(set(_candidates(places)), key=lambda path: (_attempt(path.parent), step_of(path)), reverse=True)
    found = Found(trained=_trained(places))
    for folder in candidates:
        manifest = verify(folder)
        if manifest is not None and _step_agrees(folder, manifest):
            found.folder, found.verified = folder, _verified(manifest)
            break
        found.torn.append(folder)
        _set_aside(folder)
    return found


def _candidates(places: Sequence[Path]) -> Iterable[Path]:
    for place in places:
        if _is_checkpoint(place):
            # One that is torn is passed over for the next older one next to it.
            yield from (folder for folder in numbered(place.parent) if step_of(folder) <= step_of(place))
            continue
        for folder in (place, *_attempts(place)):
            yield from numbered(folder)


def _is_checkpoint(place: Path) -> bool:
    return place.name.startswith(PREFIX) and place.name.removeprefix(PREFIX).isdigit()


def _attempts(place: Path) -> list[Path]:
    return [path for path in place.iterdir() if path.is_dir() and path.name.isdigit()] if place.is_dir() else []


def _attempt(folder: Path) -> int:
    return number_in(folder.name) or 0


def _trained(places: Sequence[Path]) -> int:
    """The last step in the journals of the places. One named checkpoint says nothing about the steps after it."""
    runs = [place for place in places if not _is_checkpoint(place)]
    return max((last_step(folder / JOURNAL_NAME) for place in runs for folder in (place, *_attempts(place))), default=0)


def _step_agrees(folder: Path, manifest: Manifest) -> bool:
    """Whether name, manifest and trainer state name one step; without a state there is nothing to continue from."""
    try:
        state = json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(state.get("global_step") == manifest.step == step_of(folder))


def _verified(manifest: Manifest) -> list[Sentence]:
    found = [sentence(VERIFIED["files"], n=len(manifest.files))]
    if {file.path for file in manifest.files} >= _STATES:
        found.append(sentence(VERIFIED["states"]))
    return [*found, sentence(VERIFIED["position"], step=manifest.step)]


def _set_aside(folder: Path) -> None:
    aside = folder.with_name(folder.name + ".torn")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        os.rename(folder, aside)
    except OSError:  # another one's folder, maybe: it is passed over all the same
        return
