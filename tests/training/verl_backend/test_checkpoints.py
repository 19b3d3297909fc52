"""A model of verl's becomes one that is checked and loaded as any."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from training.errors import ModelError
from training.model_check import check_model_folder
from training.verl_backend.checkpoints import CHOSEN_HERE, copy_model


def test_how_it_was_trained_is_left_out(starter_folder: Path, tmp_path: Path) -> None:
    theirs, ours = tmp_path / "huggingface", tmp_path / "model"
    shutil.copytree(starter_folder, theirs)
    ours.mkdir()
    config = json.loads((theirs / "config.json").read_text())
    (theirs / "config.json").write_text(
        json.dumps(config | dict.fromkeys(CHOSEN_HERE, "eager") | {"dtype": "bfloat16"})
    )
    with pytest.raises(ModelError):
        check_model_folder(theirs)
    copy_model(theirs, ours)
    check_model_folder(ours)
    assert json.loads((ours / "config.json").read_text()) == config | {"dtype": "float32"}, "as the weights are"
    assert {path.name for path in ours.iterdir()} == {path.name for path in starter_folder.iterdir()}
    assert (ours / "model.safetensors").read_bytes() == (starter_folder / "model.safetensors").read_bytes()
