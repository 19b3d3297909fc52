"""The adapter of a verl job: what it begins with is TRL's, and what verl saves becomes one that PEFT reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.training.verl_backend.cpu_job import cpu_job
from training.algorithms.checkpoints import HubModel
from training.algorithms.loading import load_model
from training.config import JobConfig
from training.errors import ModelError
from training.model_check import check_model_folder
from training.policy.adapter import lora_config
from training.verl_backend.adapter import FILES, begin_adapter, gather_adapter
from training.verl_backend.checkpoints import copy_model, save_model

WEIGHTS, CONFIG = FILES
LORA: dict[str, Any] = {"lora_rank": 4, "lora_alpha": 16, "lora_rslora": True, "lora_targets": "q_proj,v_proj"}


def config_of(base: Path, folder: Path, **model: Any) -> JobConfig:
    return cpu_job(folder, base, "", model={"lora_rank": 4} | model, run={"seed": 11}).config


def by_trl(config: JobConfig, base: Path, folder: Path) -> Path:
    """The adapter as ``trl.GRPOTrainer`` makes it, saved as our trainer saves it."""
    from accelerate.utils import set_seed
    from peft import get_peft_model

    model = load_model(config, base, "cpu")
    set_seed(config.run.seed)
    get_peft_model(model, lora_config(config)).save_pretrained(folder)
    return folder


def facts_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / CONFIG).read_text())
    return found | {"target_modules": sorted(found["target_modules"])}


@pytest.mark.parametrize("model", [{}, LORA], ids=["all linear", "rslora"])
def test_it_begins_as_on_one_device(starter_folder: Path, tmp_path: Path, model: dict[str, Any]) -> None:
    config = config_of(starter_folder, tmp_path / "run", **model)
    before = torch.random.get_rng_state()
    begin_adapter(config, starter_folder, None, tmp_path / "mine")
    assert torch.equal(torch.random.get_rng_state(), before), "the process has its own randomness"
    theirs = by_trl(config, starter_folder, tmp_path / "theirs")
    mine, wanted = load_file(tmp_path / "mine" / WEIGHTS), load_file(theirs / WEIGHTS)
    assert set(mine) == set(wanted) and len(mine) > 4
    assert all(torch.equal(mine[name], wanted[name]) for name in wanted)
    assert any(tensor.abs().sum() > 0 for tensor in mine.values())
    assert facts_of(tmp_path / "mine") == facts_of(theirs)
    assert {path.name for path in (tmp_path / "mine").iterdir()} == set(FILES)


def test_it_names_the_model_of_the_hub(starter_folder: Path, tmp_path: Path) -> None:
    config = config_of(starter_folder, tmp_path / "run")
    begin_adapter(config, starter_folder, HubModel("some/model", "c0ffee"), tmp_path / "mine")
    found = facts_of(tmp_path / "mine")
    assert (found["base_model_name_or_path"], found["revision"]) == ("some/model", "c0ffee")


@contextmanager
def one_device() -> Iterator[Callable[[torch.Tensor], torch.Tensor]]:
    """Makes sharded tensors, as FSDP2 has them."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("fsdp",))
    try:
        yield lambda tensor: distribute_tensor(tensor, mesh, [Shard(0)])
    finally:
        dist.destroy_process_group()


def saved_by_verl(folder: Path, base: Path, begun: Path, devices: int) -> dict[str, torch.Tensor]:
    """A folder as verl leaves it, of an adapter that has learned; the adapter's tensors."""
    from transformers import AutoConfig, AutoTokenizer

    learned = {name: tensor + 0.25 for name, tensor in load_file(begun / WEIGHTS).items()}
    (folder / "huggingface").mkdir(parents=True)
    AutoConfig.from_pretrained(base).save_pretrained(folder / "huggingface")
    AutoTokenizer.from_pretrained(base).save_pretrained(folder / "huggingface")
    with one_device() if devices == 1 else nullcontext(lambda tensor: tensor) as sharded:
        for rank in range(devices):
            parts = {}
            for name, tensor in learned.items():
                cut = tensor.chunk(devices)
                local = cut[rank] if rank < len(cut) else tensor[:0]
                parts[name.replace(".weight", ".default.weight")] = sharded(local.clone())
            torch.save(parts, folder / f"model_world_size_{devices}_rank_{rank}.pt")
    return learned


@pytest.mark.parametrize("devices", [1, 3, 12])
def test_shards_become_an_adapter_and_a_merged_model(starter_folder: Path, tmp_path: Path, devices: int) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    config = config_of(starter_folder, tmp_path / "run", **LORA)
    begun, saved, run_dir = tmp_path / "begun", tmp_path / "saved", tmp_path / "run"
    begin_adapter(config, starter_folder, None, begun)
    learned = saved_by_verl(saved, starter_folder, begun, devices)
    gather_adapter(saved, begun)
    source = saved / "huggingface"
    found = load_file(source / WEIGHTS)
    assert set(found) == set(learned) and all(torch.equal(found[name], learned[name]) for name in learned)

    # A checkpoint on the way is the adapter, as on one device: with the tokenizer, and without a config of a model.
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    copy_model(source, checkpoint)
    names = {path.name for path in checkpoint.iterdir()}
    assert {*FILES, "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"} <= names
    assert "config.json" not in names and "generation_config.json" not in names

    event = save_model(source, run_dir, 7, starter_folder)
    assert (event.path, event.adapter, event.step, event.final) == ("model", "adapter", 7, True)
    assert {path.name for path in (run_dir / "adapter").iterdir()} == {*FILES, "manifest.json"}
    check_model_folder(run_dir / "model")
    assert {"tokenizer.json", "chat_template.jinja"} <= {path.name for path in (run_dir / "model").iterdir()}
    assert not (run_dir / "model" / CONFIG).exists(), "it is a whole model"
    ids = torch.tensor([[5, 9, 3]])
    base = AutoModelForCausalLM.from_pretrained(starter_folder)
    merged = AutoModelForCausalLM.from_pretrained(run_dir / "model")(ids).logits
    before = base(ids).logits
    adapted = PeftModel.from_pretrained(base, str(run_dir / "adapter"))(ids).logits
    assert torch.allclose(merged, adapted, atol=1e-5) and (before - merged).abs().max() > 1e-2


def test_a_device_that_saved_nothing_is_named(starter_folder: Path, tmp_path: Path) -> None:
    begin_adapter(config_of(starter_folder, tmp_path / "run"), starter_folder, None, tmp_path / "begun")
    saved_by_verl(tmp_path / "saved", starter_folder, tmp_path / "begun", 2)
    (tmp_path / "saved" / "model_world_size_2_rank_1.pt").unlink()
    with pytest.raises(ModelError, match="1 of 2 devices have saved their part of the adapter"):
        gather_adapter(tmp_path / "saved", tmp_path / "begun")
