"""`make compose-init`: the secrets of docker-compose.yml, made once into `.env`. Needs nothing but Python itself.

`.env` is the one source: values in it stay, missing ones are added. No container gets a secret as a variable or
an argument, which `docker inspect` and `ps` show to others: each is a file, written from `.env` each time.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

SECRETS = ("POSTGRES_PASSWORD", "REDIS_PASSWORD", "TILTYARD_SECRET_KEY", "TILTYARD_ENV_TOKEN", "VLLM_API_KEY")
DEFAULTS = {"COMPOSE_PROJECT_NAME": "tiltyard", "COMPOSE_PROFILES": "cpu", "TILTYARD_SECRETS": "./.secrets"}
SECRET_BYTES = 48
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
        _write_private(path, before + ("\n" if before and not before.endswith("\n") else "") + lines, 0o600)
    path.chmod(0o600)
    values |= added
    _write_files(secret_files(values), root / values["TILTYARD_SECRETS"])
    return list(added)


def secret_files(values: Mapping[str, str]) -> dict[str, str]:
    """The content of each secret of docker-compose.yml, by name."""
    database, broker = (quote(values[name], safe="") for name in ("POSTGRES_PASSWORD", "REDIS_PASSWORD"))
    digest = hashlib.sha256(values["REDIS_PASSWORD"].encode()).hexdigest()
    return {
        "database_url": f"postgresql://tiltyard:{database}@postgres:5432/tiltyard",
        "postgres_password": values["POSTGRES_PASSWORD"],
        "redis_url": f"redis://tiltyard:{broker}@redis:6379/0",
        # The default user is off, and ours may not change the server.
        "redis_users": f"user default off\nuser tiltyard on #{digest} ~* &* +@all -@admin\n",
        "tiltyard_env_token": values["TILTYARD_ENV_TOKEN"],
        "tiltyard_secret_key": values["TILTYARD_SECRET_KEY"],
        "vllm_api_key": values["VLLM_API_KEY"],
    }


def _write_files(files: Mapping[str, str], folder: Path) -> None:
    """Write the files. A container's user must be able to read them, so their folder keeps everyone else out."""
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    for name, text in files.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            _write_private(path, text, 0o444)


def _write_private(path: Path, text: str, mode: int) -> None:
    """Write the file completely or not at all, and never with more rights than ``mode``."""
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
    out("  docker compose up --detach       builds the images the first time (several minutes)\n")
    out("  docker compose exec web python manage.py login_link\n")
    out("With an NVIDIA GPU, set COMPOSE_PROFILES=gpu in .env before. See docs/containers.md.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
