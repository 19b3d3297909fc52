"""No floor of versions was asserted, and Redis 6.2 was used without a word."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.processes import ROOT
from training import floors
from webapp.common import host
from webapp.ops.hashes import hashed, pins
from webapp.ops.up import old_redis

OLD = {
    "torch": "2.5.1",
    "transformers": "5.2.9",
    "pyarrow": "14.0.0",
    "redis": "4.5.4",
    "django": "5.2.7",
    "uvicorn": "0.11.6",
    "starlette": "0.49.0",
    "jinja2": "3.1.5",
    "urllib3": "2.6.2",
    "requests": "2.32.3",
}


@pytest.mark.parametrize("name", OLD)
def test_a_package_below_its_floor_stops_the_start(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = floors.version
    assert floors.floors_broken() == []
    monkeypatch.setattr(floors, "version", lambda asked: OLD[name] if asked == name else real(asked))
    assert len(floors.floors_broken()) == 1
    with pytest.raises(ImproperlyConfigured, match=f"{name} {OLD[name]} has a known security hole"):
        apps.get_app_config("ops").ready()
    with pytest.raises(CommandError, match=f"{name} {OLD[name]} has a known security hole"):
        call_command("up")


def test_every_floor_is_tried_and_every_lock_is_above_it() -> None:
    assert set(OLD) == set(floors.FLOORS)
    for name in (
        "requirements/app.lock",
        "requirements/vllm.lock",
        "requirements/verl.lock",
        "requirements/verl-vllm.lock",
    ):
        for package, version in re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / name).read_text(), re.MULTILINE):
            floor = floors.FLOORS.get(canonicalize_name(package))
            assert floor is None or Version(version) >= Version(floor), (name, package)


def test_the_floor_itself_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floors, "version", lambda asked: floors.FLOORS[asked])
    assert floors.floors_broken() == []


def test_a_local_build_is_compared_by_its_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floors, "version", lambda asked: "99.1.0+cpu")
    assert floors.floors_broken() == []


def test_a_trainer_refuses_them_too(tmp_path: Path) -> None:
    code = (
        "import sys; from training import floors; floors.FLOORS = {'torch': '999'}; "
        "from training.__main__ import main; sys.exit(main(['schema']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "torch" in done.stderr and "Traceback" not in done.stderr


def test_the_newest_redis_of_this_machine_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "redis-server"
    own.write_text("#!/bin/sh\necho 'Redis server v=7.2.4 sha=00000000:0 malloc=libc bits=64 build=0'\n")
    own.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert host.redis_bin() == str(own) and host.redis_version(str(own)) == (7, 2, 4)
    own.write_text("#!/bin/sh\necho 'Redis server v=5.0.3 sha=00000000:0'\n")
    assert host.redis_bin() != str(own)  # older than the one that we carry


@pytest.mark.parametrize(
    ("name", "least"),
    [("requirements/app", 90), ("requirements/vllm", 90), ("requirements/verl", 90), ("requirements/verl-vllm", 60)],
)
def test_every_pin_but_torch_has_its_hashes(name: str, least: int) -> None:
    lock, hashes = ((ROOT / f"{name}.{kind}").read_text() for kind in ("lock", "hashes"))
    assert pins(lock) == pins(hashes) and len(pins(lock)) > least
    for block in re.split(r"\n(?=[a-z0-9])", hashes)[1:]:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", block), block
    with pytest.raises(SystemExit, match="b==2"):
        hashed("a==1\nb==2\ntorch==3\n", "a==1 \\\n    --hash=sha256:00\nb==1 \\\n    --hash=sha256:00\n", name)


def test_an_unsupported_redis_is_reported(tmp_path: Path) -> None:
    binary = tmp_path / "redis-server"
    binary.write_text("#!/bin/sh\necho 'Redis server v=6.2.14 sha=0'\n")
    binary.chmod(0o755)
    assert "Redis 6.2.14 gets no security fixes" in old_redis(str(binary))[0]
    binary.write_text("#!/bin/sh\necho 'Redis server v=7.0.0 sha=0'\n")
    assert old_redis(str(binary)) == []


@pytest.mark.parametrize("python", ["3.11.0", "3.11.2", "3.11.9", "3.12.3", "3.13.1", "3.14.0"])
def test_the_lock_names_all_that_its_packages_ask_for(python: str) -> None:
    """Installing by hashes takes only what is named, and redis asked for a package on Debian 12's Python: no image
    could start."""
    named = {canonicalize_name(name) for name in pins((ROOT / "requirements/app.lock").read_text())} | {"torch"}
    there = {canonicalize_name(found.metadata["Name"]): found.requires or [] for found in distributions()}
    place = {"python_full_version": python, "python_version": python.rpartition(".")[0], "extra": ""}
    asked = [(name, Requirement(text)) for name in named for text in there[name]]
    needed = {
        (name, canonicalize_name(ask.name)) for name, ask in asked if not ask.marker or ask.marker.evaluate(place)
    }
    assert {(name, ask) for name, ask in needed if ask not in named} == set()
