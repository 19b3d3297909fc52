"""verl's process seen from ours: how it is started, followed, asked to stop, and what its end means for the run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from pydantic import ValidationError

from tests.training.helpers import events, of_type
from tests.training.verl_backend.cpu_job import cpu_job
from training.algorithms.checkpoints import write_whole
from training.algorithms.job import Job
from training.config import METHODS, JobConfig
from training.errors import ConfigError, DiedWithoutWord
from training.main import EXIT_FAILED, EXIT_PAUSED, EXIT_STOPPED, learner_of, run_job
from training.model_check import check_model_folder
from training.verl_backend import learner as module
from training.verl_backend.adapter import begin_adapter
from training.verl_backend.checkpoints import take_saved
from training.verl_backend.folder import FOLDER_NAME
from training.verl_backend.learner import make_folder
from training.verl_backend.settings import DeviceKind

TRAINER = """#!{python}
import json, os, sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
folder = Path(sys.argv[3])
own = folder.parent / "actors" / "trainer"
own.mkdir(parents=True)
journal = open(own / "journal.jsonl", "a")
def say(**event):
    journal.write(json.dumps({{"v": 1, "n": 1, "t": time.time(), **event}}) + "\\n")
    journal.flush()
{body}
"""
START = 'say(type="run_started", kind="grpo", total_steps=2, from_step=0, rows=3, device="cpu", versions={}, pid=1)\n'
LAST = 'say(type="run_finished", status={status!r}, step=1, error={error!r})\n'
ERROR = {"code": "too_many_failures", "boundary": "environment", "message": "all failed", "hint": "look"}
STOPPING = f"""
while not (folder / "stop").exists():
    time.sleep(0.05)
{LAST.format(status="stopped", error=None)}
"""


@pytest.fixture
def no_merge_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MERGE_S", 0.02)


def job_with(trainer: str, tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch, **groups: Any) -> Job:
    """A job whose trainer is a program of ours in the place of verl's Python."""
    program = tmp_path / "python"
    program.write_text(TRAINER.format(python=sys.executable, root=str(Path.cwd()), body=trainer))
    program.chmod(0o755)
    monkeypatch.setenv("TILTYARD_VERL_PYTHON", str(program))
    job = cpu_job(tmp_path / "run", base, "", environment={"name": ""}, **groups)
    job.journal.close()
    return job


def run(job: Job) -> int:
    return run_job(job.config, job.run_dir, progress=False)


def test_who_trains_follows_from_the_hardware(tmp_path: Path) -> None:
    one = JobConfig.model_validate({"data": {"train": "x"}})
    assert learner_of(one).__name__ == "run_grpo"
    two = JobConfig.model_validate({"data": {"train": "x"}, "hardware": {"devices": 2}})
    assert learner_of(two).__name__ == "run_verl"
    others: list[dict[str, Any]] = [{"hosts": 2}, {"backend": "verl"}, {"devices": 2, "backend": "verl"}]
    for hardware in (*others, {"sampler_devices": 1}):
        asked = JobConfig.model_validate({"data": {"train": "x"}, "hardware": hardware})
        assert learner_of(asked).__name__ == "run_verl"


@pytest.mark.parametrize("hardware", [{"devices": 2}, {"hosts": 2}])
def test_our_own_trainer_has_one_device(hardware: dict[str, int]) -> None:
    JobConfig.model_validate({"data": {"train": "x"}, "hardware": {"backend": "trl"}})
    with pytest.raises(ValidationError, match="TRL trains on one device here"):
        JobConfig.model_validate({"data": {"train": "x"}, "hardware": hardware | {"backend": "trl"}})


def test_our_own_trainer_samples_on_its_device() -> None:
    hardware = {"backend": "trl", "sampler_devices": 1}
    with pytest.raises(ValidationError, match=r"sampler_devices.*TRL samples on the device that trains: set 0"):
        JobConfig.model_validate({"data": {"train": "x"}, "hardware": hardware})


@pytest.mark.parametrize("kind", [kind for kind, method in METHODS.items() if method.trains and kind != "grpo"])
@pytest.mark.parametrize(
    ("hardware", "option"),
    [
        ({"devices": 2}, "devices"),
        ({"backend": "verl"}, "backend"),
        ({"sampler_devices": 1}, "sampler_devices"),
        ({"devices": 2, "sampler_devices": 1}, "devices"),
    ],
)
def test_other_methods_are_not_for_verl(kind: str, hardware: dict[str, Any], option: str) -> None:
    with pytest.raises(ValidationError, match=rf"hardware\.{option}\b.*verl trains by GRPO here"):
        JobConfig.model_validate({"kind": kind, "data": {"train": "x"}, "hardware": hardware})


def test_what_trains_nothing_asks_for_no_devices() -> None:
    """An evaluation that was made of a run's options plays on one."""
    config = JobConfig.model_validate({"kind": "evaluate", "data": {"train": "x"}, "hardware": {"devices": 2}})
    assert not config.by_verl


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        ("succeeded", None, 0),
        ("stopped", None, EXIT_STOPPED),
        ("failed", ERROR, EXIT_FAILED),
        ("paused", ERROR, EXIT_PAUSED),
    ],
)
def test_its_last_word_is_the_runs(
    status: str,
    error: dict[str, str] | None,
    code: int,
    tmp_path: Path,
    starter_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    no_merge_pause: None,
) -> None:
    trainer = START + LAST.format(status=status, error=error)
    assert run(job_with(trainer, tmp_path, starter_folder, monkeypatch)) == code
    (last,) = of_type(tmp_path / "run", "run_finished")
    assert last.status == status and events(tmp_path / "run")[-1] == last
    assert (last.error and (last.error.code, last.error.hint)) == (error and ("too_many_failures", "look"))
    assert [event.message for event in of_type(tmp_path / "run", "log")][-1:] != ["all failed"]


@pytest.mark.parametrize(("end", "code"), [("sys.exit(1)", 1), ("sys.exit(0)", 1), ("os.kill(os.getpid(), 9)", 137)])
def test_a_death_without_a_word_is_ours(
    end: str, code: int, tmp_path: Path, starter_folder: Path, monkeypatch: pytest.MonkeyPatch, no_merge_pause: None
) -> None:
    assert run(job_with(START + end, tmp_path, starter_folder, monkeypatch)) == code
    assert of_type(tmp_path / "run", "run_finished") == [] and len(of_type(tmp_path / "run", "run_started")) == 1


def test_codes_of_signals_are_those_of_a_shell() -> None:
    assert [DiedWithoutWord(code).code for code in (-9, -15, 3, 0)] == [137, 143, 3, 1]


def test_a_stop_is_handed_on_and_waited_for(
    tmp_path: Path, starter_folder: Path, monkeypatch: pytest.MonkeyPatch, no_merge_pause: None
) -> None:
    job = job_with(START + STOPPING, tmp_path, starter_folder, monkeypatch)
    stopper = threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGTERM))
    stopper.start()
    assert run(job) == EXIT_STOPPED
    assert of_type(tmp_path / "run", "run_finished")[0].status == "stopped"


def test_the_journal_grows_while_it_trains(
    tmp_path: Path, starter_folder: Path, monkeypatch: pytest.MonkeyPatch, no_merge_pause: None
) -> None:
    trainer = START + 'say(type="log", message="half way")\n' + STOPPING
    job = job_with(trainer, tmp_path, starter_folder, monkeypatch)
    seen: list[bool] = []

    def look() -> None:
        ends = time.monotonic() + 30
        while time.monotonic() < ends and not seen:
            if any(event.message == "half way" for event in of_type(tmp_path / "run", "log")):
                seen.append(True)
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    watcher = threading.Thread(target=look)
    watcher.start()
    assert run(job) == EXIT_STOPPED and seen
    watcher.join()


def test_how_far_it_is_decides_how_long_a_stop_may_take(tmp_path: Path, starter_folder: Path) -> None:
    job = cpu_job(tmp_path / "run", starter_folder, "")
    saved = {"path": "checkpoint-3", "bytes": 1, "seconds": 4.0}
    for event in (
        module.RunStarted(kind="grpo", total_steps=9, from_step=2, rows=3, device="cpu", versions={}, pid=1),
        module.Metrics(step=3, values={"timing/step": 50.0}),
        module.Metrics(step=3, values={"heldout/success": 0.5}),
        module.CheckpointSaved(step=3, **saved),
        module.Metrics(step=4, values={"timing/step": 70.0}),
        module.Metrics(step=4, values={"heldout/success": 0.5}),
        module.CheckpointSaved(step=9, **saved | {"path": "model", "seconds": 99.0}, final=True),
    ):
        module._follow(job, event)
    assert (job.step, job.saved_step, job.saved, list(job.unsaved)) == (4, 3, "checkpoint-3", [4])
    assert job.stop_grace() == 3 * 4.0 + 70.0


ORPHAN = """
import os, sys
from training.__main__ import main
sys.exit(main(["run", sys.argv[1], "--run-dir", sys.argv[2]]))
"""
WAITING = """
read = int(os.environ["TILTYARD_PARENT_FD"])
(folder / "pid").write_text(str(os.getpid()))
os.read(read, 1)
(folder / "alone").touch()
"""


def test_its_pipe_closes_when_we_are_killed(
    tmp_path: Path, starter_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from training.config import config_to_yaml

    job = job_with(WAITING, tmp_path, starter_folder, monkeypatch)
    (tmp_path / "job.yaml").write_text(config_to_yaml(job.config))
    process = subprocess.Popen([sys.executable, "-c", ORPHAN, str(tmp_path / "job.yaml"), str(tmp_path / "run")])
    folder, ends = tmp_path / "run" / FOLDER_NAME, time.monotonic() + 60
    while not (folder / "pid").exists() and process.poll() is None and time.monotonic() < ends:
        time.sleep(0.1)
    child = psutil.Process(int((folder / "pid").read_text()))
    assert os.getsid(child.pid) == child.pid != os.getsid(process.pid), "a signal to our group is for us"
    process.kill()
    process.wait()
    child.wait(10)
    assert (folder / "alone").exists()


@pytest.mark.parametrize("rank", [0, 4], ids=["all weights", "LoRA"])
def test_a_run_that_died_after_its_last_checkpoint_needs_no_trainer(
    starter_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    options = {"run": {"max_steps": 2}, "model": {"lora_rank": rank}}
    job = job_with("sys.exit(1)", tmp_path, starter_folder, monkeypatch, **options)
    saved = tmp_path / "global_step_2"
    shutil.copytree(starter_folder, saved / "actor" / "huggingface")
    if rank:
        for name in ("config.json", "generation_config.json", "model.safetensors"):
            (saved / "actor" / "huggingface" / name).unlink(missing_ok=True)
        begin_adapter(job.config, starter_folder, None, saved / "actor" / "huggingface")
    first = tmp_path / "run" / "1"
    write_whole(first / "checkpoint-2", 2, partial(take_saved, saved, 2, 1))
    places = {"earlier": [first], "resume_from": [tmp_path / "run"]}
    assert run_job(job.config, tmp_path / "run" / "2", attempt=2, progress=False, **places) == 0
    last = events(tmp_path / "run" / "2")[-1]
    assert (last.type, last.status, last.step) == ("run_finished", "succeeded", 2)
    (model,) = of_type(tmp_path / "run" / "2", "checkpoint")
    assert (model.path, model.step, model.final, model.adapter) == ("model", 2, True, "adapter" if rank else "")
    check_model_folder(tmp_path / "run" / "2" / "model")
    assert (tmp_path / "run" / "2" / "adapter").is_dir() is bool(rank)


def test_what_a_local_ray_leaves_is_removed_by_its_note_alone(tmp_path: Path) -> None:
    ours, others = tmp_path / "tiltyard-ray-1", tmp_path / "others"
    for number, place in enumerate((ours, others)):
        place.mkdir()
        note = tmp_path / str(number) / FOLDER_NAME / module.RAY_NOTE
        note.parent.mkdir(parents=True)
        note.write_text(json.dumps({"folder": str(place)}))
    module._remove_rays(tmp_path / "0", tmp_path / "1", tmp_path / "2")
    assert not ours.exists() and others.exists()
    assert not (tmp_path / "0" / FOLDER_NAME / module.RAY_NOTE).exists()


def test_several_hosts_need_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    config = JobConfig.model_validate({"data": {"train": "x"}, "hardware": {"hosts": 2}})
    monkeypatch.delenv("TILTYARD_RAY_ADDRESS", raising=False)
    with pytest.raises(ConfigError, match=r"hardware\.hosts: Several hosts need a Ray cluster"):
        module.require_hosts(config)
    monkeypatch.setenv("TILTYARD_RAY_ADDRESS", "http://192.0.2.7:8265")
    module.require_hosts(config)
    assert module.device_kind("auto") == "cuda", "a cluster is for GPUs, unless a job says otherwise"
    assert module.device_kind("cpu") == "cpu"


def test_ray_is_not_asked_for_gpus_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    module.require_gpus(2)
    with pytest.raises(ConfigError, match=r"hardware\.devices: this worker sees 2 of the 3 GPUs"):
        module.require_gpus(3)


def test_a_python_with_verl_is_named_or_the_repositorys_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILTYARD_VERL_PYTHON", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="There is no verl here") as found:
        module.verl_python()
    assert "make setup-verl" in found.value.hint
    (tmp_path / "none").touch()
    assert module.verl_python() == tmp_path / "none"


def test_vllm_must_be_in_the_virtualenv_of_verl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not on a cluster, whose nodes have their own, and not where transformers sample."""
    monkeypatch.delenv("TILTYARD_RAY_ADDRESS", raising=False)
    samples = JobConfig.model_validate({"data": {"train": "x"}, "rollout": {"engine": "vllm"}})
    other = JobConfig.model_validate({"data": {"train": "x"}, "rollout": {"engine": "in_process"}})
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    with pytest.raises(ConfigError, match=r"rollout\.engine: There is no vLLM") as found:
        module.require_vllm(samples, python)
    assert "make setup-verl-vllm" in found.value.hint
    module.require_vllm(other, python)
    python.write_text("#!/bin/sh\necho 0.31.0\n")
    module.require_vllm(samples, python)
    python.write_text("#!/bin/sh\n")
    monkeypatch.setenv("TILTYARD_RAY_ADDRESS", "http://192.0.2.7:8265")
    module.require_vllm(samples, python)


def test_samplers_apart_get_their_weights_by_cupy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On GPUs, where a job has such samplers; not on a cluster, whose nodes have their own."""
    monkeypatch.delenv("TILTYARD_RAY_ADDRESS", raising=False)
    apart = JobConfig.model_validate({"data": {"train": "x"}, "hardware": {"sampler_devices": 1}})
    together = JobConfig.model_validate({"data": {"train": "x"}, "hardware": {"devices": 2}})
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    with pytest.raises(ConfigError, match=r"hardware\.sampler_devices: .* has no CuPy") as found:
        module.require_nccl(apart, "cuda", python)
    assert "make setup-verl" in found.value.hint
    module.require_nccl(apart, "cpu", python)
    module.require_nccl(together, "cuda", python)
    python.write_text("#!/bin/sh\nfor name; do :; done\necho $name | grep cupy\n")
    module.require_nccl(apart, "cuda", python)
    python.write_text("#!/bin/sh\n")
    monkeypatch.setenv("TILTYARD_RAY_ADDRESS", "http://192.0.2.7:8265")
    module.require_nccl(apart, "cuda", python)


def test_megatron_needs_its_package(tmp_path: Path, starter_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups: dict[str, Any] = {"run": {"device": "cuda"}, "rollout": {"engine": "vllm"}}
    divided = cpu_job(tmp_path / "a", starter_folder, "http://x", hardware={"sharding": "megatron"}, **groups).config
    other = cpu_job(tmp_path / "b", starter_folder, "http://x", **groups).config
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    with pytest.raises(ConfigError, match=r"hardware\.sharding: There is no megatron-core") as found:
        module.require_megatron(divided, python)
    assert "set hardware.sharding to fsdp2" in found.value.hint
    module.require_megatron(other, python)
    python.write_text('#!/bin/sh\ncase "$*" in *megatron-core*) echo 0.16.1;; esac\n')
    module.require_megatron(divided, python)
    python.write_text("#!/bin/sh\n")
    monkeypatch.setenv("TILTYARD_RAY_ADDRESS", "http://192.0.2.7:8265")
    module.require_megatron(divided, python)


def test_the_variables_of_a_sampler(tmp_path: Path, starter_folder: Path) -> None:
    """What verl loads in each process, and the room for turns of a vLLM on processors."""
    names = ("VERL_USE_EXTERNAL_MODULES", "VERL_PLATFORM", "VLLM_CPU_KVCACHE_SPACE", "VLLM_CPU_OMP_THREADS_BIND")

    def of(engine: str, device: DeviceKind) -> tuple[str | None, ...]:
        job = cpu_job(tmp_path / f"{engine}-{device}", starter_folder, "http://x", rollout={"engine": engine})
        folder = make_folder(job, device)
        return tuple(module._variables(device, job, folder).get(name) for name in names)

    with_vllm, on_cpu = "training.verl_backend.with_vllm", "training.verl_backend.on_cpu"
    assert of("in_process", "cpu") == (on_cpu, "cpu", None, None)
    assert of("vllm", "cpu") == (f"{with_vllm},{on_cpu}", "cpu", "1", "nobind")
    assert of("vllm", "cuda") == (with_vllm, None, None, None)
