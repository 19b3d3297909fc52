"""Several short conversations in one row of a batch, so that less of it is padding.

Each keeps positions of its own, from 0, and transformers makes of them a mask in which no conversation sees another. So
the loss is the one of the same conversations in rows of their own; ``require_apart`` has the model prove it, because a
layer that carries a state along the row would know nothing of the positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from training.algorithms.base import IGNORED
from training.errors import ConfigError

Example = dict[str, list[int]]
EXACT, ROUNDED = 1e-3, 0.1
"""Difference of a token's log-probability, in nats: in float32, and where bfloat16 rounds."""


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


def require_apart(trainer: Any, examples: Sequence[Example]) -> None:
    """Raise ``ConfigError`` unless the model gives two conversations in one row what it gives each alone."""
    if len(examples) < 2:
        return
    pair = sorted(examples, key=lambda example: len(example["input_ids"]))[:2]
    alone = [PackingCollator(0, 1)([example]) for example in pair]
    together = PackingCollator(0, sum(len(example["input_ids"]) for example in pair))(pair)
    model = trainer.model
    with torch.no_grad(), trainer.compute_loss_context_manager():
        model.eval()
        tables = [_logprobs(model, batch) for batch in (*alone, together)]
        model.train()
    whole = torch.cat([tables[1], tables[0]]) if len(tables[1]) > len(tables[0]) else torch.cat(tables[:2])
    exact = model.dtype == torch.float32 and trainer.accelerator.mixed_precision == "no"
    if float((whole - tables[2]).abs().max()) > (EXACT if exact else ROUNDED):
        raise ConfigError(
            "this model's layers would mix up conversations that share a row.",
            option="sft.packing",
            hint="Set sft.packing to false.",
        )


def _logprobs(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """The largest log-probability at each position of the only row."""
    given = {name: batch[name].to(model.device) for name in ("input_ids", "position_ids")}
    table: torch.Tensor = model(**given, use_cache=False).logits[0].float().log_softmax(-1).amax(-1)
    return table
