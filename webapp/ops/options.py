"""What the command line of `manage.py up` chose."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class UpOptions:
    """What the command line chose."""

    data: Path
    root: Path
    host: str = "127.0.0.1"
    port: int = 8000
    demo: bool = False
    behind_proxy: bool = False

    @property
    def address(self) -> str:
        """Where a browser on this machine finds us."""
        host = "127.0.0.1" if self.host in {"0.0.0.0", "::"} else self.host  # noqa: S104 - compared, not bound
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"
