"""Where PPO's value head starts: at the mean of the first returns, and with updates that the policy does not see."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.training.algorithms.conftest import MakeJob
from tests.training.algorithms.test_grpo import by_length, parameters_of
from tests.training.algorithms.test_ppo import PPO, every_third_fails, rewards_of, sampled
from tests.training.algorithms.test_values import by_steps
from tests.training.helpers import of_type, scripted_server
from training.algorithms.grpo import run_ppo
from training.algorithms.micro_batches import Joined, Packed
from training.algorithms.trainers import ActorCriticTrainer, Sums, own_tokens, warm_up
from training.algorithms.values import value_loss
from training.policy.value_head import ValueHead

pytestmark = pytest.mark.usefixtures("no_health")

__all__ = ["sampled"]

ONCE: dict[str, Any] = {"run": {"max_steps": 1}, "optim": {"learning_rate": 1e-3}}


def started(job: Any) -> list[str]:
    return [event.message for event in of_type(job.run_dir, "log") if "value head starts at" in event.message]


# Arithmetic


def test_the_sums_by_hand() -> None:
    """Two tokens: h = (1, 2) with the return 3, h = (0, −1) with the return 1; x has a 1 behind for the bias."""
    sums = Sums(2)
    sums.add(torch.tensor([[1.0, 2.0]]), torch.tensor([3.0]))
    sums.add(torch.tensor([[0.0, -1.0]], dtype=torch.bfloat16), torch.tensor([1.0]))
    assert sums.tokens == 2
    assert sums.square.tolist() == [[1, 2, 1], [2, 5, 1], [1, 1, 2]]
    assert sums.goal.tolist() == [3, 5, 4]


def test_an_update_by_hand() -> None:
    """From w = 0 and b = 2 the errors are −1 and 1, so the gradient is (−1, −3, 0) / 2. AdamW's first update is the
    rate against each sign; what has no gradient stays."""
    sums = Sums(2)
    sums.add(torch.tensor([[1.0, 2.0], [0.0, -1.0]]), torch.tensor([3.0, 1.0]))
    head = ValueHead(2)
    head.bias.data.fill_(2.0)
    warm_up(head, sums, 1, 0.125)
    assert head.weight.tolist() == [[pytest.approx(0.125, abs=1e-6), pytest.approx(0.125, abs=1e-6)]]
    assert head.bias.tolist() == [2.0]


@pytest.mark.parametrize("updates", [0, 1, 25])
def test_updates_are_those_over_all_tokens_at_once(updates: int) -> None:
    """AdamW over ½ mean squared error, by autograd over the tokens themselves; the sums are of three micro batches."""
    torch.manual_seed(1)
    hidden, returns = torch.randn(40, 6), torch.randn(40)
    sums, head, other = Sums(6), ValueHead(6), ValueHead(6)
    for part in ((0, 7), (7, 30), (30, 40)):
        sums.add(hidden[slice(*part)], returns[slice(*part)])
    for each in (head, other):
        torch.nn.init.constant_(each.bias, 0.5)
    warm_up(head, sums, updates, 0.03)
    optimizer = torch.optim.AdamW(other.parameters(), lr=0.03, weight_decay=0.0)
    for _update in range(updates):
        optimizer.zero_grad()
        values, ones = other(hidden[None]), torch.ones(1, 40)
        (value_loss(values, values.detach(), returns[None], ones, 0.0).loss / 40).backward()
        optimizer.step()
    assert torch.allclose(head.weight, other.weight, atol=1e-5) and torch.allclose(head.bias, other.bias, atol=1e-5)
    assert head.begun and not ValueHead(6).begun


@pytest.mark.parametrize("lay_out", [Packed, Joined])
def test_hidden_states_are_read_where_values_are(lay_out: Any) -> None:
    """Rows of different lengths, of which some tokens are not the model's own, padded or one after another."""
    torch.manual_seed(2)
    mask = torch.tensor([[0, 1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 0, 0, 0]])
    chosen = torch.tensor([[1, 0, 1, 0], [0, 1, 1, 1], [1, 0, 0, 0]]).bool()
    packed = lay_out(torch.arange(21).reshape(3, 7), mask, 4)
    hidden = torch.randn(*packed.ids[:, 1:].shape, 5)
    found = packed.states_of(hidden, chosen)
    assert found.shape == (6, 5)
    for column in range(5):
        assert torch.equal(found[:, column], packed.of_completions(hidden[..., column])[chosen])


# Runs


@pytest.mark.parametrize(("gamma", "lam", "beta"), [(1.0, 1.0, 0.0), (0.9, 0.7, 0.1)])
def test_the_first_values_are_the_mean_of_their_own_returns(
    make_job: MakeJob, sampled: list[dict[str, Any]], gamma: float, lam: float, beta: float
) -> None:
    """Every third rollout is excluded and says nothing of it. The policy is the reference still, so β pulls nowhere."""
    options = {"gamma": gamma, "lam": lam, "beta": beta, "whiten_advantages": False}
    with scripted_server() as url:
        job = make_job(**PPO, ppo=options, environment={"url": url}, run={"max_steps": 2})
        run_ppo(job, scorer=every_third_fails())
    first, mask = sampled[0], own_tokens(sampled[0])
    rewards, own = rewards_of(job.run_dir, 1), [int(row.sum()) for row in mask]
    assert None in rewards and len({reward for reward in rewards if reward is not None}) > 1
    assert [reward is None for reward in rewards] == [count == 0 for count in own]
    value = float(first["values"][mask.bool()][0])
    assert torch.equal(first["values"], torch.where(mask.bool(), value, 0.0))
    returns: list[float] = []
    for count, reward in zip(own, rewards, strict=True):
        if count:
            steps = by_steps([0.0] * (count - 1) + [reward or 0.0], [value] * count, gamma, lam)
            returns += [advantage + value for advantage in steps]
    assert sum(returns) / len(returns) == pytest.approx(value, abs=1e-4)
    if lam == 1:
        pairs = list(zip(own, rewards, strict=True))
        assert value == pytest.approx(sum(n * (r or 0.0) for n, r in pairs) / sum(own), abs=1e-5)
    assert of_type(job.run_dir, "metrics")[0].values["value/mean"] == pytest.approx(value, abs=1e-5)
    assert len(started(job)) == 1 and f"starts at {value:.4g}, the mean of the first returns." in started(job)[0]


@pytest.mark.usefixtures("no_rest")
def test_a_sampling_without_evidence_starts_nothing(make_job: MakeJob, sampled: list[dict[str, Any]]) -> None:
    """The first sampling has no rollout that counts: the second one's mean it is."""
    thirds, seen = every_third_fails(), iter(range(1000))

    def score(episode: Any) -> Any:
        if next(seen) < 8:
            raise OSError("away")
        return thirds(episode)

    with scripted_server() as url:
        job = make_job(**PPO, environment={"url": url}, run={"max_steps": 2}, ppo={"critic_warmup": 2})
        run_ppo(job, scorer=score)
    assert not own_tokens(sampled[0]).any() and not sampled[0]["values"].any()
    assert own_tokens(sampled[1]).any() and len(started(job)) == 1


def test_a_stage_continues_with_the_head_of_the_one_before(make_job: MakeJob) -> None:
    stages = [{"name": "one", "until_step": 2}, {"name": "two", "ppo": {"critic_warmup": 9}}]
    with scripted_server() as url:
        job = make_job(**PPO, environment={"url": url}, run={"max_steps": 4}, curriculum={"stages": stages})
        run_ppo(job, scorer=by_length)
    assert [event.step for event in of_type(job.run_dir, "metrics")] == [1, 2, 3, 4]
    assert len(started(job)) == 1 and "updates of its own" not in started(job)[0]


@pytest.mark.parametrize("rank", [0, 4])
def test_the_warm_up_moves_nothing_but_the_head(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch, rank: int, starter_folder: Any
) -> None:
    """Bitwise: the policy's weights, the optimiser, the schedule and the random states, with dropout in the adapter."""
    seen: list[int] = []
    original = ActorCriticTrainer._warmed_up

    def watched(self: Any, output: Any, values: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
        before = {name: value.clone() for name, value in self.model.state_dict().items()}
        random_states = torch.random.get_rng_state(), random.getstate()
        found = original(self, output, values, returns, mask)
        moved = {name for name, value in self.model.state_dict().items() if not torch.equal(value, before[name])}
        assert {name.rpartition("value_head.")[2] for name in moved} == {"weight", "bias"} and len(moved) == 2
        assert torch.equal(torch.random.get_rng_state(), random_states[0]) and random.getstate() == random_states[1]
        assert not self.optimizer.state and self.state.global_step == 0 and self.lr_scheduler.last_epoch == 0
        assert all(parameter.grad is None for parameter in self.model.parameters())
        assert all(module.training for module in self.model.modules())
        assert not torch.equal(found, values) and not (found * (1 - mask)).any()
        seen.append(self.state.global_step)
        return found

    monkeypatch.setattr(ActorCriticTrainer, "_warmed_up", watched)
    model = {"source": str(starter_folder), "lora_rank": rank, "lora_dropout": 0.2 if rank else 0.0}
    with scripted_server() as url:
        over = {"ppo": {"critic_warmup": 5}, "optim": {"micro_batch_size": 2}, "model": model}
        job = make_job(**PPO, environment={"url": url}, **over)
        run_ppo(job, scorer=by_length)
    assert seen == [0]
    (message,) = started(job)
    assert "has had 5 updates of its own over the " in message and "of their variance now." in message
    assert [event.step for event in of_type(job.run_dir, "metrics")] == [1, 2], "its updates are no steps"


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_the_first_step_of_the_policy_learns_from_the_same_advantages(
    make_job: MakeJob, sampled: list[dict[str, Any]], weight: float
) -> None:
    """They are made before the warm-up. The value loss alone is another one afterwards: with a weight of 0 it ends at
    the head, and the policy's first step is bitwise the same."""
    after = []
    for updates in (0, 20):
        with scripted_server() as url:
            options = {"critic_warmup": updates, "value_coef": weight, "lam": 0.9}
            job = make_job(f"run{updates}", **PPO, ppo=options, environment={"url": url}, **ONCE)
            run_ppo(job, scorer=by_length)
        after.append(parameters_of(job.run_dir / "model"))
    plain, warm = sampled
    assert torch.equal(plain["advantages"], warm["advantages"]) and torch.equal(plain["returns"], warm["returns"])
    assert not torch.equal(plain["values"], warm["values"])
    same = [torch.equal(after[0][name], after[1][name]) for name in after[0]]
    assert all(same) is (weight == 0)
    mask = own_tokens(warm).bool()
    errors = [float(((each["values"] - each["returns"])[mask] ** 2).mean()) for each in sampled]
    assert errors[1] < errors[0]
