"""Logging in: one-time links, and how often an attempt may fail."""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta

from django.db import connection, transaction
from django.urls import NoReverseMatch, reverse
from django.utils import timezone

from webapp.people.teams.models import LoginLink, LoginThrottle, User

# One-time login links: the way in before anyone has set a password. Only the hash of a token is stored.

TOKEN_BYTES = 32
LIFETIME = timedelta(hours=24)


def token_hash(token: str) -> str:
    """The hash of a token, which the database keeps. A token is 256 random bits, so a plain hash needs no salt."""
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


# How often a login may fail. The counts are in the database: a restart forgets none.
#
# 1. One address that tries one account: after ``PAIR_LIMIT`` failures within the window, that pair waits for its end.
#    Others behind the same address, and the person at another address, are not affected.
# 2. Many addresses that try one account: after ``ACCOUNT_FREE`` failures each try must wait a little longer than the
#    one before, up to ``ACCOUNT_WAIT_MAX_S``. Guessing becomes hopeless, and the account is never locked.
# 3. One address that tries many accounts: a ceiling so high that a team behind one address never meets it.
# 4. A pair that has logged in within ``KNOWN_FOR_S`` only minds rule 1: an attack from elsewhere locks no person out at
#    the place where they always work.
#
# 5. Shared links are opened without an account. One address asks for ``GUESSES_PER_ADDRESS`` links that do not exist
#    within the window; then its next guess waits. Links that exist open all the same: a secret has 256 random bits, so
#    a refusal would stop no guess, and would let a stranger close the links of all people behind an address.
# 6. One address opens one shared link ``OPENS_PER_ADDRESS`` times within the window: a report takes work to make. Only
#    people with the link can use that up, and no other link is closed by it.
# 7. One address shows ``TOKENS_PER_ADDRESS`` API tokens that never were within the window; then it waits with such
#    ones. Tokens that exist work all the same, for the same reason as with links.
#
# A login is counted before its password is checked, so that many at once do not count as one; a success takes its count
# back.

WINDOW_S, KNOWN_FOR_S = 15 * 60, 30 * 24 * 3600
PAIR_LIMIT, ACCOUNT_FREE, ADDRESS_LIMIT = 10, 20, 1_000
ACCOUNT_WAIT_MAX_S = 30
MAIL_PER_ACCOUNT, MAIL_PER_ADDRESS = 3, 30
OPENS_PER_ADDRESS, GUESSES_PER_ADDRESS, TOKENS_PER_ADDRESS = 300, 30, 60
_COUNT = (
    "INSERT INTO teams_loginthrottle AS held (key, failures, last_at, until)"
    " VALUES (%(key)s, 1, now(), now() + make_interval(secs => %(seconds)s))"
    " ON CONFLICT (key) DO UPDATE SET last_at = now(),"
    " failures = CASE WHEN held.until <= now() THEN 1 ELSE held.failures + 1 END,"
    " until = CASE WHEN held.until <= now() THEN now() + make_interval(secs => %(seconds)s) ELSE held.until END"
)


def _hashed_key(kind: str, *parts: str) -> str:
    return hashlib.sha256("\0".join((kind, *parts)).encode()).hexdigest()


class Keys:
    """The rows of one account tried from one address; names are hashed, so that the table lists no person."""

    def __init__(self, account: str, address: str) -> None:
        name = account.strip().casefold()
        self.pair, self.known = _hashed_key("pair", name, address), _hashed_key("known", name, address)
        self.account, self.address = _hashed_key("account", name), _hashed_key("address", address)
        self.counted = [self.pair, self.account, self.address]


def login_wait_s(account: str, address: str) -> float:
    """Count a try of this account from this address; 0 when it may be made, else the seconds to wait (not counted)."""
    keys = Keys(account, address)
    with transaction.atomic(), connection.cursor() as cursor:
        # One at a time for an account: many tries at once must not all be read as the first.
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [keys.account])
        wait = _wait_s(keys)
        if wait <= 0:
            for key in keys.counted:
                cursor.execute(_COUNT, {"key": key, "seconds": WINDOW_S})
    return max(wait, 0.0)


def _wait_s(keys: Keys) -> float:
    now = timezone.now()
    rows = LoginThrottle.objects.filter(key__in=[*keys.counted, keys.known], until__gt=now)
    held = {row.key: row for row in rows}
    waits = [0.0]
    for key, limit in ((keys.pair, PAIR_LIMIT), (keys.address, ADDRESS_LIMIT)):
        if key in held and held[key].failures >= limit and (key == keys.pair or keys.known not in held):
            waits.append((held[key].until - now).total_seconds())
    account = held.get(keys.account)
    if account is not None and account.failures >= ACCOUNT_FREE and keys.known not in held:
        pause = min(ACCOUNT_WAIT_MAX_S, 2 ** min(account.failures - ACCOUNT_FREE, 10))
        waits.append((account.last_at - now).total_seconds() + pause)
    return max(waits)


def login_succeeded(account: str, address: str) -> None:
    """Take the try's count back, forget this pair's failures, and remember that the person works here."""
    keys = Keys(account, address)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [keys.account])
        for key in (keys.account, keys.address):
            cursor.execute("UPDATE teams_loginthrottle SET failures = greatest(failures - 1, 0) WHERE key = %s", [key])
        LoginThrottle.objects.filter(key__in=[keys.pair, keys.known]).delete()
        cursor.execute(_COUNT, {"key": keys.known, "seconds": KNOWN_FOR_S})
    LoginThrottle.objects.filter(until__lt=timezone.now()).delete()


def mail_allowed(account: str, address: str) -> bool:
    """Count a request for a reset mail. Returns whether one may be sent."""
    limits = {
        _hashed_key("mail", account.strip().casefold()): MAIL_PER_ACCOUNT,
        _hashed_key("mailer", address): MAIL_PER_ADDRESS,
    }
    with transaction.atomic(), connection.cursor() as cursor:
        for key in limits:
            cursor.execute(_COUNT, {"key": key, "seconds": 3600})
        held = LoginThrottle.objects.filter(key__in=limits).values_list("key", "failures")
        return all(failures <= limits[key] for key, failures in held)


def guess_wait_s(address: str) -> float:
    """Count a shared link that does not exist; 0 when that may be shown, else the seconds to wait (not counted)."""
    return _counted_wait_s(_hashed_key("guesses", address), GUESSES_PER_ADDRESS)


def open_wait_s(address: str, link: str) -> float:
    """Count the opening of a link that exists; 0 when it may be shown, else the seconds to wait (not counted)."""
    return _counted_wait_s(_hashed_key("opens", address, link), OPENS_PER_ADDRESS)


def token_wait_s(address: str) -> float:
    """Count an API token that never was; 0 when that may be shown, else the seconds to wait (not counted)."""
    return _counted_wait_s(_hashed_key("tokens", address), TOKENS_PER_ADDRESS)


def _counted_wait_s(key: str, limit: int) -> float:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [key])
        now = timezone.now()
        held = LoginThrottle.objects.filter(key=key, until__gt=now).first()
        if limit <= (held.failures if held else 0):
            return (held.until - now).total_seconds() if held else float(WINDOW_S)
        cursor.execute(_COUNT, {"key": key, "seconds": WINDOW_S})
    return 0.0
