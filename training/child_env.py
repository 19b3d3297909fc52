"""The environment of every child process that we start: named variables, never all of ours.

Ours may hold the database's address, API keys and whatever the operator's shell has. A child gets the groups that its
work needs, and what its starter names; everything else stays here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACES = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
MODELS = ("HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_ENDPOINT", "TRANSFORMERS_OFFLINE")
_PROXIES = tuple(f"{kind}_proxy" for kind in ("http", "https", "all", "no"))
PROXIES = (*_PROXIES, *(name.upper() for name in _PROXIES))
# A project's own token for its base model, and where what it opens is kept. In no list: given to trainers by name, and
# to nothing that a trainer starts.
MODEL_TOKEN, MODEL_CACHE = "TILTYARD_MODEL_TOKEN", "TILTYARD_MODEL_CACHE"
HUB_ACCESS = ("HF_TOKEN", "HF_TOKEN_PATH", *PROXIES)
DEVICES = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_HOME",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "TOKENIZERS_PARALLELISM",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",  # its name before PyTorch 2.9
    "NCCL_DEBUG",
)
CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")


def child_env(*names: Iterable[str], **named: str) -> dict[str, str]:
    """The variables of ours that ``names`` list, our code, UTF-8, and ``named``, which wins."""
    return {"LANG": "C.UTF-8", "PYTHONPATH": str(ROOT), **known(*names), **named}


def known(*names: Iterable[str]) -> dict[str, str]:
    """Those variables of ours that ``names`` list and that are set."""
    return {name: os.environ[name] for group in names for name in group if name in os.environ}


def bare_env(**named: str) -> dict[str, str]:
    """For children that only compute: none of our variables, the system's own path."""
    return child_env(PATH=os.defpath, **named)
