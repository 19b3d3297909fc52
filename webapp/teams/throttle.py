"""How often a login may fail. Counts live in the cache: losing them costs nothing but a few more tries."""

from __future__ import annotations

import hashlib

from django.core.cache import cache

WINDOW_S = 15 * 60
# One address trying one account; one address trying many; many addresses trying one account.
LIMITS = {"pair": 10, "address": 50, "account": 100}


def _keys(account: str, address: str) -> dict[str, str]:
    name = account.strip().casefold()
    raw = {"pair": f"{name}\0{address}", "address": address, "account": name}
    return {kind: f"login:{kind}:{hashlib.sha256(text.encode()).hexdigest()}" for kind, text in raw.items()}


def login_allowed(account: str, address: str) -> bool:
    """Whether another try may be made now."""
    return all(int(cache.get(key, 0)) < LIMITS[kind] for kind, key in _keys(account, address).items())


def login_failed(account: str, address: str) -> None:
    """Count one failure."""
    for key in _keys(account, address).values():
        cache.add(key, 0, timeout=WINDOW_S)
        try:
            cache.incr(key)
        except ValueError:  # the window ended between the two calls
            cache.set(key, 1, timeout=WINDOW_S)


def login_succeeded(account: str, address: str) -> None:
    """Forget this pair's failures."""
    cache.delete(_keys(account, address)["pair"])
