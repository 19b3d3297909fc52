"""Which other trackers hear of a run, and what each of them needs of the worker."""

from __future__ import annotations

from typing import Literal, NamedTuple

from training.config.option import Group, option
from training.words import _

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
