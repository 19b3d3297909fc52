"""RLOO: the baseline of each rollout is the mean of the others, and a rollout is one action."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.training.algorithms.conftest import MakeJob
from tests.training.algorithms.test_grpo import COMPONENTS, by_length, parameters_of
from tests.training.helpers import job_config, of_type, scripted_server
from training.algorithms import rollouts
from training.algorithms.grpo import run_ppo, run_rloo
from training.algorithms.trainers import RlooTrainer, leave_one_out
from training.errors import RewardFault
from training.rewards.base import Episode, Score
from training.rewards.combining import group_statistics

pytestmark = pytest.mark.usefixtures("no_health")


def test_each_is_compared_with_the_others_of_its_group() -> None:
    rewards = torch.tensor([1.0, 0.0, 0.5, 9.0, 2.0, 5.0, 5.0, 5.0])
    kept = torch.tensor([True, True, True, False, True, False, False, False])
    assert leave_one_out(rewards, kept, 4).tolist() == [0.75, -0.75, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert group_statistics([1.0, 0.0, 0.5, None], scale="leave_one_out").advantages == [0.75, -0.75, 0.0, None]
    assert group_statistics([2.0, None], scale="leave_one_out").advantages == [0.0, None]


def watch_losses(monkeypatch: pytest.MonkeyPatch) -> tuple[list[dict[str, Any]], list[torch.Tensor]]:
    """What each micro batch was computed from, and the derivative of its loss by each log-probability."""
    given: list[dict[str, Any]] = []
    slopes: list[torch.Tensor] = []
    loss, logprobs = RlooTrainer._compute_loss, RlooTrainer._get_per_token_logps_and_entropies

    def remember(self: Any, model: Any, inputs: Any) -> Any:
        given.append(dict(inputs))
        return loss(self, model, inputs)

    def spy(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = logprobs(self, *args, **kwargs)
        if found[0].requires_grad:
            found[0].register_hook(lambda grad: slopes.append(grad.clone()))
        return found

    monkeypatch.setattr(RlooTrainer, "_compute_loss", remember)
    monkeypatch.setattr(RlooTrainer, "_get_per_token_logps_and_entropies", spy)
    return given, slopes


def every_third_fails() -> Any:
    counter = iter(range(1000))

    def score(episode: Episode) -> Score:
        if next(counter) % 3 == 2:
            raise RewardFault("no")
        return by_length(episode)

    return score


def by_hand(groups: list[Any]) -> list[float]:
    """Rewards of the journal less the mean of the others', without those that are excluded."""
    found = []
    for rewards in groups:
        known = [reward for reward in rewards if reward is not None]
        for reward in rewards:
            others = len(known) - 1
            found.append(0.0 if reward is None or not others else reward - (sum(known) - reward) / others)
    return found


def test_a_rollout_is_one_action_against_the_others(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """The derivative by each own token is -A/B for the B rollouts that are kept: REINFORCE, whatever the length."""
    given, slopes = watch_losses(monkeypatch)
    with scripted_server() as url:
        over = {"environment": {"url": url}, "rewards": {"components": COMPONENTS}, "run": {"max_steps": 1}}
        job = make_job(kind="rloo", data={"shuffle": False}, **over)
        run_rloo(job, scorer=every_third_fails())
    groups = sorted(of_type(job.run_dir, "group_scored"), key=lambda event: event.group)
    rewards = {end.rollout: end.reward for end in of_type(job.run_dir, "rollout_finished")}
    ordered = [[rewards[name] for name in group.rollouts] for group in groups]
    wanted = by_hand(ordered)
    journalled = [advantage or 0.0 for group in groups for advantage in group.advantages]
    assert journalled == pytest.approx(wanted, abs=1e-9) and None in rewards.values()
    kept = [
        advantage
        for advantage, reward in zip(wanted, [reward for group in ordered for reward in group], strict=True)
        if reward is not None
    ]
    inputs, slope = given[0], slopes[0]
    assert sorted(inputs["advantages"].tolist()) == pytest.approx(sorted(kept), abs=1e-6)
    mask = inputs["completion_mask"] * inputs["tool_mask"]
    assert torch.allclose(slope, -inputs["advantages"][:, None] / len(kept) * mask, atol=1e-7)
    assert float(slope.abs().max()) > 1e-3


def test_the_pull_of_the_reference_is_part_of_the_reward(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a step of a large size the policy has left the reference; its KL divergence is paid for, not derived."""
    given, slopes = watch_losses(monkeypatch)
    pulled: list[torch.Tensor] = []
    original = RlooTrainer._generate_and_score_completions

    def with_reference(self: Any, inputs: Any) -> Any:
        output = original(self, inputs)
        ids = torch.cat([output["prompt_ids"], output["completion_ids"]], 1)
        marks = torch.cat([output["prompt_mask"], output["completion_mask"]], 1)
        found = []
        for model in (self.model, self.ref_model):
            with torch.no_grad():
                logits = model(ids, attention_mask=marks).logits[:, -output["completion_ids"].shape[1] - 1 : -1]
            chosen = logits.log_softmax(-1).gather(-1, output["completion_ids"][..., None])[..., 0]
            found.append((chosen * output["completion_mask"] * output["tool_mask"]).sum(1))
        pulled.append(found[0] - found[1])
        return output

    monkeypatch.setattr(RlooTrainer, "_generate_and_score_completions", with_reference)
    with scripted_server() as url:
        over = {"environment": {"url": url}, "rewards": {"components": COMPONENTS}, "rloo": {"beta": 0.1}}
        job = make_job(kind="rloo", optim={"learning_rate": 1e-2}, **over)
        run_rloo(job, scorer=by_length)
    second = [event for event in of_type(job.run_dir, "rollout_finished") if "-s2-" in event.rollout]
    places = {event.rollout: event.reward for event in second}
    groups = sorted((g for g in of_type(job.run_dir, "group_scored") if g.step == 2), key=lambda event: event.group)
    rewards = [places[name] for group in groups for name in group.rollouts]
    assert float(pulled[0].abs().max()) < 1e-3 and float(pulled[1].abs().max()) > 0.1
    paid = [reward - 0.1 * float(pull) for reward, pull in zip(rewards, pulled[1], strict=True)]
    wanted = sorted(by_hand([paid[:4], paid[4:]]))
    assert sorted(given[-1]["advantages"].tolist()) == pytest.approx(wanted, abs=1e-4)
    mask = given[-1]["completion_mask"] * given[-1]["tool_mask"]
    assert torch.allclose(slopes[-1], -given[-1]["advantages"][:, None] / 8 * mask, atol=1e-7)
    figures = [event.values for event in of_type(job.run_dir, "metrics")]
    assert figures[1]["kl"] == pytest.approx(float(pulled[1].sum() / mask.sum()), abs=1e-4)


@pytest.mark.usefixtures("no_rest")
def test_a_step_without_a_rollout_moves_nothing(make_job: MakeJob, starter_folder: Any) -> None:
    def raising(_episode: Episode) -> Score:
        raise RewardFault("no")

    with scripted_server() as url:
        over = {"environment": {"url": url}, "rewards": {"components": COMPONENTS}, "run": {"max_steps": 1}}
        job = make_job(kind="rloo", rloo={"beta": 0.1}, **over)
        run_rloo(job, scorer=raising)
    before, after = parameters_of(starter_folder), parameters_of(job.run_dir / "model")
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(
    ("over", "option"),
    [
        ({"optim": {"mini_batch_size": 4}}, "optim.mini_batch_size"),
        ({"rewards": {"aggregation": "normalize_then_sum"}}, "rewards.aggregation"),
        ({"rollout": {"num_generations": 1}}, "rollout.num_generations"),
    ],
)
def test_what_would_not_be_rloo_is_refused(over: dict[str, Any], option: str) -> None:
    with pytest.raises(ValueError, match=option):
        job_config(kind="rloo", **over)


def test_the_options_of_grpo_say_nothing_about_it() -> None:
    config = job_config(kind="rloo", grpo={"beta": 0.4, "num_iterations": 4, "scale_rewards": "batch"})
    assert (config.gradient.beta, config.updates_per_step, config.gradient.scale_rewards) == (0, 1, "leave_one_out")
    assert config.learning_rate == 1e-3 and job_config(kind="rloo", optim={"learning_rate": 0}).learning_rate == 1e-6


@pytest.mark.parametrize("kind", ["rloo", "ppo"])
def test_the_pull_does_not_depend_on_what_the_sampler_says(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Its log-probabilities differ by what was batched with a turn, so no two runs were bitwise the same."""
    original, weights = rollouts.trl_batch, []
    for shift in (0.0, 1e-3):

        def shifted(*given: Any, shift: float = shift, **named: Any) -> Any:
            found = original(*given, **named)
            found["logprobs"] = [[each + shift for each in row] for row in found["logprobs"]]
            return found

        monkeypatch.setattr(rollouts, "trl_batch", shifted)
        with scripted_server() as url:
            over = {"environment": {"url": url}, "rewards": {"components": COMPONENTS}, kind: {"beta": 0.05}}
            job = make_job(f"{kind}{shift}", kind=kind, **over)
            (run_rloo if kind == "rloo" else run_ppo)(job, scorer=by_length)
        weights.append(parameters_of(job.run_dir / "model"))
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_the_pull_is_measured_without_dropout(
    make_job: MakeJob, starter_folder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured twice it is the same, also once the adapter has learned something."""
    twice: list[bool] = []
    original = RlooTrainer._logprobs

    def measured(self: Any, output: Any) -> torch.Tensor:
        found = original(self, output)
        twice.append(torch.equal(found, original(self, output)) and self.model.training)
        return found

    monkeypatch.setattr(RlooTrainer, "_logprobs", measured)
    model = {"source": str(starter_folder), "lora_rank": 4, "lora_dropout": 0.5}
    with scripted_server() as url:
        over = {"environment": {"url": url}, "rewards": {"components": COMPONENTS}, "rloo": {"beta": 0.1}}
        run_rloo(make_job(kind="rloo", model=model, optim={"learning_rate": 1e-2}, **over), scorer=by_length)
    assert twice == [True, True]
