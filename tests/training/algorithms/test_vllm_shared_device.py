"""A vLLM that shares the trainer's device: it sleeps while the model learns, and may hold its weights in fewer bits.

The server is the stand-in of test_vllm.py, behind the socket of one that the run has started; test_gpu_vllm.py has the
real one.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from transformers import AutoConfig

from tests.training.algorithms.conftest import MakeJob
from tests.training.algorithms.test_sampler_check import by_length
from tests.training.algorithms.test_vllm import GAP, SHORT, Behind, vllm_job
from tests.training.helpers import of_type, scripted_server
from tests.training.memory.test_table import HEADS, SMALL
from tests.vllm_stub import Stub, serving
from training.algorithms import sampler
from training.algorithms.base import JournalCallback
from training.algorithms.grpo import run_grpo
from training.algorithms.job import Job
from training.algorithms.sampler import plan_of
from training.config import JobConfig
from training.errors import ConfigError, SamplerDied, SamplerDisagrees
from training.memory.advice import can_sleep, judge
from training.memory.devices import GIB, Device, device_named
from training.memory.table import Model, memory_of
from training.policy.check import FULL, ROUNDED, tolerance_for
from training.words import complaint_of, option_of

pytestmark = pytest.mark.usefixtures("no_health")

TURN = "/v1/completions"


class Started:
    """In the place of ``VllmServer``: the process is there already."""

    socket: Path
    made: list[Started] = []

    def __init__(self, plan: Any, run_dir: Path, earlier: Any = ()) -> None:
        self.plan, self.closed = plan, False
        Started.made.append(self)

    def wait_ready(self, client: Any, limit_s: float, stop: Any) -> float:
        return 0.0

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """What the server had of the device when room was made for it, and at each update."""
    return {"room": [], "update": []}


@contextmanager
def one_card(
    make_job: MakeJob, folder: Path, monkeypatch: pytest.MonkeyPatch, seen: dict[str, list[Any]], **groups: Any
) -> Iterator[tuple[Job, Stub, Behind]]:
    """A job that starts a vLLM which sleeps; only that there is a GPU is pretended."""
    behind, original = Behind(folder), JournalCallback.on_pre_optimizer_step
    with ExitStack() as stack:
        url = stack.enter_context(scripted_server())
        Started.socket, Started.made = folder.parent / "socket", []
        stub = stack.enter_context(serving(Stub(behind.sample, take=behind.take), Started.socket))

        def update(self: Any, *given: Any, **named: Any) -> None:
            seen["update"].append((set(stub.asleep), stub.level))
            original(self, *given, **named)

        monkeypatch.setattr(sampler, "_require_gpu", lambda config, device: None)
        monkeypatch.setattr(sampler, "VllmServer", Started)
        monkeypatch.setattr(sampler, "free_cached_memory", lambda: seen["room"].append(set(stub.asleep)))
        monkeypatch.setattr(JournalCallback, "on_pre_optimizer_step", update)
        groups["rollout"] = {"engine": "vllm", "temperature": 0.9, **SHORT, **groups.get("rollout", {})}
        groups["model"] = {"source": str(folder), **groups.get("model", {})}
        run = {"device": "auto", **groups.pop("run", {})}
        yield make_job(environment={"url": url}, vllm={"sleep": True}, run=run, **groups), stub, behind


@pytest.mark.parametrize("lora_rank", [0, 4])
def test_it_sleeps_through_every_update_and_is_awake_for_every_turn(
    make_job: MakeJob,
    starter_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    seen: dict[str, list[Any]],
    lora_rank: int,
) -> None:
    evaluated, optim = {"every": 2, "share": 0.25}, {"mini_batch_size": 4}
    model, run = {"lora_rank": lora_rank}, {"max_steps": 4}
    with one_card(
        make_job, starter_folder, monkeypatch, seen, model=model, run=run, evaluate=evaluated, optim=optim
    ) as (job, stub, _behind):
        run_grpo(job, scorer=by_length)
    both = {"weights", "kv_cache"}
    assert seen["update"] == [(both, 1 if lora_rank else 2)] * 4
    assert seen["room"] == [both] * 3, "once for the first evaluation, and for each sampling after an update"
    ends = of_type(job.run_dir, "rollout_finished")
    assert len(ends) > 16 and all(end.error is None for end in ends)
    gaps = [event.values[GAP] for event in of_type(job.run_dir, "metrics") if GAP in event.values]
    assert len(gaps) == 2 and max(gaps) <= 1e-4
    paths = [path for path in stub.paths() if path.startswith(("/sleep", "/wake_up", "/collective", "/v1/load"))]
    if lora_rank:
        once = ["/wake_up?tags=weights&tags=kv_cache", "/v1/load_lora_adapter", "/sleep?level=1"]
        assert paths[0] == "/sleep?level=1" and paths[1:4] == once
    else:
        once = ["/wake_up?tags=weights", "/collective_rpc", "/wake_up?tags=kv_cache", "/sleep?level=2"]
        # A tied model's server has begun with made-up weights, and is first prepared to read real ones.
        assert paths[:2] == ["/collective_rpc", "/sleep?level=2"] and paths[2:6] == once
    (started,) = Started.made
    assert started.closed and started.plan.sleeps


def test_one_that_cannot_sleep_is_ended_and_named(
    make_job: MakeJob, starter_folder: Path, monkeypatch: pytest.MonkeyPatch, seen: dict[str, list[Any]]
) -> None:
    with one_card(make_job, starter_folder, monkeypatch, seen) as (job, stub, _behind):
        stub.fail("/sleep?level=2", 404)
        with pytest.raises(SamplerDied, match="vLLM does not sleep: vLLM answers 404") as found:
            run_grpo(job, scorer=by_length)
    assert "vllm.sleep" in (found.value.hint or "") and Started.made[0].closed


def test_one_that_does_not_wake_ends_the_step_before_it_is_played(
    make_job: MakeJob, starter_folder: Path, monkeypatch: pytest.MonkeyPatch, seen: dict[str, list[Any]]
) -> None:
    with one_card(make_job, starter_folder, monkeypatch, seen, run={"max_steps": 3}) as (job, stub, _behind):
        stub.fail("/wake_up?tags=kv_cache", 0, 500)
        with pytest.raises(SamplerDied, match="answers 500 at /wake_up") as found:
            run_grpo(job, scorer=by_length)
    assert found.value.pauses and [event.step for event in of_type(job.run_dir, "metrics")] == [1]


# Options


def config(**groups: Any) -> JobConfig:
    return JobConfig.model_validate({"rollout": {"engine": "vllm", **groups.pop("rollout", {})}, **groups})


LORA = {"model": {"lora_rank": 8}}


@pytest.mark.parametrize(
    ("groups", "option", "message"),
    [
        ({"vllm": {"sleep": True, "mode": "server", "urls": ["http://x"]}}, "vllm.sleep", "only a vLLM that the run"),
        ({"vllm": {"sleep": True}, "kind": "evaluate"}, "vllm.sleep", "nothing is trained meanwhile"),
        ({"vllm": {"sleep": True}, "rollout": {"max_staleness": 1}}, "vllm.sleep", "nothing can be played ahead"),
        ({"vllm": {"sleep": True}, "run": {"device": "cpu"}}, "vllm.sleep", "on a CUDA GPU only"),
        ({"vllm": {"quantization": "fp8"}, "kind": "sample"}, "vllm.quantization", "of weights other than"),
        ({"vllm": {"quantization": "fp8"}, "run": {"device": "cpu"}}, "vllm.quantization", "on a CUDA GPU only"),
        ({"vllm": {"quantization": "bitsandbytes"}}, "vllm.quantization", "train an adapter, or choose fp8"),
        (
            {"vllm": {"quantization": "fp8"}, "grpo": {"sampler_correction": "off"}},
            "vllm.quantization",
            "turn grpo.sampler_correction on",
        ),
        (
            {"model": {"lora_rank": 8, "quantization": "nf4"}, "grpo": {"sampler_correction": "off"}},
            "model.quantization",
            "turn grpo.sampler_correction on",
        ),
    ],
)
def test_what_cannot_be_together_is_refused_at_its_option(groups: Any, option: str, message: str) -> None:
    with pytest.raises(ValidationError) as found:
        config(**groups)
    (error,) = found.value.errors(include_url=False)
    assert option_of(error) == option and message in complaint_of(error)
    other = {**groups, "rollout": {"engine": "in_process"}}
    if option.startswith("vllm"):
        JobConfig.model_validate(other)  # no vLLM is asked for anything


@pytest.mark.parametrize("kind", ["grpo", "ppo", "rloo"])
def test_what_can_be_together(kind: str) -> None:
    for groups in (
        {"vllm": {"sleep": True}},
        {"vllm": {"quantization": "fp8"}},
        {**LORA, "vllm": {"quantization": "bitsandbytes", "sleep": True}},
        {"vllm": {"quantization": "fp8", "mode": "server", "urls": ["http://x"]}, "run": {"device": "cpu"}},
        {"model": {"lora_rank": 8, "quantization": "nf4"}},
    ):
        found = config(kind=kind, **groups)
        assert found.samples_rounded == ("quantization" in str(groups))
    assert not JobConfig.model_validate({"model": {"lora_rank": 8, "quantization": "nf4"}}).samples_rounded


def test_a_machine_without_a_gpu_refuses_both_by_name(starter_folder: Path) -> None:
    for chosen, option in (({"sleep": True}, "vllm.sleep"), ({"quantization": "fp8"}, "vllm.quantization")):
        wanted = config(vllm=chosen, rollout={"max_prompt_tokens": 300, "max_completion_tokens": 200})
        with pytest.raises(ConfigError, match="none here") as found:
            plan_of(wanted, starter_folder, "cpu")
        assert found.value.option == option
        plan = plan_of(wanted, starter_folder, "cuda")
        assert (plan.sleeps, plan.quantization) == (chosen.get("sleep", False), chosen.get("quantization", "none"))


# Fewer bits


class Rounded(Behind):
    """A server that holds the base in few bits, and an adapter above it as it is."""

    def take(self, folder: Path) -> Any:
        model = super().take(folder)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if weight.ndim == 2 and "lora" not in name:
                    step = weight.abs().max() / 12
                    weight.copy_((weight / step).round() * step)
        return model


@pytest.mark.parametrize("lora_rank", [0, 4])
def test_a_quantised_sampler_is_corrected_for_and_held_against_its_own_first_gap(
    make_job: MakeJob, starter_folder: Path, monkeypatch: pytest.MonkeyPatch, lora_rank: int
) -> None:
    monkeypatch.setattr("tests.training.algorithms.test_vllm.Behind", Rounded)
    model = {"lora_rank": lora_rank}
    with (
        vllm_job(make_job, starter_folder, "plain", model=model) as (job, _stub, _behind),
        pytest.raises(SamplerDisagrees, match=r"0\.0001 and 0\.001 are allowed"),
    ):
        run_grpo(job, scorer=by_length)
    with vllm_job(make_job, starter_folder, model=model, run={"max_steps": 2}) as (job, _stub, _behind):
        job.config.vllm.quantization = "fp8"
        run_grpo(job, scorer=by_length)
    steps = [event.values for event in of_type(job.run_dir, "metrics")]
    assert len(steps) == 2 and all(1e-3 < step["sampling/logprob_gap_mean"] < 0.5 for step in steps)
    assert all(step["sampling/importance_sampling_ratio/max"] > 1.001 for step in steps)
    (checked,) = of_type(job.run_dir, "sampler_checked")
    assert checked.tolerance == ROUNDED.largest


def test_limits_of_a_quantised_sampler_follow_its_first_gap() -> None:
    model = torch.nn.Linear(2, 2)
    assert tolerance_for(model, None, vllm=True, rounded=True) == ROUNDED
    assert tolerance_for(model, None) == FULL
    assert ROUNDED.after(0.02).mean == pytest.approx(0.1) and ROUNDED.after(0.4).mean == 0.5
    assert ROUNDED.after(1e-5).mean == 2e-3


# Memory


@functools.cache
def qwen() -> Model:
    """One for all tests: it remembers what it has traced."""
    model = Model.of("Qwen/Qwen3-0.6B")
    assert model is not None
    return model


def terms(wanted: JobConfig, device: Device) -> dict[str, Any]:
    return {term.key: term for term in memory_of(wanted, qwen(), device).terms}


SOURCE = {"model": {"source": "Qwen/Qwen3-0.6B", "lora_rank": 16}}


def test_the_table_counts_the_larger_of_both_moments_where_it_sleeps() -> None:
    card, model = Device("x", "Card", 24 * GIB, "cuda"), qwen()
    awake, sleeping = (
        memory_of(config(**SOURCE, vllm={"sleep": sleep, "gpu_memory_share": 0.5}), model, card)
        for sleep in (False, True)
    )
    program = round(0.75 * GIB)
    assert awake.bytes_of("vllm") == 12 * GIB and awake.learning - awake.fixed == sleeping.learning - sleeping.fixed
    assert sleeping.bytes_of("vllm") == program and sleeping.bytes_of("vllm_awake") == 12 * GIB
    assert sleeping.sampling == sleeping.fixed + 12 * GIB
    assert sleeping.whole == max(sleeping.learning, sleeping.sampling)
    assert (
        awake.whole - max(awake.learning, awake.sampling) == 0
        and awake.learning == sleeping.learning + 12 * GIB - program
    )


def test_sleep_is_advised_where_both_together_do_not_fit(tmp_path: Path) -> None:
    AutoConfig.for_model("qwen3", **SMALL, **HEADS).save_pretrained(tmp_path)
    model = Model.of(str(tmp_path))
    assert model is not None
    one = {"max_prompt_tokens": 512, "max_completion_tokens": 15872, "prompts_per_step": 1, "num_generations": 2}
    short = {"model": {"source": str(tmp_path), "lora_rank": 16}, "optim": {"micro_batch_size": 1}, "rollout": one}
    alone = memory_of(config(**short, vllm={"mode": "server", "urls": ["http://x"]}), model, device_named("h100"))
    card = Device("x", "Card", round(1.5 * alone.learning), "cuda")
    assert alone.learning > 3 * round(0.75 * GIB), "there is room for what stays of a sleeping one"
    wanted = config(**short, vllm={"gpu_memory_share": 0.5})
    assert can_sleep(wanted, card)
    found = judge(wanted, model, card)
    assert not found.fits and found.change is not None and found.change.values == {"vllm.sleep": True}
    assert judge(config(**short, vllm={"gpu_memory_share": 0.5, "sleep": True}), model, card).fits
    for over in (
        {"rollout": {**one, "max_staleness": 1}},
        {"vllm": {"mode": "server", "urls": ["http://x"]}},
        {"run": {"device": "cpu"}},
        {"vllm": {"sleep": True}},
        {"kind": "evaluate"},
        {"rollout": {**one, "engine": "in_process"}},
    ):
        assert not can_sleep(config(**{**short, **over}), card), over
    assert not can_sleep(wanted, device_named("cpu"))


@pytest.mark.slow
def test_its_share_holds_weights_in_its_own_bits_and_one_rollout() -> None:
    h100, model = device_named("h100"), qwen()
    rest = model.parameters - model.in_layers
    sizes = {
        "none": 2 * model.parameters,
        "fp8": model.in_layers + 2 * rest,
        "bitsandbytes": round(model.in_layers * (0.5 + 1 / 64 + 4 / 16384)) + 2 * rest,
    }
    row = 28 * 2 * 8 * 128 * 2 * (1024 + 1024)  # layers × keys and values × heads × size × bytes × tokens
    for name, size in sizes.items():
        length = {"max_prompt_tokens": 1024, "max_completion_tokens": 1024}
        wanted = config(**SOURCE, vllm={"quantization": name, "gpu_memory_share": 0.001}, rollout=length)
        term = terms(wanted, h100)["vllm"]
        assert term.bytes == size + row and "more than its share of 0 %" in term.why
        wanted.vllm.gpu_memory_share = 0.3
        assert terms(wanted, h100)["vllm"].bytes == round(0.3 * h100.bytes)
    assert "1.1 GiB of it weights" in terms(config(**SOURCE), h100)["vllm"].why
