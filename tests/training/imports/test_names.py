"""Which metric of another trainer is which of ours, by the names that trainers write."""

from __future__ import annotations

import pytest

from training.imports.recorder import mapped, ours


@pytest.mark.parametrize(
    ("theirs", "our"),
    [
        ("frac_reward_zero_std", "groups/zero_variance_share"),  # TRL
        ("train/frac_reward_zero_std", "groups/zero_variance_share"),
        ("completions/clipped_ratio", "rollouts/truncated_share"),
        ("train/completions/clipped_ratio", "rollouts/truncated_share"),
        ("train/step_time", "timing/step"),
        ("tools/call_frequency", "rollouts/calls_mean"),
        ("eval_reward", "heldout/reward"),
        ("eval/accuracy", "heldout/success"),
        ("rewards/accuracy_reward", "rewards/accuracy_reward/mean"),  # TRL before 0.17
        ("train/rewards/accuracy_reward", "rewards/accuracy_reward/mean"),
        ("response_length/clip_ratio", "rollouts/truncated_share"),  # verl
        ("critic/score/std", "reward_std"),
        ("num_turns/mean", "rollouts/turns_mean"),
        ("tool_call_counts/mean", "rollouts/calls_mean"),
        ("val-core/openai/gsm8k/acc/mean@1", "heldout/success"),
        ("val-core/math/acc/mean_at_4", "heldout/success"),  # as MLflow spells it
        ("val-core/searchR1/reward/mean@1", "heldout/reward"),
        ("val/test_score/openai/gsm8k", "heldout/reward"),
        ("train/response_length", "completions/mean_length"),  # OpenRLHF
        ("train/truncated", "rollouts/truncated_share"),
        ("train/actor_grad_norm", "grad_norm"),
        ("train/group_reward_std", "reward_std"),
        ("eval/eval_math_pass1", "heldout/success"),
        ("reward_component.format", "rewards/format/mean"),
    ],
)
def test_a_name_of_theirs_is_one_of_ours(theirs: str, our: str) -> None:
    assert ours(theirs) == our


@pytest.mark.parametrize(
    "name",
    [
        "rewards/chosen",  # of pairs: no part of a reward
        "rewards/accuracies",
        "eval_rewards/correct_reward/mean",
        "eval_mean_token_accuracy",
        "eval_math_pass4",  # one of four tries
        "eval_response_length_mean",
        "val-core/math/acc/best@8/mean",
        "actor/ppo_kl",  # distance from the policy that sampled, not from the reference model
        "evaluate",
    ],
)
def test_what_means_something_else_keeps_its_name_alone(name: str) -> None:
    assert ours(name) == ""


def test_percent_is_no_share_and_the_first_that_is_listed_counts() -> None:
    assert "heldout/success" not in mapped({"eval/accuracy": 41.0})[0]
    assert mapped({"eval/accuracy": 1.0})[0]["heldout/success"] == 1.0
    assert mapped({"truncated": 0.3, "completions/clipped_ratio": 0.2})[0]["rollouts/truncated_share"] == 0.2
    assert mapped({"train/lr": 0.3, "train/actor_lr": 0.2})[0]["learning_rate"] == 0.2
    assert mapped({"train/reward": 0.5, "critic/score/mean": 0.2})[0]["reward"] == 0.5
    assert mapped({"rewards/f": 0.5, "rewards/f/mean": 0.2})[0] == {"rewards/f": 0.5, "rewards/f/mean": 0.2}
