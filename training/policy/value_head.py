"""A value head: one linear layer over a causal model's last hidden states, in float32.

It is a module of the model while that is trained, so that its weights are moved, checked and counted with all others.
No model that is saved, and no sampler, knows of it: code that writes weights does so ``without_value_head``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from training.policy.attached import VALUE_HEAD, causal_of, value_head_of


class ValueHead(nn.Module):
    """The expected return from a token on, by the hidden state that the token is sampled from. It begins at 0."""

    def __init__(self, width: int) -> None:
        """``width``: of a hidden state. Zeros draw no random numbers, and a linear layer learns from them."""
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, width))
        self.bias = nn.Parameter(torch.zeros(1))

    @property
    def begun(self) -> bool:
        """Whether it is more than the zeros that it is made of: it was started, trained or loaded."""
        return bool(self.weight.any()) or bool(self.bias.any())

    def forward(self, hidden: Tensor) -> Tensor:
        """Values (rows, tokens) of hidden states (rows, tokens, width)."""
        with torch.autocast(hidden.device.type, enabled=False):
            return nn.functional.linear(hidden.float(), self.weight, self.bias).squeeze(-1)


def attach_value_head(model: Any, device: torch.device) -> ValueHead:
    """Give a causal model, with an adapter or without, a head on ``device``."""
    causal = causal_of(model)
    head = ValueHead(causal.get_output_embeddings().weight.shape[1]).to(device)
    setattr(causal, VALUE_HEAD, head)
    return head


@contextmanager
def values_read(model: Any, chosen: Callable[[Tensor], Tensor], *, reaches_base: bool) -> Iterator[list[Tensor]]:
    """Within the block each forward of the model adds what ``chosen`` takes of the values (rows, tokens - 1).

    They are of all tokens but the first: the value of a token is read where its log-probability is, at the token
    before it. Without ``reaches_base`` their gradient ends at the head.
    """
    head, found = value_head_of(model), list[Tensor]()
    assert head is not None  # noqa: S101 - only trainers that attached one ask
    with hidden_read(model, lambda hidden: found.append(chosen(head(hidden if reaches_base else hidden.detach())))):
        yield found


@contextmanager
def hidden_read(model: Any, taken: Callable[[Tensor], None]) -> Iterator[None]:
    """Within the block each forward of the model hands ``taken`` its last hidden states (rows, tokens - 1, width): of
    all tokens but the last."""

    def read(_body: Any, _given: Any, output: Any) -> None:
        taken(output.last_hidden_state[:, :-1])

    handle = causal_of(model).base_model.register_forward_hook(read)
    try:
        yield
    finally:
        handle.remove()
