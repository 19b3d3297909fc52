"""Which site, which token, which project: the environment first, then what ``tiltyard login`` stored."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

FOLDER_VARIABLE = "XDG_CONFIG_HOME"


class Place(NamedTuple):
    """Where commands go."""

    url: str
    token: str
    project: str


def path() -> Path:
    """The file that ``login`` writes."""
    return Path(os.environ.get(FOLDER_VARIABLE) or Path.home() / ".config") / "tiltyard" / "client.json"


def stored() -> Place:
    """What the file says; empty where there is none or it cannot be read."""
    try:
        found = json.loads(path().read_text(encoding="utf-8"))
        return Place(*(str(found.get(name, "")) for name in Place._fields))
    except (OSError, ValueError, AttributeError):
        return Place("", "", "")


def place(project: str = "") -> Place:
    """Where this command goes; ``project`` is what its option said."""
    kept, here = stored(), os.environ
    url = here.get("TILTYARD_URL") or kept.url
    token = here.get("TILTYARD_TOKEN") or (kept.token if url == kept.url else "")
    return Place(url, token, project or here.get("TILTYARD_PROJECT") or kept.project)


def store(found: Place) -> Path:
    """Keep it for later commands, readable by its owner alone."""
    target = path()
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(found._asdict(), file, indent=1)
    fresh.replace(target)
    return target
