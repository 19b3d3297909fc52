"""How long a job runs, what it keeps, on how many devices, and which other trackers hear of it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, StringConstraints

from training.config.option import Group, option
from training.config.passed import (
    MAX_CHARS,
    MAX_LINES,
    ULYSSES,
    Sharding,
    check_together,
    checked,
    layout_of,
    passed_of,
    sizes_of,
)
from training.words import _

VerlOption = Annotated[str, StringConstraints(max_length=MAX_CHARS), AfterValidator(checked)]
"""One of verl's own options, as ``key=value``."""


class RunConfig(Group):
    """How long the job runs, how often it saves, and where."""

    max_steps: int = option(
        100,
        title=_("Steps"),
        help=_(
            "Optimiser steps; where nothing is trained, batches of rollouts. An evaluation plays all its tasks, "
            "whatever is set here."
        ),
        unit=_("steps"),
        basic=True,
        ge=1,
        le=1_000_000,
    )
    max_hours: float = option(
        0.0,
        title=_("Time budget"),
        help=_(
            "Hours after which the run ends by itself, with its last checkpoint and its model; 0 is off. It ends "
            "after the sampling's last update (or the step) in which they are used up, so leave room for one, and "
            "for saving. The time of its attempts counts from the trainer's start on: loading, sampling, evaluating, "
            "saving and waiting for an environment. Waiting in the queue and pauses do not count. The learning "
            "rate's schedule still spans all steps."
        ),
        unit=_("hours"),
        ge=0,
        le=100_000,
    )
    save_every: int = option(
        0,
        title=_("Checkpoint every"),
        help=_(
            "Steps between checkpoints; 0 is off. When a batch of rollouts is used for several updates, the "
            "checkpoint follows the last of them. A pause or a stop always saves one."
        ),
        unit=_("steps"),
        ge=0,
        basic=True,
    )
    save_every_minutes: float = option(
        10.0,
        title=_("Checkpoint every (time)"),
        help=_("Time since the last checkpoint after which the next one is saved; 0 is off."),
        unit=_("minutes"),
        ge=0,
        le=10_080,
    )
    keep_last: int = option(
        3,
        title=_("Checkpoints kept"),
        help=_(
            "Number of newest checkpoints to keep, besides the one with the highest reward; older ones are "
            "deleted. 0 keeps all. The final model is always kept."
        ),
        ge=0,
        le=10_000,
    )
    no_gradient_updates: int = option(
        10,
        title=_("Pause without a gradient"),
        help=_(
            "Updates in a row whose loss and gradient are exactly 0, after which a run that learns from rollouts "
            "pauses: its policy has no choice left, or its rewards are all equal. 0 never pauses for it."
        ),
        unit=_("updates"),
        ge=0,
        le=1_000_000,
    )
    keep_tokens_mib: int = option(
        256,
        title=_("Token values kept"),
        help=_(
            "Space for what the trainer knows of each token: log-probability, entropy, ratio, advantage. The oldest "
            "steps are dropped beyond it; 0 keeps none."
        ),
        unit="MiB",
        ge=0,
        le=1_000_000,
    )
    seed: int = option(42, title=_("Seed"), help=_("Same seed, data and versions: same run."), ge=0, lt=2**31)
    device: Literal["auto", "cpu", "cuda"] = option(
        "auto", title=_("Device"), help=_("`auto` takes a GPU where there is one.")
    )
    threads: int = option(
        0,
        title=_("CPU threads"),
        help=_("Threads for CPU training; 0 uses as many as `OMP_NUM_THREADS` says, else all that are available."),
        ge=0,
        le=1024,
    )


class HardwareConfig(Group):
    """On how many devices a model is trained, and by what."""

    devices: int = option(
        1,
        title=_("Devices"),
        help=_(
            "Devices of each host that train and sample the model together. More than one are a job for verl, which "
            "the worker needs (`make setup-verl`)."
        ),
        basic=True,
        ge=1,
        le=64,
    )
    sampler_devices: int = option(
        0,
        title=_("Devices that only sample"),
        help=_(
            "More devices of each host, on which samplers of `vllm.tensor_parallel` devices each play the rollouts; "
            "then those of “Devices” only train. 0 samples on the devices that train. For verl."
        ),
        ge=0,
        le=64,
    )
    hosts: int = option(
        1,
        title=_("Hosts"),
        help=_("Hosts with so many devices each. More than one need the Ray cluster that the worker names."),
        ge=1,
        le=1024,
    )
    backend: Literal["auto", "trl", "verl"] = option(
        "auto",
        title=_("Trainer"),
        help=_("`auto` trains on one device by TRL, and on several by verl on Ray."),
        choices={"auto": _("by the number of devices"), "trl": "TRL", "verl": "verl"},
    )
    sharding: Sharding = option(
        "fsdp2",
        title=_("Sharding"),
        help=_(
            "How verl divides the model over the devices. Megatron needs CUDA GPUs and megatron-core where verl runs; "
            "its sizes are options of verl's, below. Its settings were checked against verl, and it has not been tried."
        ),
        choices={
            "fsdp2": _("FSDP2: each layer in parts"),
            "megatron": _("Megatron: tensors, layers and contexts in parts"),
        },
    )
    verl_options: list[VerlOption] = option(
        list,
        title=_("Options of verl"),
        help=_(
            "verl's own options of how devices are used, one `key=value` a line, such as "
            "`actor_rollout_ref.actor.fsdp_config.param_offload=true`. They are passed through as they are: Tiltyard "
            "checks that verl has them, and has not tried them. `docs/verl.md` says which."
        ),
        max_length=MAX_LINES,
    )
    gpu_memory: int = option(
        0,
        title=_("Memory of each GPU"),
        help=_(
            "Least memory of each GPU, as its maker writes it: 24, 80. Only workers with such GPUs take the run. "
            "0 takes any device."
        ),
        unit="GB",
        ge=0,
        le=10_000,
    )
    gpu_model: str = option(
        "",
        title=_("GPU model"),
        help=_("Part of the GPU's name, such as `H100`: only workers with such GPUs take the run. Empty takes any."),
        max_length=40,
        pattern=r"^[A-Za-z0-9 ._-]*$",
    )

    @property
    def asks_gpu(self) -> bool:
        """Whether only a GPU of some memory or model will do."""
        return bool(self.gpu_memory or self.gpu_model.strip())

    @property
    def of_host(self) -> int:
        """The devices that a job has of each host."""
        return self.devices + self.sampler_devices

    @property
    def training(self) -> int:
        """The devices that train, on all hosts together."""
        return self.hosts * self.devices

    @property
    def sampling(self) -> int:
        """The devices that sample, on all hosts together: those that train, where no others do."""
        return self.hosts * (self.sampler_devices or self.devices)

    @property
    def total(self) -> int:
        """All devices."""
        return self.hosts * self.of_host

    @property
    def by_verl(self) -> bool:
        """Whether verl trains."""
        return self.backend == "verl" or (self.backend == "auto" and self.total > 1)

    @property
    def passed(self) -> dict[str, Any]:
        """verl's own options that are passed through, with their values."""
        return {found.key: found.value for found in map(passed_of, self.verl_options)}

    @property
    def shares(self) -> int:
        """Into how many parts verl deals the rollouts of an update: devices that share a part count as one."""
        if self.sharding == "megatron":
            sizes = sizes_of(self.passed)
            return self.training // (sizes.tensor * sizes.pipeline * sizes.context)
        return self.training // int(self.passed.get(ULYSSES, 1))

    @property
    def layout(self) -> str:
        """How the parts of a checkpoint are cut, which their number does not say."""
        return layout_of(self.passed, self.sharding)

    def check_passed(self) -> None:
        """Raise ``OptionError`` where verl's own options do not go together."""
        check_together(map(passed_of, self.verl_options), self.sharding, self.training)


# Which other trackers hear of a run, and what each of them needs of the worker.

TrackerName = Literal["tensorboard", "wandb", "mlflow", "trackio", "swanlab"]


class Tracker(NamedTuple):
    """One tracker. ``package`` is what pip installs and Python imports; "" for one that needs nothing installed.

    ``variables`` are all that its reporter is given of the worker's environment. ``needs`` is the one without which it
    cannot work, unless the variable ``mode`` has a value of ``alone``: then nothing leaves the machine.
    """

    title: str
    package: str
    variables: tuple[str, ...]
    needs: str = ""
    mode: str = ""
    alone: tuple[str, ...] = ()


TRACKERS: dict[TrackerName, Tracker] = {
    "tensorboard": Tracker("TensorBoard", "", ("TENSORBOARD_LOGGING_DIR",)),
    "wandb": Tracker(
        "Weights & Biases",
        "wandb",
        ("WANDB_API_KEY", "WANDB_BASE_URL", "WANDB_ENTITY", "WANDB_MODE"),
        needs="WANDB_API_KEY",
        mode="WANDB_MODE",
        alone=("offline", "disabled"),
    ),
    "mlflow": Tracker(
        "MLflow",
        "mlflow",
        (
            "MLFLOW_TRACKING_URI",
            "MLFLOW_TRACKING_TOKEN",
            "MLFLOW_TRACKING_USERNAME",
            "MLFLOW_TRACKING_PASSWORD",
            "MLFLOW_TRACKING_INSECURE_TLS",
            "MLFLOW_TRACKING_SERVER_CERT_PATH",
            "MLFLOW_TRACKING_CLIENT_CERT_PATH",
        ),
        needs="MLFLOW_TRACKING_URI",
    ),
    "trackio": Tracker(
        "Trackio",
        "trackio",
        (
            "TRACKIO_DIR",
            "TRACKIO_SPACE_ID",
            "TRACKIO_BUCKET_ID",
            "TRACKIO_SERVER_URL",
            "TRACKIO_WRITE_TOKEN",
            "HF_TOKEN",
            "HF_TOKEN_PATH",
            "HF_HOME",
        ),
    ),
    "swanlab": Tracker(
        "SwanLab",
        "swanlab",
        ("SWANLAB_API_KEY", "SWANLAB_API_HOST", "SWANLAB_WEB_HOST", "SWANLAB_WORKSPACE", "SWANLAB_MODE"),
        needs="SWANLAB_API_KEY",
        mode="SWANLAB_MODE",
        alone=("local", "offline", "disabled"),
    ),
}


class ReportConfig(Group):
    """Other trackers that receive the run's metrics while it runs."""

    to: list[TrackerName] = option(
        list,
        title=_("Report to"),
        help=_(
            "Trackers that get every metric of every step. Keys and addresses come from the worker's environment "
            "only. A tracker that cannot be reached never delays the run."
        ),
        choices={name: tracker.title for name, tracker in TRACKERS.items()},
        max_length=len(TRACKERS),
    )
    project: str = option(
        "",
        title=_("Project in the trackers"),
        help=_("Name of the project (MLflow: experiment) in those trackers; empty takes this project's."),
        max_length=100,
        pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]*)?$",
    )
    name: str = option("", title=_("Name in the trackers"), help=_("Empty takes the run's name."), max_length=100)
    tags: list[str] = option(
        list, title=_("Tags in the trackers"), help=_("One a line; trackers without tags ignore them."), max_length=20
    )
