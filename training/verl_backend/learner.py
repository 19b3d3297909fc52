"""A job that verl trains, seen from Tiltyard's own packages: the same start, stop, journal and ends as on one device.

1. The job folder is made here (``launch.py``); verl's own process is started for it in verl's virtualenv.
2. While it works, what its processes journal is merged into the run's journal, and a stop is handed on as a file.
3. It ends when this process ends, however that comes: it holds the read end of a pipe of ours, as we do of our
   supervisor's. Its Ray dies with it.
4. Its last word is the run's. Without one it has died; so do we, and another attempt continues from its checkpoint.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import yaml

from training.algorithms.checkpoints import step_of
from training.algorithms.drawing import reward_components, task_rows
from training.algorithms.held_out import choose_tasks
from training.algorithms.job import Job, row_order
from training.algorithms.loading import fetch_base, load_tokenizer
from training.algorithms.sampler import require_window
from training.children import PARENT_VARIABLE, RAY_ADDRESS, ROOT, VERL_PYTHON, python_of
from training.config import JobConfig
from training.errors import ConfigError, DiedWithoutWord, StopRequested
from training.exports.verl import head_of
from training.exports.verl_options import tree_of
from training.journal import CheckpointSaved, Event, Metrics, RunFinished, RunStarted
from training.model_check import load_config
from training.policy.vllm_engine import kv_gib
from training.policy.vllm_server import cpu_variables, installed_version
from training.rewards.defaults import said, with_rewards
from training.rollout.holding import wait_for_environment
from training.rollout.protocols import check_environment
from training.rollout.templates import require_calls
from training.rollout.tokens import ChatTemplate
from training.verl_backend.adapter import begin_adapter
from training.verl_backend.checkpoints import save_model, saved_by_verl
from training.verl_backend.divided import untried
from training.verl_backend.figures import made_of
from training.verl_backend.folder import FOLDER_NAME, LOOPS_NAME, SETTINGS_NAME, TOKENIZER_NAME, JobFolder, Plan
from training.verl_backend.merger import Merger
from training.verl_backend.settings import LOOP, ON_CPU, DeviceKind, ray_settings, require_fit, settings_of
from training.words import _

# Makes the job folder of a verl job, where Tiltyard's own packages are: verl's virtualenv lacks some of them.


def make_folder(job: Job, device: DeviceKind, *, on_cluster: bool = False) -> JobFolder:
    """Write ``<run>/verl``, and where the run has a checkpoint, the settings that continue from it.

    Raises ``ConfigError`` for what verl cannot do, ``DataError``, ``ModelError`` and ``TemplateError``.
    """
    chosen = job.config
    job.config = config = _with_whole_paths(with_rewards(chosen))
    require_fit(config, device)
    reward_components(config)
    if config.rewards != chosen.rewards:
        job.log(said(chosen))
    folder = JobFolder(job.run_dir.resolve() / FOLDER_NAME)
    checkpoint = job.find_checkpoint()
    rows = task_rows(config)
    model = fetch_base(job, rows).resolve()
    if config.rollout.engine == "vllm":
        require_window(config, load_config(model))
    tokenizer, note = load_tokenizer(model)
    if note:
        job.log(note, "warning")
    if config.run.keep_tokens_mib:
        job.log("verl gives no values of single tokens, so none are kept.")
    for line in untried(config):
        job.log(line)
    template = ChatTemplate(tokenizer)
    require_calls(template, config, rows)
    tasks = choose_tasks(job, rows, template)
    groups = config.run.max_steps // config.updates_per_step * config.rollout.prompts_per_step
    order = row_order(len(tasks.train), groups, seed=config.run.seed, shuffle=config.data.shuffle)
    plan = Plan(
        attempt=job.attempt,
        order=[tasks.train[at] for at in order],
        rows=len(tasks.train),
        eos_id=template.eos_id,
        held_out=tasks.played,
        earlier=tuple(path.resolve() for path in job.earlier),
        checkpoint=checkpoint.resolve() if checkpoint is not None else None,
        base=model,
        resolved=job.resolved,
    )
    folder.write(config, plan)
    tokenizer.save_pretrained(folder.path / TOKENIZER_NAME)
    if config.model.lora_rank:
        begin_adapter(config, model, job.hub_base, folder.adapter)
    resume = str(saved_by_verl(checkpoint, config)) if checkpoint is not None else ""
    settings = settings_of(config, device, folder.path, model, resume)
    settings |= {} if on_cluster else ray_settings(config, device)
    (folder.path / SETTINGS_NAME).write_text(head_of(config) + yaml.safe_dump(tree_of(settings)), encoding="utf-8")
    loop = {"name": LOOP, "_target_": "training.verl_backend.loop.PlayerLoop", "folder": str(folder.path)}
    (folder.path / LOOPS_NAME).write_text(yaml.safe_dump([loop]), encoding="utf-8")
    return folder


def room_for_turns(config: JobConfig, model: Path | None) -> int:
    """GiB of keys and values for the turns of a vLLM on a processor, by the folder of the model."""
    assert model is not None  # noqa: S101 - the job folder was made
    return kv_gib(load_config(model), config.vllm_window * config.rollouts_per_step)


def _with_whole_paths(config: JobConfig) -> JobConfig:
    """The same job for processes that start elsewhere: on every host its files lie under these paths."""
    data = config.data.model_copy(update={"train": _whole(config.data.train)})
    evaluate = config.evaluate.model_copy(update={"data": _whole(config.evaluate.data)})
    return config.model_copy(update={"data": data, "evaluate": evaluate})


def _whole(path: str) -> str:
    return str(Path(path).resolve()) if path else ""


NOT_INSTALLED = _("Run make setup-verl where the worker runs, or let TILTYARD_VERL_PYTHON name a Python with verl.")
NO_CLUSTER = _("Several hosts need a Ray cluster, and none is named here.")
NAME_A_CLUSTER = _("Set TILTYARD_RAY_ADDRESS where the worker is started, or set hardware.hosts to 1.")
MERGE_S, END_S = 0.5, 30.0
RAY_NOTE, RAY_PREFIX = "ray.json", "tiltyard-ray-"
"""The note in the job folder says what of a local Ray lies elsewhere on this machine."""
NO_VLLM = _("There is no vLLM in the virtualenv of verl, which rollout.engine asks for.")
ADD_VLLM = _("Run make setup-verl-vllm where the worker runs, or set rollout.engine to in_process on processors.")
CUPY = ("cupy-cuda13x", "cupy-cuda12x", "cupy")
NO_CUPY = _("verl hands weights to samplers on other GPUs by NCCL and CuPy, and its virtualenv has no CuPy.")
ADD_CUPY = _("Run make setup-verl where the worker runs, or set hardware.sampler_devices to 0.")
NO_MEGATRON = _("There is no megatron-core in the virtualenv of verl, which hardware.sharding asks for.")
ADD_MEGATRON = _("Install megatron-core and Megatron-Bridge there, or set hardware.sharding to fsdp2.")
MODULES = "VERL_USE_EXTERNAL_MODULES"
ON_PROCESSORS = {"VERL_PLATFORM": "cpu", MODULES: ON_CPU}
WITH_VLLM = "training.verl_backend.with_vllm"
ALWAYS = {"VERL_USE_EXTERNAL_PLUGINS": "none", "RAY_USAGE_STATS_ENABLED": "0"}


def run_verl(job: Job) -> None:
    """Train by verl. Raises as every method does, and ``DiedWithoutWord`` where verl's process left no last word."""
    job.enter("preparing", 0)
    python, device = verl_python(), device_kind(job.config.run.device)
    require_hosts(job.config)
    if device == "cuda" and not cluster():
        require_gpus(job.config.hardware.of_host)
    require_vllm(job.config, python)
    require_nccl(job.config, device, python)
    require_megatron(job.config, python)
    if (place := job.config.environment).url:
        wait_for_environment(lambda: check_environment(place), place, job.journal.write, job.stop)
    job.check_stop()
    folder = make_folder(job, device, on_cluster=bool(cluster()))
    if (plan := folder.plan).checkpoint is not None and step_of(plan.checkpoint) >= job.config.run.max_steps:
        _finish_saved(job, plan.rows, plan.checkpoint)
        return
    _remove_rays(*job.earlier)
    merger = Merger(job.journal, job.config.rollouts_per_step, partial(_follow, job), job.config.updates_per_step)
    try:
        with _started(python, folder, _variables(device, job, folder)) as process:
            code = _watch(process, job, folder, merger)
    finally:
        merger.merge(over=True)
        _remove_rays(job.run_dir)
    _end_as(merger.last_word, code)


def verl_python() -> Path:
    """The Python that has verl: ``TILTYARD_VERL_PYTHON``, else the repository's own. Raises ``ConfigError``."""
    python = python_of(VERL_PYTHON, ".venv-verl")
    if not python.is_file():
        raise ConfigError(f"There is no verl here: {python} is missing.", option="hardware.devices", hint=NOT_INSTALLED)
    return python


def cluster() -> str:
    """The address of the Ray cluster that the operator has named for verl's jobs; empty where there is none."""
    return os.environ.get(RAY_ADDRESS, "")


def require_hosts(config: JobConfig) -> None:
    """Raise ``ConfigError`` where a job needs several hosts and there is no cluster."""
    if config.hardware.hosts > 1 and not cluster():
        raise ConfigError(NO_CLUSTER, option="hardware.hosts", hint=NAME_A_CLUSTER)


def require_vllm(config: JobConfig, python: Path) -> None:
    """Raise ``ConfigError`` where a job samples with vLLM and verl's Python has none; a cluster has its own."""
    if config.rollout.engine == "vllm" and not cluster() and installed_version(python) is None:
        raise ConfigError(NO_VLLM, option="rollout.engine", hint=ADD_VLLM)


def require_nccl(config: JobConfig, device: DeviceKind, python: Path) -> None:
    """Raise ``ConfigError`` where weights go to samplers apart by NCCL, and verl's Python lacks what it needs for
    that; a cluster has its own."""
    needed = device == "cuda" and config.hardware.sampler_devices and not cluster()
    if needed and installed_version(python, *CUPY) is None:
        raise ConfigError(NO_CUPY, option="hardware.sampler_devices", hint=ADD_CUPY)


def require_megatron(config: JobConfig, python: Path) -> None:
    """Raise ``ConfigError`` where Megatron divides the model and verl's Python has none; a cluster has its own."""
    wanted = config.hardware.sharding == "megatron" and not cluster()
    if wanted and installed_version(python, "megatron-core") is None:
        raise ConfigError(NO_MEGATRON, option="hardware.sharding", hint=ADD_MEGATRON)


def require_gpus(wanted: int) -> None:
    """Raise ``ConfigError`` where this process sees fewer GPUs: Ray would wait for them without end."""
    import torch

    if (seen := torch.cuda.device_count()) < wanted:
        raise ConfigError(
            f"this worker sees {seen} of the {wanted} GPUs that the run asks for.",
            option="hardware.devices",
            hint="Start a worker that sees enough (CUDA_VISIBLE_DEVICES), or ask for fewer devices.",
        )


def device_kind(wanted: str) -> DeviceKind:
    """What ``run.device`` means: ``auto`` is a GPU on a cluster, and where this machine has one."""
    if wanted != "auto" or cluster():
        return "cpu" if wanted == "cpu" else "cuda"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _variables(device: DeviceKind, job: Job, folder: JobFolder) -> dict[str, str]:
    found, vllm = dict(os.environ) | ALWAYS | {"PYTHONPATH": str(ROOT)}, job.config.rollout.engine == "vllm"
    if device == "cpu":
        threads = max(1, (os.cpu_count() or 1) // job.config.hardware.of_host)
        found = {"OMP_NUM_THREADS": str(threads)} | found | ON_PROCESSORS
    if vllm and device == "cpu":
        found |= cpu_variables(room_for_turns(job.config, folder.plan.base))
    if vllm:
        found[MODULES] = ",".join([WITH_VLLM, *filter(None, [found.get(MODULES)])])
    return found


@contextmanager
def _started(python: Path, folder: JobFolder, variables: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """verl's process, in a session of its own: the signals of our supervisor are for us. What it prints is the run's.

    It starts in the job folder, because Python imports what lies where it is started.
    """
    place = tempfile.mkdtemp(prefix=RAY_PREFIX)  # Ray's sockets allow no long path
    (folder.path / RAY_NOTE).write_text(json.dumps({"folder": place}), encoding="utf-8")
    read_fd, alive_fd = os.pipe()
    try:
        process = subprocess.Popen(
            [str(python), "-m", "training.verl_backend", str(folder.path)],
            cwd=folder.path,
            env=variables | {PARENT_VARIABLE: str(read_fd), "RAY_TMPDIR": place},
            pass_fds=(read_fd,),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    finally:
        os.close(read_fd)
    try:
        yield process
    finally:
        os.close(alive_fd)
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _watch(process: subprocess.Popen[bytes], job: Job, folder: JobFolder, merger: Merger) -> int:
    """Merge until it has ended; its exit code."""
    while (code := process.poll()) is None:
        if job.stop.is_set() and not folder.asked_to_stop:
            folder.ask_to_stop()
        merger.merge()
        time.sleep(MERGE_S)
    return code


def _follow(job: Job, event: Event) -> None:
    """Know how far verl is. A stop waits for its step, so all of a step counts as the update at hand."""
    if isinstance(event, RunStarted):
        job.begun, job.step, job.saved_step = event, event.from_step, event.from_step
    elif isinstance(event, Metrics):
        job.step, job.update_seconds = event.step, event.values.get("timing/step", job.update_seconds)
    elif isinstance(event, CheckpointSaved) and not event.final:
        job.saved_step, job.saved, job.save_seconds = event.step, event.path, event.seconds


def _end_as(last: RunFinished | None, code: int) -> None:
    if last is None:
        raise DiedWithoutWord(code)
    if last.status == "stopped":
        raise StopRequested("The run was asked to stop.")
    if last.error is not None:
        raise made_of(last.error.model_dump(mode="json") | {"pauses": last.status == "paused"})


def _finish_saved(job: Job, rows: int, checkpoint: Path) -> None:
    """An attempt before this one died between its last checkpoint and its last word."""
    step = step_of(checkpoint)
    job.started(rows, "verl", step)
    job.journal.write(save_model(checkpoint, job.run_dir, step, job.base))


def _remove_rays(*runs: Path) -> None:
    """Remove what the local Ray of attempts that have ended left on this machine."""
    for run_dir in runs:
        note = run_dir / FOLDER_NAME / RAY_NOTE
        with suppress(OSError, ValueError, KeyError):
            place = Path(json.loads(note.read_text(encoding="utf-8"))["folder"])
            if place.name.startswith(RAY_PREFIX):
                shutil.rmtree(place, ignore_errors=True)
            note.unlink()
