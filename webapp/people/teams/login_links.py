"""One-time login links: the way in before anyone has set a password. Only the hash of a token is stored."""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta

from django.db import transaction
from django.urls import NoReverseMatch, reverse
from django.utils import timezone

from webapp.people.teams.models import LoginLink, User

TOKEN_BYTES = 32
LIFETIME = timedelta(hours=24)


def token_hash(token: str) -> str:
    """What the database keeps of a token. A token is 256 random bits, so a plain hash needs no salt."""
    return hashlib.sha256(token.encode()).hexdigest()


def login_link_create(*, user: User) -> str:
    """Make a link for this person and return its token, which is nowhere else. Expired links are cleared away."""
    token = secrets.token_urlsafe(TOKEN_BYTES)
    now = timezone.now()
    LoginLink.objects.filter(expires_at__lt=now).delete()
    LoginLink.objects.create(user=user, token_hash=token_hash(token), expires_at=now + LIFETIME)
    return token


def login_link_use(token: str) -> User | None:
    """Use a link up and return its person; ``None`` if it is unknown, used, expired, or its person may not log in.

    The update is compare-and-set: of two requests with one token, one row change wins.
    """
    now = timezone.now()
    links = LoginLink.objects.filter(token_hash=token_hash(token))
    with transaction.atomic():
        open_links = links.filter(used_at=None, expires_at__gt=now, user__is_active=True, user__is_machine=False)
        if not open_links.update(used_at=now):
            return None
        return links.select_related("user")[0].user


def login_links_end(user: User) -> None:
    """End the links of a person that were not used."""
    LoginLink.objects.filter(user=user, used_at=None).delete()


def login_link_path(token: str) -> str:
    """Path of the page that uses the token. Looked up among our own: all addresses would import every page."""
    try:
        return reverse("login-link", urlconf="webapp.people.teams.urls", kwargs={"token": token})
    except NoReverseMatch:
        return f"/login/{token}/"
