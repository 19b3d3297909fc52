"""One optimiser step of verl's over rows of our player, next to the same step in plain PyTorch.

Run with verl's Python, once for each rank: ``python -m tests.training.verl_backend.one_step SETTINGS ROWS``. The first
rank prints what it found as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

Rows = list[dict[str, Any]]


def loaded(path: str) -> Rows:
    rows: Rows = json.loads(Path(path).read_text())
    return rows


def nested(values: list[list[Any]], dtype: torch.dtype) -> torch.Tensor:
    return torch.nested.as_nested_tensor([torch.tensor(row, dtype=dtype) for row in values], layout=torch.jagged)


def batch_of(rows: Rows, whole: int, temperature: float) -> Any:
    """Rows in verl's shape, as its agent loop makes them; ``whole`` is the batch of all ranks."""
    from verl.utils.tensordict_utils import get_tensordict

    ids = [row["prompt_ids"] + row["completion_ids"] for row in rows]
    mask = nested([row["mask"] for row in rows], torch.int64)
    tensors = {
        "prompts": nested([row["prompt_ids"] for row in rows], torch.int64),
        "responses": nested([row["completion_ids"] for row in rows], torch.int64),
        "input_ids": nested(ids, torch.int64),
        "position_ids": nested([list(range(len(row))) for row in ids], torch.int64),
        "response_mask": mask,
        "loss_mask": mask,
        "advantages": nested([[row["advantage"] * bit for bit in row["mask"]] for row in rows], torch.float32),
    }
    words = {
        "calculate_entropy": False,
        "distillation_use_topk": False,
        "distillation_only": False,
        "global_batch_size": whole,
        "mini_batch_size": whole,
        "epochs": 1,
        "seed": 1,
        "dataloader_kwargs": {"shuffle": False},
        "temperature": temperature,
        "compute_loss": False,
    }
    return get_tensordict(tensors, words)


def by_verl(config: Any, rows: Rows, whole: int, temperature: float) -> dict[str, Any]:
    """Loss, gradient, weights and log-probabilities of one step of this rank's rows."""
    from torch.distributed.tensor import DTensor
    from verl.utils.tensordict_utils import get
    from verl.workers.engine_workers import ActorRolloutRefWorker
    from verl.workers.utils.padding import response_from_nested

    worker = ActorRolloutRefWorker(config=config.actor_rollout_ref, role="actor")
    worker.init_model()
    engine = worker.actor.engine
    sharded = [name for name, weight in engine.module.named_parameters() if isinstance(weight, DTensor)]
    data = batch_of(rows, whole, temperature)
    old = response_from_nested(worker.compute_log_prob(data)["log_probs"], data["response_mask"])
    data = batch_of(rows, whole, temperature)
    data["old_log_probs"] = old
    sizes: dict[str, int] = {}

    def measure(optimizer: Any, *_given: Any) -> None:
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        sizes["weights"], sizes["gradients"] = held(weights), held(weight.grad for weight in weights)

    engine.optimizer.register_step_pre_hook(measure)
    done = worker.update_actor(data)
    decay = engine.optimizer.param_groups[0]["betas"][0]
    moments = {name: engine.optimizer.state[weight] for name, weight in engine.module.named_parameters()}
    sizes["optimizer"] = held(state[name] for state in moments.values() for name in ("exp_avg", "exp_avg_sq"))
    return {
        "sizes": sizes,
        "sharded": len(sharded) == len(moments),
        "loss": get(done, "metrics")["loss"] if done is not None else None,
        "gradient": {name: full(state["exp_avg"]) / (1 - decay) for name, state in moments.items()},
        "weights": {name: full(weight.detach()) for name, weight in engine.module.named_parameters()},
        "logprobs": [row.tolist() for row in old.unbind()],
    }


def held(tensors: Iterable[Any]) -> int:
    """Bytes that this rank really holds for these DTensors; a storage that several of them share counts once."""
    storages = {tensor.to_local().untyped_storage().data_ptr(): tensor.to_local() for tensor in tensors}
    return sum(local.untyped_storage().nbytes() for local in storages.values())


def full(tensor: Any) -> torch.Tensor:
    whole: torch.Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return whole.clone()


def by_hand(model: str, rows: Rows, rate: float, temperature: float) -> dict[str, Any]:
    """The same of all rows, one by one and without padding: the mean over all sampled tokens of -advantage × ratio."""
    from transformers import AutoModelForCausalLM

    own = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="eager")
    optimizer = torch.optim.AdamW(own.parameters(), lr=rate, weight_decay=0.0)
    tokens, loss, logprobs = sum(sum(row["mask"]) for row in rows), 0.0, []
    for row in rows:
        ids = torch.tensor([row["prompt_ids"] + row["completion_ids"]])
        size = len(row["completion_ids"])
        scores = torch.log_softmax(own(input_ids=ids).logits[0, -size - 1 : -1] / temperature, dim=-1)
        drawn = scores.gather(1, ids[0, -size:].unsqueeze(1)).squeeze(1)
        logprobs.append(drawn.tolist())
        if any(row["mask"]):
            ratio = torch.exp(drawn - drawn.detach())
            part = -(row["advantage"] * ratio * torch.tensor(row["mask"])).sum() / tokens
            part.backward()
            loss += float(part)
    gradient = {name: weight.grad.clone() for name, weight in own.named_parameters()}
    optimizer.step()
    weights = {name: weight.detach().clone() for name, weight in own.named_parameters()}
    return {"loss": loss, "gradient": gradient, "weights": weights, "logprobs": logprobs}


def apart(mine: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> float:
    """How far two sets of tensors are apart, relative to the second."""
    assert set(mine) == set(theirs), set(mine) ^ set(theirs)
    difference = sum(float((mine[name] - theirs[name]).double().square().sum()) for name in theirs)
    return float((difference / sum(float(value.double().square().sum()) for value in theirs.values())) ** 0.5)


def main(settings: str, rows_path: str) -> None:
    from verl.utils.distributed import initialize_global_process_group

    from training.verl_backend.__main__ import composed

    torch.set_num_threads(1)
    _local, rank, ranks = initialize_global_process_group()
    config, rows = composed(Path(settings)), loaded(rows_path)
    temperature = float(config.actor_rollout_ref.rollout.temperature)
    found = by_verl(config, rows[rank::ranks], len(rows), temperature)
    sizes: list[Any] = [None] * ranks
    dist.all_gather_object(sizes, found["sizes"])
    if rank == 0:
        actor = config.actor_rollout_ref.actor
        own = by_hand(config.actor_rollout_ref.model.path, rows, float(actor.optim.lr), temperature)
        gaps = [
            abs(a - b)
            for mine, theirs in zip(found["logprobs"], own["logprobs"][::ranks], strict=True)
            for a, b in zip(mine, theirs, strict=True)
        ]
        figures = {
            "sharded": found["sharded"],
            "sizes": sizes,
            "ranks": ranks,
            "loss": [float(torch.tensor(found["loss"]).sum()), own["loss"]],
            "gradient": apart(found["gradient"], own["gradient"]),
            "weights": apart(found["weights"], own["weights"]),
            "logprobs": max(gaps),
            "norm": sum(float(part.double().square().sum()) for part in own["gradient"].values()) ** 0.5,
        }
        print("FOUND " + json.dumps(figures), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
