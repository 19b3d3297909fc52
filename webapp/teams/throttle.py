"""How often a login may fail. The counts are in the database: a restart forgets none.

1. One address that tries one account: after ``PAIR_LIMIT`` failures within the window, that pair waits for its end.
   Others behind the same address, and the person at another address, are not affected.
2. Many addresses that try one account: after ``ACCOUNT_FREE`` failures each try must wait a little longer than the one
   before, up to ``ACCOUNT_WAIT_MAX_S``. Guessing becomes hopeless, and the account is never locked.
3. One address that tries many accounts: a ceiling so high that a team behind one address never meets it.
4. A pair that has logged in within ``KNOWN_FOR_S`` only minds rule 1: an attack from elsewhere keeps nobody out of the
   place where they always work.

5. Shared links are opened without an account. One address opens ``OPENS_PER_ADDRESS`` of them within the window, of
   which ``GUESSES_PER_ADDRESS`` may be links that do not exist; then it waits, whether its next link exists or not.

A try is counted before the password is looked at, so that many at once are not one; a success takes its count back.
"""

from __future__ import annotations

import hashlib

from django.db import connection, transaction
from django.utils import timezone

from webapp.teams.models import LoginThrottle

WINDOW_S, KNOWN_FOR_S = 15 * 60, 30 * 24 * 3600
PAIR_LIMIT, ACCOUNT_FREE, ADDRESS_LIMIT = 10, 20, 1_000
ACCOUNT_WAIT_MAX_S = 30
MAIL_PER_ACCOUNT, MAIL_PER_ADDRESS = 3, 30
OPENS_PER_ADDRESS, GUESSES_PER_ADDRESS = 300, 30
_COUNT = (
    "INSERT INTO teams_loginthrottle AS held (key, failures, last_at, until)"
    " VALUES (%(key)s, 1, now(), now() + make_interval(secs => %(seconds)s))"
    " ON CONFLICT (key) DO UPDATE SET last_at = now(),"
    " failures = CASE WHEN held.until <= now() THEN 1 ELSE held.failures + 1 END,"
    " until = CASE WHEN held.until <= now() THEN now() + make_interval(secs => %(seconds)s) ELSE held.until END"
)


def _key(kind: str, *parts: str) -> str:
    return hashlib.sha256("\0".join((kind, *parts)).encode()).hexdigest()


class Keys:
    """The rows of one account tried from one address; names are hashed, so that the table lists nobody."""

    def __init__(self, account: str, address: str) -> None:
        name = account.strip().casefold()
        self.pair, self.known = _key("pair", name, address), _key("known", name, address)
        self.account, self.address = _key("account", name), _key("address", address)
        self.counted = [self.pair, self.account, self.address]


def login_wait_s(account: str, address: str) -> float:
    """Count a try of this account from this address; 0 when it may be made, else the seconds to wait (not counted)."""
    keys = Keys(account, address)
    with transaction.atomic(), connection.cursor() as cursor:
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
    """Count a wish for a reset mail; whether one may be sent."""
    limits = {_key("mail", account.strip().casefold()): MAIL_PER_ACCOUNT, _key("mailer", address): MAIL_PER_ADDRESS}
    with transaction.atomic(), connection.cursor() as cursor:
        for key in limits:
            cursor.execute(_COUNT, {"key": key, "seconds": 3600})
        held = LoginThrottle.objects.filter(key__in=limits).values_list("key", "failures")
        return all(failures <= limits[key] for key, failures in held)


def link_wait_s(address: str) -> float:
    """Count the opening of a shared link; 0 when it may be looked up, else the seconds to wait (not counted)."""
    opens, guesses = _key("opens", address), _key("guesses", address)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [opens])
        now = timezone.now()
        held = {row.key: row for row in LoginThrottle.objects.filter(key__in=[opens, guesses], until__gt=now)}
        limits = {opens: OPENS_PER_ADDRESS, guesses: GUESSES_PER_ADDRESS}
        full = [held[key] for key, limit in limits.items() if key in held and held[key].failures >= limit]
        if full:
            return max((row.until - now).total_seconds() for row in full)
        for key in limits:
            cursor.execute(_COUNT, {"key": key, "seconds": WINDOW_S})
    return 0.0


def link_was_there(address: str) -> None:
    """The link that was counted exists: it was no guess."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE teams_loginthrottle SET failures = greatest(failures - 1, 0) WHERE key = %s",
            [_key("guesses", address)],
        )
