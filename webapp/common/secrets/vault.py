"""The one way to set, read and forget a secret. It is encrypted in the database, so every worker has it, whichever disk
it sees; files of the data folder and dumps of the database hold nothing that can be read without the secret key.

1. Each secret is encrypted (Fernet: AES-128-CBC with an HMAC-SHA256) with a key of its own, which HKDF-SHA256 makes of
   the site's secret key, the kind and the owner. A row that is copied to another owner cannot be read there, so
   writing to the database does not send a key to another server.
2. ``TILTYARD_SECRET_KEY_FALLBACKS`` are tried after the secret key. ``manage.py reencrypt_secrets`` makes them
   unneeded.
3. A row of kind ``SITE`` has no secret: it shows whether a process has the site's secret key (``key_problem``).
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable
from datetime import datetime
from typing import Literal, NamedTuple
from uuid import UUID

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from training.errors import SecretUnreadable
from training.words import _, sentence
from webapp.common.secrets.models import Kind, Secret

logger = logging.getLogger(__name__)
SITE_OWNER = UUID(int=0)
SITE_TEXT = "tiltyard"
UNREADABLE = {
    Kind.ENDPOINT_KEY: _("The endpoint's key cannot be read with this site's secret key."),
    Kind.HUB_TOKEN: _("The project's Hugging Face token cannot be read with this site's secret key."),
    Kind.ENVIRONMENT_TOKEN: _("The environment's token cannot be read with this site's secret key."),
    Kind.WEBHOOK: _("The channel's address and secret cannot be read with this site's secret key."),
    Kind.SITE: _("This site's secrets cannot be read with this secret key."),
}
ENTER_AGAIN = _(
    "Enter it again, or ask the operator to add the secret key that it was stored with to "
    "TILTYARD_SECRET_KEY_FALLBACKS."
)


def _fernet(secret_key: str, kind: str, owner: UUID) -> Fernet:
    derived = HKDF(SHA256(), length=32, salt=None, info=f"tiltyard secret {kind} {owner}".encode())
    return Fernet(base64.urlsafe_b64encode(derived.derive(secret_key.encode())))


def _fernets(kind: str, owner: UUID) -> MultiFernet:
    keys = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    return MultiFernet([_fernet(key, kind, owner) for key in keys])


def seal(kind: str, owner: UUID, text: str) -> str:
    """``text`` as it is stored."""
    return _fernets(kind, owner).encrypt(text.encode()).decode("ascii")


def unseal(kind: str, owner: UUID, sealed: str) -> str:
    """What was stored. Raises ``SecretUnreadable``."""
    try:
        return _fernets(kind, owner).decrypt(sealed).decode()
    except InvalidToken as exc:
        raise SecretUnreadable(sentence(UNREADABLE[Kind(kind)]), hint=sentence(ENTER_AGAIN)) from exc


def secret_set(kind: Kind, owner: UUID, text: str) -> None:
    """Keep this secret instead of the one before."""
    values = {"sealed": seal(kind, owner, text), "set_at": timezone.now()}
    Secret.objects.update_or_create(kind=kind, owner=owner, defaults=values)


def secret_of(kind: Kind, owner: UUID) -> str:
    """The secret, empty where there is none. Raises ``SecretUnreadable``."""
    found = Secret.objects.filter(kind=kind, owner=owner).values_list("sealed", flat=True).first()
    return "" if found is None else unseal(kind, owner, found)


def secret_since(kind: Kind, owner: UUID) -> datetime | None:
    """When it was set; ``None`` where there is none."""
    return Secret.objects.filter(kind=kind, owner=owner).values_list("set_at", flat=True).first()


def secret_state(kind: Kind, owner: UUID) -> Literal["none", "kept", "unreadable"]:
    """What a page says of a secret, which it never shows."""
    try:
        return "kept" if secret_of(kind, owner) else "none"
    except SecretUnreadable:
        return "unreadable"


def secrets_forget(owners: Iterable[UUID], *kinds: Kind) -> bool:
    """Delete the secrets of these objects, of all kinds where none is named. Returns whether there were any."""
    found = Secret.objects.filter(owner__in=list(owners))
    count, _models = (found.filter(kind__in=kinds) if kinds else found).delete()
    return bool(count)


def key_problem() -> bool:
    """Whether this process has another secret key than the one that the site's secrets are encrypted with."""
    found = Secret.objects.filter(kind=Kind.SITE, owner=SITE_OWNER).values_list("sealed", flat=True).first()
    if found is None:
        return False
    try:
        unseal(Kind.SITE, SITE_OWNER, found)
    except SecretUnreadable:
        return True
    return False


class Reencrypted(NamedTuple):
    """How many secrets are encrypted with the secret key now, and which no key reads."""

    done: int
    unreadable: list[str]


@transaction.atomic
def secrets_reencrypt(*, forget: bool = False) -> Reencrypted:
    """Encrypt every secret with the secret key, also those that only a fallback reads. What no key reads stays as it
    is, or is deleted under ``forget``: its owner then shows that it has none.
    """
    done, unreadable = 0, []
    for row in Secret.objects.select_for_update().order_by("kind", "owner"):
        try:
            row.sealed = seal(row.kind, row.owner, unseal(row.kind, row.owner, row.sealed))
        except SecretUnreadable:
            if row.kind != Kind.SITE:
                unreadable.append(str(row))
            if forget:
                row.delete()
            continue
        row.save(update_fields=["sealed"])
        done += row.kind != Kind.SITE
    if forget:
        Secret.objects.get_or_create(
            kind=Kind.SITE,
            owner=SITE_OWNER,
            defaults={"sealed": seal(Kind.SITE, SITE_OWNER, SITE_TEXT), "set_at": timezone.now()},
        )
    logger.info("secrets encrypted again", extra={"action": "reencrypt", "done": done, "unreadable": len(unreadable)})
    return Reencrypted(done, unreadable)
