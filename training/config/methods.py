"""The table of methods: what a job can do, and what that means for its form, checks, page and trainer.

Code that needs to know something about a kind of job asks its row here; nothing else compares ``kind``. A new method is
a row, a function under ``training/algorithms/`` and, where it has options of its own, a group of the config.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, get_args

from training.garbage import no_collections
from training.words import _

Kind = Literal["grpo", "rloo", "ppo", "dpo", "sft", "sample", "evaluate"]
LearnsFrom = Literal["rollouts", "preferences", "demonstrations", "nothing"]
ENDPOINT_TILES = ("endpoint/tokens", "endpoint/cost")
"""The figures of a run's use of an endpoint; shown where one plays."""


@dataclass(frozen=True)
class Method:
    """One method. ``groups`` are the config's groups that it reads, in the order of the form.

    ``plays``: rollouts against an environment, scored by rewards. ``trains``: weights move and a model comes out.
    ``scripted``: policies or an endpoint may play in the model's place. ``draws_tasks``: an environment may draw its
    tasks, so the dataset is optional. ``evaluates``: every task is played the same number of times, with seeds that
    depend on the task alone, so that contestants can be compared task by task. ``tiles`` and ``curves`` name metrics of
    ``training/metrics.py``, in order; ``components`` means one curve of each reward component, and ``parts/…`` one of
    each part of a mix.
    ``learning_rates``: where none is set, for all weights and for LoRA.
    ``gradient``: the group with the options of the policy gradient.
    ``entry`` is ``module:function``, taking a ``Job``.
    """

    title: str
    short: str
    groups: tuple[str, ...]
    learns_from: LearnsFrom
    entry: str
    tiles: tuple[str, ...]
    curves: tuple[str, ...]
    plays: bool = False
    scripted: bool = False
    draws_tasks: bool = False
    evaluates: bool = False
    learning_rates: tuple[float, float] = (1e-6, 1e-5)
    gradient: Literal["grpo", "rloo", "ppo"] = "grpo"

    @property
    def trains(self) -> bool:
        """Whether weights move, so that checkpoints and a model come out."""
        return self.learns_from != "nothing"

    @property
    def leads(self) -> tuple[str, ...]:
        """The charts that answer whether it works, the best answer first."""
        return _LEADS[self.learns_from]

    def load(self) -> Callable[[Any], None]:
        """The function that does it. Imported only now: the training libraries take seconds."""
        module, _colon, name = self.entry.partition(":")
        with no_collections():
            found: Callable[[Any], None] = getattr(import_module(module), name)
        return found


_ROLLOUT_TILES = (
    "reward",
    "rollouts/task_success",
    "heldout/success",
    "kl",
    "completions/mean_length",
    "rollouts/excluded_share",
    "groups/zero_variance_share",
    "timing/step",
)


_LEADS: dict[LearnsFrom, tuple[str, ...]] = {
    "rollouts": ("success", "reward"),
    "preferences": ("rewards/accuracies", "loss"),
    "demonstrations": ("losses", "mean_token_accuracy"),
    "nothing": ("rollouts/task_success", "groups/pass_share", "reward"),
}


_TASK_CURVES = ("tasks/new_share", "tasks/solved_share", "tasks/hopeless_share")
"""Where tasks are drawn by their pass rate."""


def _rollout_groups(gradient: Literal["grpo", "rloo", "ppo"]) -> tuple[str, ...]:
    """The groups of a method that learns from rollouts, with those of its own gradient in their place."""
    played = ("model", "data", "environment", "rewards", "rollout", "vllm")
    return (*played, gradient, "evaluate", "optim", "mix", "curriculum", "hardware", "run", "report")


METHODS: dict[str, Method] = {
    "grpo": Method(
        title=_("GRPO: learn from rewarded rollouts"),
        short="GRPO",
        groups=_rollout_groups("grpo"),
        learns_from="rollouts",
        entry="training.algorithms.grpo:run_grpo",
        plays=True,
        tiles=_ROLLOUT_TILES,
        curves=(
            "success",
            "reward",
            "components",
            "parts/success",
            "parts/heldout_success",
            "parts/reward",
            "kl",
            "loss",
            "entropy",
            "clip_ratio/region_mean",
            "completions/mean_length",
            "learning_rate",
            "groups/zero_variance_share",
            *_TASK_CURVES,
            "credit/turn_share",
            "credit/silent_share",
            "rollouts/excluded_share",
            "sampling/logprob_gap_max",
            "sampling/logprob_gap_mean",
            "sampling/importance_sampling_ratio/mean",
            "sampling/truncated_share",
            "judge/failures",
            "judge/cost",
        ),
    ),
    "rloo": Method(
        title=_("RLOO: learn from rewarded rollouts, each against the others of its task"),
        short="RLOO",
        groups=_rollout_groups("rloo"),
        learns_from="rollouts",
        entry="training.algorithms.grpo:run_rloo",
        plays=True,
        gradient="rloo",
        tiles=_ROLLOUT_TILES,
        curves=(
            "success",
            "reward",
            "components",
            "parts/success",
            "parts/heldout_success",
            "parts/reward",
            "kl",
            "loss",
            "entropy",
            "completions/mean_length",
            "learning_rate",
            "groups/zero_variance_share",
            *_TASK_CURVES,
            "credit/turn_share",
            "credit/silent_share",
            "rollouts/excluded_share",
            "judge/failures",
            "judge/cost",
        ),
    ),
    "ppo": Method(
        title=_("PPO: learn from rewarded rollouts, against learned values"),
        short="PPO",
        groups=_rollout_groups("ppo"),
        learns_from="rollouts",
        entry="training.algorithms.grpo:run_ppo",
        plays=True,
        gradient="ppo",
        tiles=(
            "reward",
            "rollouts/task_success",
            "heldout/success",
            "kl",
            "value/explained_variance",
            "completions/mean_length",
            "rollouts/excluded_share",
            "timing/step",
        ),
        curves=(
            "success",
            "reward",
            "components",
            "parts/success",
            "parts/heldout_success",
            "parts/reward",
            "kl",
            "loss",
            "value/loss",
            "value/explained_variance",
            "value/mean",
            "value/clip_share",
            "entropy",
            "clip_ratio/region_mean",
            "completions/mean_length",
            "learning_rate",
            *_TASK_CURVES,
            "credit/silent_share",
            "rollouts/excluded_share",
            "sampling/logprob_gap_max",
            "sampling/logprob_gap_mean",
            "sampling/importance_sampling_ratio/mean",
            "sampling/truncated_share",
            "judge/failures",
            "judge/cost",
        ),
    ),
    "dpo": Method(
        title=_("DPO: learn from pairs of a better and a worse answer"),
        short="DPO",
        groups=("model", "data", "dpo", "optim", "run", "report"),
        learns_from="preferences",
        entry="training.algorithms.dpo:run_dpo",
        tiles=("loss", "rewards/accuracies", "rewards/margins", "learning_rate", "grad_norm", "timing/step"),
        curves=(
            "loss",
            "rewards/accuracies",
            "rewards/margins",
            "logps/chosen",
            "logps/rejected",
            "mean_token_accuracy",
            "grad_norm",
            "learning_rate",
            "timing/step",
        ),
    ),
    "sft": Method(
        title=_("SFT: learn from demonstrations"),
        short="SFT",
        groups=("model", "data", "sft", "optim", "run", "report"),
        learns_from="demonstrations",
        entry="training.algorithms.sft:run_sft",
        learning_rates=(2e-5, 2e-4),
        tiles=("loss", "heldout/loss", "mean_token_accuracy", "learning_rate", "grad_norm", "timing/step"),
        curves=(
            "losses",
            "mean_token_accuracy",
            "heldout/token_accuracy",
            "grad_norm",
            "learning_rate",
            "timing/step",
        ),
    ),
    "sample": Method(
        title=_("Sample: play and score, no training"),
        short=_("Sample"),
        groups=("model", "endpoint", "data", "environment", "rewards", "rollout", "vllm", "sample", "run", "report"),
        learns_from="nothing",
        entry="training.algorithms.playing:run_sample",
        plays=True,
        scripted=True,
        draws_tasks=True,
        tiles=(
            "reward",
            "rollouts/task_success",
            "groups/pass_share",
            "groups/best_reward_mean",
            "groups/zero_variance_share",
            "completions/mean_length",
            "rollouts/excluded_share",
            *ENDPOINT_TILES,
        ),
        curves=(
            "reward",
            "components",
            "groups/best_reward_mean",
            "groups/pass_share",
            "completions/mean_length",
            "groups/zero_variance_share",
            "rollouts/excluded_share",
        ),
    ),
    "evaluate": Method(
        title=_("Evaluate: how good is it?"),
        short=_("Evaluation"),
        groups=("model", "endpoint", "data", "environment", "rewards", "rollout", "vllm", "evaluate", "run", "report"),
        learns_from="nothing",
        entry="training.algorithms.playing:run_evaluate",
        plays=True,
        scripted=True,
        draws_tasks=True,
        evaluates=True,
        tiles=(
            "rollouts/task_success",
            "reward",
            "groups/pass_share",
            "completions/mean_length",
            "rollouts/turns_mean",
            "rollouts/excluded_share",
            *ENDPOINT_TILES,
        ),
        curves=(
            "rollouts/task_success",
            "reward",
            "components",
            "groups/pass_share",
            "completions/mean_length",
            "rollouts/turns_mean",
            "rollouts/excluded_share",
        ),
    ),
}
DEFAULT_KIND: Kind = get_args(Kind)[0]


def method_of(kind: str) -> Method:
    """The method of a stored kind; an imported run of a kind that is not ours is shown as the default one."""
    return METHODS.get(kind, METHODS[DEFAULT_KIND])
