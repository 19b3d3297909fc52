"""Preflight names what would fail, all of it at once, in seconds."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.environment import environment_server
from tests.training.helpers import demonstration_rows, job_config, write_rows
from tests.training.rollout.bench import openenv_server
from tests.vllm_stub import Stub, serving
from training.preflight import Check, each_check, preflight

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with environment_server("tools", "--slots", "16") as started:
        yield started.url


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.check: check for check in checks}


def good(folder: Path, model: Path, url: str) -> dict[str, Any]:
    data = write_rows(folder / "rows.jsonl", demonstration_rows(), prompts_only=True)
    return {
        "data": {"train": str(data)},
        "model": {"source": str(model)},
        "environment": {"name": "tools", "url": url},
    }


def test_a_job_that_can_run_passes_every_check(tmp_path: Path, starter_folder: Path, server: str) -> None:
    checks = by_name(preflight(job_config(**good(tmp_path, starter_folder, server))))
    assert list(checks) == ["model", "dataset", "environment", "slots", "rewards", "batch", "template", "memory"]
    assert all(check.ok for check in checks.values())
    assert "parameters" in checks["model"].message and "16 free slots for 8" in checks["slots"].message


def test_a_family_that_cannot_be_sampled_right_is_refused_by_name_and_a_slow_one_is_reported(
    tmp_path: Path, starter_folder: Path, server: str
) -> None:
    """Preflight was green for models whose every rollout then failed."""

    def model_check(family: str, **over: Any) -> Check:
        folder = tmp_path / family
        shutil.copytree(starter_folder, folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"model_type": family}))
        job = job_config(**good(tmp_path, folder, server), **over)
        return by_name(preflight(job, load_template=False))["model"]

    refused = model_check("mamba")
    assert not refused.ok and refused.told.values == {"family": "mamba"} and "qwen3" in refused.hint
    slow = model_check("qwen3_5")
    assert slow.ok and "whole prompt" in slow.message
    assert model_check("rwkv", kind="sft").ok  # it samples nothing
    assert model_check("gpt_oss").ok


@pytest.mark.parametrize(
    ("group", "values", "failing"),
    [
        ("data", {"train": "/nowhere.jsonl"}, {"dataset"}),
        ("data", {"train": ""}, {"dataset"}),
        ("model", {"source": "/nowhere"}, {"model"}),
        ("model", {"source": "a/b/c"}, {"model"}),
        ("environment", {"url": "http://127.0.0.1:9"}, {"environment", "slots"}),
        ("environment", {"url": "", "name": "tools"}, {"environment"}),
        ("environment", {"name": "bfcl"}, {"environment", "slots"}),
        ("rewards", {"components": [{"name": "no_such", "weight": 1}]}, {"rewards"}),
    ],
)
def test_each_fault_fails_its_own_check_with_a_hint(
    tmp_path: Path, starter_folder: Path, server: str, group: str, values: dict[str, Any], failing: set[str]
) -> None:
    groups = good(tmp_path, starter_folder, server)
    groups[group] = {**groups.get(group, {}), **values}
    checks = preflight(job_config(**groups), load_template=False)
    assert {check.check for check in checks if not check.ok} == failing
    assert all(check.message.endswith(".") for check in checks if not check.ok)


@pytest.mark.parametrize(("over", "plays"), [({}, 16), ({"sessions": 3}, 3), ({"sessions": 99}, 16)])
def test_more_rollouts_than_slots_is_a_remark(
    tmp_path: Path, starter_folder: Path, server: str, over: dict[str, Any], plays: int
) -> None:
    """They wait for their turn, so nothing is refused for it."""
    groups = good(tmp_path, starter_folder, server)
    groups["rollout"] = {"prompts_per_step": 8, "num_generations": 4}
    groups["environment"] |= over
    slots = by_name(preflight(job_config(**groups), load_template=False))["slots"]
    rounds = {16: 2, 3: 11}[plays]
    message = f"It plays {plays} at a time: the 32 rollouts of a step take {rounds} rounds, one by one."
    assert slots.ok and slots.message == message


@pytest.mark.parametrize(("slots", "says"), [(1, "It plays 1 at a time: the 8 rollouts"), (4, "does not report")])
def test_openenvs_own_servers_show_their_one_session_before_the_launch(
    tmp_path: Path, starter_folder: Path, slots: int, says: str
) -> None:
    """Preflight said ok, and 6 of 8 rollouts were excluded."""
    with openenv_server(slots) as url:
        groups = good(tmp_path, starter_folder, url)
        groups["environment"] = {"url": url, "protocol": "openenv-text"}
        check = by_name(preflight(job_config(**groups), load_template=False))["slots"]
    assert check.ok and says in check.message


def test_sft_needs_something_to_imitate(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.jsonl", demonstration_rows(), prompts_only=True)
    checks = by_name(preflight(job_config(kind="sft", data={"train": str(data)})))
    assert not checks["dataset"].ok and "assistant" in checks["dataset"].message


def test_the_fast_checks_load_neither_torch_nor_transformers(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.jsonl", demonstration_rows())
    (tmp_path / "job.yaml").write_text(yaml.safe_dump({"kind": "sft", "data": {"train": str(data)}}))
    script = (
        "import sys; from training.__main__ import main; code = main(['preflight', sys.argv[1], '--json']);"
        "assert not {'torch', 'trl', 'transformers', 'django'} & set(sys.modules); sys.exit(code)"
    )
    words = [sys.executable, "-c", script, str(tmp_path / "job.yaml")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)[0]
    assert {"check", "ok", "message", "hint", "told", "code", "option", "hard", "stage"} == set(found)


def test_each_sentence_is_a_template_or_has_the_code_of_its_error(tmp_path: Path) -> None:
    broken = tmp_path / "rows.jsonl"
    broken.write_text("no json\n")
    wanted = {"data": {"train": str(broken)}, "model": {"source": "/nowhere"}, "environment": {"url": "", "name": "e"}}
    checks = preflight(job_config(**wanted), load_template=False)
    for check in checks:
        assert bool(check.told) != bool(check.code), check
        assert not check.told or check.told == check.message
    named = by_name(checks)
    assert named["model"].told.values == {"source": "/nowhere"} and named["dataset"].code == "data_unreadable"


def sampler_check(config: dict[str, Any], **groups: Any) -> Check:
    job = job_config(**config, **groups)
    return by_name(preflight(job, load_template=False))["sampler"]


def test_a_vllm_that_is_to_be_started_must_be_there(
    tmp_path: Path, starter_folder: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = good(tmp_path, starter_folder, server)
    python = tmp_path / "python"
    monkeypatch.setenv("TILTYARD_VLLM_PYTHON", str(python))
    missing = sampler_check(config, rollout={"engine": "vllm"})
    assert not missing.ok and missing.message == "vLLM is not installed here." and "make setup-vllm" in missing.hint
    python.write_text("#!/bin/sh\nexit 0\n")
    python.chmod(0o755)
    bare = sampler_check(config, rollout={"engine": "vllm"})
    assert not bare.ok and bare.message == f"{python} has no vLLM."
    python.write_text("#!/bin/sh\necho 0.31.0\n")
    there = sampler_check(config, rollout={"engine": "vllm"})
    assert there.ok and there.message.startswith("vLLM 0.31.0 is started with the run")
    assert "sampler" not in by_name(preflight(job_config(**config), load_template=False))


def hardware_checks(config: dict[str, Any], **groups: Any) -> list[Check]:
    job = job_config(**config, **groups, run={"device": "auto"})
    return [check for check in preflight(job, load_template=False) if check.check == "hardware"]


def test_verl_must_be_there_for_several_devices(
    tmp_path: Path, starter_folder: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, python = good(tmp_path, starter_folder, server), tmp_path / "python"
    monkeypatch.setenv("TILTYARD_VERL_PYTHON", str(python))
    monkeypatch.delenv("TILTYARD_RAY_ADDRESS", raising=False)
    assert hardware_checks(config) == [], "one device needs none"
    (missing,) = hardware_checks(config, hardware={"devices": 2})
    assert not missing.ok and missing.message == "verl is not installed here." and "make setup-verl" in missing.hint
    assert missing.option == "hardware.devices" and not missing.hard, "a worker elsewhere may have it"
    python.write_text("#!/bin/sh\nexit 0\n")
    python.chmod(0o755)
    (bare,) = hardware_checks(config, hardware={"devices": 2})
    assert not bare.ok and bare.message == f"{python} has no verl."
    python.write_text('#!/bin/sh\nfor name; do :; done\necho "$name" | sed s/verl/0.9.1/\n')
    (there,) = hardware_checks(config, hardware={"devices": 2})
    assert there.ok and there.message.startswith("verl 0.9.1 trains it, on 2 devices in all.")
    (apart,) = hardware_checks(config, hardware={"devices": 2, "sampler_devices": 1})
    assert apart.ok
    assert apart.message.startswith("verl 0.9.1 trains it, on 2 devices in all, and samples it on one device in all.")
    (hosts,) = hardware_checks(config, hardware={"hosts": 2})
    assert not hosts.ok and hosts.option == "hardware.hosts" and hosts.message.startswith("Several hosts need a Ray")
    monkeypatch.setenv("TILTYARD_RAY_ADDRESS", "http://192.0.2.7:8265")
    (cluster,) = hardware_checks(config, hardware={"hosts": 2}, rollout={"engine": "vllm"})
    assert cluster.ok


def test_each_option_that_verl_cannot_train_by_is_named(tmp_path: Path, starter_folder: Path, server: str) -> None:
    config = good(tmp_path, starter_folder, server)
    options = {"grpo": {"entropy_coef": 0.1, "delta": 1.1}, "optim": {"micro_batch_size": 4}}
    found = hardware_checks(config, hardware={"devices": 3}, **options)
    wrong = {check.option: check for check in found if check.hard}
    assert set(wrong) == {"grpo.entropy_coef", "grpo.delta", "rollout.prompts_per_step"}
    assert not any(check.ok for check in wrong.values())


def test_options_of_verl_are_named_with_the_others_and_said_where_they_fit(
    tmp_path: Path, starter_folder: Path, server: str
) -> None:
    config = good(tmp_path, starter_folder, server)
    lines = [f"actor_rollout_ref.{name}" for name in ("rollout.max_num_seqs=8", "actor.fsdp_config.param_offload=true")]
    hardware = {"devices": 3, "verl_options": lines}
    found = hardware_checks(config, hardware=hardware, grpo={"delta": 1.1})
    assert {check.option for check in found if check.hard} == {
        "grpo.delta",
        "rollout.prompts_per_step",
        "hardware.verl_options",
    }
    found = hardware_checks(config, hardware={"devices": 2, "verl_options": lines[1:]})
    assert not any(check.hard for check in found)
    assert found[-1].ok and found[-1].message.endswith(f"the memory that is needed: {lines[1]}.")


def test_the_sampler_of_several_devices_follows_from_where_they_are(
    tmp_path: Path, starter_folder: Path, server: str
) -> None:
    job = job_config(**good(tmp_path, starter_folder, server), hardware={"devices": 2}, run={"device": "auto"})
    for device, option in (("cpu", None), ("h100", "rollout.engine")):
        found = [check.option for check in each_check(job, load_template=False, device=device) if check.hard]
        assert found == ([option] if option else [])


def test_each_of_several_devices_is_judged(
    tmp_path: Path, starter_folder: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the run comes to a cluster whose devices nothing here knows, its memory is not judged."""
    job = job_config(**good(tmp_path, starter_folder, server), hardware={"devices": 2}, run={"device": "auto"})
    (found,) = [check for check in each_check(job, device="h100") if check.check == "memory"]
    assert found.ok and "of each of 2 × NVIDIA H100 80 GB" in found.message
    monkeypatch.setenv("TILTYARD_RAY_ADDRESS", "http://head:8265")
    assert "memory" in {check.check for check in each_check(job, device="h100")}
    assert "memory" not in {check.check for check in each_check(job)}


def test_vllm_servers_must_answer(tmp_path: Path, starter_folder: Path, server: str) -> None:
    config = good(tmp_path, starter_folder, server)
    with serving(Stub()) as stub:
        urls = [stub.url, "http://127.0.0.1:9"]
        one = sampler_check(config, rollout={"engine": "vllm"}, vllm={"mode": "server", "urls": urls[:1]})
        assert one.ok and one.message == "One vLLM server answers."
        two = sampler_check(config, rollout={"engine": "vllm"}, vllm={"mode": "server", "urls": urls})
    assert not two.ok and two.message == "1 of 2 vLLM servers do not answer: http://127.0.0.1:9."
