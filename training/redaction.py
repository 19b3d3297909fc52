"""Secrets taken out of text that others wrote: a server may repeat what it was sent, in any form and at any place.

``without`` takes out secrets that are known, however they are written. ``redact`` also takes out what looks like a
credential: for errors, logs and all that is shown; not for a model's own words, which may say "password:". Cut a text
only afterwards: half of a secret is not found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import regex

HIDDEN = "***"
SECRET_CHARS = 8
"""From this length on a text is a secret, and no word such as `ollama` that servers without keys are given."""
_ENTITIES = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}
_LOOKS_SECRET = re.compile(
    r"(?i)((?:authorization|password|token|secret|api[_-]?key)[\"']?\s*[=:]\s*[\"']?(?:bearer\s+)?)([^\s\"',}&]{4,})"
    r"|(://[^/\s:@]*:)([^@\s/]+)(@)"
    r"|((?:^|[\s:'\"])/s/)([^/\s?'\"]{4,})"  # the address of a shared link is its secret
    r"|(\b(?:bearer|basic)\s+)(?=\S*\d)([a-z0-9._~+/-]{8,}=*)"
    r"|(\b(?:hf|gh[opsu]|tiltyard)_|\bsk-)(?=\S*\d)([a-z0-9_-]{16,})"
)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without these secrets and without all that looks like a credential."""
    return _LOOKS_SECRET.sub(_kept, without(text, secrets))


def _kept(found: re.Match[str]) -> str:
    before = next(filter(None, (found[1], found[3], found[6], found[8], found[10])))
    return f"{before}{HIDDEN}{found[5] or ''}"


def without(text: str, secrets: Iterable[str], shown: str = HIDDEN) -> str:
    """The text without these secrets: as they are, URL-encoded, escaped as in JSON or HTML, in any case of letters."""
    pattern = _pattern(tuple(secrets))
    return text if pattern is None else pattern.sub(lambda _found: shown, text)


def without_bytes(data: bytes, secrets: Iterable[str]) -> bytes:
    """The same of an answer that is not decoded yet."""
    known = tuple(secrets)
    if _pattern(known) is None:
        return data
    return without(data.decode("utf-8", "surrogateescape"), known).encode("utf-8", "surrogateescape")


def without_all(value: Any, secrets: Iterable[str]) -> Any:
    """A value of JSON, all of whose texts and keys are so."""
    if isinstance(value, str):
        return without(value, secrets)
    if isinstance(value, dict):
        return {without(str(name), secrets): without_all(item, secrets) for name, item in value.items()}
    return [without_all(item, secrets) for item in value] if isinstance(value, list) else value


class Pieces:
    """The same of a text that comes in pieces: what may be the beginning of a secret waits for what follows."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._pattern = _pattern(tuple(secrets))
        self._waits = ""

    def feed(self, piece: str) -> str:
        """The text that can be shown by now."""
        if self._pattern is None:
            return piece
        text = self._pattern.sub(HIDDEN, self._waits + piece)
        begun = self._pattern.search(text, partial=True)
        at = begun.start() if begun else len(text)
        self._waits = text[at:]
        return text[:at]

    def rest(self) -> str:
        """The text that waited until the end, and began no secret."""
        text, self._waits = self._waits, ""
        return text


def address_secrets(url: str) -> tuple[str, ...]:
    """What of an address that is a secret must not be repeated: all of it, its path, its query, and their parts."""
    parts = urlsplit(url)
    pieces = [piece for piece in parts.path.split("/") if len(piece) >= SECRET_CHARS]
    values = [value for _name, value in parse_qsl(parts.query)]
    return url, f"{parts.path}?{parts.query}", parts.path, parts.query, *pieces, *values


@lru_cache(maxsize=256)
def _pattern(secrets: tuple[str, ...]) -> regex.Pattern[str] | None:
    """Any of the secrets, the longest first; ``None`` where none is long enough to be one."""
    known = sorted({secret for secret in secrets if len(secret) >= SECRET_CHARS}, key=len, reverse=True)
    if not known:
        return None
    return regex.compile("|".join("".join(map(_written, secret)) for secret in known), regex.IGNORECASE)


def _written(letter: str) -> str:
    """Each way to write a letter: itself, after a backslash, URL-encoded (once or twice), escaped in JSON or HTML."""
    coded = "".join(f"%(?:25)?{byte:02x}" for byte in letter.encode("utf-8", "surrogatepass"))
    ways = [regex.escape(letter), coded, rf"\\u{ord(letter):04x}", f"&#0*{ord(letter)};", f"&#x0*{ord(letter):x};"]
    if letter in "/\"\\'":
        ways.append(rf"\\{regex.escape(letter)}")
    if letter in _ENTITIES:
        ways.append(f"&{_ENTITIES[letter]};")
    if letter == " ":
        ways.append(r"\+")
    return f"(?:{'|'.join(ways)})"
