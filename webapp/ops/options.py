"""The command line options of `manage.py up`, and the address of a running one."""

from __future__ import annotations

import fcntl
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class UpOptions:
    """The options of the command line."""

    data: Path
    root: Path
    host: str = "127.0.0.1"
    port: int = 8000
    demo: bool = False
    behind_proxy: bool = False

    @property
    def address(self) -> str:
        """Our address for a browser on this machine."""
        host = "127.0.0.1" if self.host in {"0.0.0.0", "::"} else self.host  # noqa: S104 - compared, not bound
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"


LOCK_NAME = "up.lock"
"""In the data folder: held, and with the address in it, as long as `manage.py up` runs."""


def running_address(data: Path) -> str | None:
    """The address of the site that `manage.py up` runs on a data folder; ``None`` where none runs."""
    try:
        with open(data / LOCK_NAME, encoding="utf-8", errors="replace") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.read().partition(" ")[0] or None
    except OSError:
        pass
    return None
