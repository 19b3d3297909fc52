"""Addresses and secrets of channels: files that only we can read, never columns, and never shown again.

Anyone who knows the address of a webhook may post there, so all of it but the host is as secret as the key.
"""

from __future__ import annotations

import json
import shutil
from typing import NamedTuple
from uuid import UUID

from webapp.common.host import write_private
from webapp.common.storage import channel_dir

FILE = "webhook.json"


class Webhook(NamedTuple):
    """Where to post, and what to sign with; the secret may be empty."""

    url: str
    secret: str


def webhook_write(channel_id: UUID, webhook: Webhook) -> None:
    """Keep them."""
    folder = channel_dir(channel_id)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_private(folder / FILE, json.dumps(webhook._asdict()))


def webhook_of(channel_id: UUID) -> Webhook | None:
    """Address and secret, or ``None`` where the file is gone."""
    try:
        return Webhook(**json.loads((channel_dir(channel_id) / FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def webhook_forget(channel_id: UUID) -> None:
    """Delete the file with the channel."""
    shutil.rmtree(channel_dir(channel_id), ignore_errors=True)
