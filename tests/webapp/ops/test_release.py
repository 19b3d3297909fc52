"""``make release``: what it makes in a clone of a bare repository, what it refuses, and what a failure leaves."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from webapp.ops import release as module
from webapp.ops.release import ROOT, NotReleased, release

CHANGES = """\
# Changelog

## 0.3.0 (unreleased)

### Added

- Releases.

## 0.1.0 (2026-01-02)

- The beginning.
"""
CLIENT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "tiltyard-client"
version = "0.2.0"
license = "Apache-2.0"

[tool.setuptools]
packages = ["tiltyard_client"]
"""


def git(root: Path, *arguments: str) -> str:
    who = ["-c", "user.name=alice", "-c", "user.email=alice@example.com"]
    return subprocess.run(
        ["git", *who, *arguments], cwd=root, capture_output=True, text=True, check=True, timeout=60
    ).stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A clone of a bare repository, with one commit on main that was pushed there."""
    bare, root = tmp_path / "bare.git", tmp_path / "checkout"
    git(tmp_path, "init", "--quiet", "--bare", "--initial-branch=main", str(bare))
    git(tmp_path, "clone", "--quiet", str(bare), str(root))
    git(root, "checkout", "--quiet", "-B", "main")
    for name, value in (("user.name", "alice"), ("user.email", "alice@example.com")):
        git(root, "config", name, value)
    (root / "client" / "tiltyard_client").mkdir(parents=True)
    (root / "client" / "tiltyard_client" / "__init__.py").write_text("")
    (root / "client" / "pyproject.toml").write_text(CLIENT)
    (root / "pyproject.toml").write_text('[project]\nname = "tiltyard"\nversion = "0.2.0"\n')
    (root / "CHANGELOG.md").write_text(CHANGES)
    (root / ".gitignore").write_text("dist/\n*.egg-info/\n")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "-m", "Begin")
    git(root, "push", "--quiet", "origin", "main")
    return root


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel without the minute that pip takes for a real one."""

    def wheel(root: Path) -> Path:
        (root / "dist").mkdir()
        (made := root / "dist" / "tiltyard_client-0.3.0-py3-none-any.whl").write_bytes(b"")
        return made

    monkeypatch.setattr(module, "_build_wheel", wheel)


def test_a_release_is_a_commit_and_a_tag_that_a_push_publishes(checkout: Path, built: None) -> None:
    made = release(checkout, "0.3.0", images=False)
    assert made == ["commit and tag v0.3.0", "dist/tiltyard_client-0.3.0-py3-none-any.whl", "dist/notes-0.3.0.md"]
    today = datetime.now(UTC).date().isoformat()
    assert f"## 0.3.0 ({today})\n" in (checkout / "CHANGELOG.md").read_text()
    assert '"0.3.0"' in (checkout / "pyproject.toml").read_text()
    assert '"0.3.0"' in (checkout / "client" / "pyproject.toml").read_text()
    assert git(checkout, "status", "--porcelain") == ""
    assert git(checkout, "log", "--format=%s").splitlines() == ["Release 0.3.0", "Begin"]
    git(checkout, "push", "--quiet", "--follow-tags", "origin", "main")
    bare = checkout.parent / "bare.git"
    assert git(bare, "tag", "--list").split() == ["v0.3.0"]
    assert git(bare, "rev-parse", "v0.3.0^{commit}") == git(checkout, "rev-parse", "main")
    message = git(bare, "tag", "--list", "--format=%(contents)", "v0.3.0")
    assert message.split("\n")[0] == "Tiltyard 0.3.0" and "### Added\n\n- Releases." in message
    assert "The beginning" not in message
    with pytest.raises(NotReleased, match=r"0\.3\.0 is not newer than the last release, 0\.3\.0"):
        release(checkout, "0.3.0", images=False)


@pytest.mark.parametrize("version", ["0.3", "v0.3.0", "0.3.0rc1", "next", "", "0.3.0.1"])
def test_a_version_is_three_numbers(checkout: Path, built: None, version: str) -> None:
    with pytest.raises(NotReleased, match="three numbers"):
        release(checkout, version, images=False)


def test_what_is_not_ready_is_refused_and_stays_as_it_was(checkout: Path, built: None) -> None:
    with pytest.raises(NotReleased, match=r"no section \"## 0\.4\.0 \(unreleased\)\""):
        release(checkout, "0.4.0", images=False)
    (checkout / "new.txt").write_text("x")
    with pytest.raises(NotReleased, match=r"1 files are not committed, new\.txt among them"):
        release(checkout, "0.3.0", images=False)
    (checkout / "new.txt").unlink()
    git(checkout, "checkout", "--quiet", "-b", "other")
    with pytest.raises(NotReleased, match="Releases are made on main; this is other"):
        release(checkout, "0.3.0", images=False)
    assert git(checkout, "log", "--format=%s").splitlines() == ["Begin"] and git(checkout, "tag") == ""


def test_a_wheel_that_cannot_be_built_leaves_no_trace(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (checkout / "client" / "pyproject.toml").write_text(CLIENT.replace("setuptools.build_meta", "no.such.backend"))
    git(checkout, "commit", "--quiet", "--all", "-m", "Break the build")
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "1")
    with pytest.raises(NotReleased, match=r"-m pip ended with \d"):
        release(checkout, "0.3.0", images=False)
    assert git(checkout, "status", "--porcelain") == "" and git(checkout, "tag") == ""
    assert "(unreleased)" in (checkout / "CHANGELOG.md").read_text()


@pytest.mark.slow
def test_the_wheel_of_the_real_client_has_its_licence_and_its_texts(checkout: Path) -> None:
    """By pip, which fetches from the package registry what the build itself needs."""
    shutil.rmtree(checkout / "client")
    shutil.copytree(ROOT / "client", checkout / "client", ignore=shutil.ignore_patterns("build", "*.egg-info"))
    git(checkout, "add", "--all")
    git(checkout, "commit", "--quiet", "-m", "Add the client")
    release(checkout, "0.3.0", images=False)
    [wheel] = (checkout / "dist").glob("*.whl")
    assert wheel.name == "tiltyard_client-0.3.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        about = archive.read("tiltyard_client-0.3.0.dist-info/METADATA").decode()
    assert "License-Expression: Apache-2.0" in about
    assert "tiltyard_client-0.3.0.dist-info/licenses/LICENSE" in names
    assert "tiltyard_client/locale/zh_Hans/LC_MESSAGES/tiltyard.po" in names
    assert git(checkout, "status", "--porcelain") == ""
