"""verl's own options: what is taken, and the sentence that refuses all else by its key."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from training.config import JobConfig
from training.config.passed import (
    INSTEAD,
    LOG_PROB_LIMITS,
    MAX_CHARS,
    MAX_LINES,
    MOST,
    TAKEN,
    VERL,
    Passed,
    Sizes,
    known_keys,
    passed_of,
    sizes_of,
)
from training.words import Sentence, complaint_of, option_of

ACTOR, ROLLOUT, REF = (f"actor_rollout_ref.{part}" for part in ("actor", "rollout", "ref"))
MEGATRON, FSDP = f"{ACTOR}.megatron", f"{ACTOR}.fsdp_config"
OFFLOAD, SEQUENCES, GRAPHS = f"{FSDP}.param_offload", f"{ROLLOUT}.max_num_seqs", f"{ROLLOUT}.cudagraph_capture_sizes"
TRANSFORMER = f"{MEGATRON}.override_transformer_config"


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        (f"{OFFLOAD}=true", OFFLOAD, True),
        (f"  {OFFLOAD} = False ", OFFLOAD, False),
        (f"{SEQUENCES}=1", SEQUENCES, 1),
        (f"{SEQUENCES}={MOST}", SEQUENCES, MOST),
        (f"{GRAPHS}=[1, 2,4]", GRAPHS, [1, 2, 4]),
        (f"{FSDP}.fsdp_size=-1", f"{FSDP}.fsdp_size", -1),
        (f"{FSDP}.wrap_policy.min_num_params=0", f"{FSDP}.wrap_policy.min_num_params", 0),
        (f"{MEGATRON}.expert_tensor_parallel_size=null", f"{MEGATRON}.expert_tensor_parallel_size", None),
        (f"{TRANSFORMER}.recompute_granularity=full", f"{TRANSFORMER}.recompute_granularity", "full"),
        (f"{TRANSFORMER}.recompute_modules=[core_attn, mlp]", f"{TRANSFORMER}.recompute_modules", ["core_attn", "mlp"]),
        (f"{ROLLOUT}.engine_kwargs.vllm.block_size=32", f"{ROLLOUT}.engine_kwargs.vllm.block_size", 32),
    ],
)
def test_a_line_is_a_key_and_a_value(line: str, key: str, value: Any) -> None:
    found = passed_of(line)
    assert found == Passed(key, value) and type(found.value) is type(value)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("+a.b=1", "+a.b=1: + and ~ add and remove keys, and neither is passed through: write key=value"),
        (f"++{OFFLOAD}=true", "add and remove keys"),
        (f"~{OFFLOAD}", "add and remove keys"),
        (OFFLOAD, f"{OFFLOAD}: write one of verl's options as key=value, such as {OFFLOAD}=true"),
        (f"{OFFLOAD}=", "as key=value"),
        (f"{OFFLOAD}: true", "as key=value"),
        ("=true", "as key=value"),
        (f"--{OFFLOAD}=true", "as key=value"),
        (f"{ACTOR} .x=1", "as key=value"),
        (f"{FSDP}.param_ofload=true", f"verl {VERL} has no {FSDP}.param_ofload: is {OFFLOAD} meant?"),
        ("colour=red", f"verl {VERL} has no colour"),
        (f"{TRANSFORMER}.num_layers=1", f"has no {TRANSFORMER}.num_layers: is {TRANSFORMER}.recompute_num_layers"),
        ("trainer.n_gpus_per_node=2", "trainer.n_gpus_per_node follows from hardware.devices: set that"),
        ("model_engine=megatron", "model_engine follows from hardware.sharding: set that"),
        ("critic.model.path=/etc", "critic.model.path is not passed through: only options of how devices are used are"),
        ("ray_kwargs.ray_init.runtime_env.py_executable=x", "is not passed through"),
        ("reward.custom_reward_function.path=x.py", "is not passed through"),
        (f"{FSDP}={{param_offload: true}}", f"{FSDP} is not passed through"),
        (f"{ACTOR}.checkpoint.async_save=true", "is not passed through"),
        (f"{ACTOR}.optim.optimizer_impl=os", "is not passed through"),
        (f"{MEGATRON}.use_dist_checkpointing=true", "is not passed through"),
        ("actor_rollout_ref.model.external_lib=os", "is not passed through"),
        ("actor_rollout_ref.model.trust_remote_code=true", "is not passed through"),
        (f"{ROLLOUT}.engine_kwargs.vllm.trust_remote_code=true", "is not passed through"),
        (f"{ROLLOUT}.engine_kwargs.vllm.hf_token=x", "is not passed through"),
        (f"{SEQUENCES}=${{data.seed}}", f"{SEQUENCES}: no value refers to another key by $: write the value"),
        (f"{SEQUENCES}=[", f"{SEQUENCES}: [ cannot be read as YAML"),
        (f"{SEQUENCES}=!!python/name:os.system x", "cannot be read as YAML"),
        (f"{SEQUENCES}=0", f"{SEQUENCES} is a whole number from 1 on, not 0"),
        (f"{SEQUENCES}={MOST + 1}", "is a whole number from 1 on"),
        (f"{SEQUENCES}=true", "not true"),
        (f"{SEQUENCES}=1.5", "not 1.5"),
        (f"{SEQUENCES}=null", "not null"),
        (f"{OFFLOAD}=1", f"{OFFLOAD} is true or false, not 1"),
        (f"{GRAPHS}=8", "is a list of whole numbers from 1 on"),
        (f"{GRAPHS}=[]", "is a list of whole numbers from 1 on"),
        (f"{GRAPHS}=[1, 0]", "is a list of whole numbers from 1 on"),
        (f"{GRAPHS}=[[1]]", "is a list of whole numbers from 1 on"),
        (f"{FSDP}.fsdp_size=0", "from 1 on, or -1 for all devices, not 0"),
        (f"{FSDP}.fsdp_size=-2", "not -2"),
        (f"{FSDP}.wrap_policy.min_num_params=-1", "is a whole number from 0 on, not -1"),
        (f"{MEGATRON}.expert_tensor_parallel_size=0", "from 1 on, or null, not 0"),
        (f"{TRANSFORMER}.attention_backend=os.path", "is one word of small letters, digits and _, not os.path"),
        (f"{TRANSFORMER}.attention_backend=/bin/sh", "is one word"),
        (f"{TRANSFORMER}.attention_backend='http://x'", "is one word"),
        (f"{TRANSFORMER}.attention_backend={'a' * 41}", "is one word"),
        (f"{TRANSFORMER}.recompute_modules=[a/b]", "is a list of words"),
    ],
)
def test_all_else_is_refused_by_its_key(line: str, says: str) -> None:
    with pytest.raises(ValueError) as found:
        passed_of(line)
    (said,) = found.value.args
    assert isinstance(said, Sentence) and says in said


def test_what_is_taken_is_verls_and_names_no_file_address_or_code() -> None:
    assert len(known_keys()) > 1000
    for sharding, kinds in TAKEN.items():
        for key in kinds:
            known = f"{ROLLOUT}.engine_kwargs.vllm" if ".vllm." in key else key
            assert known_keys()[known] in ("both", sharding), key
            assert key.startswith("actor_rollout_ref."), key
            assert not re.search(r"path|file|dir|url|host|port\b|module\b|_target_|_impl|lib\b|name|script|env", key), (
                key
            )
    worded = {key for kinds in TAKEN.values() for key, kind in kinds.items() if kind in ("word", "words")}
    assert worded == {"actor_rollout_ref.model.fused_kernel_options.impl_backend"} | {
        f"{TRANSFORMER}.{name}"
        for name in ("attention_backend", "recompute_granularity", "recompute_method", "recompute_modules")
    }


def test_the_options_to_set_instead_are_there() -> None:
    for key, option in INSTEAD.items():
        group, _dot, name = option.partition(".")
        assert hasattr(getattr(JobConfig(), group), name), option
        assert all(key not in kinds for kinds in TAKEN.values()), key
        assert key in known_keys() or key == "model_engine"
    assert not set(LOG_PROB_LIMITS) & set(INSTEAD)


def of(*lines: str, **groups: Any) -> JobConfig:
    hardware = {"backend": "verl", "verl_options": list(lines)} | groups.pop("hardware", {})
    return JobConfig.model_validate({"hardware": hardware} | groups)


def wrong(*lines: str, **groups: Any) -> list[tuple[str, str]]:
    with pytest.raises(ValidationError) as found:
        of(*lines, **groups)
    return [(option_of(error), complaint_of(error)) for error in found.value.errors()]


def test_a_job_keeps_its_lines_without_white_space_around_them() -> None:
    config = of(f" {OFFLOAD}=true ", f"{SEQUENCES}=8")
    assert config.hardware.verl_options == [f"{OFFLOAD}=true", f"{SEQUENCES}=8"]
    assert config.hardware.passed == {OFFLOAD: True, SEQUENCES: 8}


def test_all_wrong_lines_are_named_at_once() -> None:
    found = wrong("data.train_files=x", f"{OFFLOAD}=true", f"{SEQUENCES}=0")
    assert [option for option, _why in found] == ["hardware.verl_options.0", "hardware.verl_options.2"]
    assert wrong(f"{SEQUENCES}=1{' ' * MAX_CHARS}")[0][0] == "hardware.verl_options.0"
    assert wrong(*[f"{SEQUENCES}=1"] * (MAX_LINES + 1))[0][0] == "hardware.verl_options"


MANY = {"devices": 8, "sharding": "megatron"}
TENSOR, PIPELINE, CONTEXT = (
    f"{MEGATRON}.{name}_parallel_size" for name in ("tensor_model", "pipeline_model", "context")
)
EXPERT, EXPERT_TENSOR = f"{MEGATRON}.expert_model_parallel_size", f"{MEGATRON}.expert_tensor_parallel_size"
ULYSSES = f"{ACTOR}.ulysses_sequence_parallel_size"


@pytest.mark.parametrize(
    ("lines", "hardware", "says"),
    [
        ([f"{OFFLOAD}=true", f"{OFFLOAD}=true"], {}, f"{OFFLOAD} is given twice"),
        ([f"{TENSOR}=1"], {}, f"{TENSOR} is not of FSDP2: leave it out, or choose the other sharding"),
        ([f"{OFFLOAD}=true"], MANY, f"{OFFLOAD} is not of Megatron"),
        ([f"{TENSOR}=2", f"{PIPELINE}=2", f"{CONTEXT}=4"], MANY, "8 devices cannot be divided by 16"),
        ([f"{TENSOR}=3"], MANY, "8 devices cannot be divided by 3: tensor_model_parallel_size × pipeline"),
        ([f"{TENSOR}=2", f"{EXPERT}=8"], MANY, "8 devices cannot be divided by 16: expert_tensor_parallel_size ×"),
        ([f"{ULYSSES}=2"], {"devices": 3}, f"3 devices cannot be divided by 2: {ULYSSES}"),
        ([f"{FSDP}.fsdp_size=3"], {"devices": 2, "hosts": 2}, f"4 devices cannot be divided by 3: {FSDP}.fsdp_size"),
        ([f"{REF}.fsdp_config.fsdp_size=3"], {"devices": 4}, "4 devices cannot be divided by 3"),
    ],
)
def test_lines_go_together(lines: list[str], hardware: dict[str, Any], says: str) -> None:
    ((option, why),) = wrong(*lines, hardware=hardware)
    assert option == "hardware.verl_options" and says in why


def test_rollouts_are_dealt_to_devices_that_do_not_share_them() -> None:
    assert of(hardware={"devices": 8}).hardware.shares == 8
    assert of(f"{ULYSSES}=4", hardware={"devices": 4, "hosts": 2}).hardware.shares == 2
    assert of(f"{TENSOR}=2", f"{CONTEXT}=2", hardware=MANY).hardware.shares == 2
    assert of(f"{TENSOR}=2", f"{PIPELINE}=4", hardware=MANY).hardware.shares == 1
    assert of(f"{EXPERT}=4", hardware=MANY).hardware.shares == 8, "experts are divided within the parts"
    assert of(f"{TENSOR}=2", f"{EXPERT}=8", f"{EXPERT_TENSOR}=1", hardware=MANY).hardware.shares == 4


def test_sizes_are_one_where_nothing_is_said() -> None:
    assert sizes_of({}) == Sizes(1, 1, 1, 1, 1)
    assert sizes_of({TENSOR: 2, EXPERT: 4, EXPERT_TENSOR: None}) == Sizes(2, 1, 1, 4, 2)


def test_the_layout_of_a_checkpoint_is_what_its_parts_depend_on() -> None:
    assert of(f"{OFFLOAD}=true", hardware={"devices": 4}).hardware.layout == "fsdp2"
    assert of(f"{FSDP}.fsdp_size=2", hardware={"devices": 4}).hardware.layout == "fsdp2 fsdp_size=2"
    virtual = f"{MEGATRON}.virtual_pipeline_model_parallel_size=2"
    found = of(f"{TENSOR}=2", f"{PIPELINE}=2", virtual, hardware=MANY).hardware.layout
    assert found == "megatron tensor=2 pipeline=2 context=1 expert=1 expert_tensor=2 virtual=2"


@pytest.mark.parametrize(
    ("groups", "option", "says"),
    [
        ({"hardware": {"backend": "auto", "sharding": "megatron"}}, "hardware.sharding", "TRL trains this job"),
        ({"hardware": MANY, "run": {"device": "cpu"}}, "hardware.sharding", "Megatron needs CUDA GPUs: choose FSDP2"),
        ({"hardware": MANY, "model": {"lora_rank": 4}}, "hardware.sharding", "or a LoRA rank of 0"),
    ],
)
def test_megatron_is_refused_where_it_cannot_be_trained_or_read(groups: dict[str, Any], option: str, says: str) -> None:
    ((found, why),) = wrong(**groups)
    assert found == option and says in why
    of(hardware=MANY)


def test_options_of_verl_need_verl() -> None:
    ((option, why),) = wrong(f"{OFFLOAD}=true", hardware={"backend": "auto"})
    assert option == "hardware.verl_options" and "TRL trains this job" in why
    of(f"{OFFLOAD}=true", hardware={"backend": "auto", "devices": 2})


def test_only_megatron_needs_a_gpu_and_only_where_it_trains() -> None:
    assert of(hardware=MANY).needs_gpu and not of(hardware={"devices": 8}).needs_gpu
    assert of(hardware={"gpu_memory": 24}).needs_gpu
    assert not of(hardware=MANY, kind="sample").needs_gpu
