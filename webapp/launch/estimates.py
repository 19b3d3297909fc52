"""Estimates before a launch: how much memory a job needs, and how many bytes a run will write."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from training.children import PLACES, child_env, limited_child
from training.config import JobConfig, config_to_yaml
from training.errors import ConfigError, DataError, ModelError, TiltyardError
from training.memory.devices import DEVICES, KNOWN
from training.model_check import MAX_CONFIG_BYTES, folder_of, parameters_of, read_json
from training.presets import Preset
from training.words import sentence
from webapp.common import work
from webapp.common.work import Claim
from webapp.common.workers.beating import training_gpus
from webapp.engine.resolve import base_meant
from webapp.launch.models import EstimateState, MemoryEstimate
from webapp.people.teams.models import Project, User

# How much memory a job needs on a device, shown while it is still a form.
#
# 1. What decides about memory is taken from the config (``decisive``): two forms that differ in their data, rewards or
#    names alone ask for the same.
# 2. What was worked out for the same within ``KEPT`` is found at once. Else a row is written, and a worker makes the
#    table (``webapp.common.work``) in a process of its own: PyTorch traces the model for seconds, and is never imported
#    here.
# 3. A person has one estimate at a time in a project: the next one replaces one that is still open, and ends its
#    process.

OPEN, DONE, FAILED, DROPPED = EstimateState.OPEN, EstimateState.DONE, EstimateState.FAILED, EstimateState.DROPPED
KEPT, FAILURE_KEPT, DROPPED_KEPT = timedelta(days=1), timedelta(minutes=2), timedelta(minutes=10)
CHILD_LIMIT_S = 150.0  # below LIMIT_S of MemoryEstimate
LOOK_S = 0.5  # how often it is checked whether the answer is still wanted
WAIT_S = 1.0  # while an older one is worked out
MAX_ANSWER_BYTES = 256 * 1024
CPU = "cpu"
UNRELATED = (
    "mix",
    "data",
    "environment",
    "rewards",
    "endpoint",
    "evaluate",
    "run",
    "report",
)  # groups that memory is not of
# A device that no list has: its name, what a program gets of its memory in GiB, and its compute capability.
OTHER = re.compile(r"^[A-Za-z0-9][\w .,()/+-]{0,79}=(?=[\d.]*[1-9])\d{1,5}(\.\d{1,2})?(@\d{1,2}\.\d{1,2})?$", re.ASCII)
NO_ANSWER = gettext_noop("Memory could not be estimated on this server.")
TOO_LONG = gettext_noop("It took longer than {s} seconds.")


class Choice(NamedTuple):
    """A device to judge by: ``key`` as ``python -m training memory --device`` takes it."""

    key: str
    title: str


class Asked(NamedTuple):
    """The state of a job's estimate: the row that has it or will have it, or why none is needed."""

    row: MemoryEstimate | None = None
    nothing: bool = False  # no model is held on a device
    unknown: str = ""  # a base model whose shape is not known here


# --- Devices --------------------------------------------------------------------------------------------------------
def own_devices() -> list[Choice]:
    """The devices here: the GPUs of the living workers, the largest first, and the processor."""
    gpus = [Choice(gpu.key, gpu.title) for gpu in reversed(training_gpus())]
    return [*gpus, Choice(CPU, _("CPU of this machine"))]


def other_devices() -> list[Choice]:
    """The devices that are known by name."""
    return [Choice(device.key, device.title) for device in DEVICES.values()]


def device_default(
    config: JobConfig | None = None, preset: Preset | None = None, own: Sequence[Choice] | None = None
) -> str:
    """The device for an estimate before a person chooses: the processor where the job asks for it, the preset's device,
    the first of ``own`` (by default what is here: the largest GPU of the workers, else the processor)."""
    if config is not None and config.run.device == CPU:
        return CPU
    if preset is not None and preset.device:
        return preset.device
    return (own or own_devices())[0].key


def device_known(key: str) -> bool:
    """Whether a job can be judged by it."""
    return key in DEVICES or key == CPU or bool(OTHER.fullmatch(key))


# --- Asking ---------------------------------------------------------------------------------------------------------
def estimate_begin(*, project: Project, user: User, config: JobConfig, device: str) -> Asked:
    """Find the estimate of a job's memory on a device, or have a worker make it.

    Raises ``ConfigError`` for a model that is not there, or a device that is none.
    """
    if not device_known(device):
        raise ConfigError(_("choose a device of the list, or write it as name=GiB."), option="device")
    if not config.needs_model:
        return Asked(nothing=True)
    source = base_meant(project, config)
    if not _has_shape(source):
        return Asked(unknown=source)
    about = decisive(config, source)
    digest = _estimate_digest(about, device)
    with transaction.atomic():
        found = _known_estimate(project, user, digest)
        if found is not None:
            return Asked(found)
        _delete_old_estimates(project)
        mine = MemoryEstimate.objects.filter(project=project, created_by=user, state=OPEN)
        mine.update(state=DROPPED, token="", ended_at=Now())
        made = MemoryEstimate.objects.create(
            project=project, created_by=user, digest=digest, config=about.model_dump(mode="json"), device=device
        )
        work.enqueue(made)
    return Asked(made)


def decisive(config: JobConfig, source: str) -> JobConfig:
    """The job with all that memory does not depend on at its default, and its model as it was resolved.

    Stages are laid over the other groups, so with stages these stay.
    """
    plain, fresh = config.model_copy(deep=True), JobConfig()
    for group in ("report",) if config.stages else UNRELATED:
        setattr(plain, group, getattr(fresh, group))
    plain.model.source, plain.model.revision = source, ""
    return plain


def _has_shape(source: str) -> bool:
    return source == "starter" or source in KNOWN or (Path(source) / "config.json").is_file()


def _estimate_digest(config: JobConfig, device: str) -> str:
    path = Path(config.model.source) / "config.json"
    stamp = [path.stat().st_mtime_ns, path.stat().st_size] if path.is_file() else []
    text = json.dumps([settings.PRODUCT_VERSION, device, stamp, config.model_dump(mode="json")], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _known_estimate(project: Project, user: User, digest: str) -> MemoryEstimate | None:
    """A recent estimate that is done or failed, of any person, or the person's own that is under way."""
    done = Q(state=DONE, created_at__gt=Now() - KEPT) | Q(state=FAILED, ended_at__gt=Now() - FAILURE_KEPT)
    rows = MemoryEstimate.objects.filter(project=project, digest=digest)
    return rows.filter(done | Q(state=OPEN, created_by=user)).first()


def _delete_old_estimates(project: Project) -> None:
    rows = MemoryEstimate.objects.filter(project=project)
    old = Q(created_at__lt=Now() - KEPT) | Q(state=DROPPED, created_at__lt=Now() - DROPPED_KEPT)
    rows.filter(old).exclude(state=OPEN).delete()


# --- Working it out -------------------------------------------------------------------------------------------------
def estimate_make(claim: Claim[MemoryEstimate]) -> None:
    """The worker's part. A person who asks for something else ends it. Older ones go first, so that estimates alone
    never take all the workers for short work."""
    older = MemoryEstimate.objects.filter(state=OPEN, created_at__lt=claim.item.created_at).exclude(token="")
    if older.exists():
        claim.wait(WAIT_S)
        return
    answer = _run_estimate(claim)
    if "error" in answer:
        claim.finish(state=FAILED, answer=answer, ended_at=Now())
    else:
        claim.finish(state=DONE, answer=answer, ended_at=Now())


def estimate_failed(_item: MemoryEstimate, error: TiltyardError) -> dict[str, Any]:
    """The columns of an estimate that could not be made."""
    return {"state": FAILED, "answer": {"error": error.info.model_dump(mode="json")}, "ended_at": Now()}


def _run_estimate(claim: Claim[MemoryEstimate]) -> dict[str, Any]:
    """The command's answer. Raises ``DataError`` where it prints none, ``Lost`` once the estimate is not wanted any
    more."""
    item = claim.item
    with tempfile.TemporaryDirectory(prefix="memory-", dir=settings.DATA_DIR) as folder:
        path = Path(folder)
        (path / "config.yaml").write_text(config_to_yaml(JobConfig.model_validate(item.config)), encoding="utf-8")
        command = [sys.executable, "-m", "training", "memory", str(path / "config.yaml"), "--json"]
        command.append(f"--device={item.device}")
        env = child_env(PLACES, OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1")
        with (
            open(path / "out", "wb") as out,
            limited_child(command, wall_s=CHILD_LIMIT_S, env=env, stdout=out, cwd=settings.BASE_DIR) as child,
        ):
            began = time.monotonic()
            while not child.wait(LOOK_S):
                claim.keep()
                if time.monotonic() - began > CHILD_LIMIT_S:
                    raise DataError(sentence(TOO_LONG, s=round(CHILD_LIMIT_S)))
        return _parse_answer((path / "out").read_bytes()[:MAX_ANSWER_BYTES])


def _parse_answer(output: bytes) -> dict[str, Any]:
    try:
        found = json.loads(output)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not ({"error", "terms"} & found.keys()):
        raise DataError(sentence(NO_ANSWER))
    return found


# How many bytes a run will write, shown before it is launched: checkpoints, the final model, and its records.
#
# A checkpoint holds the weights and two moments of AdamW for each weight that is trained; with LoRA only the adapter's.
# The sizes come from the model's own headers, else from the number in its name; where neither is known, nothing is
# shown.

STARTER_PARAMETERS, STARTER_ADAPTER = 900_000, 30_000
MOMENTS = 2
PARAMETERS_PER_RANK = 3000  # of models whose shape is not known: a 7 B model has 40 M in an adapter of rank 16
TOKEN_VALUE_BYTES = 6  # at most, of a file of token values
TOKEN_BYTES, ROLLOUT_BYTES = 4, 2000  # of a journal line; the database holds the same once more


class DiskForecast(NamedTuple):
    """Bytes: ``checkpoints`` of ``each``, the final ``model``, and ``records`` (journal and database)."""

    checkpoints: int
    each: int
    model: int
    records: int
    bounded: bool

    @property
    def total(self) -> int:
        """All bytes together."""
        return self.checkpoints * self.each + self.model + self.records


def disk_forecast(config: JobConfig) -> DiskForecast | None:
    """The bytes that a resolved config will write; ``None`` where the model's size is not known."""
    records = _record_bytes(config)
    if not config.method.trains:
        return DiskForecast(0, 0, 0, records, True)
    sizes = _parameter_counts(config)
    if sizes is None:
        return None
    parameters, trained = sizes
    size = 2 if config.model.dtype == "bfloat16" else 4
    each = (trained if config.model.lora_rank else parameters) * size + MOMENTS * trained * size
    count, bounded = _most_checkpoints(config)
    return DiskForecast(count, each, parameters * size, records, bounded)


def disk_sentence(config: JobConfig, found: DiskForecast) -> str:
    """The forecast as a sentence, with its parts."""
    sizes = {name: filesizeformat(getattr(found, name)) for name in ("total", "each", "model", "records")}
    parts = []
    if found.checkpoints:
        kept = getattr(config.run, "keep_last", 0)
        what = {"count": found.checkpoints, "each": sizes["each"], "kept": kept}
        last = _("%(count)s checkpoints of %(each)s (the last %(kept)s and the best)")
        parts.append((last if kept else _("%(count)s checkpoints of %(each)s")) % what)
    if found.model:
        parts.append(_("the final model of %(model)s") % sizes)
    if found.records:
        parts.append(_("records of at most %(records)s") % sizes)
    forecast = _("About %(total)s: %(parts)s.") % {"total": sizes["total"], "parts": " + ".join(parts)}
    more = _("Checkpoints saved by time are added to these; none of them is deleted.")
    return forecast if found.bounded else f"{forecast} {more}"


def _record_bytes(config: JobConfig) -> int:
    if not config.method.plays:
        return 0
    rollouts = config.run.max_steps * config.rollouts_per_step
    values = config.run.keep_tokens_mib << 20 if config.method.trains else 0
    tokens = TOKEN_VALUE_BYTES * rollouts * config.longest_text
    return 2 * rollouts * (ROLLOUT_BYTES + TOKEN_BYTES * config.rollout.max_completion_tokens) + min(values, tokens)


def _most_checkpoints(config: JobConfig) -> tuple[int, bool]:
    """How many checkpoints there are at most (the newest that are kept, and the best), and whether that is a bound."""
    saved = config.run.max_steps // config.run.save_every if config.run.save_every else 0
    by_time = getattr(config.run, "save_every_minutes", 0)
    keep = getattr(config.run, "keep_last", 0)
    if keep:
        return (keep + 1 if by_time else min(saved, keep + 1)), True
    return saved, not by_time


def _parameter_counts(config: JobConfig) -> tuple[int, int] | None:
    """All parameters, and those that are trained."""
    source, rank = config.model.source, config.model.lora_rank
    if source == "starter":
        return STARTER_PARAMETERS, STARTER_ADAPTER * rank // 16 if rank else STARTER_PARAMETERS
    total = parameters_of(source)
    if total is None or not rank:
        return None if total is None else (total, total)
    return total, _adapter_parameters(_shape_of(source), total, rank)


def _shape_of(source: str) -> Any:
    folder = folder_of(source)
    try:
        return read_json(folder / "config.json", MAX_CONFIG_BYTES) if folder else {}
    except (ModelError, OSError):
        return {}


def _adapter_parameters(config: Any, total: int, rank: int) -> int:
    """The adapter of every linear layer: four of attention, three of the feed-forward part, in each block."""
    text = config.get("text_config") or config if isinstance(config, dict) else {}
    hidden, blocks, inner = (text.get(name) for name in ("hidden_size", "num_hidden_layers", "intermediate_size"))
    if not (isinstance(hidden, int) and isinstance(blocks, int)):
        return total * rank // PARAMETERS_PER_RANK
    inner = inner if isinstance(inner, int) else 4 * hidden
    return min(total, blocks * rank * (4 * (hidden + hidden) + 3 * (hidden + inner)))
