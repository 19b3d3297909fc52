"""Each algorithm lifts its task: from the first steps to the last, with two seeds. Minutes; a rise, not a smoke run.

The task is to write digits: its reward is the share of digits in what the model wrote, so that every rollout of a model
that knows nothing differs a little from the others.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.training.algorithms.conftest import MakeJob
from tests.training.helpers import of_type, scripted_server
from training.algorithms.dpo import run_dpo
from training.algorithms.grpo import run_grpo, run_ppo, run_rloo
from training.algorithms.playing import run_sample
from training.exports.pairs import write_pairs
from training.rewards.base import Episode, Score

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_health")]
LOSSES = ("dapo", "grpo", "bnpo", "dr_grpo", "cispo", "sapo", "luspo", "vespo")
SEEDS = (1, 2)
RISE = 1.3


def digits(episode: Episode) -> Score:
    text = "".join(message.content for message in episode.policy_messages)
    value = sum(letter.isdigit() for letter in text) / max(1, len(text))
    return Score(parts={"task_success": value}, total=value)


def job(make_job: MakeJob, name: str, url: str, seed: int, steps: int, **over: Any) -> Any:
    groups: dict[str, Any] = {
        "environment": {"url": url},
        "rollout": {"prompts_per_step": 4, "num_generations": 8, "max_turns": 1, "max_turn_tokens": 16},
        "optim": {"learning_rate": 3e-3},
        "run": {"max_steps": steps, "seed": seed, "save_every_minutes": 0},
    }
    for group, values in over.items():
        groups[group] = {**groups.get(group, {}), **values} if isinstance(values, dict) else values
    return make_job(name, **groups)


def rewards(job: Any) -> list[float]:
    return [e.values["reward"] for e in of_type(job.run_dir, "metrics") if "reward" in e.values]


def assert_rises(found: list[float]) -> None:
    first, last = sum(found[:3]) / 3, sum(found[-3:]) / 3
    assert last >= RISE * first, found


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_of_grpo_learns(make_job: MakeJob, loss: str, seed: int) -> None:
    """Two updates of each sampling, so that what the losses do with stale tokens counts as well."""
    over: dict[str, Any] = {"grpo": {"loss_type": loss}, "optim": {"mini_batch_size": 16}}
    if loss == "luspo":
        # Its loss is a sum over the tokens of a rollout, so its gradient is as many times longer.
        over["grpo"]["importance_sampling"] = "sequence"
    with scripted_server() as url:
        played = job(make_job, f"{loss}{seed}", url, seed, 24, **over)
        run_grpo(played, scorer=digits)
    assert_rises(rewards(played))


@pytest.mark.parametrize("seed", SEEDS)
def test_rloo_learns(make_job: MakeJob, seed: int) -> None:
    with scripted_server() as url:
        played = job(make_job, f"rloo{seed}", url, seed, 14, kind="rloo", rloo={"beta": 0.001})
        run_rloo(played, scorer=digits)
    assert_rises(rewards(played))


@pytest.mark.parametrize("generations", [8, 1])
@pytest.mark.parametrize("seed", SEEDS)
def test_ppo_learns(make_job: MakeJob, seed: int, generations: int) -> None:
    """With groups and without: 32 rollouts a step, two updates of each."""
    rollout = {"prompts_per_step": 32 // generations, "num_generations": generations}
    with scripted_server() as url:
        options = {"beta": 0.001, "value_coef": 1.0, "critic_learning_rate": 1e-3}
        over = {"ppo": options, "optim": {"mini_batch_size": 16}, "rollout": rollout}
        played = job(make_job, f"ppo{seed}-{generations}", url, seed, 36, kind="ppo", **over)
        run_ppo(played, scorer=digits)
    assert_rises(rewards(played))


@pytest.mark.parametrize("seed", SEEDS)
def test_dpo_learns_from_pairs_of_groups(
    make_job: MakeJob, seed: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rollouts of a model, the best against the worst of each group, and rollouts of what has learned from them."""
    monkeypatch.setattr("training.algorithms.playing.score_episode", lambda episode, *_given, **_named: digits(episode))
    found = []
    with scripted_server() as url:
        before = job(make_job, f"before{seed}", url, seed, 6, kind="sample")
        run_sample(before)
        write_pairs([before.run_dir / "journal.jsonl"], tmp_path / "pairs.jsonl", 0.05)
        learned = make_job(f"dpo{seed}", kind="dpo", dpo={"batch_size": 12}, run={"max_steps": 12, "seed": seed})
        learned.config.data.train = str(tmp_path / "pairs.jsonl")
        run_dpo(learned)
        model = {"source": str(learned.run_dir / "model")}
        after = job(make_job, f"after{seed}", url, seed + 100, 6, kind="sample", model=model)
        run_sample(after)
        found = [sum(rewards(each)) / 6 for each in (before, after)]
    assert found[1] >= RISE * found[0], found
