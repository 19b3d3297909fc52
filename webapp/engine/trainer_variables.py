"""The names of our variables that a trainer gets. It imports no model, because `up` needs these names alone."""

from __future__ import annotations

import os
import re

from training.children import (
    CERTIFICATES,
    DEVICES,
    HUB_ACCESS,
    MODELS,
    PLACES,
    RAY,
    REWARD_MODELS,
    VERL_PYTHON,
    VLLM_PYTHON,
)
from training.machine import RESERVE_VARIABLE

# What a trainer may know of our environment: places, devices, and how it reaches Hugging Face (with the operator's own
# token and proxies, if any); never addresses or secrets of our services. Reward code of teams gets none of it.
OURS = ("PYTHONPATH", RESERVE_VARIABLE, REWARD_MODELS, VLLM_PYTHON, VERL_PYTHON, *RAY)
ENV_NAMES = (*PLACES, *MODELS, *HUB_ACCESS, *DEVICES, *CERTIFICATES, *OURS)
# Keys of judges, under the only names that a reward spec can give, and the one host that each may be sent to.
JUDGE_NAMES = re.compile(r"JUDGE_KEY(_[A-Z0-9]{1,50})?(_HOST)?")


def judge_keys() -> list[str]:
    """The variables of ours that hold keys of judges, and where these may be sent."""
    return [name for name in os.environ if JUDGE_NAMES.fullmatch(name)]
