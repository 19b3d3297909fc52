"""Static files as they are served outside of development: compressed, under names that hold a hash of the content.

A file of that name never changes, so browsers keep it without end; a new version has a new name. Scripts import each
other by relative names, which are rewritten too: else a page would mix new and old code.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from functools import cache
from pathlib import Path

from django.contrib.staticfiles import finders
from whitenoise.storage import CompressedManifestStaticFilesStorage

MANIFEST = "staticfiles.json"
PLOTLY = "vendor/plotly-basic-4.1.1-eager.min.js"
"""Fetched by scripts when curves are shown, not before."""

_IMPORTED = re.compile(r'^(?:import|export)\b[^;]*?"(\.[^"]+)";', re.MULTILINE)


class HashedStorage(CompressedManifestStaticFilesStorage):
    """WhiteNoise's storage, which also follows the imports of ES modules.

    Django's own list knows ``import("…")`` too. We have that only in comments, whose imports of types may be circular.
    """

    support_js_module_import_aggregation = True
    max_post_process_passes = 12  # a chain of imports takes one pass for each link
    _js_module_import_aggregation_patterns = (
        "*.js",
        tuple(
            pattern
            for pattern in CompressedManifestStaticFilesStorage._js_module_import_aggregation_patterns[1]
            if "import\\(" not in pattern[0]
        ),
    )


@cache
def imported_by(script: str) -> tuple[str, ...]:
    """The modules that a script of ours imports, and those that they import, as paths below the static root.

    A page names them at once: a browser that follows the imports finds each only after it has read the one before.
    """
    found: list[str] = []
    waiting = [script]
    while waiting:
        path = waiting.pop(0)
        source = finders.find(path)
        text = Path(source).read_text() if isinstance(source, str) else ""
        for name in _IMPORTED.findall(text):
            other = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
            if other not in found:
                found.append(other)
                waiting.append(other)
    return tuple(found)


def fingerprint(source: Path) -> str:
    """Changes whenever a file below ``source`` does, or this module."""
    found = hashlib.sha256(Path(__file__).read_bytes())
    for path in sorted(source.rglob("*")):
        if path.is_file():
            found.update(f"{path.relative_to(source)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def collected(source: Path, target: Path) -> bool:
    """Whether ``target`` has what ``source`` holds now."""
    stamp = target / "fingerprint"
    return (target / MANIFEST).exists() and stamp.exists() and stamp.read_text() == fingerprint(source)


def note_collected(source: Path, target: Path) -> None:
    """Make ``collected`` true from now on, until a file changes."""
    (target / "fingerprint").write_text(fingerprint(source))
