"""One optimiser step of verl's of an adapter: which weights there are, of what type, and which of them move.

Run with verl's Python, once for each rank: ``python -m tests.training.verl_backend.adapted_step SETTINGS ROWS``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from tests.training.verl_backend.one_step import batch_of, full, loaded


def main(settings: str, rows_path: str) -> None:
    from verl.utils.distributed import initialize_global_process_group
    from verl.workers.engine_workers import ActorRolloutRefWorker

    from training.verl_backend.__main__ import composed

    torch.set_num_threads(1)
    _local, rank, ranks = initialize_global_process_group()
    config, rows = composed(Path(settings)), loaded(rows_path)
    worker = ActorRolloutRefWorker(config=config.actor_rollout_ref, role="actor")
    worker.init_model()
    module = worker.actor.engine.module
    before = {name: full(weight.detach()) for name, weight in module.named_parameters()}
    data = batch_of(rows[rank::ranks], len(rows), 1.0)
    data["old_log_probs"] = torch.nested.as_nested_tensor(
        [torch.tensor(row["logprobs"]) for row in rows[rank::ranks]], layout=torch.jagged
    )
    worker.update_actor(data)
    after = {name: full(weight.detach()) for name, weight in module.named_parameters()}
    found = {
        name: {"type": str(weight.dtype), "moved": float((weight - before[name]).abs().max())}
        for name, weight in after.items()
    }
    if rank == 0:
        print("FOUND " + json.dumps(found), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
