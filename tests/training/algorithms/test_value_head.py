"""PPO's value head: what is written of it, how it is trained, and what is reported when it diverges."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.training.algorithms.conftest import MakeJob
from tests.training.algorithms.test_grpo import by_length, parameters_of
from tests.training.algorithms.test_ppo import PPO, sampled, trainer
from tests.training.algorithms.test_resume import after_update, resumed_run
from tests.training.helpers import of_type, scripted_server
from training.algorithms import trainers
from training.algorithms.grpo import run_ppo
from training.algorithms.saving import load_value_head
from training.algorithms.trainers import ActorCriticTrainer
from training.errors import ModelError, NotFinite
from training.policy.attached import value_head_of, without_value_head
from training.policy.value_head import attach_value_head, values_read
from training.policy.vllm_engine import WeightsOnDisk

pytestmark = pytest.mark.usefixtures("no_health")

__all__ = ["sampled", "trainer"]


def test_a_head_is_in_no_model_that_is_written(make_job: MakeJob, starter_folder: Path) -> None:
    with scripted_server() as url:
        run = {"max_steps": 2, "save_every": 1, "keep_last": 0}
        job = make_job(**PPO, environment={"url": url}, run=run)
        run_ppo(job, scorer=by_length)
    names = parameters_of(starter_folder).keys()
    for folder in ("checkpoint-1", "checkpoint-2", "model"):
        assert parameters_of(job.run_dir / folder).keys() == names
    from safetensors.torch import load_file

    heads = [load_file(job.run_dir / f"checkpoint-{step}" / "value_head/weights.safetensors") for step in (1, 2)]
    assert heads[0].keys() == {"weight", "bias"} and heads[0]["weight"].dtype == torch.float32
    assert not torch.equal(heads[0]["weight"], heads[1]["weight"])
    assert not (job.run_dir / "model" / "value_head").exists()


@pytest.mark.parametrize("rank", [0, pytest.param(4, marks=pytest.mark.slow)])
def test_a_run_that_was_cut_is_bitwise_the_same(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch, starter_folder: Path, rank: int
) -> None:
    """Two epochs over two mini batches; the head's weights and moments are in the checkpoint."""
    model = {"source": str(starter_folder), "lora_rank": rank}
    options = {"num_iterations": 2, "beta": 0.02, "lam": 0.95, "critic_learning_rate": 0.02, "critic_warmup": 3}
    over = {"ppo": options, "model": model}
    instants = [after_update(2, "kill"), after_update(7, "kill"), after_update(11, "stop")]
    with monkeypatch.context() as patch:
        patch.setattr("tests.training.algorithms.test_resume.run_grpo", run_ppo)
        last = resumed_run(make_job, patch, instants, kind="ppo", **over)
    assert of_type(last.run_dir, "run_started")[0].from_step == 12
    assert not any("value head starts at" in event.message for event in of_type(last.run_dir, "log"))
    assert any("value/loss" in event.values for event in of_type(last.run_dir.parent / "2", "metrics"))


def test_vllm_is_handed_the_model_without_its_head(starter_folder: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(starter_folder)
    attach_value_head(model, torch.device("cpu"))
    folder = WeightsOnDisk(model, tmp_path, "run", lambda: 1, torch.float32).write().folder
    names = {name for name in parameters_of(folder) if "lm_head" not in name}
    assert names == {name for name in parameters_of(starter_folder) if "lm_head" not in name}
    assert value_head_of(model) is not None


def test_a_checkpoint_without_a_head_is_reported(starter_folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(starter_folder)
    attach_value_head(model, torch.device("cpu"))
    with pytest.raises(ModelError, match="holds no value head"):
        load_value_head(model, starter_folder)


def test_the_head_has_a_rate_of_its_own_and_no_decay(make_job: MakeJob, sampled: list[dict[str, Any]]) -> None:
    with scripted_server() as url:
        over = {"optim": {"learning_rate": 1e-3, "weight_decay": 0.1, "schedule": "cosine"}, "run": {"max_steps": 2}}
        job = make_job(**PPO, environment={"url": url}, **over)
        run_ppo(job, scorer=by_length)
    groups = sampled[0]["trainer"].optimizer.param_groups
    assert [group["initial_lr"] for group in groups] == [1e-3, 1e-3, pytest.approx(0.15 / 128)]
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0, 0.0]
    assert [parameter.shape for parameter in groups[2]["params"]][1] == (1,)
    trained = {id(parameter) for group in groups[:2] for parameter in group["params"]}
    assert not trained & {id(parameter) for parameter in groups[2]["params"]}
    assert of_type(job.run_dir, "run_started")[0].resolved["ppo.critic_learning_rate"] == "0.00117"


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_a_weight_of_0_trains_the_head_alone(starter_folder: Path, weight: float) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(starter_folder)
    head = attach_value_head(model, torch.device("cpu"))
    torch.nn.init.ones_(head.weight)
    ids = torch.tensor([[5, 6, 7, 8]])
    with values_read(model, lambda values: values[:, -2:], reaches_base=weight > 0) as found:
        model(input_ids=ids)
    found[0].sum().backward()
    assert found[0].shape == (1, 2) and head.weight.grad is not None
    assert (model.get_input_embeddings().weight.grad is None) == (weight == 0)
    model(input_ids=ids)
    assert len(found) == 1, "it reads within its block alone"
    with without_value_head(model):
        assert value_head_of(model) is None and "value_head.weight" not in model.state_dict()
    assert value_head_of(model) is head


def test_gradients_of_policy_and_head_are_limited_apart(trainer: Any) -> None:
    for parameter in trainer.model.parameters():
        parameter.grad = torch.full_like(parameter, 1e-6)
    trainer.head.weight.grad.fill_(1e6)
    before = trainer.model.get_input_embeddings().weight.grad.clone()
    trainer.args.max_grad_norm = 1.0
    norm = trainer._clip_grad_norm(trainer.model)
    assert float(norm) < 1 and torch.equal(trainer.model.get_input_embeddings().weight.grad, before)
    assert float(trainer.head.weight.grad.norm()) == pytest.approx(1.0, abs=1e-3)
    trainer.head.weight.grad.fill_(float("inf"))
    assert not torch.isfinite(trainer._clip_grad_norm(trainer.model))


# A head that diverges


def test_values_that_are_not_finite_pause_the_run_and_nothing_is_learned(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = ActorCriticTrainer._values

    def broken(self: Any, output: Any) -> torch.Tensor:
        values = original(self, output)
        return values * float("nan") if self.state.global_step == 1 else values

    monkeypatch.setattr(ActorCriticTrainer, "_values", broken)
    with scripted_server() as url:
        job = make_job(**PPO, environment={"url": url}, run={"max_steps": 3})
        with pytest.raises(NotFinite, match="value head gives values that are not finite after step 1") as caught:
            run_ppo(job, scorer=by_length)
    assert "ppo.critic_learning_rate" in str(caught.value.hint) and caught.value.pauses
    assert [event.step for event in of_type(job.run_dir, "metrics")] == [1]


def test_a_head_that_is_worse_than_none_for_long_is_reported_once(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step size of 1 throws the values far beyond any return."""
    monkeypatch.setattr(trainers, "PATIENCE", 3)
    with scripted_server() as url:
        options = {"critic_learning_rate": 1.0, "cliprange_value": 0.0}
        job = make_job(**PPO, ppo=options, environment={"url": url}, run={"max_steps": 7})
        run_ppo(job, scorer=by_length)
    explained = [event.values.get("value/explained_variance", 0) for event in of_type(job.run_dir, "metrics")]
    assert sum(value < -1 for value in explained) >= 3, explained
    events = [event for event in of_type(job.run_dir, "log") if "worse than none" in event.message]
    assert len(events) == 1 and events[0].level == "warning"


@pytest.mark.parametrize(
    ("explained", "number"),
    [
        ([0.4, 0.01, 0.1, -0.2, 0.3], ""),
        ([0.4, -0.1, 0.1, -0.25, 0.3], "-0.1"),
        ([-0.5, 9.0, 9.0, -0.5], ""),
        ([0.0] * 4, "0"),
        ([-0.1] * 2, ""),
    ],
)
def test_values_that_explain_nothing_are_reported_with_their_number(
    trainer: Any, monkeypatch: pytest.MonkeyPatch, explained: list[float], number: str
) -> None:
    """The middle one of the last three samplings is at most 0: after the fourth, in the second case. Once."""
    lines: list[tuple[str, str]] = []
    variances = iter(explained)
    trainer._explained = deque(maxlen=3)
    trainer.callback = SimpleNamespace(extra={}, job=SimpleNamespace(log=lambda *words: lines.append(words)))
    monkeypatch.setattr(trainers, "PATIENCE", 3)
    monkeypatch.setattr(trainers, "explained_variance", lambda *_given: next(variances))
    for _sampling in explained:
        trainer._report_values(torch.zeros(1, 2), torch.zeros(1, 2), torch.ones(1, 2))
    assert [level for _text, level in lines] == ["warning"] * bool(number)
    if number:
        assert lines[0][0].startswith(f"The values explain nothing of the returns: {number} of their variance")
        assert "last 3 samplings" in lines[0][0]
