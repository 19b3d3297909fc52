"""Compile the translations with polib, so that no machine needs the gettext tools. Needs no Django settings."""

from __future__ import annotations

import os
from pathlib import Path


def catalogues_compile(locale: Path) -> list[Path]:
    """Write the ``.mo`` of each ``.po`` that is newer than it; returns the written files.

    Each is put in its place by a rename: two starts at once must not leave half a file.
    """
    import polib

    written = []
    for source in sorted(locale.rglob("LC_MESSAGES/*.po")):
        target = source.with_suffix(".mo")
        if target.exists() and target.stat().st_mtime >= source.stat().st_mtime:
            continue
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        polib.pofile(str(source), encoding="utf-8").save_as_mofile(str(temporary))
        temporary.replace(target)
        written.append(target)
    return written
