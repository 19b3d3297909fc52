"""``make release VERSION=0.3.0``: make a release of this checkout. Nothing leaves the machine.

1. Refuse what could not be published: another branch than main, changes that are not committed, a version that is not
   newer than the last tag, a changelog without the section ``## VERSION (unreleased)``.
2. Write the version into both pyproject files and today's date into the changelog.
3. Build the client's wheel and the section of the changelog into ``dist/``. A failure restores the files of step 2.
4. Commit, and tag the commit ``vVERSION``; the section is the tag's message.
5. Build the images of docker-compose.yml and name them after the version too, where a Docker engine answers.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parents[2]
PROJECTS = ("pyproject.toml", "client/pyproject.toml")
CHANGELOG, DIST = "CHANGELOG.md", "dist"
IMAGE_LIMIT_S, BUILD_LIMIT_S, GIT_LIMIT_S = 3600, 600, 60


class NotReleased(Exception):
    """Why a checkout cannot be released, as one sentence."""


def release(root: Path, version: str, *, images: bool = True) -> list[str]:
    """Make the release; returns a line for each thing that was made. Raises ``NotReleased``."""
    _check_release(root, version)
    section = unreleased(root, version)
    try:
        _write_version(root, version)
        wheel = _build_wheel(root)
        (root / DIST / f"notes-{version}.md").write_text(section, encoding="utf-8")
    except Exception:
        _run_git(root, "checkout", "--", *PROJECTS, CHANGELOG)
        raise
    _run_git(root, "commit", "--quiet", "-m", f"Release {version}", "--", *PROJECTS, CHANGELOG)
    # Headings begin with the sign of a comment, which git would take out of the message.
    _run_git(root, "tag", "--annotate", "--cleanup=verbatim", "-m", f"Tiltyard {version}\n\n{section}", f"v{version}")
    made = [f"commit and tag v{version}", f"{DIST}/{wheel.name}", f"{DIST}/notes-{version}.md"]
    return made + (_build_images(root, version) if images else [])


def unreleased(root: Path, version: str) -> str:
    """The changelog's section of a version that has no date yet. Raises ``NotReleased``."""
    text = (root / CHANGELOG).read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(version)} \(unreleased\)\n+(.*?)(?=^## |\Z)", text, re.M | re.S)
    if not found or not found[1].strip():
        raise NotReleased(f'{CHANGELOG} has no section "## {version} (unreleased)" with what changed.')
    return found[1].strip() + "\n"


def _check_release(root: Path, version: str) -> None:
    try:
        newest = max((Version(tag[1:]) for tag in _run_git(root, "tag", "--list", "v*").split()), default=Version("0"))
        asked = Version(version)
    except InvalidVersion as exc:
        raise NotReleased(f"{exc}. A version is three numbers: 0.3.0.") from exc
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise NotReleased(f"{version} is not a version of three numbers, such as 0.3.0.")
    if asked <= newest:
        raise NotReleased(f"{version} is not newer than the last release, {newest}.")
    if (branch := _run_git(root, "branch", "--show-current").strip()) != "main":
        raise NotReleased(f"Releases are made on main; this is {branch or 'no branch'}.")
    if changed := _run_git(root, "status", "--porcelain").splitlines():
        raise NotReleased(f"{len(changed)} files are not committed, {changed[0][3:]} among them.")


def _write_version(root: Path, version: str) -> None:
    for name in PROJECTS:
        path = root / name
        text, changed = re.subn(r'^version = "[^"]+"$', f'version = "{version}"', path.read_text("utf-8"), flags=re.M)
        if changed != 1:
            raise NotReleased(f"{name} has {changed} versions where it should have one.")
        path.write_text(text, encoding="utf-8")
    path = root / CHANGELOG
    dated = f"## {version} ({datetime.now(UTC).date().isoformat()})"
    path.write_text(path.read_text("utf-8").replace(f"## {version} (unreleased)", dated, 1), encoding="utf-8")


def _build_wheel(root: Path) -> Path:
    """The client's wheel, alone in a new ``dist/``."""
    shutil.rmtree(root / DIST, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    _run_command(root, [*pip, "--wheel-dir", str(root / DIST), "./client"], BUILD_LIMIT_S)
    shutil.rmtree(root / "client" / "build", ignore_errors=True)  # what setuptools leaves in the checkout
    return next((root / DIST).glob("*.whl"))


def _build_images(root: Path, version: str) -> list[str]:
    try:
        _run_command(root, ["docker", "info"], GIT_LIMIT_S)
    except (NotReleased, OSError):
        return ["no images: no Docker engine answers here"]
    _run_command(root, ["docker", "compose", "build"], IMAGE_LIMIT_S)
    names = _run_command(root, ["docker", "compose", "config", "--images"], GIT_LIMIT_S).split()
    own = sorted(name for name in set(names) if name.startswith("tiltyard"))
    for name in own:
        _run_command(root, ["docker", "tag", name, f"{name}:{version}"], GIT_LIMIT_S)
    return [f"{name}:{version}" for name in own]


def _run_git(root: Path, *arguments: str) -> str:
    return _run_command(root, ["git", *arguments], GIT_LIMIT_S)


def _run_command(root: Path, command: Sequence[str], limit_s: float) -> str:
    done = subprocess.run(list(command), cwd=root, capture_output=True, text=True, timeout=limit_s)
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["it printed nothing"]
        raise NotReleased(f"{' '.join(command[:3])} ended with {done.returncode}: {last[0]}")
    return done.stdout


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the release and print what was made, and how to publish it; exit code 1 where it cannot be made."""
    parser = argparse.ArgumentParser(description="Make a release of this checkout.")
    parser.add_argument("version", help="three numbers, such as 0.3.0")
    parser.add_argument("--no-images", action="store_true", help="leave the images of docker-compose.yml out")
    asked = parser.parse_args(arguments)
    try:
        made = release(ROOT, asked.version, images=not asked.no_images)
    except NotReleased as exc:
        print(exc, file=sys.stderr)
        return 1
    print("Made:", *made, sep="\n  ")
    print("Publish it: git push --follow-tags, then dist/ and the images.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
