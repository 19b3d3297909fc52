"""Cache layers whose rows can be taken out and put together: what continuous batching needs of a cache.

Attention layers keep keys and values, one column a token; layers with a state (linear attention, convolutions) keep
the same few tensors however long the row is; some layers have both. The keys and values of an attention layer are one
slab (rows, heads, columns, head size) with spare columns, so that a decode step writes one column instead of copying
the whole cache.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import (
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionCacheLayerMixin,
)

SPARE_COLUMNS = 64
_STATES = ("conv_states", "recurrent_states")


class SlabLayer(DynamicLayer):
    """An attention layer that appends in place while its slab has room; ``keys`` and ``values`` are views of the slab.

    They are kept in the type ``kept``, the precision that attention computes in, where the model hands over another:
    under bfloat16 autocast rotary embeddings give float32 keys, which every step would cast anew.
    """

    def __init__(self, kept: torch.dtype | None = None) -> None:
        super().__init__()
        self.keys: Tensor
        self.values: Tensor
        self._kept = kept
        self._slabs: tuple[Tensor, Tensor] | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """See ``DynamicLayer.update``."""
        if not self.is_initialized:
            none = [states[:, :, :0].to(self._kept or states.dtype) for states in (key_states, value_states)]
            self.hold(none[0], none[1])
        before = self.keys.shape[-2]
        after = before + key_states.shape[-2]
        if self._slabs is None or after > self._slabs[0].shape[-2]:
            self._slabs = _slab([self.keys], before, after), _slab([self.values], before, after)
        for slab, states in zip(self._slabs, (key_states, value_states), strict=True):
            slab[:, :, before:after] = states
        self._show(after)
        return self.keys, self.values

    def hold(self, keys: Tensor, values: Tensor, columns: int | None = None) -> None:
        """Hold these states: slabs of which the first ``columns`` are filled, or (``None``) states without room."""
        self.lazy_initialization(keys, values)
        self.keys, self.values, self._slabs = keys, values, None
        if columns is not None:
            self._slabs = keys, values
            self._show(columns)

    def _show(self, columns: int) -> None:
        assert self._slabs is not None  # noqa: S101 - both callers have just set it
        self.keys, self.values = (slab[:, :, :columns] for slab in self._slabs)


def empty_cache(model: Any, kept: torch.dtype | None) -> DynamicCache:
    """A cache for the model with a layer of the right kind for each of its own; windows are the mask's business."""
    cache = DynamicCache(config=model.config)
    attention = (DynamicLayer, DynamicSlidingWindowLayer)
    cache.layers = [SlabLayer(kept) if type(layer) in attention else layer for layer in cache.layers]
    return cache


def take_rows(layer: Any, rows: Tensor, columns: Tensor | None) -> Any:
    """A copy of the layer with these rows and, of their columns, the ones given (``None``: all)."""

    def kept(states: Tensor) -> Tensor:
        taken = states.index_select(0, rows)
        return taken if columns is None else taken.index_select(2, columns)

    taken = _with_states([layer], lambda states: states[0].index_select(0, rows))
    if layer_columns(layer) is not None:
        _fill(taken, kept(layer.keys), kept(layer.values), None)
    return taken


def join_rows(layers: list[Any], columns: int) -> Any:
    """One layer with the rows of all in order, each padded on the left to so many columns."""
    joined = _with_states(layers, torch.cat)
    if layer_columns(layers[0]) is not None:
        room = columns + SPARE_COLUMNS
        keys, values = ([getattr(layer, name) for layer in layers] for name in ("keys", "values"))
        _fill(joined, _slab(keys, columns, room), _slab(values, columns, room), columns)
    return joined


def layer_columns(layer: Any) -> int | None:
    """Columns of an attention layer; ``None`` for one that keeps no keys, or that the model leaves unused."""
    if not isinstance(layer, DynamicLayer) or not layer.is_initialized:
        return None
    return int(layer.keys.shape[2])  # type: ignore[union-attr]  # an initialised layer has keys


def layer_bytes(layer: Any) -> tuple[int, int]:
    """What one row of the layer takes: bytes a column, and bytes whatever its length."""
    columns = layer_columns(layer)
    states = [state for name in _STATES for state in getattr(layer, name, {}).values() if state is not None]
    rows = [state[0].nbytes for state in states]
    if columns is None or columns == 0:
        return 0, sum(rows)
    return (layer.keys[0].nbytes + layer.values[0].nbytes) // columns, sum(rows)


def _with_states(layers: list[Any], combine: Callable[[list[Tensor]], Tensor]) -> Any:
    """A copy of the first layer whose states, if it has any, are those of all layers combined."""
    made = copy.copy(layers[0])
    if isinstance(made, LinearAttentionCacheLayerMixin):
        for name in _STATES:
            kept = [getattr(layer, name) for layer in layers]
            combined = {i: None if kept[0][i] is None else combine([states[i] for states in kept]) for i in kept[0]}
            setattr(made, name, combined)
    return made


def _fill(layer: Any, keys: Tensor, values: Tensor, columns: int | None) -> None:
    if isinstance(layer, SlabLayer):
        layer.hold(keys, values, columns)
        return
    layer.keys, layer.values = keys[:, :, :columns], values[:, :, :columns]


def _slab(parts: list[Tensor], columns: int, room: int) -> Tensor:
    """A slab with the rows of all parts, each padded on the left to ``columns``, and room for as many as ``room``."""
    first = parts[0]
    shape = (sum(part.shape[0] for part in parts), first.shape[1], max(room, columns + SPARE_COLUMNS), first.shape[3])
    slab, row = first.new_empty(shape), 0
    for part in parts:
        rows = slab[row : row + part.shape[0]]
        padding = columns - part.shape[2]
        rows[:, :, :padding] = 0  # masked, but a NaN in it would spread all the same
        rows[:, :, padding:columns] = part
        row += part.shape[0]
    return slab
