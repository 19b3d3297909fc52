"""`make compose-init`: the secrets of docker-compose.yml, made once into `.env`. Needs nothing but Python itself.

`.env` is the one source: values in it stay, missing ones are added. No container gets a secret as a variable or
an argument, which `docker inspect` and `ps` show to others: each is a file, written from `.env` each time.

Sites with training hosts of their own (docs/scale.md): `make web-host` writes into `.env` what a web host needs for
them, and `make training-host` makes the `.env` of one of them.
"""

from __future__ import annotations

import argparse
import hashlib
import ipaddress
import os
import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

SITE_SECRETS = ("POSTGRES_PASSWORD", "REDIS_PASSWORD", "TILTYARD_SECRET_KEY", "TILTYARD_ENV_TOKEN")
SECRETS = (*SITE_SECRETS, "TILTYARD_METRICS_TOKEN", "VLLM_API_KEY")
DEFAULTS = {"COMPOSE_PROJECT_NAME": "tiltyard", "COMPOSE_PROFILES": "cpu", "TILTYARD_SECRETS": "./.secrets"}
SECRET_BYTES = 48
TRAIN_FILE = "docker-compose.train.yml"
PRIVATE = "TILTYARD_PRIVATE_ADDRESS"
STORE = {
    "TILTYARD_FILES": "s3://tiltyard/site",
    "TILTYARD_FILES_ENDPOINT": "http://files:9000",
    "TILTYARD_FILES_KEY_ID": "tiltyard",
}
"""The store of files that is the service `files` of docker-compose.yml."""
SHARED = (*SITE_SECRETS, "TILTYARD_FILES_SECRET", PRIVATE)
"""What a training host has of the web host's `.env`, besides the settings of workers."""
BUILDS = ("BUILD_PIP_INDEX_URL", "BUILD_PIP_FIND_LINKS", "BUILD_TORCH_INDEX", "BUILD_TORCH_INDEX_GPU", "BUILD_NETWORK")
HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
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
        _write_private(path, _with(before, added), 0o600)
    path.chmod(0o600)
    values |= added
    _write_files(secret_files(values), root / values["TILTYARD_SECRETS"])
    return list(added)


def web_host(root: Path, address: str) -> dict[str, str]:
    """Let training hosts reach this one at ``address``, its own in a private network: write it into ``root/.env``, and
    a store of files where there is none yet. Returns what was set.

    Raises ``ValueError`` for what is no such address.
    """
    if not _is_private(address):
        raise ValueError(
            f"{address!r} is not an IPv4 address in a private network. What passes there is not encrypted: use that of "
            "this host in WireGuard."
        )
    path = root / ".env"
    before = path.read_text(encoding="utf-8")
    values = env_read(before)
    wanted = {PRIVATE: address}
    if not values.get("TILTYARD_FILES"):
        wanted |= STORE | {"TILTYARD_FILES_SECRET": secrets.token_urlsafe(SECRET_BYTES)}
    profiles = [name for name in values.get("COMPOSE_PROFILES", "").split(",") if name]
    if "hosts" not in profiles:  # from now on another host trains
        profiles = [name for name in profiles if name != "cpu"] + ["hosts"]
    if (values | wanted).get("TILTYARD_FILES_ENDPOINT") == STORE["TILTYARD_FILES_ENDPOINT"] and "files" not in profiles:
        profiles.append("files")
    wanted["COMPOSE_PROFILES"] = ",".join(profiles)
    changed = {name: value for name, value in wanted.items() if values.get(name) != value}
    if changed:
        kept = [line for line in before.splitlines() if not ((match := _LINE.match(line)) and match[1] in changed)]
        _write_private(path, _with("\n".join(kept), changed), 0o600)
        _write_files(secret_files(values | changed), root / values["TILTYARD_SECRETS"])
    return changed


def _is_private(address: str) -> bool:
    try:
        parsed = ipaddress.IPv4Address(address)
    except ValueError:
        return False
    return not (parsed.is_unspecified or parsed.is_multicast or parsed.is_loopback or parsed.is_global)


def training_host(root: Path, name: str) -> Path:
    """Write the ``.env`` of a training host, ``root/<name>.env``. Raises ``ValueError`` with what to do first."""
    if not HOST_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a name of a host: use letters a to z, digits and hyphens.")
    text = (root / ".env").read_text(encoding="utf-8")
    if not env_read(text).get(PRIVATE):
        raise ValueError("This is no web host yet: `make web-host ADDRESS=…` first.")
    own = {
        "COMPOSE_FILE": TRAIN_FILE,
        "COMPOSE_PROJECT_NAME": "tiltyard",
        "COMPOSE_PROFILES": "gpu",
        "TILTYARD_SECRETS": "./.secrets",
        "TRAIN_HOST": name,
    }
    wanted = {*SHARED, *BUILDS, *worker_settings((root / "docker-compose.yml").read_text(encoding="utf-8"))}
    lines = [line for line in text.splitlines() if (match := _LINE.match(line)) and match[1] in wanted]
    path = root / f"{name}.env"
    _write_private(path, _with("\n".join(lines), own), 0o600)
    return path


def worker_settings(compose: str) -> list[str]:
    """The settings that docker-compose.yml hands from `.env` to workers that train."""
    blocks = re.findall(r"^x-(?:settings|keys): .*\n((?:  .*\n)+)", compose, re.MULTILINE)
    names = re.findall(r"^  ([A-Z_]+):", "".join(blocks), re.MULTILINE)
    return [name for name in names if not name.endswith("_FILE") and name not in SECRETS]


def _with(text: str, added: Mapping[str, str]) -> str:
    """An env file with more lines at its end."""
    return text + ("\n" if text and not text.endswith("\n") else "") + "".join(f"{n}={v}\n" for n, v in added.items())


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
        "tiltyard_files_secret": values.get("TILTYARD_FILES_SECRET", ""),
        "tiltyard_metrics_token": values["TILTYARD_METRICS_TOKEN"],
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run in the repository root; exit code 1 where something is to be done first."""
    parser = argparse.ArgumentParser(description="Make the secrets of docker-compose.yml.")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--web-host", metavar="ADDRESS", help="let training hosts reach this one at its private address")
    what.add_argument("--training-host", metavar="NAME", help="write NAME.env, the .env of a training host")
    options = parser.parse_args(arguments)
    out = sys.stdout.write
    try:
        if options.training_host is not None:
            path = training_host(Path.cwd(), options.training_host)
            out(f"{path.name} holds the site's secrets: copy it to that host as .env, into a clone of this version.\n")
            out("There:\n  make compose-init\n  docker compose up --detach\n")
            return 0
        added = compose_init(Path.cwd())
        if options.web_host is not None:
            changed = web_host(Path.cwd(), options.web_host)
            out(f"Set in .env: {', '.join(changed)}.\n" if changed else "Nothing to set: .env has it.\n")
            out("Next:\n  docker compose up --detach\n  make training-host NAME=gpu-1     for each host that trains\n")
            return 0
    except ValueError as exc:
        sys.stderr.write(f"{exc}\n")
        return 1
    out(f"Added to .env: {', '.join(added)}.\n" if added else "Nothing to add: .env has all it needs.\n")
    if env_read(Path(".env").read_text(encoding="utf-8")).get("COMPOSE_FILE") == TRAIN_FILE:
        out("Next:\n  docker compose up --detach       builds the image the first time (several minutes)\n")
        return 0
    out("Next:\n")
    out("  docker compose up --detach       builds the images the first time (several minutes)\n")
    out("  docker compose exec web python manage.py login_link\n")
    out("With an NVIDIA GPU, set COMPOSE_PROFILES=gpu in .env before. See docs/containers.md.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
