"""Padding that is left out changes nothing but its cost: gradients, log-probabilities, values and figures."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
import torch
from trl import GRPOTrainer

from tests.training.algorithms.conftest import MakeJob
from tests.training.algorithms.test_grpo import COMPONENTS
from tests.training.algorithms.test_kept_rows import watch_gradients
from tests.training.helpers import TailedEngine, job_config, of_type
from tests.training.policy.families import tiny_model
from training.algorithms import kept_rows
from training.algorithms.grpo import run_grpo, run_ppo, run_rloo
from training.algorithms.kept_rows import KeptRowsTrainer
from training.algorithms.micro_batches import Packed, dealt_by_length, in_micro_batches
from training.algorithms.updates import UpdateFigures
from training.data.learned import IGNORED
from training.rewards.base import Episode, Score

LENGTHS = [40, 3, 9, 3]
SEEN = ("entropy", "kl", "clip_ratio/region_mean", "clip_ratio/low_min", "clip_ratio/high_max", "grad_norm", "loss")


def test_rows_are_dealt_the_longest_first() -> None:
    assert dealt_by_length([5, 9, 5, 1, 7], 2) == [[1, 4], [0, 2], [3]]
    assert dealt_by_length([5, 9, 5, 1, 7], 9) == [[1, 4, 0, 2, 3]]
    assert dealt_by_length([], 2) == []


def test_a_limit_of_tokens_counts_every_row_as_long_as_the_longest() -> None:
    assert dealt_by_length([10, 9, 8, 7], 1, tokens=30) == [[0, 1, 2], [3]]
    assert dealt_by_length([10, 9, 8, 7], 1, tokens=29) == [[0, 1], [2, 3]]
    assert dealt_by_length([31, 15, 15], 1, tokens=30) == [[0], [1, 2]], "one row alone may be longer"


def test_a_row_is_padded_to_twice_its_length_at_most() -> None:
    assert dealt_by_length([10, 5, 4], 1, tokens=1000) == [[0, 1], [2]]
    assert dealt_by_length([10, 5, 4], 3) == [[0, 1, 2]], "a number of rows is kept to"


def padded(rows: list[tuple[list[int], list[int]]]) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Ids and mask as TRL lays them out, and the width of the completions."""
    before, after = (max(len(row[part]) for row in rows) for part in (0, 1))
    ids, mask = [], []
    for prompt, completion in rows:
        left, right = [0] * (before - len(prompt)), [0] * (after - len(completion))
        ids.append([*left, *prompt, *completion, *right])
        mask.append([*left, *([1] * len(prompt + completion)), *right])
    return torch.tensor(ids), torch.tensor(mask), after


def test_rows_begin_at_the_first_column() -> None:
    packed = Packed(*padded([([5, 6, 7], [8]), ([9], [3, 4])]))
    assert packed.ids.tolist() == [[5, 6, 7, 8], [9, 3, 4, 0]] and packed.mask.tolist() == [[1] * 4, [1, 1, 1, 0]]
    assert packed.labels.tolist() == [[IGNORED] * 3 + [8], [IGNORED, 3, 4, IGNORED]]
    values = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    assert packed.of_completions(values).tolist() == [[3.0, 0.0], [4.0, 5.0]]


def scored(model: Any, packed: Packed) -> torch.Tensor:
    logits = model(input_ids=packed.ids, attention_mask=packed.mask, use_cache=False).logits[:, :-1].float()
    return packed.of_completions(logits.log_softmax(-1).gather(2, packed.ids[:, 1:, None]).squeeze(2))


OTHERS = {
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 96},
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 96},
}
"""Positions are learned, or a bias that counts from the row's begin."""


@pytest.mark.parametrize("name", ["llama", "gemma3_text", "qwen3_moe", "lfm2", "qwen3_5_text", *OTHERS])
def test_a_row_has_the_log_probabilities_that_it_has_alone(name: str) -> None:
    """Whatever counts columns: learned positions, windows, layers with a state. Padding at the left shifted them."""
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    torch.manual_seed(0)
    model = (
        AutoModelForCausalLM.from_config(CONFIG_MAPPING[name](**OTHERS[name])) if name in OTHERS else tiny_model(name)
    )
    model.eval()
    draw = torch.Generator().manual_seed(3)
    lengths = [(20, 4), (3, 9), (7, 25), (1, 1)]
    rows = [
        (torch.randint(3, 90, (p,), generator=draw).tolist(), torch.randint(3, 90, (c,), generator=draw).tolist())
        for p, c in lengths
    ]
    with torch.no_grad():
        ids, mask, keep = padded(rows)
        (found,) = in_micro_batches(lambda packed: [scored(model, packed)], ids, mask, keep, rows=2, tokens=0)
        for row, (prompt, completion) in enumerate(rows):
            alone = scored(model, Packed(*padded([(prompt, completion)])))[0]
            assert torch.allclose(found[row, : len(completion)], alone, atol=2e-6), row
            assert not found[row, len(completion) :].any()


# Whole runs


@pytest.fixture
def gradients(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, torch.Tensor]]:
    return watch_gradients(monkeypatch)


def as_trl_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """One width for all rows of a step, and micro batches in TRL's order."""
    monkeypatch.setattr(
        KeptRowsTrainer, "_get_per_token_logps_and_entropies", GRPOTrainer._get_per_token_logps_and_entropies
    )
    monkeypatch.setattr(kept_rows, "dealt", lambda batches, *_sizes, **_named: batches)


def by_turns(episode: Episode) -> Score:
    total = sum(map(ord, str(episode.messages[-1].content))) % 5 / 4
    return Score(parts={"task_success": total, "tool_call_correctness": 0.0}, total=total)


def trained(make_job: MakeJob, name: str, method: Any, **over: Any) -> dict[str, float]:
    """The figures of the first update of a step with rollouts of uneven lengths."""
    over["optim"] = {"max_grad_norm": 1000.0, **over.get("optim", {})}
    rollout = {"prompts_per_step": 2, "num_generations": 4, "max_turns": 1}
    job = make_job(name, rewards={"components": COMPONENTS}, rollout=rollout, **{"run": {"max_steps": 1}, **over})
    method(job, scorer=by_turns, engine=TailedEngine(LENGTHS, 2))
    values: dict[str, float] = of_type(job.run_dir, "metrics")[-1].values
    return values


def apart(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """The relative difference of two gradients."""
    whole = torch.cat([gradient.flatten() for gradient in one.values()])
    return float((whole - torch.cat([other[name].flatten() for name in one])).norm() / whole.norm())


LOSSES = [(name, run_grpo, {"grpo": {"loss_type": name, "beta": 0.05}}) for name in ("dapo", "grpo", "dr_grpo", "sapo")]
LOSSES += [
    ("luspo", run_grpo, {"grpo": {"loss_type": "luspo", "importance_sampling": "sequence"}}),
    ("rloo", run_rloo, {"kind": "rloo", "rloo": {"beta": 0.05}}),
    ("ppo", run_ppo, {"kind": "ppo", "ppo": {"beta": 0.05, "value_coef": 1.0, "lam": 0.9}}),
]


@pytest.mark.parametrize(("name", "run", "over"), LOSSES)
def test_gradients_are_those_of_padded_rows(
    make_job: MakeJob,
    gradients: list[dict[str, torch.Tensor]],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    run: Any,
    over: dict[str, Any],
) -> None:
    """Against TRL's own forward over its own width, in the same micro batches of two and in one; with a limit too."""
    with monkeypatch.context() as patch:
        if name == "ppo":  # its values are read in the packed forward: each row alone has no padding
            padded_figures = trained(make_job, "padded", run, **over, optim={"micro_batch_size": 1})
        else:
            as_trl_does(patch)
            padded_figures = trained(make_job, "padded", run, **over)
    for kind, optim in (
        ("rows", {"micro_batch_size": 2}),
        ("whole", {}),
        ("tokens", {"max_tokens_per_micro_batch": 128}),
    ):
        found = trained(make_job, kind, run, **over, optim=optim)
        assert apart(gradients[0], gradients[-1]) <= 1e-6, kind
        for figure in SEEN:
            if figure in padded_figures:
                assert found[figure] == pytest.approx(padded_figures[figure], rel=2e-5, abs=1e-7), (kind, figure)


@pytest.mark.parametrize("method", ["grpo", "ppo"])
def test_later_updates_see_the_same_old_log_probabilities_and_figures(make_job: MakeJob, method: str) -> None:
    """Two iterations over two mini batches: clip ratios and values are no longer at their begin."""
    run, options = (run_grpo, {"loss_type": "dapo", "beta": 0.02}) if method == "grpo" else (run_ppo, {"lam": 0.9})
    over: dict[str, Any] = {"kind": method, method: {**options, "num_iterations": 2, "epsilon": 0.01}}
    over["run"] = {"max_steps": 4}
    rate = {"mini_batch_size": 4, "learning_rate": 3e-3}
    whole = trained(make_job, "whole", run, **over, optim=rate)
    single = trained(make_job, "single", run, **over, optim={**rate, "micro_batch_size": 1})
    tokens = trained(make_job, "tokens", run, **over, optim={**rate, "max_tokens_per_micro_batch": 96})
    names = [name for name in whole if name.startswith(("clip_ratio", "entropy", "kl", "value/", "grad_norm"))]
    assert 0 < whole["clip_ratio/region_mean"] < 1 and len(names) >= 7
    for name in names:
        assert single[name] == pytest.approx(whole[name], rel=1e-3, abs=1e-6), name
        assert tokens[name] == pytest.approx(whole[name], rel=1e-3, abs=1e-6), name


def test_a_micro_batch_with_means_of_its_own_keeps_its_order(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sorted rows would bias a mean over a micro batch: bnpo, the entropy bonus, the least decided tokens."""
    asked: list[bool] = []
    original = kept_rows.dealt

    def watch(*given: Any, **named: Any) -> Any:
        asked.append(named["by_length"])
        return original(*given, **named)

    monkeypatch.setattr(kept_rows, "dealt", watch)
    for options in ({}, {"loss_type": "bnpo"}, {"entropy_coef": 0.01}, {"top_entropy_share": 0.5}):
        trained(make_job, f"run{len(asked)}", run_grpo, grpo=options, optim={"micro_batch_size": 2})
    assert asked == [True, False, False, False]


def test_a_row_beyond_the_limit_is_reported_once(make_job: MakeJob) -> None:
    warnings: dict[int, list[str]] = {}
    longest = 0
    for number in range(3):
        limit = (48, longest, longest - 1)[number]
        optim, run = {"max_tokens_per_micro_batch": limit}, {"max_steps": 1 if number else 2}
        trained(make_job, f"limit{limit}", run_grpo, optim=optim, run=run)
        lines = [event.message for event in of_type(make_job(f"limit{limit}").run_dir, "log")]
        warnings[limit] = [line for line in lines if "max_tokens_per_micro_batch" in line]
        longest = longest or int(warnings[48][0].split()[3])
    assert len(warnings[48]) == 1 and "(48)" in warnings[48][0]
    assert warnings[longest] == [] and len(warnings[longest - 1]) == 1


def test_figures_are_weighed_by_what_they_are_means_of() -> None:
    figures, metrics = UpdateFigures(), {"train": defaultdict(list)}

    def micro_batch(tokens: int, rows: int, value: float) -> None:
        inputs = {"completion_mask": torch.ones(1, tokens), "advantages": torch.zeros(rows)}
        with figures.of_micro_batch(metrics, inputs):
            for name in ("entropy", "vespo/phi_seq_mean", "clip_ratio/low_min", "clip_ratio/high_max", "other"):
                metrics["train"][name].append(value)

    micro_batch(3, 1, 1.0)
    micro_batch(1, 4, 6.0)
    assert metrics["train"] == {
        "entropy": [2.25],
        "vespo/phi_seq_mean": [5.0],
        "clip_ratio/low_min": [1.0],
        "clip_ratio/high_max": [6.0],
        "other": [1.0, 6.0],
    }
    metrics["train"].clear()  # as TRL does after an update
    micro_batch(2, 1, 7.0)
    assert all(values == [7.0] for values in metrics["train"].values())


def test_a_clipped_ratio_of_a_whole_rollout_is_weighed_by_rollouts() -> None:
    for rows_count, expected in ((True, 0.75), (False, 0.25)):
        figures, metrics = UpdateFigures(ratio_of_rows=rows_count), {"train": defaultdict(list)}
        for tokens, rows, value in ((3, 1, 0.0), (1, 3, 1.0)):
            inputs = {"completion_mask": torch.ones(1, tokens), "advantages": torch.zeros(rows)}
            with figures.of_micro_batch(metrics, inputs):
                metrics["train"]["clip_ratio/region_mean"].append(value)
        assert metrics["train"]["clip_ratio/region_mean"] == [expected]


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({"optim": {"micro_batch_size": 2}}, "set one of them to 0"),
        ({"kind": "sft"}, "only methods that learn from rollouts"),
        ({"kind": "dpo"}, "only methods that learn from rollouts"),
        ({"grpo": {"loss_type": "bnpo"}}, "bnpo"),
        ({"grpo": {"entropy_coef": 0.1}}, "entropy bonus"),
        ({"grpo": {"top_entropy_share": 0.5}}, "undecided tokens"),
        ({"kind": "ppo", "ppo": {"entropy_coef": 0.1}}, "entropy bonus"),
    ],
)
def test_a_limit_of_tokens_is_refused_where_it_cannot_be(over: dict[str, Any], message: str) -> None:
    optim = {**over.pop("optim", {}), "max_tokens_per_micro_batch": 512}
    with pytest.raises(ValueError, match=f"optim.max_tokens_per_micro_batch.*{message}"):
        job_config(optim=optim, **over)
    for kind in ("grpo", "rloo", "ppo", "sample"):
        job_config(kind=kind, optim={"max_tokens_per_micro_batch": 512})


def test_a_run_with_a_limit_that_was_cut_is_bitwise_the_same(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.training.algorithms.test_resume import after_update, resumed_run

    optim = {"mini_batch_size": 4, "max_tokens_per_micro_batch": 300, "learning_rate": 3e-3}
    resumed_run(make_job, monkeypatch, [after_update(3, "kill"), after_update(7, "stop")], optim=optim)
