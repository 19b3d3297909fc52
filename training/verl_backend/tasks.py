"""The tasks of a job as verl's dataset: their order is ours, and verl carries only their places in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from training.verl_backend.folder import JobFolder


class Places(Dataset[dict[str, Any]]):
    """One place a group, in the order of the whole run. A batch is a step, so a place says step and group."""

    def __init__(self, data_files: str, **_of_verl: Any) -> None:
        """``data_files`` is the job folder."""
        plan = JobFolder(Path(str(data_files))).plan
        self._order = plan.order

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, place: int) -> dict[str, Any]:
        """``raw_prompt`` is what verl counts the tasks of a batch by; our player makes the prompt."""
        return {
            "raw_prompt": [{"role": "user", "content": ""}],
            "index": self._order[place],
            "place": place,
            "dummy_tensor": torch.tensor([0], dtype=torch.uint8),
        }
