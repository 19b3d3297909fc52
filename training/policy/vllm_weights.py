"""The trainer's weights on a disk, in the form that vLLM takes them: an adapter, or all of them.

vLLM's CPU build keeps a packed copy of the output layer that it makes once. Where that layer is the embedding (tied),
new weights would leave the copy as it was, in silence. So the server of a tied model is started as if it were not
(``Plan.blank``), and the output layer is written beside the embedding, in a file of its own.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from training.machine import require_room
from training.policy.attached import without_value_head
from training.policy.vllm_engine import Handover

ONE_FILE = "1000GB"
OUTPUT_FILE = "output.safetensors"


class WeightsOnDisk:
    """The weights of ``model`` below ``root``, in folders that are named by ``label`` and the ``step`` they are of.

    All weights are written in ``dtype``, the servers' own; an adapter as it is trained.
    """

    def __init__(self, model: Any, root: Path, label: str, step: Callable[[], int], dtype: torch.dtype) -> None:
        self._model, self._root, self._dtype = model, root, dtype
        self._label, self._step = label, step
        self._adapter = hasattr(model, "merge_and_unload")
        self._written = root

    @property
    def version(self) -> str:
        """See ``Weights.version``."""
        return f"{self._label}-{self._step()}"

    def write(self) -> Handover:
        """See ``Weights.write``."""
        self._written = folder = self._root / self.version
        if not self._adapter:
            self.taken(none=True)  # two copies of all weights may be more than the disk has
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        require_room(folder, self._bytes(), "a copy of the weights for vLLM")
        with without_value_head(self._model):
            if self._adapter:
                self._model.save_pretrained(folder, selected_adapters=["default"], save_embedding_layers=False)
            else:
                self._write_all(folder)
        return Handover(self.version, folder.resolve(), self._adapter)

    def taken(self, *, none: bool = False) -> None:
        """See ``Weights.taken``. An adapter stays: a server that ran out of room for it reads it again."""
        for folder in self._root.iterdir() if self._root.is_dir() else ():
            if none or not self._adapter or folder != self._written:
                shutil.rmtree(folder, ignore_errors=True)

    def _bytes(self) -> int:
        size = torch.empty((), dtype=self._dtype).element_size()
        chosen = (p for p in self._model.parameters() if p.requires_grad or not self._adapter)
        return sum(p.numel() * size for p in chosen)

    def _write_all(self, folder: Path) -> None:
        state = {name: value.to(self._dtype) for name, value in self._model.state_dict().items()}
        self._model.save_pretrained(folder, state_dict=state, max_shard_size=ONE_FILE)
        if not is_tied(self._model):
            return
        from safetensors.torch import save_file

        name, layer = output_layer(self._model)
        save_file({f"{name}.weight": layer.weight.detach().to(self._dtype).clone().cpu()}, folder / OUTPUT_FILE)


def is_tied(model: Any) -> bool:
    """Whether the output layer is the embedding."""
    inputs, outputs = model.get_input_embeddings(), model.get_output_embeddings()
    return inputs is not None and outputs is not None and inputs.weight is outputs.weight


def output_layer(model: Any) -> tuple[str, Any]:
    """The layer that makes logits, and its name."""
    layer = model.get_output_embeddings()
    return next(name for name, module in model.named_modules() if module is layer), layer


def kv_gib(config: Any, tokens: int) -> int:
    """GiB of keys and values of so many tokens in float32, by a model's config; 1 at least, and 4 where it does not
    say."""
    text = config.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or getattr(text, "num_attention_heads", None)
    layers, width = getattr(text, "num_hidden_layers", None), getattr(text, "hidden_size", None)
    if not (heads and layers and width):
        return 4
    size = getattr(text, "head_dim", None) or width // text.num_attention_heads
    return max(1, -(-2 * layers * heads * size * 4 * tokens // (1 << 30)))
