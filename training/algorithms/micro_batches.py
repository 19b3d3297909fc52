"""Micro batches without the padding that nobody needs.

TRL pads a whole sampling to its longest prompt and its longest completion, and keeps that width in every forward pass.
Here rows are dealt to micro batches by length, the longest first, and a forward pass is as wide as the longest row in
it: each row's tokens begin at the first column (``Packed``). What comes out is laid out as TRL expects it. ``Joined``
leaves no padding at all: the rows follow each other in a single long one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from training.algorithms.base import IGNORED
from training.algorithms.packing import packed_rows


def dealt_by_length(lengths: Sequence[int], rows: int, tokens: int = 0, *, joined: bool = False) -> list[list[int]]:
    """Places of rows by micro batch, the longest row first: at most ``rows`` in each, or, with ``tokens``, as many as
    fit when all are padded to the longest. A row that is longer than ``tokens`` is a micro batch of its own, and one
    that would be padded to more than twice its length begins the next. ``joined`` rows are not padded: of them as many
    as have ``tokens`` together, by first fit."""
    if tokens and joined:
        return packed_rows(lengths, tokens)

    def joins(place: int, others: list[int]) -> bool:
        if not tokens:
            return len(others) < rows
        longest = lengths[others[0]]
        return (len(others) + 1) * longest <= tokens and 2 * lengths[place] >= longest

    found: list[list[int]] = []
    for place in sorted(range(len(lengths)), key=lambda place: (-lengths[place], place)):
        if found and joins(place, found[-1]):
            found[-1].append(place)
        else:
            found.append([place])
    return found


class Packed:
    """Rows without the padding before them: ``ids`` and ``labels`` of shape (rows, longest row).

    ``labels`` are the completions' tokens and ``IGNORED`` elsewhere; ``inputs`` are what a model is given.
    """

    ids: Tensor
    labels: Tensor
    inputs: dict[str, Tensor]

    def __init__(self, ids: Tensor, mask: Tensor, keep: int) -> None:
        """``ids`` and ``mask`` are (rows, tokens): prompts padded at the left, then completions padded at the right to
        ``keep`` columns."""
        lengths, prompts = mask.sum(1, keepdim=True), mask[:, :-keep].sum(1, keepdim=True)
        columns = torch.arange(int(lengths.max()), device=ids.device)
        inside = columns < lengths
        first = mask.long().argmax(1, keepdim=True)
        self.mask = inside.long()
        self.ids = ids.gather(1, (first + columns).clamp(max=ids.shape[1] - 1)).masked_fill(~inside, 0)
        self.labels = self.ids.masked_fill(~inside | (columns < prompts), IGNORED)
        at = prompts - 1 + torch.arange(keep, device=ids.device)
        self._at = at.clamp(0, max(0, len(columns) - 2))
        self._outside = mask[:, -keep:] == 0
        self.inputs = {"input_ids": self.ids, "attention_mask": self.mask}

    def of_completions(self, values: Tensor) -> Tensor:
        """Values (rows, longest row - 1), each read before the token that it belongs to, as (rows, ``keep``): those of
        the completions' tokens, and 0 where there is none."""
        return values.gather(1, self._at.to(values.device)).masked_fill(self._outside.to(values.device), 0)

    def states_of(self, hidden: Tensor, chosen: Tensor) -> Tensor:
        """Hidden states (rows, longest row - 1, width), each read before the token that it belongs to, as (tokens,
        width): those of the completions' tokens that are marked in ``chosen`` (rows, ``keep``), row by row."""
        return hidden[chosen.nonzero()[:, 0], self._at[chosen]]


class Joined(Packed):
    """Rows one after another, without any padding: ``ids`` and ``labels`` of shape (1, tokens of all rows).

    Positions begin again with each row, and by them attention keeps the rows apart.
    """

    def __init__(self, ids: Tensor, mask: Tensor, keep: int) -> None:
        there = mask.bool()
        lengths, prompts = there.sum(1, keepdim=True), there[:, :-keep].sum(1, keepdim=True)
        learned = there.clone()
        learned[:, :-keep] = False
        self.ids = ids[there][None]
        self.labels = self.ids.masked_fill(~learned[there][None], IGNORED)
        positions = (there.cumsum(1) - 1)[there][None]
        self.inputs = {"input_ids": self.ids, "position_ids": positions}
        at = lengths.cumsum(0) - lengths + prompts - 1 + torch.arange(keep, device=ids.device)
        self._at = at.clamp(0, max(0, self.ids.shape[1] - 2))
        self._outside = ~there[:, -keep:]

    def of_completions(self, values: Tensor) -> Tensor:
        """Values (1, tokens - 1), each read before the token that it belongs to, as (rows, ``keep``)."""
        return values[0][self._at.to(values.device)].masked_fill(self._outside.to(values.device), 0)

    def states_of(self, hidden: Tensor, chosen: Tensor) -> Tensor:
        """The same of hidden states (1, tokens - 1, width)."""
        return hidden[0][self._at[chosen]]


def in_micro_batches(
    forward: Callable[[Packed], Sequence[Tensor]],
    ids: Tensor,
    mask: Tensor,
    keep: int,
    *,
    rows: int,
    tokens: int,
    joined: bool = False,
) -> list[Tensor]:
    """What ``forward`` gives for each packed micro batch of the rows, put together in the rows' own order.

    It gives tensors of (micro batch, ``keep``).
    """
    order = dealt_by_length(mask.sum(1).tolist(), rows, tokens, joined=joined)
    lay_out = Joined if joined else Packed
    parts = [forward(lay_out(ids[places], mask[places], keep)) for places in order]
    back = torch.tensor([place for places in order for place in places], device=ids.device).argsort()
    return [torch.cat(tensors)[back.to(tensors[0].device)] for tensors in zip(*parts, strict=True)]
