"""The pools of places that workers have, which are also the names of their queues.

Runs, and answers in chats, take a place of ``TRAIN``, which is a device, or of ``ENDPOINT``, which has none: those that
only ask an endpoint, and samples of small models while runs have the devices (``webapp/engine/sampler.py``).
People's work takes one of ``SHORT`` or ``LONG`` (``webapp/common/work.py``): seconds never wait behind hours.
"""

from __future__ import annotations

TRAIN, ENDPOINT = "train", "endpoint"
SHORT, LONG = "short", "long"


def device_env(pool: str) -> dict[str, str]:
    """The variables that hide every device from what runs in a place of ``ENDPOINT``."""
    return {"CUDA_VISIBLE_DEVICES": ""} if pool == ENDPOINT else {}
