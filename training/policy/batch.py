"""A running decode batch: rows join and leave while the others go on (continuous batching, Yu et al. 2022, *Orca*).

Rows are padded to one length, on the left and, in rows that were continued, between their turns; the mask tells. The
key-value cache of each layer is one slab (batch, heads, columns, head size) with spare columns, so that a decode step
writes one column instead of copying the whole cache.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicLayer

SPARE_COLUMNS = 64


class _SlabLayer(DynamicLayer):
    """A cache layer that appends in place while its slab has room. ``keys`` and ``values`` are views of the slab."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        super().__init__()
        self.lazy_initialization(keys, values)
        self.keys: Tensor = keys
        self.values: Tensor = values
        self._slab_k, self._slab_v = keys, values

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        before = self.keys.shape[-2]
        after = before + key_states.shape[-2]
        if after > self._slab_k.shape[-2]:
            room = after + SPARE_COLUMNS
            self._slab_k, self._slab_v = _with_room(self.keys, room), _with_room(self.values, room)
        self._slab_k[:, :, before:after] = key_states
        self._slab_v[:, :, before:after] = value_states
        self.keys, self.values = self._slab_k[:, :, :after], self._slab_v[:, :, :after]
        return self.keys, self.values


class DecodeBatch:
    """The rows being decoded: cache, mask of shape (rows, columns), positions and last ids of shape (rows,)."""

    def __init__(self, layers: list[tuple[Tensor, Tensor]], mask: Tensor, logits: Tensor) -> None:
        self._layers = [_SlabLayer(keys, values) for keys, values in layers]
        self._cache = DynamicCache()
        self._cache.layers.extend(self._layers)
        self.mask = mask
        self.positions = mask.sum(dim=1)
        self.logits = logits

    @classmethod
    def prefill(cls, model: Any, prompts: list[list[int]], device: torch.device) -> DecodeBatch:
        """Run the prompts through the model; equal prompts are computed once and copied."""
        unique: dict[tuple[int, ...], int] = {}
        order = [unique.setdefault(tuple(prompt), len(unique)) for prompt in prompts]
        ids, mask = _left_padded([list(prompt) for prompt in unique], device)
        output = model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=(mask.cumsum(dim=1) - 1).clamp(min=0),
            past_key_values=DynamicCache(),
            use_cache=True,
            logits_to_keep=1,
        )
        index = torch.tensor(order, device=device)
        layers = [(layer.keys[index], layer.values[index]) for layer in output.past_key_values.layers]
        return cls(layers, mask[index], output.logits[index, -1])

    @classmethod
    def joined(cls, parts: list[DecodeBatch]) -> DecodeBatch:
        """The rows of all parts, in order, the shorter ones padded on the left."""
        if len(parts) == 1:
            return parts[0]
        columns = max(part.columns for part in parts)
        layers = [
            (
                torch.cat([_pad_left(layer.keys, columns) for layer in same]),
                torch.cat([_pad_left(layer.values, columns) for layer in same]),
            )
            for same in zip(*(part._layers for part in parts), strict=True)
        ]
        masks = [torch.nn.functional.pad(part.mask, (columns - part.columns, 0)) for part in parts]
        return cls(layers, torch.cat(masks), torch.cat([part.logits for part in parts]))

    @property
    def rows(self) -> int:
        """How many rows are decoded, finished ones that still stand in the slab included."""
        return int(self.mask.shape[0])

    @property
    def columns(self) -> int:
        """Cache columns of each row, padding included."""
        return int(self.mask.shape[1])

    def step(self, model: Any, ids: Tensor) -> None:
        """Feed the ids just drawn, shape (rows,), and compute the next logits, shape (rows, vocabulary)."""
        self._feed(model, ids.unsqueeze(1), self.mask.new_ones(self.rows, 1))

    def extend(self, model: Any, suffixes: list[list[int]]) -> None:
        """Feed several ids a row, as an environment's answer brings them, and compute the next logits."""
        self._feed(model, *_left_padded(suffixes, self.mask.device))

    def select(self, rows: list[int], stale: list[int] | None = None) -> DecodeBatch:
        """A batch of these rows, without the columns that are padding in all of them.

        The last ``stale`` columns of a row are hidden first: what was fed to it after its turn had ended.
        """
        index = torch.tensor(rows, device=self.mask.device)
        mask = self.mask[index]
        if stale is not None:
            cut = self.columns - torch.tensor(stale, device=mask.device).unsqueeze(1)
            mask = mask * (torch.arange(self.columns, device=mask.device) < cut)
        used = mask.any(dim=0).nonzero().squeeze(1)
        layers = [(layer.keys[index][:, :, used], layer.values[index][:, :, used]) for layer in self._layers]
        return DecodeBatch(layers, mask[:, used], self.logits[index])

    def _feed(self, model: Any, ids: Tensor, mask: Tensor) -> None:
        self.mask = torch.cat([self.mask, mask], dim=1)
        output = model(
            input_ids=ids,
            attention_mask=self.mask,
            position_ids=self.positions.unsqueeze(1) + (mask.cumsum(dim=1) - 1).clamp(min=0),
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self.positions = self.positions + mask.sum(dim=1)
        self.logits = output.logits[:, -1]


def _left_padded(rows: list[list[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Ids and mask, both of shape (rows, longest)."""
    longest = max(len(row) for row in rows)
    ids = torch.tensor([[0] * (longest - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
    return ids.to(device), mask.to(device)


def _pad_left(states: Tensor, columns: int) -> Tensor:
    return torch.nn.functional.pad(states, (0, 0, columns - states.shape[2], 0))


def _with_room(states: Tensor, columns: int) -> Tensor:
    """A slab of so many columns that begins with these states."""
    slab = states.new_empty(*states.shape[:2], columns, states.shape[3])
    slab[:, :, : states.shape[2]] = states
    return slab
