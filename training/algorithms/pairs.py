"""TRL's DPO trainer on pairs that are tokenised already, with a mask of what the assistant wrote."""

from __future__ import annotations

from typing import Any

import torch

from training.algorithms.seam import DPOTrainer
from training.algorithms.updates import FiniteUpdates


class PairTrainer(FiniteUpdates, DPOTrainer):  # type: ignore[misc]
    """Takes the dataset as it is: TRL would tokenise it again, and learn what tools have answered."""

    def _prepare_dataset(self, dataset: Any, *_given: Any) -> Any:
        return dataset


class PairCollator:
    """Pairs as TRL's trainer reads them: tensors of shape (2 × pairs, tokens), the chosen answers first."""

    def __init__(self, pad_token_id: int) -> None:
        self._pad = pad_token_id

    def __call__(self, examples: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
        """Each answer behind its prompt, padded at the end."""
        rows = [(example, name) for name in ("chosen", "rejected") for example in examples]
        ids = [example["prompt_ids"] + example[f"{name}_ids"] for example, name in rows]
        marks = [[0] * len(example["prompt_ids"]) + example[f"{name}_mask"] for example, name in rows]
        return {
            "input_ids": _padded(ids, self._pad),
            "attention_mask": _padded([[1] * len(row) for row in ids], 0),
            "completion_mask": _padded(marks, 0),
        }


def _padded(rows: list[list[int]], filler: int) -> torch.Tensor:
    width = max(map(len, rows))
    return torch.tensor([row + [filler] * (width - len(row)) for row in rows])
