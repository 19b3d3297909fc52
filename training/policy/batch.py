"""A running decode batch: rows join and leave while the others go on (continuous batching, Yu et al. 2022, *Orca*).

Rows are left-padded to one length. The key-value cache of each layer is one slab (batch, heads, columns, head size)
with spare columns, so that a decode step writes one column instead of copying the whole cache.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicLayer

SPARE_COLUMNS = 64


class _SlabLayer(DynamicLayer):
    """A cache layer that appends in place while its slab has room. ``keys`` and ``values`` are views of the slab."""

    def adopt(self, keys: Tensor, values: Tensor) -> None:
        """Take over tensors of shape (batch, heads, columns, head size), with room to grow."""
        if not self.is_initialized:
            self.lazy_initialization(keys, values)
        self._columns = keys.shape[-2]
        room = (*keys.shape[:2], self._columns + SPARE_COLUMNS, keys.shape[-1])
        self._slab_k, self._slab_v = keys.new_empty(room), values.new_empty(room)
        self._slab_k[:, :, : self._columns] = keys
        self._slab_v[:, :, : self._columns] = values
        self._show()

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        after = self._columns + key_states.shape[-2]
        if after > self._slab_k.shape[-2]:
            self.adopt(*self.tensors)
        self._slab_k[:, :, self._columns : after] = key_states
        self._slab_v[:, :, self._columns : after] = value_states
        self._columns = after
        self._show()
        return self.tensors

    @property
    def tensors(self) -> tuple[Tensor, Tensor]:
        """Keys and values so far, views of shape (batch, heads, columns, head size)."""
        return self._slab_k[:, :, : self._columns], self._slab_v[:, :, : self._columns]

    def _show(self) -> None:
        self.keys, self.values = self.tensors


class DecodeBatch:
    """The rows being decoded: cache, mask of shape (rows, columns), positions and last ids of shape (rows,)."""

    def __init__(self, layers: list[tuple[Tensor, Tensor]], mask: Tensor, logits: Tensor) -> None:
        self._layers, self._cache = _cache_of(layers)
        self.mask = mask
        self.positions = mask.sum(dim=1)
        self.logits = logits

    @classmethod
    def prefill(cls, model: Any, prompts: list[list[int]], device: torch.device) -> DecodeBatch:
        """Run the prompts through the model; equal prompts are computed once and copied."""
        unique: dict[tuple[int, ...], int] = {}
        order = [unique.setdefault(tuple(prompt), len(unique)) for prompt in prompts]
        longest = max(len(prompt) for prompt in unique)
        ids = torch.zeros(len(unique), longest, dtype=torch.long)
        mask = torch.zeros(len(unique), longest, dtype=torch.long)
        for row, prompt in enumerate(unique):
            ids[row, longest - len(prompt) :] = torch.tensor(prompt)
            mask[row, longest - len(prompt) :] = 1
        ids, mask = ids.to(device), mask.to(device)
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
        output = model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=DynamicCache(),
            use_cache=True,
            logits_to_keep=1,
        )
        index = torch.tensor(order, device=device)
        layers = [(layer.keys[index], layer.values[index]) for layer in output.past_key_values.layers]
        return cls(layers, mask[index], output.logits[index, -1])

    @property
    def rows(self) -> int:
        """How many rows are decoded, finished ones that still stand in the slab included."""
        return int(self.mask.shape[0])

    def step(self, model: Any, ids: Tensor) -> None:
        """Feed the ids just drawn, shape (rows,), and compute the next logits, shape (rows, vocabulary)."""
        self.mask = torch.cat([self.mask, self.mask.new_ones(self.rows, 1)], dim=1)
        output = model(
            input_ids=ids.unsqueeze(1),
            attention_mask=self.mask,
            position_ids=self.positions.unsqueeze(1),
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self.positions = self.positions + 1
        self.logits = output.logits[:, -1]

    def keep(self, rows: list[int]) -> None:
        """Drop all other rows, and the columns that became padding for every row left."""
        index = torch.tensor(rows, device=self.mask.device)
        mask = self.mask[index]
        first = int(mask.argmax(dim=1).min()) if rows else 0
        layers = [(keys[index][:, :, first:], values[index][:, :, first:]) for keys, values in self._tensors()]
        self._layers, self._cache = _cache_of(layers)
        self.mask, self.positions, self.logits = mask[:, first:], self.positions[index], self.logits[index]

    def join(self, other: DecodeBatch) -> None:
        """Append the rows of another batch, padding the shorter of the two on the left."""
        columns = max(self.mask.shape[1], other.mask.shape[1])
        pairs = zip(self._tensors(), other._tensors(), strict=True)
        layers = [
            (
                torch.cat([_pad_left(keys, columns), _pad_left(more_keys, columns)]),
                torch.cat([_pad_left(values, columns), _pad_left(more_values, columns)]),
            )
            for (keys, values), (more_keys, more_values) in pairs
        ]
        masks = [torch.nn.functional.pad(m, (columns - m.shape[1], 0)) for m in (self.mask, other.mask)]
        self._layers, self._cache = _cache_of(layers)
        self.mask = torch.cat(masks)
        self.positions = torch.cat([self.positions, other.positions])
        self.logits = torch.cat([self.logits, other.logits])

    def _tensors(self) -> list[tuple[Tensor, Tensor]]:
        return [layer.tensors for layer in self._layers]


def _cache_of(tensors: list[tuple[Tensor, Tensor]]) -> tuple[list[_SlabLayer], DynamicCache]:
    layers: list[_SlabLayer] = []
    for keys, values in tensors:
        layer = _SlabLayer()
        layer.adopt(keys, values)
        layers.append(layer)
    cache = DynamicCache()
    cache.layers.extend(layers)
    return layers, cache


def _pad_left(states: Tensor, columns: int) -> Tensor:
    return torch.nn.functional.pad(states, (0, 0, columns - states.shape[2], 0))
