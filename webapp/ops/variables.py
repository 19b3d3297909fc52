"""The operator's variables that each program of `up` gets: by name, and no others.

A program passes its own on to its children, again by name (``training/child_env.py``), so each needs its children's.
"""

from __future__ import annotations

from training.child_env import CERTIFICATES, DEVICES, HUB_ACCESS, MODELS
from training.config import TRACKERS
from webapp.common.env import settings_names
from webapp.engine.trainer_variables import OURS, judge_keys

PYTHON = ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "DJANGO_SETTINGS_MODULE")
DOCKER = ("DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "DOCKER_CONFIG", "DOCKER_CONTEXT", "XDG_RUNTIME_DIR")


def site_names() -> tuple[str, ...]:
    """The variables of a process that reads our settings and connects to other servers."""
    return (*settings_names(), *PYTHON, *CERTIFICATES)


def keeper_names() -> tuple[str, ...]:
    """Also the variables for starting containers."""
    return (*site_names(), *DOCKER)


def work_names() -> tuple[str, ...]:
    """Also the variables of processes that check and score jobs: the models' folder, and keys of judges."""
    return (*site_names(), *MODELS, *DEVICES, *OURS, *judge_keys())


def train_names() -> tuple[str, ...]:
    """Also the variables of trainers alone: access to Hugging Face, and all trackers that a run may name."""
    trackers = (name for tracker in TRACKERS.values() for name in tracker.variables)
    return (*work_names(), *HUB_ACCESS, *trackers)
