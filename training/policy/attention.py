"""Attention of the sampler: a decode step reads the key-value cache where it lies, and windows count tokens.

With grouped-query attention (Ainslie et al. 2023) several query heads share one key head. transformers' SDPA path
repeats keys and values for each query head when there is a mask, so every decode step copies the whole cache of every
layer. A decode step has one query position: the query heads that share a key head can be put next to each other on the
query axis instead, which is the same sum without a copy. Measured with 64 rows on one core: 5.2 → 3.6 ms a step.

transformers' masks measure a sliding window in cache columns. A row that was continued has gaps of padding between its
turns, so there a window of columns holds fewer tokens than one of the training forward. ``_by_tokens`` counts the
row's own tokens instead; without gaps the two are the same.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.cache_utils import (
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionCacheLayerMixin,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface, eager_mask, sdpa_mask

from training.policy.attached import causal_of

# --- Rows attention -------------------------------------------------------------------------------------------------
# Attention over rows that follow one another in a single long one, each for itself.
#
# Positions that begin again show where a row begins. Each row goes through the model's own attention alone, so nothing
# is computed between two rows and no mask over all of them exists: what varlen kernels do (Dao 2023,
# *FlashAttention-2*), with what PyTorch has on the device. A model says with each call over how many tokens a sliding
# layer sees, as it does for FlashAttention; whether that is all which its masks know, only a trial shows
# (``training.algorithms.micro_batches.require_apart``).

PLAIN_OF = {"tiltyard_rows": "sdpa", "tiltyard_rows_eager": "eager"}
"""Our attention by its name, and the model's own that each row goes through."""
OURS = {plain: ours for ours, plain in PLAIN_OF.items()}
Attention = Callable[..., tuple[Tensor, Any]]


def attend_by_rows(model: Any) -> None:
    """Have a model attend within rows where rows follow each other; what it does with others is unchanged. Of
    FlashAttention, which does that by itself, nothing is changed."""
    config = causal_of(model).config.get_text_config()
    config._attn_implementation = OURS.get(config._attn_implementation, config._attn_implementation)


def _of_rows(plain: Callable[[Any], Attention]) -> Attention:
    def attend(
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        position_ids: Tensor | None = None,
        sliding_window: int | None = None,
        **given: Any,
    ) -> tuple[Tensor, Any]:
        """transformers' interface: ``query`` (1, heads, tokens, size), ``key`` and ``value`` (1, key heads, tokens,
        size); gives (1, tokens, heads, size) and no weights. With a mask it is the model's own attention."""
        own = plain(module)
        if attention_mask is not None or query.shape[2] != key.shape[2]:
            return own(module, query, key, value, attention_mask, sliding_window=sliding_window, **given)
        found = []
        for begin, end in pairwise(borders(position_ids, query.shape[2])):
            row = [tensor[:, :, begin:end] for tensor in (query, key, value)]
            mask = _mask(end - begin, sliding_window, query, always=own is not sdpa_attention_forward)
            found.append(own(module, *row, mask, sliding_window=sliding_window, **given)[0])
        return torch.cat(found, dim=1), None

    return attend


def borders(positions: Tensor | None, tokens: int) -> list[int]:
    """Where each row begins, and where the last one ends; one row where positions (1, tokens) are not given."""
    if positions is None:
        return [0, tokens]
    begins = (positions[0].diff() != 1).nonzero().flatten() + 1
    return [0, *begins.tolist(), tokens]


def _mask(tokens: int, window: int | None, like: Tensor, *, always: bool) -> Tensor | None:
    """The mask of which tokens of a row see which, (1, 1, tokens, tokens): boolean, or with ``always`` the numbers
    that are added. ``None`` where every token sees all before it, which SDPA does by itself."""
    narrow = window is not None and window < tokens
    if not (narrow or always):
        return None
    seen = torch.ones(tokens, tokens, dtype=torch.bool, device=like.device).tril()
    if narrow:
        assert window is not None  # noqa: S101 - it is narrow
        seen = seen.triu(1 - window)
    if always:
        return torch.zeros_like(seen, dtype=like.dtype).masked_fill(~seen, torch.finfo(like.dtype).min)[None, None]
    return seen[None, None]


def _eager(module: Any) -> Attention:
    """The attention that the model's own file writes out."""
    found: Attention = sys.modules[type(module).__module__].eager_attention_forward  # type: ignore[attr-defined]
    return found


def _no_mask_of_rows(make: Callable[..., Tensor | None]) -> Callable[..., Tensor | None]:
    def mask(*, q_length: int, kv_length: int, attention_mask: Tensor | None = None, **given: Any) -> Tensor | None:
        if attention_mask is None and q_length == kv_length:
            return None
        return make(q_length=q_length, kv_length=kv_length, attention_mask=attention_mask, **given)

    return mask


for _ours, _plain, _make in (
    ("tiltyard_rows", lambda _module: sdpa_attention_forward, sdpa_mask),
    ("tiltyard_rows_eager", _eager, eager_mask),
):
    AttentionInterface.register(_ours, _of_rows(_plain))
    AttentionMaskInterface.register(_ours, _no_mask_of_rows(_make))


# --- Layers ---------------------------------------------------------------------------------------------------------
# Cache layers whose rows can be taken out and put together: what continuous batching needs of a cache.
#
# Attention layers keep keys and values, one column a token; layers with a state (linear attention, convolutions) keep
# the same few tensors however long the row is; some layers have both. The keys and values of an attention layer are one
# slab (rows, heads, columns, head size) with spare columns, so that a decode step writes one column instead of copying
# the whole cache.

SPARE_COLUMNS = 64
_STATES = ("conv_states", "recurrent_states")


class SlabLayer(DynamicLayer):
    """An attention layer that appends in place while its slab has room; ``keys`` and ``values`` are views of the slab.

    They are kept in the type ``kept``, the precision that attention computes in, where the model hands over another:
    under bfloat16 autocast rotary embeddings give float32 keys, which every step would cast again.
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
    """The memory of one row of the layer: bytes a column, and bytes whatever its length."""
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


GROUPED = "tiltyard_grouped_decode"
MakeMask = Callable[..., Tensor | None]


def grouped_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """transformers' attention interface: ``query`` (batch, heads, queries, size), ``key`` and ``value`` (batch, key
    heads, columns, size), mask (batch, 1, queries, columns); gives (batch, queries, heads, size) and no weights.
    """
    batch, heads, queries, size = query.shape
    shared = heads // key.shape[1]
    if queries != 1 or shared == 1 or position_bias is not None:
        result: tuple[Tensor, None] = sdpa_attention_forward(
            module,
            query,
            key,
            value,
            attention_mask,
            dropout=dropout,
            scaling=scaling,
            is_causal=is_causal,
            position_bias=position_bias,
            **kwargs,
        )
        return result
    if attention_mask is not None:
        attention_mask = attention_mask.expand(-1, -1, shared, -1)
    grouped = query.reshape(batch, key.shape[1], shared, size)
    output = scaled_dot_product_attention(grouped, key, value, attn_mask=attention_mask, scale=scaling)
    return output.reshape(batch, 1, heads, value.shape[-1]), None


def _by_tokens(make: MakeMask) -> MakeMask:
    """transformers' mask interface, with the window of a sliding layer (``local_size``) measured in tokens."""

    def mask(*args: Any, local_size: int | None = None, attention_mask: Tensor | None = None, **kwargs: Any) -> Any:
        if local_size is not None and attention_mask is not None:
            place = attention_mask.cumsum(dim=-1)  # (batch, columns): how many tokens the row has up to here
            window = local_size

            def inside(batch: Tensor, _head: Tensor, query: Tensor, column: Tensor) -> Tensor:
                return (column <= query) & (place[batch, query] - place[batch, column] < window)

            kwargs["mask_function"] = inside
        return make(*args, local_size=local_size, attention_mask=attention_mask, **kwargs)

    return mask


GROUPED_FOR = {"sdpa", "flash_attention_2"}
"""What a model attends by in training, where grouped decoding computes the same over the cache."""
AttentionInterface.register(GROUPED, grouped_attention)
AttentionMaskInterface.register(GROUPED, sdpa_mask)


@contextmanager
def sampling_attention(model: Any, *, gaps: bool = True) -> Iterator[None]:
    """For the block: grouped decoding where the model would use SDPA or FlashAttention; with ``gaps`` in rows, windows
    count tokens."""
    config = model.config.get_text_config()
    before = config._attn_implementation
    plain = PLAIN_OF.get(before, before)
    config._attn_implementation = GROUPED if plain in GROUPED_FOR else plain
    masks = {GROUPED: _by_tokens(sdpa_mask), "eager": _by_tokens(eager_mask)} if gaps else {}
    ALL_MASK_ATTENTION_FUNCTIONS.update(masks)
    try:
        yield
    finally:
        for name in masks:
            del ALL_MASK_ATTENTION_FUNCTIONS[name]
        config._attn_implementation = before


# A running decode batch: rows join and leave while the others continue (continuous batching, Yu et al. 2022, *Orca*).
#
# Rows are padded to one length, on the left and, in rows that were continued, between their turns; the mask says where.
# The layers of the cache are in ``layers``.


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
        """How many rows are decoded, finished ones that are still in the slab included."""
        return int(self.mask.shape[0])

    @property
    def columns(self) -> int:
        """Cache columns of each row, padding included."""
        return int(self.mask.shape[1])

    @property
    def row_bytes(self) -> tuple[int, int]:
        """The memory of one row of the cache: bytes a column, and bytes whatever its length."""
        each = [layer_bytes(layer) for layer in self.layers]
        return sum(column for column, _ in each), sum(state for _, state in each)

    @property
    def bytes(self) -> int:
        """The bytes of the cache, spare columns left out."""
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
