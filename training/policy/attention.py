"""Attention of a decode step that reads the key-value cache where it lies.

With grouped-query attention (Ainslie et al. 2023) several query heads share one key head. transformers' SDPA path
repeats keys and values for each query head when there is a mask, so every decode step copies the whole cache of every
layer. A decode step has one query position: the query heads that share a key head can stand beside each other on the
query axis instead, which is the same sum without a copy. Measured with 64 rows on one core: 5.2 → 3.6 ms a step.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

GROUPED = "tiltyard_grouped_decode"


def grouped_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """transformers' attention interface: ``query`` (batch, heads, queries, size), ``key`` and ``value`` (batch, key
    heads, columns, size), mask (batch, 1, queries, columns); gives (batch, queries, heads, size) and no weights.
    """
    batch, heads, queries, size = query.shape
    shared = heads // key.shape[1]
    if queries != 1 or shared == 1:
        result: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, is_causal=is_causal, **kwargs
        )
        return result
    if attention_mask is not None:
        attention_mask = attention_mask.expand(-1, -1, shared, -1)
    grouped = query.reshape(batch, key.shape[1], shared, size)
    output = scaled_dot_product_attention(grouped, key, value, attn_mask=attention_mask, scale=scaling)
    return output.reshape(batch, 1, heads, size), None


AttentionInterface.register(GROUPED, grouped_attention)
AttentionMaskInterface.register(GROUPED, sdpa_mask)


@contextmanager
def grouped_decoding(model: Any) -> Iterator[None]:
    """Use it for the block where the model would use SDPA; other implementations (eager, flash) stay as they are."""
    config = model.config.get_text_config()
    before = config._attn_implementation
    if before == "sdpa":
        config._attn_implementation = GROUPED
    try:
        yield
    finally:
        config._attn_implementation = before
