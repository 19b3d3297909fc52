"""One update of the weights by verl: its rows over the devices, what its loss is divided by, and its figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from verl.utils.metric import reduce_metrics
from verl.utils.py_functional import rename_dict
from verl.utils.seqlen_balancing import calculate_workload, get_seqlen_balanced_partitions

from training.verl_backend.loss import OWN_ROWS, SHARE_OF_ROWS, SHARE_OF_TOKENS


class Dealt(NamedTuple):
    """The rows of each update of a sampling, by their places in verl's batch; those that teach come first.

    The shares are the sampling's tokens and rows that teach, over the number of mini batches. ``taught`` counts the
    rows that teach in each.
    """

    rows: list[list[int]]
    share_of_tokens: float
    share_of_rows: float
    taught: tuple[int, ...] = ()

    @classmethod
    def of(cls, teaching: list[list[int]], tokens: Sequence[int], each: int) -> Dealt:
        """Updates of ``each`` rows, filled up with rows that teach nothing: devices get as many rows each."""
        silent = iter([row for row, count in enumerate(tokens) if not count])
        rows = [own + [next(silent) for _ in range(each - len(own))] for own in teaching]
        taught, parts = tuple(map(len, teaching)), len(teaching)
        return cls(rows, sum(tokens) / parts, sum(taught) / parts, taught)

    def teaching(self, number: int) -> bool:
        """Whether anything is learned from a mini batch."""
        return self.taught[number] > 0

    def asked(self, number: int) -> dict[str, Any]:
        """What the loss of a mini batch has to know."""
        shares = {SHARE_OF_TOKENS: self.share_of_tokens, SHARE_OF_ROWS: self.share_of_rows}
        return shares | {OWN_ROWS: self.taught[number]}


def trained_on(workers: Any, batch: Any, rows: Sequence[int], asked: dict[str, Any], shares: int) -> dict[str, Any]:
    """Make one update by the rows at these places of a batch; verl's figures of it.

    ``asked`` is sent with the rows. Each of ``shares`` gets as many, and about as much work: a device, or some that
    share their rows.
    """
    work = calculate_workload(torch.tensor([batch.tags[row]["seq_len"] for row in rows], dtype=torch.int64))
    parts = get_seqlen_balanced_partitions(work, k_partitions=shares, equal_size=True)
    own = batch.select_keys([batch.keys[rows[place]] for part in parts for place in part])
    own.extra_info.update(asked)
    own.extra_info.update(
        distillation_use_topk=False,
        distillation_only=False,
        global_batch_size=len(rows),
        mini_batch_size=len(rows),
        epochs=1,
        dataloader_kwargs={"shuffle": False},
    )
    figures = workers.update_actor(own)["metrics"]
    found: dict[str, Any] = reduce_metrics(rename_dict(figures, "actor/"))
    return found
