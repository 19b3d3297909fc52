"""Attention of the sampler: a decode step reads the key-value cache where it lies, and windows count tokens.

With grouped-query attention (Ainslie et al. 2023) several query heads share one key head. transformers' SDPA path
repeats keys and values for each query head when there is a mask, so every decode step copies the whole cache of every
layer. A decode step has one query position: the query heads that share a key head can stand beside each other on the
query axis instead, which is the same sum without a copy. Measured with 64 rows on one core: 5.2 → 3.6 ms a step.

transformers' masks measure a sliding window in cache columns. A row that was continued has gaps of padding between its
turns, so there a window of columns holds fewer tokens than one of the training forward. ``_by_tokens`` counts the
row's own tokens instead; without gaps the two are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface, eager_mask, sdpa_mask

from training.policy.rows_attention import PLAIN_OF

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
            place = attention_mask.cumsum(dim=-1)  # (batch, columns): how many tokens of the row stand up to here
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
