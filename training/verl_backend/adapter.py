"""A LoRA adapter of a verl job: made here as on one device, and read back from what verl saves.

1. verl can begin from an adapter in a folder, so it gets ours: drawn from the run's seed as TRL draws it, with the
   targets, the scale and the base that it has there. verl's own would be drawn from a seed that we do not know.
2. verl saves the adapter's weights in shards, one file for each device. Put together, with the config that the
   adapter began with, they are the files of an adapter as any run of ours leaves one.
3. At the end it is merged into its base, and kept as well.
"""

from __future__ import annotations

import re
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

from training.algorithms.checkpoints import ADAPTER_CONFIG, HubModel
from training.algorithms.saving import merged, name_base
from training.config import JobConfig
from training.errors import ModelError
from training.model_check import load_config, stored_dtype
from training.policy.adapter import lora_config

WEIGHTS = "adapter_model.safetensors"
FILES = (WEIGHTS, ADAPTER_CONFIG)
_SHARD = re.compile(r"model_world_size_(\d+)_rank_(\d+)\.pt")
_OF_BASE = ("config.json", "generation_config.json")


def begin_adapter(config: JobConfig, base: Path, hub: HubModel | None, folder: Path) -> None:
    """Write the adapter that a job begins with, for the model in ``base``, which is not loaded for it.

    ``hub`` is its name where it came from Hugging Face.
    """
    import torch
    from peft import get_peft_model
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(load_config(base))
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:  # PEFT makes its own where these are: one element that is read everywhere
                module._parameters[name] = torch.nn.Parameter(torch.zeros(()).expand(weight.shape), requires_grad=False)
    model.name_or_path = str(base)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.run.seed)
        adapted = get_peft_model(model, lora_config(config))
    adapted.save_pretrained(str(folder))
    (folder / "README.md").unlink(missing_ok=True)
    name_base(folder, hub)


def gather_adapter(saved: Path, begun: Path) -> None:
    """Leave the adapter of what verl has saved in ``saved`` as a model's files, in its folder ``huggingface``.

    ``begun`` is the adapter that the job began with. Raises ``ModelError`` where a device's file is missing.
    """
    from safetensors.torch import save_file

    folder = saved / "huggingface"
    save_file(_whole(saved), folder / WEIGHTS, metadata={"format": "pt"})
    shutil.copyfile(begun / ADAPTER_CONFIG, folder / ADAPTER_CONFIG)
    for name in _OF_BASE:
        (folder / name).unlink(missing_ok=True)


def _whole(saved: Path) -> dict[str, Any]:
    """The adapter's tensors, as PEFT names them in a file. FSDP2 cuts each along its first dimension."""
    import torch
    from torch.distributed.tensor import DTensor  # without it none could be read

    shards = {int(found[2]): path for path in saved.iterdir() if (found := _SHARD.fullmatch(path.name))}
    wanted = {int(found[1]) for path in saved.iterdir() if (found := _SHARD.fullmatch(path.name))}
    if wanted != {len(shards)}:
        raise ModelError(f"{len(shards)} of {max(wanted, default=1)} devices have saved their part of the adapter.")
    loaded = [torch.load(shards[rank], map_location="cpu", weights_only=True) for rank in sorted(shards)]

    def local(tensor: Any) -> Any:
        return tensor.to_local() if isinstance(tensor, DTensor) else tensor

    return {
        name.replace(".default.", "."): torch.cat([local(each[name]) for each in loaded]).contiguous()
        for name in loaded[0]
    }


def copy_adapter(source: Path, folder: Path) -> None:
    """Copy an adapter alone: what it is loaded by next to its base."""
    for name in FILES:
        shutil.copyfile(source / name, folder / name)


def merge_adapter(source: Path, base: Path, folder: Path) -> None:
    """Write the model that an adapter makes of its base, in the precision that the base is stored in."""
    whole = merged(base, source)
    if dtype := stored_dtype(base):
        whole = whole.to(getattr(import_module("torch"), dtype))
    whole.save_pretrained(folder)


def is_adapter(source: Path) -> bool:
    """Whether the model in a folder is an adapter."""
    return (source / ADAPTER_CONFIG).is_file()
