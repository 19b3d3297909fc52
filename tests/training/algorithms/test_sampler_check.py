"""Runs hold their sampler against a training forward at the first step, and learn nothing where the two disagree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.algorithms.conftest import MakeJob
from tests.training.helpers import of_type, scripted_server
from tests.training.policy import families
from training.algorithms.grpo import run_grpo
from training.algorithms.playing import run_sample
from training.errors import SamplerDisagrees
from training.policy import transformers_engine
from training.rewards.base import Episode, Score

pytestmark = pytest.mark.usefixtures("no_health")

GAP = "sampling/logprob_gap_max"


@pytest.fixture
def wrong_logprobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sampler that draws right and says log-probabilities of another distribution."""
    draw = transformers_engine.draw

    def drawn(*args: Any) -> Any:
        ids, logprobs = draw(*args)
        return ids, logprobs * 1.1

    monkeypatch.setattr(transformers_engine, "draw", drawn)


def by_length(episode: Episode) -> Score:
    text = "".join(message.content for message in episode.policy_messages)
    value = sum(letter.isalpha() for letter in text) / (len(text) + 1)
    return Score(parts={"task_success": value}, total=value)


@pytest.mark.parametrize("lora_rank", [0, 4])
def test_grpo_checks_its_sampler_once_and_notifies_it_of_new_weights(
    make_job: MakeJob, starter_folder: Path, monkeypatch: pytest.MonkeyPatch, lora_rank: int
) -> None:
    changes: list[int] = []
    changed = transformers_engine.TransformersEngine.weights_changed
    monkeypatch.setattr(
        transformers_engine.TransformersEngine,
        "weights_changed",
        lambda engine: (changes.append(changed(engine)), changes[-1])[1],
    )
    with scripted_server() as url:
        model = {"source": str(starter_folder), "lora_rank": lora_rank, "lora_dropout": 0.1 if lora_rank else 0.0}
        job = make_job(environment={"url": url}, model=model, rollout={"temperature": 0.8})
        run_grpo(job, scorer=by_length)
    (checked,) = of_type(job.run_dir, "sampler_checked")
    assert checked.step == 1 and checked.tokens > 50 and 0 < checked.mean_gap <= checked.max_gap <= 1e-4
    first, second = (event.values for event in of_type(job.run_dir, "metrics"))
    assert first[GAP] == checked.max_gap and GAP not in second
    assert changes == [1, 2]


@pytest.mark.usefixtures("wrong_logprobs")
def test_grpo_pauses_before_it_learns_from_a_sampler_that_disagrees(make_job: MakeJob) -> None:
    with scripted_server() as url:
        job = make_job(environment={"url": url})
        with pytest.raises(SamplerDisagrees, match="nats on average") as found:
            run_grpo(job, scorer=by_length)
    assert found.value.pauses
    (checked,) = of_type(job.run_dir, "sampler_checked")
    assert checked.max_gap > 0.1
    assert of_type(job.run_dir, "metrics") == [] and of_type(job.run_dir, "checkpoint") == []


def test_a_sample_run_checks_its_sampler_too(make_job: MakeJob, request: pytest.FixtureRequest) -> None:
    short = {"prompts_per_step": 1, "max_turns": 2, "max_turn_tokens": 12, "temperature": 0.7}
    with scripted_server() as url:
        job = make_job(kind="sample", environment={"url": url}, rollout=short)
        run_sample(job)
        (checked,) = of_type(job.run_dir, "sampler_checked")
        first, second = (event.values for event in of_type(job.run_dir, "metrics"))
        assert checked.max_gap == first[GAP] <= 1e-4 and GAP not in second
        request.getfixturevalue("wrong_logprobs")
        with pytest.raises(SamplerDisagrees):
            run_sample(make_job("wrong", kind="sample", environment={"url": url}, rollout=short))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gemma3 as published", "gpt_oss", "qwen3_5 as published", "mistral with a window"])
def test_grpo_trains_families_with_windows_and_linear_attention(
    family: str, make_job: MakeJob, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(families._SMALL, "vocab_size", len(tokenizer))
    model_type, over = families.FAMILIES[family]
    if "text_config" in over:
        text = {**over["text_config"], "vocab_size": len(tokenizer)}
        monkeypatch.setitem(families.FAMILIES, family, (model_type, {**over, "text_config": text}))
    families.tiny_model(family).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    with scripted_server() as url:
        job = make_job(model={"source": str(tmp_path / "model")}, environment={"url": url})
        run_grpo(job, scorer=by_length)
    (checked,) = of_type(job.run_dir, "sampler_checked")
    assert checked.max_gap <= 1e-4
    steps = [event.values for event in of_type(job.run_dir, "metrics")]
    assert len(steps) == 2 and all(values["grad_norm"] > 0 and values["rollouts/excluded"] == 0 for values in steps)
    assert torch.isfinite(torch.tensor([values["loss"] for values in steps])).all()
