"""PPO on the tiny model: what each token's advantage is made of, both losses by hand, the head in checkpoints."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.training.algorithms import test_losses as losses
from tests.training.algorithms.conftest import MakeJob
from tests.training.algorithms.test_grpo import COMPONENTS, by_length, parameters_of
from tests.training.algorithms.test_kept_rows import watch_gradients
from tests.training.algorithms.test_values import by_steps
from tests.training.helpers import job_config, of_type, scripted_server
from training.algorithms import trainers
from training.algorithms.grpo import clipped_arguments, rollout_arguments, run_ppo
from training.algorithms.trainers import ActorCriticTrainer, own_tokens
from training.errors import RewardFault
from training.policy.attached import causal_of, value_head_of
from training.rewards.base import Episode, Score

pytestmark = pytest.mark.usefixtures("no_health")

PPO: dict[str, Any] = {"kind": "ppo", "rewards": {"components": COMPONENTS}}
SAMPLED = ActorCriticTrainer._generate_and_score_completions


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What each sampling hands to the updates, and the trainer with it."""
    found: list[dict[str, Any]] = []

    def remember(self: Any, inputs: Any) -> Any:
        output = SAMPLED(self, inputs)
        found.append(dict(output) | {"trainer": self})
        return output

    monkeypatch.setattr(ActorCriticTrainer, "_generate_and_score_completions", remember)
    return found


def every_third_fails() -> Any:
    counter = iter(range(1000))

    def score(episode: Episode) -> Score:
        if next(counter) % 3 == 2:
            raise RewardFault("no")
        return by_length(episode)

    return score


def rewards_of(run_dir: Path, step: int) -> list[float | None]:
    """Journalled rewards of a step, in the order in which the trainer has its rows."""
    rewards = {end.rollout: end.reward for end in of_type(run_dir, "rollout_finished")}
    groups = sorted((g for g in of_type(run_dir, "group_scored") if g.step == step), key=lambda g: g.group)
    return [rewards[name] for group in groups for name in group.rollouts]


# What is learned from


def test_a_token_is_compared_with_the_value_of_the_next_own_one(
    make_job: MakeJob, sampled: list[dict[str, Any]], trained_folder: Path
) -> None:
    """The second sampling: values are no longer 0, and the policy has left the reference that it is pulled to."""
    options = {"gamma": 0.97, "lam": 0.9, "beta": 0.1, "whiten_advantages": False, "critic_learning_rate": 0.05}
    with scripted_server() as url:
        job = make_job(**PPO, ppo=options, environment={"url": url}, model={"source": str(trained_folder)})
        run_ppo(job, scorer=by_length)
    second = sampled[1]
    mask, trainer = own_tokens(second), second["trainer"]
    assert (mask == 0)[second["completion_mask"].bool()].any(), "the environment has spoken too"
    ids = torch.cat([second["prompt_ids"], second["completion_ids"]], 1)
    marks = torch.cat([second["prompt_mask"], second["completion_mask"]], 1)
    with torch.no_grad():
        reference = trainer.ref_model(ids, attention_mask=marks).logits[:, -mask.shape[1] - 1 : -1].log_softmax(-1)
    logps = reference.gather(-1, second["completion_ids"][..., None])[..., 0]
    pulls = 0.1 * (second["sampling_per_token_logps"] - logps)
    rewards = rewards_of(job.run_dir, 2)
    assert float(second["values"].abs().max()) > 0.01 and float((pulls * mask).abs().max()) > 0.01
    for row, reward in enumerate(rewards):
        own = mask[row].nonzero().flatten().tolist()
        given = [-float(pulls[row, token]) for token in own]
        given[-1] += reward or 0.0
        values = [float(second["values"][row, token]) for token in own]
        wanted = by_steps(given, values, 0.97, 0.9)
        assert second["advantages"][row][own].tolist() == pytest.approx(wanted, abs=1e-4)
        returns = [advantage + value for advantage, value in zip(wanted, values, strict=True)]
        assert second["returns"][row][own].tolist() == pytest.approx(returns, abs=1e-4)
    figures = of_type(job.run_dir, "metrics")[1].values
    assert figures["kl"] == pytest.approx(10 * float((pulls * mask).sum() / mask.sum()), abs=1e-4)
    assert figures["value/mean"] == pytest.approx(float(second["values"][mask.bool()].mean()), abs=1e-5)
    resolved = of_type(job.run_dir, "run_started")[0].resolved
    assert "ppo.critic_learning_rate" not in resolved


@pytest.mark.parametrize("rank", [0, 4])
def test_values_are_those_of_the_weights_that_sampled(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch, starter_folder: Path, rank: int
) -> None:
    """A plain forward, right after the sampling: the hidden state before each token, times the head, with adapter."""
    wanted: list[torch.Tensor] = []
    found: list[torch.Tensor] = []

    def remember(self: Any, inputs: Any) -> Any:
        output = SAMPLED(self, inputs)
        causal = causal_of(self.model)
        head = value_head_of(self.model)
        for row in range(len(output["completion_ids"])):
            prompt = output["prompt_ids"][row][output["prompt_mask"][row].bool()]
            rest = output["completion_ids"][row][output["completion_mask"][row].bool()]
            with torch.no_grad():
                hidden = causal.model(input_ids=torch.cat([prompt, rest])[None]).last_hidden_state[0]
            each = hidden[len(prompt) - 1 : -1] @ head.weight[0].detach() + head.bias.detach()
            mask = own_tokens(output)[row]
            wanted.append(each[mask[: len(rest)].bool()])
            found.append(output["values"][row][mask.bool()])
        return output

    monkeypatch.setattr(ActorCriticTrainer, "_generate_and_score_completions", remember)
    model = {"source": str(starter_folder), "lora_rank": rank}
    options = {"critic_learning_rate": 0.05, "beta": 0.05}
    batches = {"micro_batch_size": 2, "mini_batch_size": 4, "learning_rate": 1e-2}
    with scripted_server() as url:
        job = make_job(**PPO, ppo=options, environment={"url": url}, model=model, optim=batches, run={"max_steps": 4})
        run_ppo(job, scorer=by_length)
    assert float(torch.cat(wanted[8:]).abs().max()) > 0.01
    for own, other in zip(found, wanted, strict=True):
        assert torch.allclose(own, other, atol=1e-5)
    assert parameters_of(job.run_dir / "model").keys() == parameters_of(starter_folder).keys()


def test_advantages_are_whitened_over_what_is_learned_from(make_job: MakeJob, sampled: list[dict[str, Any]]) -> None:
    with scripted_server() as url:
        job = make_job(**PPO, environment={"url": url}, run={"max_steps": 1})
        run_ppo(job, scorer=every_third_fails())
    mask = own_tokens(sampled[0]).bool()
    own = sampled[0]["advantages"][mask]
    assert float(own.mean()) == pytest.approx(0, abs=1e-5) and float(own.std()) == pytest.approx(1, abs=1e-4)
    assert not sampled[0]["advantages"][~mask].any()
    excluded = [row for row, reward in enumerate(rewards_of(job.run_dir, 1)) if reward is None]
    assert excluded and not mask[excluded].any()
    groups = of_type(job.run_dir, "group_scored")
    assert all(advantage is None for group in groups for advantage in group.advantages)
    assert "groups/zero_variance_share" not in of_type(job.run_dir, "metrics")[0].values


def test_half_of_the_rollouts_excluded_leave_the_gradient_of_the_other_half(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the policy's weights and of the head; values are not 0, because the model begins with a head."""
    gradients = watch_gradients(monkeypatch)
    original = trainers.attach_value_head

    def with_values(model: Any, device: torch.device) -> Any:
        head = original(model, device)
        torch.manual_seed(3)
        torch.nn.init.normal_(head.weight, std=0.05)
        return head

    def half(episode: Episode) -> Score:
        if "red" not in str(episode.row):
            raise RewardFault("no")
        return by_length(episode)

    monkeypatch.setattr(trainers, "attach_value_head", with_values)
    over = {"optim": {"micro_batch_size": 2, "max_grad_norm": 1000.0}, "run": {"max_steps": 1}}
    over |= {"data": {"shuffle": False}, "ppo": {"beta": 0.05, "entropy_coef": 0.01, "value_coef": 1.0}}
    with scripted_server() as url:
        for prompts, score in ((1, by_length), (2, half)):
            given = {"environment": {"url": url}, "rollout": {"prompts_per_step": prompts}, **over}
            run_ppo(make_job(f"run{prompts}", **PPO, **given), scorer=score)
    without, other = gradients
    assert any("value_head" in name for name in without)
    for name, gradient in without.items():
        assert float(gradient.norm()) > 0
        assert torch.allclose(other[name], gradient, rtol=1e-3, atol=1e-6 + 1e-3 * float(gradient.norm())), name


@pytest.mark.usefixtures("no_rest")
def test_a_step_without_a_rollout_moves_nothing(make_job: MakeJob, starter_folder: Path) -> None:
    def raising(_episode: Episode) -> Score:
        raise RewardFault("no")

    with scripted_server() as url:
        job = make_job(**PPO, ppo={"beta": 0.1}, environment={"url": url}, run={"max_steps": 1})
        run_ppo(job, scorer=raising)
    before, after = parameters_of(starter_folder), parameters_of(job.run_dir / "model")
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_one_rollout_of_a_task_is_enough(make_job: MakeJob, sampled: list[dict[str, Any]]) -> None:
    with scripted_server() as url:
        rollout = {"prompts_per_step": 5, "num_generations": 1}
        job = make_job(**PPO, environment={"url": url}, rollout=rollout)
        run_ppo(job, scorer=by_length)
    assert [len(group.rollouts) for group in of_type(job.run_dir, "group_scored")] == [1] * 10
    prompts = [start.task for start in of_type(job.run_dir, "rollout_started")]
    assert len(set(prompts)) > 1 and sampled[0]["advantages"].shape[0] == 5
    assert float(sampled[0]["advantages"].abs().max()) > 0.1


# The losses

OLD_VALUES = [[0.1, 0.9, 5.0, -0.4], [0.3, 0.2, 0.8, 5.0], [0.6, 5.0, -0.2, 0.5]]
VALUES = [[0.2, 0.3, 7.0, 0.6], [0.3, -0.6, 0.9, 7.0], [1.3, 7.0, -0.1, 0.4]]
RETURNS = [[1.0, 0.1, 0.0, 0.7], [0.5, 0.5, 0.5, 0.0], [0.0, 0.0, 0.4, 0.4]]
TOKEN_ADVANTAGES = [[1.2, -0.8, 9.0, 0.3], [-0.7, 0.4, -1.1, 9.0], [0.9, 9.0, -1.6, 0.2]]
REACH, WEIGHT = 0.3, 0.25


@pytest.fixture
def trainer(starter_folder: Path, tmp_path: Path) -> Any:
    """The trainer of a job, for micro batches of three rows."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig

    rollout = {"prompts_per_step": 3, "num_generations": 1, "max_completion_tokens": 16, "max_turn_tokens": 8}
    config = job_config(kind="ppo", ppo={"cliprange_value": REACH, "value_coef": WEIGHT}, rollout=rollout)
    arguments = rollout_arguments(config, tmp_path, "cpu", [1.0]) | clipped_arguments(config)
    made = ActorCriticTrainer(
        config=config,
        model=AutoModelForCausalLM.from_pretrained(starter_folder),
        reward_funcs=[lambda **_given: [0.0]],
        args=GRPOConfig(**arguments),
        train_dataset=Dataset.from_dict({"prompt": ["0"] * 4}),
        processing_class=AutoTokenizer.from_pretrained(starter_folder),
    )
    made.callback = SimpleNamespace(rows=None)
    made.current_gradient_accumulation_steps = 1
    return made


@pytest.mark.parametrize("updates", [1, 2])
def test_both_losses_are_their_papers_formulas(trainer: Any, monkeypatch: pytest.MonkeyPatch, updates: int) -> None:
    """Schulman et al. 2017, eq. 7 with the advantage of each token, and the clipped square of Baselines' PPO2, added
    with the weight; each a mean over the nine own tokens of a sampling, of which each update has an equal part. Losses
    and derivatives, in plain Python, to 1e-6."""
    trainer.args.steps_per_generation = updates
    values = torch.tensor(VALUES, dtype=torch.float64, requires_grad=True)

    class Read:
        def __enter__(self) -> list[torch.Tensor]:
            return [values]

        def __exit__(self, *_given: Any) -> None:
            """Nothing is left."""

    monkeypatch.setattr(trainers, "values_read", lambda *_args, **_given: Read())
    more = {"advantages": TOKEN_ADVANTAGES, "values": OLD_VALUES, "returns": RETURNS}
    doubles = {name: torch.tensor(rows, dtype=torch.float64) for name, rows in more.items()}
    loss, slopes = losses.computed(trainer, **doubles)

    tokens = losses.TOKENS / updates
    wanted, policy, critic = 0.0, [[0.0] * 4 for _ in range(3)], [[0.0] * 4 for _ in range(3)]
    for row, marks in enumerate(losses.MASK):
        for token, own in enumerate(marks):
            if not own:
                continue
            r, a = losses.ratio(row, token), TOKEN_ADVANTAGES[row][token]
            free, held = r * a, min(max(r, 0.8), 1.2) * a
            policy[row][token] = -(free if free <= held else 0.0) / tokens
            now, before, goal = VALUES[row][token], OLD_VALUES[row][token], RETURNS[row][token]
            near = before + min(max(now - before, -REACH), REACH)
            moved, kept = (now - goal) ** 2, (near - goal) ** 2
            critic[row][token] = WEIGHT * (now - goal if moved >= kept else 0.0) / tokens
            wanted += (-min(free, held) + WEIGHT * 0.5 * max(moved, kept)) / tokens
    losses.assert_same((loss, slopes), (wanted, policy))
    assert values.grad is not None
    losses.assert_same((loss, values.grad.tolist()), (wanted, critic))
    figures = trainer._metrics["train"]
    assert figures["value/clip_share"] == [pytest.approx(2 / 9)]


# Options


@pytest.mark.parametrize(
    ("over", "option"),
    [
        ({"rewards": {"aggregation": "normalize_then_sum"}}, "rewards.aggregation"),
        ({"rewards": {"signal": "reward"}}, "rewards.signal"),
        ({"rollout": {"num_generations": 1, "prompts_per_step": 1}}, "rollout.prompts_per_step"),
        ({"ppo": {"lam": 1.5}}, "ppo.lam"),
        ({"ppo": {"gamma": 0}}, "ppo.gamma"),
    ],
)
def test_what_would_not_be_ppo_is_refused(over: dict[str, Any], option: str) -> None:
    with pytest.raises(ValueError, match=option):
        job_config(kind="ppo", **over)


def test_the_options_of_others_say_nothing_about_it() -> None:
    config = job_config(kind="ppo", grpo={"beta": 0.4, "num_iterations": 4}, ppo={"num_iterations": 3})
    assert (config.gradient.beta, config.updates_per_step, config.gradient.scale_rewards) == (0, 3, "values")
    assert job_config(kind="ppo", optim={"learning_rate": 0}).learning_rate == 1e-6
    assert job_config(kind="ppo", rollout={"num_generations": 1}).group_size == 1
