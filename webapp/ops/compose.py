"""`make compose-init`: the secrets of docker-compose.yml, made once into `.env`. Needs nothing but Python itself.

`.env` is the one source: what stands there stays, what is missing is added. The environment servers run what models
make up, so their token is not in their process environment but in a file, written from `.env` each time.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
from pathlib import Path

SECRETS = ("POSTGRES_PASSWORD", "REDIS_PASSWORD", "TILTYARD_SECRET_KEY", "TILTYARD_ENV_TOKEN", "VLLM_API_KEY")
DEFAULTS = {"COMPOSE_PROJECT_NAME": "tiltyard", "COMPOSE_PROFILES": "cpu"}
SECRET_BYTES = 48
TOKEN_FILE = Path(".secrets") / "tiltyard_env_token"
_LINE = re.compile(r"^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*$")


def env_read(text: str) -> dict[str, str]:
    """The values of an env file; quotes around a value are not part of it."""
    found = (_LINE.match(line) for line in text.splitlines())
    return {match[1]: match[2].strip("'\"") for match in found if match}


def compose_init(root: Path) -> list[str]:
    """Add to ``root/.env`` what is missing, write the token's file, and return the names that were added."""
    path = root / ".env"
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    values = env_read(before)
    wanted = DEFAULTS | {name: secrets.token_urlsafe(SECRET_BYTES) for name in SECRETS}
    # An empty secret is a missing one; an empty setting may be meant.
    added = {
        name: value
        for name, value in wanted.items()
        if not values.get(name) and (name in SECRETS or name not in values)
    }
    if added:
        lines = "".join(f"{name}={value}\n" for name, value in added.items())
        _write(path, before + ("\n" if before and not before.endswith("\n") else "") + lines, 0o600)
    path.chmod(0o600)
    _write_token((values | added)["TILTYARD_ENV_TOKEN"], root / TOKEN_FILE)
    return list(added)


def _write_token(token: str, path: Path) -> None:
    """The file must be readable by a container's user, so the folder around it keeps everyone else out."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.parent.chmod(0o700)
    if not path.exists() or path.read_text(encoding="utf-8") != token:
        _write(path, token, 0o444)


def _write(path: Path, text: str, mode: int) -> None:
    """Whole or not at all, and never readable by more than ``mode`` says."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), mode)
        file.write(text)
    temporary.replace(path)


def main() -> int:
    """Run in the repository root."""
    added = compose_init(Path.cwd())
    out = sys.stdout.write
    out(f"Added to .env: {', '.join(added)}.\n" if added else "Nothing to add: .env has all it needs.\n")
    out("Next:\n")
    out("  docker compose up --detach --build       builds the images the first time (several minutes)\n")
    out("  docker compose exec web python manage.py login_link\n")
    out("With an NVIDIA GPU, set COMPOSE_PROFILES=gpu in .env before. See docs/containers.md.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
