"""Drawing tokens: temperature, top-k, top-p and the inverse-CDF draw that makes sampling independent of batching."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from training.policy.engine import SamplingParams


def uniform_draws(seed: int, count: int) -> Tensor:
    """``count`` uniform numbers in [0, 1) for one turn, float32 on the CPU, fixed by ``seed``."""
    generator = torch.Generator().manual_seed(seed & 0x7FFF_FFFF_FFFF_FFFF)
    return torch.rand(count, generator=generator)


def draw(logits: Tensor, uniforms: Tensor, params: SamplingParams) -> tuple[Tensor, Tensor]:
    """Draw one token a row. ``logits`` (batch, vocabulary), ``uniforms`` (batch,); gives ids and log-probabilities
    (batch,).

    The log-probability is the one of the temperature-scaled distribution, before top-k and top-p. Nucleus sampling:
    Holtzman et al. 2020.
    """
    logprobs = torch.log_softmax(logits.float() / params.temperature, dim=-1)
    if params.top_k > 0 or params.top_p < 1:
        return _draw_cut(logprobs, uniforms, params)
    cumulative = logprobs.exp().cumsum(dim=-1)
    ids = _pick(cumulative, uniforms)
    return ids, logprobs.gather(-1, ids.unsqueeze(-1)).squeeze(-1)


def draw_rows(logits: Tensor, uniforms: Tensor, params: Sequence[SamplingParams]) -> tuple[Tensor, Tensor]:
    """``draw`` with parameters of each row's own, (batch,) of them; rows do not hang on each other."""
    kinds = set(params)
    if len(kinds) == 1:
        return draw(logits, uniforms, params[0])
    ids = torch.empty(len(params), dtype=torch.long, device=logits.device)
    logprobs = torch.empty(len(params), device=logits.device)
    for kind in kinds:
        rows = torch.tensor([row for row, own in enumerate(params) if own == kind], device=logits.device)
        ids[rows], logprobs[rows] = draw(logits[rows], uniforms[rows], kind)
    return ids, logprobs


def _draw_cut(logprobs: Tensor, uniforms: Tensor, params: SamplingParams) -> tuple[Tensor, Tensor]:
    size = min(params.top_k, logprobs.shape[-1]) if params.top_k > 0 else logprobs.shape[-1]
    top, order = logprobs.topk(size, dim=-1)  # sorted, likeliest first
    kept = top.exp()
    if params.top_p < 1:
        share = kept / kept.sum(dim=-1, keepdim=True)
        # A token stays while the mass before it is below top_p, so at least one always stays.
        kept = kept * ((share.cumsum(dim=-1) - share) < params.top_p)
    choice = _pick(kept.cumsum(dim=-1), uniforms)
    ids = order.gather(-1, choice.unsqueeze(-1)).squeeze(-1)
    return ids, top.gather(-1, choice.unsqueeze(-1)).squeeze(-1)


def _pick(cumulative: Tensor, uniforms: Tensor) -> Tensor:
    """Index of the first cumulative mass above the row's uniform share of the total."""
    total = cumulative[:, -1:]
    picked = torch.searchsorted(cumulative, uniforms.to(cumulative).unsqueeze(-1) * total, right=True)
    # A product that rounds up to the total would fall behind the last token with any mass.
    last = torch.searchsorted(cumulative, total.contiguous(), right=False)
    return torch.minimum(picked, last).squeeze(-1)
