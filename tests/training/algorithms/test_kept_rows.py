"""Excluded and masked rollouts leave no trace in the gradient, whatever the loss and the batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.training.algorithms.conftest import MakeJob
from tests.training.algorithms.test_grpo import COMPONENTS, by_length, parameters_of
from tests.training.helpers import of_type, scripted_server
from training.algorithms.base import JournalCallback
from training.algorithms.grpo import run_grpo
from training.algorithms.kept_rows import KEPT_SHARE, _longest, dealt
from training.algorithms.token_values import PLACE
from training.errors import RewardFault
from training.rewards.base import Episode, Score
from training.rollout.trajectory import StepRollouts

pytestmark = pytest.mark.usefixtures("no_health")

CASES = [("grpo", 0), ("dr_grpo", 0), ("grpo", 2), ("dr_grpo", 2), ("dapo", 2), ("bnpo", 2)]
CASES += [("cispo", 2), ("luspo", 0)]
ALIKE = [pytest.param(*case, marks=pytest.mark.slow) for case in (("sapo", 2), ("luspo", 2), ("vespo", 2))]
"""Normalised as others are."""


def watch_gradients(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, torch.Tensor]]:
    """A list that fills with the gradients that each update would be made with."""
    found: list[dict[str, torch.Tensor]] = []
    original = JournalCallback.on_pre_optimizer_step

    def spy(self: Any, *args: Any, **kwargs: Any) -> None:
        grads = ((name, p.grad) for name, p in self.trainer.model.named_parameters())
        found.append({name: grad.detach().clone() for name, grad in grads if grad is not None})
        original(self, *args, **kwargs)

    monkeypatch.setattr(JournalCallback, "on_pre_optimizer_step", spy)
    return found


@pytest.fixture
def gradients(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, torch.Tensor]]:
    return watch_gradients(monkeypatch)


def norm(gradient: dict[str, torch.Tensor]) -> float:
    return float(torch.stack([g.norm() for g in gradient.values()]).norm())


def run(make_job: MakeJob, name: str, url: str, loss: str, prompts: int, micro: int, **over: Any) -> Any:
    job = make_job(
        name,
        environment={"url": url},
        rewards={"components": COMPONENTS},
        rollout={"prompts_per_step": prompts, **over.pop("rollout", {})},
        grpo={"loss_type": loss, **over.pop("grpo", {})},
        optim={"micro_batch_size": micro, "max_grad_norm": 1000.0, **over.pop("optim", {})},
        run={"max_steps": 1, **over.pop("run", {})},
        data={"shuffle": False},
    )
    return job


def half_excluded(episode: Episode) -> Score:
    """The rows of a step are "red" and "green", in this order; only the first is scored."""
    if "red" not in str(episode.row):
        raise RewardFault("no")
    return by_length(episode)


def pair(make_job: MakeJob, gradients: list[Any], loss: str, micro: int) -> list[dict[str, torch.Tensor]]:
    """The gradient of a step of which nothing is excluded, and of one with the same rows and as many excluded ones."""
    extra: dict[str, Any] = {"beta": 0.05, "entropy_coef": 0.01, "off_policy_limit": 1.0}
    if not micro:  # the least decided tokens are those of a micro batch, and chance makes those up
        extra["top_entropy_share"] = 0.5
    if loss == "luspo":
        extra["importance_sampling"] = "sequence"
    with scripted_server() as url:
        run_grpo(run(make_job, "without", url, loss, 1, micro, grpo=extra), scorer=by_length)
        run_grpo(run(make_job, "half", url, loss, 2, micro, grpo=extra), scorer=half_excluded)
    return gradients[-2:]


@pytest.mark.parametrize(("loss", "micro"), [*CASES, *ALIKE])
def test_half_of_the_rollouts_excluded_leave_the_gradient_of_the_other_half(
    make_job: MakeJob, gradients: list[dict[str, torch.Tensor]], loss: str, micro: int
) -> None:
    """It was half as long for ``grpo`` and ``dr_grpo``, and for ``bnpo`` in micro batches. KL and entropy count too."""
    without, half = pair(make_job, gradients, loss, micro)
    assert norm(half) / norm(without) == pytest.approx(1.0, abs=1e-3) and norm(without) > 1e-4
    for name, gradient in without.items():
        assert torch.allclose(half[name], gradient, rtol=1e-3, atol=1e-6 + 1e-3 * float(gradient.norm())), name


def equal_for_green(episode: Episode) -> Score:
    """The second task's rewards are equal, so that only KL and entropy would move the weights for it."""
    if "red" in str(episode.row):
        return by_length(episode)
    return Score(parts={"tool_call_correctness": 0.5, "task_success": 0.5}, total=0.5)


def test_a_group_that_teaches_nothing_leaves_the_gradient_of_the_others(
    make_job: MakeJob, gradients: list[dict[str, torch.Tensor]]
) -> None:
    extra = {"beta": 0.05, "entropy_coef": 0.05}
    with scripted_server() as url:
        run_grpo(run(make_job, "without", url, "dapo", 1, 2, grpo=extra), scorer=by_length)
        for signal in ("all", "reward"):
            job = run(make_job, signal, url, "dapo", 2, 2, grpo=extra)
            job.config.rewards.signal = signal
            run_grpo(job, scorer=equal_for_green)
    alone, everything, chosen = gradients
    assert norm({name: chosen[name] - alone[name] for name in alone}) < 1e-3 * norm(alone)
    assert norm({name: everything[name] - alone[name] for name in alone}) > 0.1 * norm(alone)
    assert of_type(job.run_dir, "metrics")[0].values["groups/left_out_share"] == 0.5


@pytest.fixture
def end_as(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int, int], str]], None]:
    """Makes rollouts end ``completed`` or ``truncated`` by (step, place in the step)."""
    import training.algorithms.rollouts as module

    original = module.trl_batch

    def set_up(status: Callable[[int, int], str]) -> None:
        def decided(result: StepRollouts, *args: Any, **kwargs: Any) -> Any:
            for place, rollout in enumerate(result.rollouts):
                step = int(rollout.name.split("-s")[1].split("-")[0])
                rollout.trajectory.status = status(step, place)  # type: ignore[assignment]
            return original(result, *args, **kwargs)

        monkeypatch.setattr(module, "trl_batch", decided)

    return set_up


def test_masked_rollouts_leave_the_gradient_of_the_others(
    make_job: MakeJob, gradients: list[dict[str, torch.Tensor]], end_as: Any
) -> None:
    """With ``mask_truncated`` a rollout that was cut off is a row without tokens to learn from."""
    end_as(lambda step, place: "completed" if place < 4 else "truncated")
    masks = {"mask_truncated": True}
    with scripted_server() as url:
        run_grpo(run(make_job, "without", url, "grpo", 1, 2, grpo=masks), scorer=by_length)
        run_grpo(run(make_job, "masked", url, "grpo", 2, 2, grpo=masks), scorer=by_length)
    assert norm(gradients[1]) / norm(gradients[0]) == pytest.approx(1.0, abs=1e-3)


def test_an_update_whose_rows_are_all_masked_moves_nothing(make_job: MakeJob, end_as: Any) -> None:
    """AdamW's momentum of the step before would move the weights."""
    end_as(lambda step, place: "completed" if step == 1 else "truncated")
    with scripted_server() as url:
        for steps in (1, 2):
            over = {"grpo": {"mask_truncated": True}, "run": {"max_steps": steps}}
            job = run(make_job, f"run{steps}", url, "grpo", 2, 0, **over)
            run_grpo(job, scorer=by_length)
            assert len(of_type(job.run_dir, "metrics")) == steps
    one, two = parameters_of(job.run_dir.parent / "run1" / "model"), parameters_of(job.run_dir / "model")
    assert all(torch.equal(one[name], two[name]) for name in one)


def batch(masks: list[list[int]], first: int) -> dict[str, Any]:
    rows = len(masks)
    return {
        PLACE: torch.arange(first, first + rows),
        "advantages": torch.arange(first, first + rows).float(),
        "prompt_mask": torch.ones(rows, 1),
        "completion_mask": torch.ones(rows, 2),
        "tool_mask": torch.tensor(masks),
        "num_items_in_batch": torch.tensor(7),
    }


WANTED = [[0.0, 4.0], [6.0], [3.0, 5.0], []]


def test_kept_rows_are_dealt_evenly_to_the_mini_batches_and_fill_their_micro_batches() -> None:
    kept, empty = [1, 0], [0, 0]
    batches = [batch([kept, empty], 0), batch([empty, kept], 2), batch([kept, kept], 4), batch([kept, empty], 6)]
    shuffled = [batches[number] for number in (2, 0, 3, 1)]  # as TRL does; it changes nothing
    for given in (batches, shuffled):
        found = dealt(given, 2, (42, 1))
        assert [item["advantages"].tolist() for item in found] == WANTED
    assert [item["advantages"].tolist() for item in dealt(batches, 2, (42, 3))] != WANTED
    assert {item[KEPT_SHARE] for item in found} == {2.5}
    assert all(int(item["num_items_in_batch"]) == 7 for item in found)
    whole = dealt([batch([kept, kept], 0), batch([kept, kept], 2)], 1, (42, 1))
    assert [item["advantages"].tolist() for item in whole] == [[0.0, 1.0], [2.0, 3.0]]
    assert {item[KEPT_SHARE] for item in whole} == {4.0}


@pytest.mark.parametrize(("prompts", "completions", "longest"), [([2, 4], [5, 1], 7), ([1, 4], [2, 4], 8), ([], [], 0)])
def test_a_row_is_as_long_as_its_prompt_and_its_completion(
    prompts: list[int], completions: list[int], longest: int
) -> None:
    masks = {
        name: torch.tensor([[1] * length + [0] * (8 - length) for length in lengths]).reshape(len(lengths), 8)
        for name, lengths in (("prompt_mask", prompts), ("completion_mask", completions))
    }
    assert _longest(masks) == longest
