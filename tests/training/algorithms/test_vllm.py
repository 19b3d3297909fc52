"""Runs whose turns a vLLM samples.

The server is a stand-in with the same routes, and the model behind it is read from what the trainer hands over;
test_real_vllm.py has the real one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from tests.training.algorithms.conftest import MakeJob
from tests.training.algorithms.test_sampler_check import by_length
from tests.training.helpers import of_type, scripted_server
from tests.vllm_stub import Stub, serving
from training.algorithms.base import JournalCallback
from training.algorithms.grpo import run_grpo
from training.algorithms.job import Job
from training.algorithms.playing import run_sample
from training.algorithms.sampler import plan_of
from training.config import JobConfig
from training.errors import ConfigError, SamplerDied, SamplerDisagrees
from training.policy.vllm_server import WEIGHTS_NAME
from training.words import complaint_of, option_of

pytestmark = pytest.mark.usefixtures("no_health")

GAP = "sampling/logprob_gap_max"
SHORT = {"max_turns": 2, "max_turn_tokens": 6, "max_prompt_tokens": 300, "max_completion_tokens": 120}


class Behind:
    """The model behind a stub: reads handed over weights as vLLM would, and draws token by token."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.taken: list[str] = []
        self.began_with = self.take(base)

    def take(self, folder: Path) -> Any:
        from peft import PeftModel
        from safetensors.torch import load_file
        from transformers import AutoModelForCausalLM

        self.taken.append(folder.name)
        model = AutoModelForCausalLM.from_pretrained(self.base)
        if (folder / "adapter_config.json").exists():
            return PeftModel.from_pretrained(model, folder).eval()
        state = {name: value for path in folder.glob("*.safetensors") for name, value in load_file(path).items()}
        if "output.safetensors" in {path.name for path in folder.iterdir()}:  # as the untied server has it
            model.lm_head.weight = torch.nn.Parameter(state["lm_head.weight"])
            assert set(state) == set(model.state_dict())
        model.load_state_dict(state, strict=False)
        return model.eval()

    def sample(self, body: dict[str, Any], weights: Any) -> tuple[list[int], list[float]]:
        model = weights or self.began_with
        generator, ids, logprobs = torch.Generator().manual_seed(body["seed"]), [], []
        cache, seen = None, body["prompt"]
        with torch.no_grad():
            while len(logprobs) < body["max_tokens"]:
                found = model(input_ids=torch.tensor([seen]), past_key_values=cache, use_cache=True, logits_to_keep=1)
                scores = found.logits[0, -1].float() / body["temperature"]
                drawn = int(torch.multinomial(scores.softmax(-1), 1, generator=generator))
                logprobs.append(float(scores.log_softmax(-1)[drawn]))
                ids.append(drawn)
                if drawn in body["stop_token_ids"]:
                    break
                cache, seen = found.past_key_values, [drawn]
        return ids, logprobs


@contextmanager
def vllm_job(make_job: MakeJob, folder: Path, name: str = "run", **groups: Any) -> Iterator[tuple[Job, Stub, Behind]]:
    behind = Behind(folder)
    with scripted_server() as url, serving(Stub(behind.sample, take=behind.take)) as stub:
        groups["rollout"] = {"engine": "vllm", "temperature": 0.9, **SHORT, **groups.get("rollout", {})}
        groups["model"] = {"source": str(folder), **groups.get("model", {})}
        job = make_job(name, environment={"url": url}, vllm={"mode": "server", "urls": [stub.url]}, **groups)
        yield job, stub, behind


@pytest.mark.parametrize("lora_rank", [0, 4])
def test_every_update_reaches_the_server_and_is_proved(make_job: MakeJob, starter_folder: Path, lora_rank: int) -> None:
    evaluated = {"every": 2, "share": 0.25}
    model = {"lora_rank": lora_rank}
    with vllm_job(make_job, starter_folder, model=model, run={"max_steps": 3}, evaluate=evaluated) as found:
        job, stub, behind = found
        run_grpo(job, scorer=by_length)
    labels = behind.taken[1:]
    assert [label.rpartition("-")[2] for label in labels] == ["0", "1", "2", "3"]  # the last one for the evaluation
    assert len({label.rpartition("-")[0] for label in labels}) == 1 and stub.version == labels[-1]
    gaps = [event.values[GAP] for event in of_type(job.run_dir, "metrics") if GAP in event.values]
    assert len(gaps) == 3 and max(gaps) <= 1e-4
    (checked,) = of_type(job.run_dir, "sampler_checked")  # the first; the others are among the metrics
    assert checked.step == 0 and checked.tolerance == 1e-3
    ends = of_type(job.run_dir, "rollout_finished")
    assert len(ends) > 24 and all(end.error is None for end in ends)
    assert not (job.run_dir / WEIGHTS_NAME).exists()
    left = [path for path, _body in stub.asked if "lora" in path]
    assert len(left) == (7 if lora_rank else 0)  # four loaded, three unloaded


@pytest.mark.parametrize("lora_rank", [0, pytest.param(4, marks=pytest.mark.slow)])
def test_weights_that_stay_old_in_silence_are_found_before_anything_is_learned(
    make_job: MakeJob, starter_folder: Path, lora_rank: int
) -> None:
    """The version was taken, and the weights were not: only log-probabilities can tell."""
    model, optim = {"lora_rank": lora_rank}, {"learning_rate": 1e-2}
    with vllm_job(make_job, starter_folder, model=model, optim=optim, run={"max_steps": 3}) as (job, stub, behind):
        take = stub.take

        def once(folder: Path) -> Any:
            stub.stale = len(behind.taken) >= 2
            return take(folder)

        stub.take = once
        with pytest.raises(SamplerDisagrees, match="nats on average") as found:
            run_grpo(job, scorer=by_length)
    assert found.value.pauses
    assert [event.step for event in of_type(job.run_dir, "metrics")] == [1, 2][: len(of_type(job.run_dir, "metrics"))]
    steps = [event.step for event in of_type(job.run_dir, "metrics")]
    failed = of_type(job.run_dir, "sampler_checked")[-1]
    assert failed.step == steps[-1] + 1 and failed.max_gap > 1e-3
    assert [event.step for event in of_type(job.run_dir, "checkpoint")] == [steps[-1]]  # what is good is kept


def test_weights_that_stay_old_are_found_however_small_the_update(make_job: MakeJob, starter_folder: Path) -> None:
    """At 1e-8 no gap shows it; the server's answers to the same questions do, bit for bit."""
    optim = {"learning_rate": 1e-8}
    with vllm_job(make_job, starter_folder, optim=optim, run={"max_steps": 4}) as (job, stub, behind):
        take = stub.take

        def once(folder: Path) -> Any:
            stub.stale = len(behind.taken) >= 3
            return take(folder)

        stub.take = once
        with pytest.raises(SamplerDisagrees, match="to the last bit") as found:
            run_grpo(job, scorer=by_length)
    assert found.value.pauses and "the handover" in found.value.hint
    steps = [event for event in of_type(job.run_dir, "metrics") if GAP in event.values]
    assert 1 <= len(steps) < 4 and all(event.values[GAP] <= 1e-4 for event in steps)
    assert all(0 < event.values["sampling/logprob_gap_mean"] <= event.values[GAP] for event in steps)


def test_a_server_that_dies_within_a_step_costs_the_step_and_no_more(
    make_job: MakeJob, starter_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rollouts that happened to end before are those that end early: the loop trained on them (trial)."""
    updates: list[int] = []
    stepped = JournalCallback.on_step_end

    def noted(callback: Any, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        updates.append(state.global_step)
        stepped(callback, args, state, control, **kwargs)

    monkeypatch.setattr(JournalCallback, "on_step_end", noted)
    with vllm_job(make_job, starter_folder, run={"max_steps": 3, "save_every": 1}) as (job, stub, behind):
        sample = behind.sample

        def dies(body: dict[str, Any], weights: Any) -> tuple[list[int], list[float]]:
            paths = stub.paths("/health")
            turns = len(paths) - max(place for place, path in enumerate(paths) if path == "/weight_info")
            stub.dead = stub.dead or (len(behind.taken) == 3 and turns > 4)
            return sample(body, weights)

        stub.sample = dies
        with pytest.raises(SamplerDied) as found:
            run_grpo(job, scorer=by_length)
        assert found.value.pauses and "Resume" in found.value.hint
        assert updates == [1] and [event.step for event in of_type(job.run_dir, "metrics")] == [1]
        ends = [end for end in of_type(job.run_dir, "rollout_finished") if "-s2-" in end.rollout]
        assert {end.error.code for end in ends if end.error} <= {"sampler_died"}
        stub.dead, stub.sample = False, sample
        resumed = make_job(
            "again",
            resume_from=job.run_dir,
            **{
                name: getattr(job.config, name).model_dump()
                for name in ("environment", "vllm", "rollout", "model", "run")
            },
        )
        run_grpo(resumed, scorer=by_length)
    assert [event.step for event in of_type(resumed.run_dir, "metrics")] == [2, 3]


def test_a_sample_run_takes_the_servers_own_weights_and_checks_them(make_job: MakeJob, starter_folder: Path) -> None:
    with vllm_job(make_job, starter_folder, kind="sample") as (job, stub, behind):
        run_sample(job)
    assert behind.taken == [starter_folder.name]
    assert set(stub.paths()) == {"/v1/models", "/v1/completions"}  # any server of the model will do
    first, second = (event.values for event in of_type(job.run_dir, "metrics"))
    assert first[GAP] <= 1e-4 and GAP not in second


def test_a_server_of_another_model_is_found_at_once(
    make_job: MakeJob, starter_folder: Path, trained_folder: Path
) -> None:
    with vllm_job(make_job, starter_folder, kind="sample") as (job, stub, _behind):
        stub.sample = Behind(trained_folder).sample
        with pytest.raises(SamplerDisagrees):
            run_sample(job)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("short", "a window of 300 tokens; prompt and episode together may have 420"),
        ("dead", "could not be asked at /v1/models"),
        ("takes no weights", "answers 404 at /weight_info"),
    ],
)
def test_a_server_that_cannot_serve_the_job_is_refused_at_the_start(
    make_job: MakeJob, starter_folder: Path, fault: str, message: str
) -> None:
    with vllm_job(make_job, starter_folder) as (job, stub, _behind):
        stub.window, stub.dead = 300 if fault == "short" else 4096, fault == "dead"
        if fault == "takes no weights":
            stub.fail("/weight_info", 404)
        with pytest.raises(SamplerDied, match=message):
            run_grpo(job, scorer=by_length)
    assert of_type(job.run_dir, "run_started") == []


def config(**groups: Any) -> JobConfig:
    return JobConfig.model_validate({"rollout": {"engine": "vllm", **groups.pop("rollout", {})}, **groups})


def test_how_the_server_of_a_job_is_started(starter_folder: Path) -> None:
    short = {"max_prompt_tokens": 300, "max_completion_tokens": 200}
    plan = plan_of(config(rollout=short), starter_folder, "cpu")
    assert (plan.window, plan.in_flight, plan.dtype, plan.cpu) == (500, 64, "float32", True)
    assert plan.blank and plan.lora_rank == 0 and plan.kv_gib == 1  # the starter's output layer is its embedding
    lora = plan_of(config(rollout=short, model={"lora_rank": 8}), starter_folder, "cpu")
    assert not lora.blank and lora.lora_rank == 8
    played = plan_of(config(rollout=short, kind="evaluate", model={"lora_rank": 8}), starter_folder, "cpu")
    assert not played.blank and played.lora_rank == 0
    assert plan_of(config(rollout=short, vllm={"max_model_len": 510}), starter_folder, "cpu").window == 510
    assert plan_of(config(rollout=short, model={"dtype": "bfloat16"}), starter_folder, "cpu").dtype == "bfloat16"
    with pytest.raises(ConfigError, match="the model's window is") as found:
        plan_of(config(rollout={"max_prompt_tokens": 100_000}), starter_folder, "cpu")
    assert found.value.option == "rollout.max_completion_tokens"


@pytest.mark.parametrize(
    ("groups", "option", "message"),
    [
        ({"rollout": {"temperature": 2.5}}, "rollout.temperature", "vLLM samples at temperatures from 0.01 to 2"),
        ({"rollout": {"temperature": 0.005}}, "rollout.temperature", "vLLM samples at temperatures from 0.01 to 2"),
        ({"rollout": {"top_p": 0.9}}, "rollout.top_p", "after this cut"),
        ({"rollout": {"top_k": 20}}, "rollout.top_k", "after this cut"),
        (
            {"vllm": {"max_model_len": 1500}},
            "vllm.max_model_len",
            "a window of 1500 tokens is shorter than prompt",
        ),
        ({"vllm": {"mode": "server"}}, "vllm.urls", "name the address of at least one server"),
    ],
)
def test_what_vllm_would_do_otherwise_is_refused_at_its_option(groups: Any, option: str, message: str) -> None:
    with pytest.raises(ValidationError) as found:
        config(**groups)
    (error,) = found.value.errors(include_url=False)
    assert option_of(error) == option and message in complaint_of(error)
    groups["rollout"] = {**groups.get("rollout", {}), "engine": "in_process"}
    assert not JobConfig.model_validate(groups).samples_with_vllm
    # Where no model of ours plays, nothing is asked of vLLM.
    groups["rollout"]["engine"] = "vllm"
    assert not JobConfig.model_validate(groups | {"kind": "sft"}).samples_with_vllm
    assert not JobConfig.model_validate(groups | {"kind": "sample", "sample": {"policies": ["beg"]}}).samples_with_vllm
