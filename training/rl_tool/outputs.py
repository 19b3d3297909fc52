"""The tool's output folder: each call's run in ``runs/<time>``, and the newest model where the documentation has it.

The model and its adapter are hard links to the run's own files where the file system has such, else copies. A model
that is trained further or evaluated is taken from the run's folder, which holds nothing else.
"""

from __future__ import annotations

import os
import shutil
from datetime import datetime
from pathlib import Path

from training.algorithms.checkpoints import (
    ADAPTER,
    ADAPTER_CONFIG,
    FINAL,
    MANIFEST,
    Manifest,
    numbered,
    step_of,
    verify,
    write_whole,
)
from training.config import JobConfig
from training.errors import TiltyardError

RUNS = "runs"
ADAPTER_FILES = "adapter_*"
# A checkpoint's files that only a trainer reads.
_TRAINERS = {MANIFEST, "trainer_state.json"}
_LOADS = (".safetensors", ".json", ".jinja", ".txt", ".model")


def new_run(output: Path) -> Path:
    """A fresh folder for a run; no call goes on with an earlier one. Raises ``OSError``."""
    name = stem = f"{datetime.now():%Y%m%d-%H%M%S}"
    number = 1
    while True:
        try:
            (output / RUNS / name).mkdir(parents=True)
            return output / RUNS / name
        except FileExistsError:
            if not (output / RUNS).is_dir():
                raise
            number += 1
            name = f"{stem}-{number:03}"


def model_of(name: str) -> str:
    """What a name of the tool means to a job: of an output folder the newest run's model, else the name itself."""
    found = sorted(Path(name).expanduser().glob(f"{RUNS}/*/{FINAL}/{MANIFEST}"))
    return str(found[-1].parent.resolve()) if found else name


def publish(run: Path, output: Path) -> None:
    """Put the run's model into the output folder, and its adapter beside it, in place of those of an earlier run."""
    _replace(run / FINAL, output)
    if (run / ADAPTER).is_dir():
        _replace(run / ADAPTER, output / ADAPTER)
    elif (output / ADAPTER / MANIFEST).is_file():  # that of an earlier run
        shutil.rmtree(output / ADAPTER)


def _replace(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    old = _listed(target)
    for name in (*_listed(source), MANIFEST):
        fresh = target / f"{name}.part"
        fresh.unlink(missing_ok=True)
        try:
            os.link(source / name, fresh)
        except OSError:
            shutil.copyfile(source / name, fresh)
        os.replace(fresh, target / name)
    for name in old - _listed(source):
        (target / name).unlink(missing_ok=True)


def _listed(folder: Path) -> set[str]:
    try:
        text = (folder / MANIFEST).read_text(encoding="utf-8")
    except FileNotFoundError:
        return set()
    return {file.path for file in Manifest.model_validate_json(text).files if "/" not in file.path}


def checkpoints_drop(run: Path) -> None:
    """Delete what a run could only be resumed with, once its model is there."""
    for folder in numbered(run):
        shutil.rmtree(folder, ignore_errors=True)


def salvage(run: Path, config: JobConfig) -> int | None:
    """Make the model of a run that was stopped, of its newest whole checkpoint, and say its step.

    ``None`` where nothing was saved. Raises ``TiltyardError`` where the base of an adapter is gone.
    """
    folders = sorted(numbered(run), key=step_of, reverse=True)
    folder = next((each for each in folders if verify(each) is not None), None)
    if folder is None:
        return None
    if (folder / ADAPTER_CONFIG).is_file():
        _merge(run, config, folder)
    else:
        write_whole(run / FINAL, step_of(folder), lambda target: _copy(folder, target, "*"))
    return step_of(folder)


def _copy(source: Path, target: Path, which: str) -> None:
    for path in source.glob(which):
        if path.name not in _TRAINERS and path.suffix in _LOADS:
            shutil.copyfile(path, target / path.name)


def _merge(run: Path, config: JobConfig, adapter: Path) -> None:
    from peft import PeftModel

    from training.algorithms.loading import STARTER, fetch_model, load_model, load_tokenizer

    base = run / STARTER if config.model.source == STARTER else fetch_model(config, [], run)
    try:
        model = PeftModel.from_pretrained(load_model(config, base, "cpu"), str(adapter))
    except (OSError, ValueError, RuntimeError) as exc:
        raise TiltyardError(f"The adapter cannot be read: {exc}") from exc
    tokenizer, _note = load_tokenizer(adapter)

    def fill(target: Path) -> None:
        model.merge_and_unload().save_pretrained(target)
        tokenizer.save_pretrained(target)

    write_whole(run / ADAPTER, step_of(adapter), lambda target: _copy(adapter, target, ADAPTER_FILES))
    write_whole(run / FINAL, step_of(adapter), fill)
