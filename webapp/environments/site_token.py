"""The token of the environment servers that come with an installation, as those of docker-compose.yml do.

The operator sets it (``TILTYARD_ENV_TOKEN``) together with the addresses of those servers (``TILTYARD_OUTBOUND_ALLOW``,
as ``host:port``). No other server may learn it, whoever registered that one.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from django.conf import settings


def site_token(url: str) -> str:
    """The token for this address, or nothing."""
    listed = {entry.lower() for entry in settings.OUTBOUND_ALLOW if "/" not in entry}
    return settings.ENVIRONMENT_TOKEN if urlsplit(url).netloc.lower() in listed else ""


def site_access(url: str) -> dict[str, str]:
    """What a trainer that plays there gets in its environment."""
    token = site_token(url)
    return {"TILTYARD_ENV_TOKEN": token} if token else {}
