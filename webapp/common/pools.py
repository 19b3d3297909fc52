"""The pools of places that workers have, which are also the names of their queues.

Runs, and answers in chats, take a place of ``TRAIN``, which is a device, or of ``ENDPOINT`` where they only ask one.
People's work takes one of ``SHORT`` or ``LONG`` (``webapp/common/work.py``): seconds never wait behind hours.
"""

from __future__ import annotations

TRAIN, ENDPOINT = "train", "endpoint"
SHORT, LONG = "short", "long"
