"""A checkpoint that verl wrote, as any run of ours leaves one: a model to load, and what verl continues from in it.

``<run>/checkpoint-<n>`` has the files of the model, or with LoRA of the adapter, ``trainer_state.json`` with the step,
the number of devices and how the parts are cut, and verl's own files below ``verl/global_step_<sampling>``. These are
pickles, which verl loads: a run continues from its own checkpoints alone, and only where every file is as its manifest
says. Megatron's have the model in a folder of their own, from which it continues, so it is kept there, too.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from functools import partial
from pathlib import Path

from training.algorithms.checkpoints import ADAPTER, FINAL, MANIFEST, step_of, write_whole
from training.config import JobConfig
from training.errors import ModelError
from training.journal import CheckpointSaved
from training.machine import require_room
from training.model_check import VERL, stored_dtype
from training.verl_backend.adapter import FILES, copy_adapter, is_adapter, merge_adapter

CONFIG_NAME, STATE_NAME, MODEL_NAME = "config.json", "trainer_state.json", "huggingface"
WHOLE = "fsdp2"
"""The layout where each tensor is cut over all devices."""
SAVED = "global_step_"
"""verl's folders are named by the samplings that the weights were trained on."""
CHOSEN_HERE = (
    "attn_implementation",
    "_attn_implementation",
    "_attn_implementation_internal",
    "_experts_implementation",
    "_experts_implementation_internal",
)
"""How it was trained, in its config: the reader of a model chooses that, and a check of ours refuses it."""


def copy_model(source: Path, folder: Path) -> None:
    """Copy weights, tokenizer and config into a folder that is there; of a checkpoint, nothing else.

    verl names bfloat16 in the config whatever the weights are in: loaded as it says, small updates would be lost.
    """
    _copy(source, folder, CONFIG_NAME)
    if is_adapter(source):
        return
    config = json.loads((source / CONFIG_NAME).read_text(encoding="utf-8"))
    kept = {name: value for name, value in config.items() if name not in CHOSEN_HERE} | {"dtype": stored_dtype(source)}
    (folder / CONFIG_NAME).write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")


def _copy(source: Path, folder: Path, *left_out: str) -> None:
    for path in source.iterdir():
        if path.is_file() and path.name not in (*left_out, STATE_NAME, MANIFEST):
            shutil.copyfile(path, folder / path.name)


def save_model(source: Path, run_dir: Path, step: int, base: Path | None) -> CheckpointSaved:
    """Leave the run's model, of the files in ``source``; the event that says so. Raises ``StorageFull``.

    An adapter is kept next to the model that it makes of ``base``.
    """
    began, adapter = time.monotonic(), ""
    fill = partial(copy_model, source)
    if is_adapter(source) and base is not None:
        require_room(run_dir, sum(path.stat().st_size for path in base.glob("*.safetensors")), "the final model")
        write_whole(run_dir / ADAPTER, step, partial(copy_adapter, source))
        adapter, fill = ADAPTER, partial(_merge, source, base)
    size = write_whole(run_dir / FINAL, step, fill)
    seconds = time.monotonic() - began
    return CheckpointSaved(step=step, path=FINAL, bytes=size, final=True, seconds=seconds, adapter=adapter)


def _merge(source: Path, base: Path, folder: Path) -> None:
    _copy(source, folder, *FILES)
    merge_adapter(source, base, folder)


def model_in(saved: Path) -> Path:
    """The folder of the model in what verl has saved: Megatron's lies one folder deeper."""
    deeper = saved / "actor" / "model" / MODEL_NAME
    return deeper if deeper.is_dir() else saved / "actor" / MODEL_NAME


def take_saved(saved: Path, step: int, devices: int, folder: Path, layout: str = WHOLE) -> None:
    """Fill the folder of a checkpoint with what verl has saved in ``saved``, which is empty afterwards.

    ``layout`` is ``HardwareConfig.layout``.
    """
    model = model_in(saved)
    copy_model(model, folder)
    if model.parent == saved / "actor":
        shutil.rmtree(model)
    state = {"global_step": step, "devices": devices, "layout": layout}
    (folder / STATE_NAME).write_text(json.dumps(state), encoding="utf-8")
    (folder / VERL).mkdir()
    os.rename(saved, folder / VERL / saved.name)


def saved_by_verl(checkpoint: Path, config: JobConfig) -> Path:
    """Verl's own folder of a checkpoint. Raises ``ModelError`` where verl cannot continue from it."""
    folder = next(checkpoint.glob(f"{VERL}/{SAVED}*"), None)
    if folder is None or not folder.is_dir():
        raise ModelError(
            f"{checkpoint.name} was not saved by verl, so verl cannot continue from it.",
            hint="Set hardware.backend to trl, or start a new run with this checkpoint as its model.",
        )
    state = json.loads((checkpoint / STATE_NAME).read_text(encoding="utf-8"))
    devices, layout = state.get("devices"), state.get("layout", WHOLE)
    if devices != config.hardware.training:
        raise ModelError(
            f"{checkpoint.name} holds the shards of {devices} devices, and the run has {config.hardware.training}.",
            hint=f"Resume on {devices} devices, or start a new run with this checkpoint as its model.",
        )
    if layout != config.hardware.layout:
        raise ModelError(
            f"{checkpoint.name} was saved by {layout}, and the run has {config.hardware.layout}.",
            hint="Resume with the sharding and sizes that it was saved with, or start a new run with this checkpoint "
            "as its model.",
        )
    sampling, updates = int(folder.name.removeprefix(SAVED)), config.updates_per_step
    if sampling * updates != step_of(checkpoint):
        raise ModelError(
            f"{checkpoint.name} was saved after {sampling} samplings, and verl counts those: with {updates} updates of "
            "each it would continue at another step.",
            hint="Resume with the mini batch and iterations that it was saved with, or start a new run with this "
            "checkpoint as its model.",
        )
    return folder
