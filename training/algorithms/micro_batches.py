"""Micro batches without needless padding.

TRL pads a whole sampling to its longest prompt and its longest completion, and keeps that width in every forward pass.
Here rows are dealt to micro batches by length, the longest first, and a forward pass is as wide as the longest row in
it: each row's tokens begin at the first column (``Packed``). What comes out is laid out as TRL expects it. ``Joined``
leaves no padding at all: the rows follow each other in a single long one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from training.data.learned import IGNORED
from training.errors import ConfigError
from training.policy.attached import causal_of
from training.rollout.rewinding import mix_seed

# Which rows of a sampling each of its updates learns from, the same for TRL and verl.


def rows_by_update(teaches: Sequence[bool], updates: int, seed: int, step: int) -> list[list[int]]:
    """Places of a sampling's rows, a list for each of ``updates`` mini batches: those that teach, dealt evenly.

    ``seed`` is the run's and ``step`` that of the first update: the order depends on nothing else, so every trainer,
    and a run that continues, deals the same rows to the same update.
    """
    order = list(range(len(teaches)))
    random.Random(mix_seed(seed, step)).shuffle(order)  # noqa: S311 - an order, not a secret
    kept = [place for place in order if teaches[place]]
    return [kept[number::updates] for number in range(updates)]


# --- Packing --------------------------------------------------------------------------------------------------------
# Several short conversations in one row of a batch, so that less of it is padding.
#
# Each keeps positions of its own, from 0, and transformers makes of them a mask in which no conversation sees another.
# So the loss is the one of the same conversations in rows of their own; ``require_apart`` has the model prove it,
# because a layer that carries a state along the row would know nothing of the positions. Rollouts are joined in the
# same way (``micro_batches.Joined``).

Example = dict[str, list[int]]
PROBE, WINDOW = (40, 24), 8
"""Tokens of the rows that are tried, and of the windows over which they are."""
EXACT, ROUNDED, NOISE = 1e-3, 0.01, 3.0
"""The difference that two rows may have, as a share of the spread of logits: in float32, and where bfloat16 rounds; or
so many times the difference of the same rows when padded in one batch. Measured in float32: 8e-7 at most where rows are
kept apart, 0.016 (bloom, falcon_h1) to 1.7 where they are not."""


class PackingCollator:
    """A batch of examples in as few rows of at most ``limit`` tokens as first-fit finds, the longest first."""

    def __init__(self, pad_token_id: int, limit: int) -> None:
        self._pad = pad_token_id
        self._limit = limit

    def __call__(self, examples: Sequence[Example]) -> dict[str, torch.Tensor]:
        """``input_ids``, ``labels`` and ``position_ids`` of shape (rows, tokens); padding is a conversation of its own,
        of which nothing is learned."""
        rows = packed_rows([len(example["input_ids"]) for example in examples], self._limit)
        width = max(sum(len(examples[place]["input_ids"]) for place in row) for row in rows)
        table: dict[str, list[list[int]]] = {"input_ids": [], "labels": [], "position_ids": []}
        for row in rows:
            ids: list[int] = []
            labels: list[int] = []
            positions: list[int] = []
            for place in row:
                example = examples[place]
                ids += example["input_ids"]
                labels += [IGNORED, *example["labels"][1:]]  # what comes before its first token is another's
                positions += range(len(example["input_ids"]))
            rest = width - len(ids)
            table["input_ids"].append(ids + [self._pad] * rest)
            table["labels"].append(labels + [IGNORED] * rest)
            table["position_ids"].append([*positions, *range(rest)])
        return {name: torch.tensor(values) for name, values in table.items()}


def packed_rows(lengths: Sequence[int], limit: int) -> list[list[int]]:
    """Places of examples by row: the longest first, each into the first row that has room for it."""
    rows: list[list[int]] = []
    used: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place: (-lengths[place], place)):
        row = next((row for row, size in enumerate(used) if size + lengths[place] <= limit), None)
        if row is None:
            rows.append([place])
            used.append(lengths[place])
        else:
            rows[row].append(place)
            used[row] += lengths[place]
    return rows


def require_apart(trainer: Any, option: str) -> None:
    """Raise ``ConfigError`` unless the model gives rows that share one what it gives each alone.

    Two rows of made-up ids are tried, over windows that are shorter than they are. What differs may be rounding: the
    same rows side by side in one batch, the way without packing, show how much of that there is.
    """
    model: Any = trainer.model
    ids = _made_up(causal_of(model).get_input_embeddings().num_embeddings)
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad(), trainer.compute_loss_context_manager(), _short_windows(model):
            alone, padded, joined = (_logits(model, batches) for batches in _apart(ids))
    finally:
        model.train(was_training)
    exact = model.dtype == torch.float32 and trainer.accelerator.mixed_precision == "no"
    limit = max(EXACT if exact else ROUNDED, NOISE * _gap(padded, alone))
    if not _gap(joined, alone) <= limit:
        raise ConfigError(
            "this model's layers would mix up rows that follow each other in one.",
            option=option,
            hint=f"Set {option} to false.",
        )


def _made_up(words: int) -> list[torch.Tensor]:
    """Ids of a short and a long row; no random numbers of the run are drawn."""
    draw = torch.Generator().manual_seed(1)
    return [torch.randint(words, (length,), generator=draw) for length in PROBE]


def _apart(rows: list[torch.Tensor]) -> Iterator[list[dict[str, torch.Tensor]]]:
    """The batches that are compared: each row alone, both padded, and one after the other."""
    yield [{"input_ids": row[None], "attention_mask": torch.ones_like(row)[None]} for row in rows]
    masks = [torch.ones_like(row) for row in rows]
    table = {"input_ids": rows, "attention_mask": masks}
    yield [{name: pad_sequence(values, batch_first=True) for name, values in table.items()}]
    positions = torch.cat([torch.arange(len(row)) for row in rows])
    yield [{"input_ids": torch.cat(rows)[None], "position_ids": positions[None]}]


def _logits(model: Any, batches: list[dict[str, torch.Tensor]]) -> torch.Tensor:
    """Of all tokens that are no padding, (tokens, words)."""
    found = []
    for batch in batches:
        given = {name: values.to(model.device) for name, values in batch.items()}
        table = model(**given, use_cache=False).logits.float()
        found.append(table[given.get("attention_mask", torch.ones_like(given["input_ids"])).bool()])
    return torch.cat(found)


def _gap(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest difference of a token's logits (root mean square), as a share of how far logits are spread."""
    return float((one - other).pow(2).mean(1).sqrt().max() / other.std())


@contextmanager
def _short_windows(model: Any) -> Iterator[None]:
    """Windows and chunks of attention as short as the trial needs them, where the model has any."""
    config = causal_of(model).config.get_text_config()
    owners = [config, *causal_of(model).modules()]
    before = [
        (owner, name, value)
        for owner in owners
        for name in ("sliding_window", "attention_chunk_size")
        if isinstance(value := getattr(owner, name, None), int) and value > WINDOW
    ]
    for owner, name, _value in before:
        setattr(owner, name, WINDOW)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


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
