"""Several short conversations in one row of a batch, so that less of it is padding.

Each keeps positions of its own, from 0, and transformers makes of them a mask in which no conversation sees another. So
the loss is the one of the same conversations in rows of their own; ``require_apart`` has the model prove it, because a
layer that carries a state along the row would know nothing of the positions. Rollouts are joined in the same way
(``micro_batches.Joined``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from training.algorithms.base import IGNORED
from training.errors import ConfigError
from training.policy.attached import causal_of

Example = dict[str, list[int]]
PROBE, WINDOW = (40, 24), 8
"""Tokens of the rows that are tried, and of the windows over which they are."""
EXACT, ROUNDED, NOISE = 1e-3, 0.01, 3.0
"""What two rows may differ by, as a share of the spread of logits: in float32, and where bfloat16 rounds; or so many
times what the same rows differ by beside each other. Measured in float32: 8e-7 at most where rows are kept apart, 0.016
(bloom, falcon_h1) to 1.7 where they are not."""


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
            alone, beside, joined = (_logits(model, batches) for batches in _apart(ids))
    finally:
        model.train(was_training)
    exact = model.dtype == torch.float32 and trainer.accelerator.mixed_precision == "no"
    limit = max(EXACT if exact else ROUNDED, NOISE * _gap(beside, alone))
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
