"""A running decode batch: rows join and leave while the others go on (continuous batching, Yu et al. 2022, *Orca*).

Rows are padded to one length, on the left and, in rows that were continued, between their turns; the mask tells. The
layers of the cache are in ``layers``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from training.policy.attention import empty_cache, join_rows, layer_bytes, take_rows


class DecodeBatch:
    """The rows being decoded: cache, mask of shape (rows, columns), positions (rows,) and logits (rows, vocabulary)."""

    def __init__(self, layers: list[Any], mask: Tensor, logits: Tensor) -> None:
        self._cache = DynamicCache()
        self._cache.layers = layers
        self.mask = mask
        self.positions = mask.sum(dim=1)
        self.logits = logits

    @classmethod
    def prefill(
        cls, model: Any, prompts: list[list[int]], device: torch.device, kept: torch.dtype | None = None
    ) -> DecodeBatch:
        """Run the prompts through the model; equal prompts are computed once and copied.

        Keys and values are kept in the type ``kept``, or as the model makes them.
        """
        unique: dict[tuple[int, ...], int] = {}
        order = [unique.setdefault(tuple(prompt), len(unique)) for prompt in prompts]
        ids, mask = _left_padded([list(prompt) for prompt in unique], device)
        output = model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=(mask.cumsum(dim=1) - 1).clamp(min=0),
            past_key_values=empty_cache(model, kept),
            use_cache=True,
            logits_to_keep=1,
        )
        batch = cls(output.past_key_values.layers, mask, output.logits[:, -1])
        if len(unique) < len(prompts):
            batch.keep(order)
        return batch

    @classmethod
    def joined(cls, parts: list[DecodeBatch]) -> DecodeBatch:
        """The rows of all parts, in order, the shorter ones padded on the left.

        The parts are used up: each layer's memory is free again once it is copied.
        """
        if len(parts) == 1:
            return parts[0]
        columns = max(part.columns for part in parts)
        layers = []
        while parts[0].layers:
            layers.append(join_rows([part.layers.pop(0) for part in parts], columns))
        masks = [torch.nn.functional.pad(part.mask, (columns - part.columns, 0)) for part in parts]
        return cls(layers, torch.cat(masks), torch.cat([part.logits for part in parts]))

    @property
    def layers(self) -> list[Any]:
        """The cache's layers."""
        layers: list[Any] = self._cache.layers
        return layers

    @property
    def rows(self) -> int:
        """How many rows are decoded, finished ones that still stand in the slab included."""
        return int(self.mask.shape[0])

    @property
    def columns(self) -> int:
        """Cache columns of each row, padding included."""
        return int(self.mask.shape[1])

    @property
    def row_bytes(self) -> tuple[int, int]:
        """What one row of the cache takes: bytes a column, and bytes whatever its length."""
        each = [layer_bytes(layer) for layer in self.layers]
        return sum(column for column, _ in each), sum(state for _, state in each)

    @property
    def bytes(self) -> int:
        """What the cache takes, spare columns left out."""
        column, state = self.row_bytes
        return self.rows * (self.columns * column + state)

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
        index, mask, columns = self._narrowed(rows, stale)
        return DecodeBatch([take_rows(layer, index, columns) for layer in self.layers], mask, self.logits[index])

    def keep(self, rows: list[int]) -> None:
        """Become a batch of these rows; each layer's memory is free again once its rows are copied."""
        index, self.mask, columns = self._narrowed(rows, None)
        for place, layer in enumerate(self.layers):
            self.layers[place] = take_rows(layer, index, columns)
        self.logits, self.positions = self.logits[index], self.positions[index]

    def _narrowed(self, rows: list[int], stale: list[int] | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Index and mask of these rows, and the columns that any of them uses (``None``: all)."""
        index = torch.tensor(rows, device=self.mask.device)
        mask = self.mask[index]
        if stale is not None:
            cut = self.columns - torch.tensor(stale, device=mask.device).unsqueeze(1)
            mask = mask * (torch.arange(self.columns, device=mask.device) < cut)
        used = mask.any(dim=0).nonzero().squeeze(1)
        if len(used) == self.columns:
            return index, mask, None
        return index, mask[:, used], used

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
