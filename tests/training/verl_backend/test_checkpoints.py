"""A model of verl's becomes one that is checked and loaded as any."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.training.verl_backend.cpu_job import cpu_job
from training.algorithms.checkpoints import write_whole
from training.errors import ModelError
from training.model_check import check_model_folder
from training.verl_backend.checkpoints import CHOSEN_HERE, copy_model, model_in, saved_by_verl, take_saved


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


def test_shards_of_another_number_of_devices_are_refused(starter_folder: Path, tmp_path: Path) -> None:
    saved = tmp_path / "global_step_2"
    shutil.copytree(starter_folder, saved / "actor" / "huggingface")
    folder = tmp_path / "checkpoint-2"
    write_whole(folder, 2, partial(take_saved, saved, 2, 4))
    fits = cpu_job(tmp_path / "run", starter_folder, "", hardware={"devices": 4}).config
    assert saved_by_verl(folder, fits) == folder / "verl" / "global_step_2"
    for devices in (2, 8):
        other = cpu_job(tmp_path / str(devices), starter_folder, "", hardware={"devices": devices}).config
        with pytest.raises(ModelError, match=f"checkpoint-2 holds the shards of 4 devices, and the run has {devices}"):
            saved_by_verl(folder, other)
    shutil.rmtree(folder / "verl")
    with pytest.raises(ModelError, match="checkpoint-2 was not saved by verl"):
        saved_by_verl(folder, fits)


def test_a_run_continues_with_as_many_updates_of_a_sampling_as_it_was_saved_with(
    starter_folder: Path, tmp_path: Path
) -> None:
    """verl counts samplings: with another number of updates the steps after them would be others."""
    saved = tmp_path / "global_step_2"
    shutil.copytree(starter_folder, saved / "actor" / "huggingface")
    folder = tmp_path / "checkpoint-4"
    write_whole(folder, 4, partial(take_saved, saved, 4, 1))
    for iterations in (1, 2, 4):
        grpo = {"num_iterations": iterations}
        config = cpu_job(tmp_path / str(iterations), starter_folder, "", grpo=grpo).config
        if iterations == 2:
            assert saved_by_verl(folder, config) == folder / "verl" / "global_step_2"
        else:
            with pytest.raises(ModelError, match=f"saved after 2 samplings.*: with {iterations} updates of each"):
                saved_by_verl(folder, config)


def test_of_a_checkpoint_only_the_model_is_copied(starter_folder: Path, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    shutil.copytree(starter_folder, saved / "actor" / "huggingface")
    write_whole(tmp_path / "checkpoint-2", 2, partial(take_saved, saved, 2, 1))
    (tmp_path / "model").mkdir()
    copy_model(tmp_path / "checkpoint-2", tmp_path / "model")
    assert {path.name for path in (tmp_path / "model").iterdir()} == {path.name for path in starter_folder.iterdir()}
    assert not saved.exists(), "what verl wrote was moved, not copied"


SIZES = "actor_rollout_ref.actor.megatron.{}_model_parallel_size=2"
MEGATRON = {"devices": 4, "sharding": "megatron", "verl_options": [SIZES.format("tensor")]}
ON_GPU: dict[str, Any] = {"run": {"device": "cuda"}, "rollout": {"engine": "vllm"}}
LAYOUT = "megatron tensor=2 pipeline=1 context=1 expert=1 expert_tensor=2"


def saved_by_megatron(model: Path, saved: Path) -> None:
    """What its checkpoint manager writes, with the model as Hugging Face has it."""
    actor = saved / "actor"
    shutil.copytree(model, actor / "model" / "huggingface")
    for part in ("optimizer", "extra"):
        (actor / part / "dist_ckpt").mkdir(parents=True)
        (actor / part / "dist_ckpt" / ".metadata").write_bytes(b"parts")
    for name in ("ckpt_contents.json", "transformer_config.json"):
        (actor / name).write_text("{}")


def test_megatrons_checkpoint_has_the_model_and_keeps_what_it_continues_from(
    starter_folder: Path, tmp_path: Path
) -> None:
    """verl reads the model from its own folder there, so that stays."""
    saved, folder = tmp_path / "global_step_2", tmp_path / "checkpoint-2"
    saved_by_megatron(starter_folder, saved)
    wrote = {path.relative_to(saved) for path in saved.rglob("*") if path.is_file()}
    assert model_in(saved) == saved / "actor" / "model" / "huggingface"
    write_whole(folder, 2, partial(take_saved, saved, 2, 4, layout=LAYOUT))
    check_model_folder(folder)
    assert (folder / "model.safetensors").read_bytes() == (starter_folder / "model.safetensors").read_bytes()
    kept = folder / "verl" / "global_step_2"
    assert {path.relative_to(kept) for path in kept.rglob("*") if path.is_file()} == wrote
    config = cpu_job(tmp_path / "run", starter_folder, "", hardware=MEGATRON, **ON_GPU).config
    assert config.hardware.layout == LAYOUT and saved_by_verl(folder, config) == kept


def test_fsdps_model_is_in_the_folder_above(starter_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "actor" / "huggingface").mkdir(parents=True)
    assert model_in(tmp_path) == tmp_path / "actor" / "huggingface"


@pytest.mark.parametrize(
    ("hardware", "has"),
    [
        ({"devices": 4}, "fsdp2"),
        (MEGATRON | {"verl_options": [SIZES.format("pipeline")]}, "megatron tensor=1 pipeline=2"),
    ],
)
def test_a_run_continues_with_the_layout_that_it_was_saved_with(
    hardware: dict[str, Any], has: str, starter_folder: Path, tmp_path: Path
) -> None:
    saved, folder = tmp_path / "global_step_2", tmp_path / "checkpoint-2"
    saved_by_megatron(starter_folder, saved)
    write_whole(folder, 2, partial(take_saved, saved, 2, 4, layout=LAYOUT))
    config = cpu_job(tmp_path / "run", starter_folder, "", hardware=hardware, **ON_GPU).config
    with pytest.raises(ModelError) as found:
        saved_by_verl(folder, config)
    assert f"checkpoint-2 was saved by {LAYOUT}, and the run has {has}" in str(found.value)


def test_a_checkpoint_from_before_layouts_is_fsdp2s(starter_folder: Path, tmp_path: Path) -> None:
    saved, folder = tmp_path / "global_step_2", tmp_path / "checkpoint-2"
    shutil.copytree(starter_folder, saved / "actor" / "huggingface")
    write_whole(folder, 2, partial(take_saved, saved, 2, 4))
    state = json.loads((folder / "trainer_state.json").read_text())
    assert state == {"global_step": 2, "devices": 4, "layout": "fsdp2"}
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": 2, "devices": 4}))
    config = cpu_job(tmp_path / "run", starter_folder, "", hardware={"devices": 4}).config
    assert saved_by_verl(folder, config) == folder / "verl" / "global_step_2"
