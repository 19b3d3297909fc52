"""Typed reading of settings from the environment. A wrong value stops the start with a helpful sentence."""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

from training.plain import number_in

_asked: set[str] = set()


def settings_names() -> tuple[str, ...]:
    """Every variable that was read so far, and the one that may name its file; after the settings are read, all of
    theirs."""
    return tuple(sorted(found for name in _asked for found in (name, f"{name}_FILE")))


def env_str(name: str, default: str = "") -> str:
    """The variable, or the content of the file that ``<name>_FILE`` points at, or the default."""
    _asked.add(name)
    file_name = os.environ.get(f"{name}_FILE")
    if not file_name:
        return os.environ.get(name, default)
    try:
        return Path(file_name).read_text(encoding="utf-8").strip()
    except OSError as exc:
        raise ImproperlyConfigured(f"{name}_FILE points at a file that cannot be read: {exc}") from exc


def env_bool(name: str, default: bool) -> bool:
    """``1/true/yes/on`` or ``0/false/no/off``."""
    value = env_str(name).lower()
    if not value:
        return default
    if value in {"1", "true", "yes", "on"}:
        return True
    if value in {"0", "false", "no", "off"}:
        return False
    raise ImproperlyConfigured(f"{name} must be true or false, not {value!r}.")


def env_int(name: str, default: int, *, least: int | None = None) -> int:
    """A whole number, not smaller than ``least``."""
    value = env_str(name)
    try:
        number = int(value) if value else default
    except ValueError as exc:
        raise ImproperlyConfigured(f"{name} must be a whole number, not {value!r}.") from exc
    if least is not None and number < least:
        raise ImproperlyConfigured(f"{name} must be at least {least}, not {number}.")
    return number


def env_list(name: str, default: list[str]) -> list[str]:
    """Values separated by commas."""
    value = env_str(name)
    return [item.strip() for item in value.split(",") if item.strip()] if value else default


def env_ports(name: str) -> range:
    """Ports as ``FIRST-LAST``; none where the variable is unset, which leaves the choice to the system."""
    if not (value := env_str(name)):
        return range(0)
    first, last = (number_in(word) or 0 for word in value.partition("-")[::2])
    if not 1024 <= first <= last <= 65535:
        raise ImproperlyConfigured(
            f"{name} must be two ports between 1024 and 65535, such as 8200-8231, not {value!r}."
        )
    return range(first, last + 1)


def sign_on_issuer() -> str:
    """The provider of single sign-on; empty where there is none."""
    issuer = env_str("TILTYARD_OIDC_ISSUER")
    parts = urlsplit(issuer)
    loopback = parts.hostname in {"127.0.0.1", "localhost", "::1"}
    if issuer and (
        not parts.hostname or parts.query or parts.scheme not in ({"https", "http"} if loopback else {"https"})
    ):
        raise ImproperlyConfigured(f"TILTYARD_OIDC_ISSUER must be an https address without a query, not {issuer!r}.")
    if issuer and not (env_str("TILTYARD_OIDC_CLIENT_ID") and env_str("TILTYARD_OIDC_CLIENT_SECRET")):
        raise ImproperlyConfigured(
            "TILTYARD_OIDC_ISSUER needs TILTYARD_OIDC_CLIENT_ID and TILTYARD_OIDC_CLIENT_SECRET (or its file, by the "
            "same name with _FILE behind it)."
        )
    return issuer


def sign_on_groups() -> list[tuple[str, str, str]]:
    """Group, role and team of each rule of ``TILTYARD_OIDC_GROUPS``; an empty team is the installation's only one."""
    rules = []
    for item in env_list("TILTYARD_OIDC_GROUPS", []):
        group, _equals, given = item.rpartition("=")
        role, _at, team = given.partition("@")
        if not group.strip() or role.strip() not in {"viewer", "editor", "owner"}:
            raise ImproperlyConfigured(
                "TILTYARD_OIDC_GROUPS must be rules such as ml-engineers=editor or ml-leads=owner@My team, separated "
                f"by commas, not {item!r}."
            )
        rules.append((group.strip(), role.strip(), team.strip()))
    return rules


RETAINED = ("words", "tokens", "logs", "checkpoints")
_LIMIT = re.compile(r"([1-9][0-9]{0,5})(d|GiB)")


def retention() -> dict[str, dict[str, int | None]]:
    """For how many days, and up to how many GiB of a project, each kind of what runs leave is kept.

    ``None`` is no limit; a kind that ``TILTYARD_RETENTION`` does not name has none.
    """
    rules: dict[str, dict[str, int | None]] = {kind: {"days": None, "gib": None} for kind in RETAINED}
    for item in env_list("TILTYARD_RETENTION", []):
        kind, _equals, limit = (part.strip() for part in item.partition("="))
        found = _LIMIT.fullmatch(limit)
        if kind not in RETAINED or found is None:
            raise ImproperlyConfigured(
                f"TILTYARD_RETENTION must be limits such as tokens=30d or checkpoints=500GiB of {', '.join(RETAINED)}, "
                f"separated by commas, not {item!r}."
            )
        rules[kind]["days" if found[2] == "d" else "gib"] = int(found[1])
    return rules


def proxy_addresses() -> list[str]:
    """Addresses and networks of the proxies in front of us.

    `*` is refused: any client could then write any address into X-Forwarded-For.
    """
    found = env_list("TILTYARD_PROXY_ADDRESSES", ["127.0.0.1", "::1"])
    for item in found:
        try:
            ipaddress.ip_network(item, strict=False)
        except ValueError as exc:
            raise ImproperlyConfigured(
                f"TILTYARD_PROXY_ADDRESSES must be IP addresses or networks such as 172.18.0.0/16, not {item!r}."
            ) from exc
    return found


def unusable(path: Path, exc: OSError) -> ImproperlyConfigured:
    """A sentence on why a folder or file of ours cannot be written, and what to do."""
    if exc.errno == errno.ENOSPC:
        return ImproperlyConfigured(f"The disk that holds {path} is full: free some space, then start again.")
    return ImproperlyConfigured(
        f"{path} cannot be written ({exc.strerror}): give this user the right to, or set TILTYARD_DATA_DIR to a folder "
        "that can be written."
    )


def private_folder(path: Path) -> None:
    """Make a folder that only we can read, if it is not there."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as exc:
        raise unusable(path, exc) from exc


def secret_key(path: Path, fallback_env: str) -> str:
    """The secret key from the environment, or one that is made once and kept in a file that only we can read."""
    value = env_str(fallback_env)
    if value:
        if len(value) < 50:
            raise ImproperlyConfigured(f"{fallback_env} is too short to be secret: give it at least 50 characters.")
        return value
    private_folder(path.parent)
    try:
        _make_key(path)
        found = path.read_text().strip()
    except OSError as exc:
        raise unusable(path, exc) from exc
    if len(found) < 50:  # a disk that was full left an empty one
        raise ImproperlyConfigured(
            f"{path} holds no whole key: remove the file, and a new one is made at the next start."
        )
    return found


def _make_key(path: Path) -> None:
    if path.exists():
        return
    # Written next to its place and linked to it: of two processes that start together one makes the key, both read the
    # same, and a full disk leaves none rather than half of one.
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(64))
        with suppress(FileExistsError):
            os.link(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)


def files_place() -> str:
    """Where files are published (``TILTYARD_FILES``); empty where all hosts share the data folder."""
    place = env_str("TILTYARD_FILES").rstrip("/")
    parts = urlsplit(place)
    if place and not (place.startswith("/") or (parts.scheme == "s3" and parts.netloc and not parts.query)):
        raise ImproperlyConfigured(
            f"TILTYARD_FILES must be s3://bucket/prefix or the absolute path of a folder that all hosts see, not "
            f"{place!r}."
        )
    return place


PARAMETERS = {
    "sslmode": "PGSSLMODE",
    "sslrootcert": "PGSSLROOTCERT",
    "sslcert": "PGSSLCERT",
    "sslkey": "PGSSLKEY",
    "sslcrl": "PGSSLCRL",
    "channel_binding": "PGCHANNELBINDING",
    "target_session_attrs": "PGTARGETSESSIONATTRS",
}
"""What ``DATABASE_URL`` may say after its question mark besides ``host``, with the variables of PostgreSQL's own
programs."""


def database_parameters(url: str) -> dict[str, str]:
    """The parameters of the connection in a URL. One that is not known is refused: a misspelled ``sslmode`` would leave
    the connection open to all on its way."""
    found = dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))
    found.pop("host", None)
    if unknown := sorted(found.keys() - PARAMETERS.keys()):
        known = ", ".join(["host", *PARAMETERS])
        raise ImproperlyConfigured(f"DATABASE_URL has {', '.join(unknown)}, which is not known; it may have {known}.")
    return found


REDIS_TLS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")
"""What ``REDIS_URL`` may say after its question mark about TLS."""


def database_from_url(url: str) -> dict[str, Any]:
    """Django's settings for ``postgresql://user:password@host:port/name?host=/socket/folder``."""
    parts = urlsplit(url)
    if parts.scheme not in {"postgres", "postgresql"}:
        raise ImproperlyConfigured("DATABASE_URL must start with postgresql://")
    query = dict(parse_qsl(parts.query))
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")) or "postgres",
        "USER": unquote(parts.username or "postgres"),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": query.get("host", "") or unquote(parts.hostname or ""),
        "PORT": str(parts.port or ""),
    }


def redis_url(url: str) -> str:
    """``REDIS_URL`` as it is. Options of TLS are refused where they are not known, or where the URL asks for no TLS: a
    misspelled one would leave the connection open to all on its way, or fail only once a worker starts."""
    parts = urlsplit(url)
    found = sorted(name for name in dict(parse_qsl(parts.query, keep_blank_values=True)) if name.startswith("ssl"))
    if unknown := [name for name in found if name not in REDIS_TLS]:
        known = ", ".join(REDIS_TLS)
        raise ImproperlyConfigured(f"REDIS_URL has {', '.join(unknown)}, which is not known; it may have {known}.")
    if found and parts.scheme != "rediss":
        raise ImproperlyConfigured(f"REDIS_URL has {', '.join(found)}, which needs rediss://, not {parts.scheme}://.")
    return url
