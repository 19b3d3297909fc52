"""Where a run goes on: the newest whole checkpoint by (attempt, step), walking down past torn ones.

A place to resume from is a checkpoint, a folder that holds checkpoints, or a folder whose numbered subfolders
(attempts) hold them. What is newer than the checkpoint that is taken and not whole is renamed ``<name>.torn``.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from training.algorithms.checkpoints import PREFIX, Manifest, numbered, step_of, verify
from training.events import VERIFIED
from training.journal import JOURNAL_NAME
from training.plain import number_in
from training.tail import last_step
from training.words import Sentence, sentence

_STATES = {"optimizer.pt", "scheduler.pt", "rng_state.pth"}


@dataclass
class Found:
    """The checkpoint to go on from, if any; checkpoints that were not whole, by their former names; what was checked.

    ``trained`` is the last step that any attempt in the places had trained.
    """

    folder: Path | None = None
    torn: list[Path] = field(default_factory=list)
    verified: list[Sentence] = field(default_factory=list)
    trained: int = 0

    @property
    def step(self) -> int:
        """The step to go on from; 0 without a checkpoint."""
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
            # One that is torn is passed over for the next older one beside it.
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
    """Whether name, manifest and trainer state tell one step; without a state there is nothing to go on from."""
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
