"""Attention over rows that stand one after another in a single long one, each for itself.

Positions that begin again tell where a row begins. Each row goes through the model's own attention alone, so nothing is
computed between two rows and no mask over all of them exists: what varlen kernels do (Dao 2023, *FlashAttention-2*),
with whatever PyTorch has on the device. A model says beside each call over how many tokens a sliding layer sees, as it
does for FlashAttention; whether that is all which its masks know, only a trial shows
(``training.algorithms.packing.require_apart``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, eager_mask, sdpa_mask

from training.policy.attached import causal_of

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
    """Which tokens of a row see which, (1, 1, tokens, tokens): boolean, or with ``always`` the numbers that are added.
    ``None`` where every token sees all before it, which SDPA does by itself."""
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
