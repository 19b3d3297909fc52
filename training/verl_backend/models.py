"""The model that verl wrote next to its checkpoint, as any run leaves one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from training.model_check import stored_dtype

CONFIG_NAME = "config.json"
CHOSEN_HERE = (
    "attn_implementation",
    "_attn_implementation",
    "_attn_implementation_internal",
    "_experts_implementation",
    "_experts_implementation_internal",
)
"""How it was trained, in its config: the reader of a model chooses that, and a check of ours refuses it."""


def copy_model(source: Path, folder: Path) -> None:
    """Copy weights, tokenizer and config into a folder that is there.

    verl names bfloat16 in the config whatever the weights are in: loaded as it says, small updates would be lost.
    """
    for path in source.iterdir():
        if path.name != CONFIG_NAME:
            shutil.copyfile(path, folder / path.name)
    config = json.loads((source / CONFIG_NAME).read_text(encoding="utf-8"))
    kept = {name: value for name, value in config.items() if name not in CHOSEN_HERE} | {"dtype": stored_dtype(source)}
    (folder / CONFIG_NAME).write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
