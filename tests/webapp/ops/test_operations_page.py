"""The commands of docs/operations.md for a backup and a restore, run as they are there on the embedded database."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "operations.md"
PYTHON = ".venv/bin/python manage.py"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def commands(section: str, containing: str) -> str:
    """The one block of a section that has this word."""
    text = PAGE.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    (found,) = [block for block in re.findall(r"```\n(.*?)```", text, re.DOTALL) if containing in block]
    return str(found)


@pytest.fixture
def clone() -> Iterator[Path]:
    """A folder that looks like the clone, with a path short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="tt-") as folder:
        for name in (".venv", "manage.py"):
            (Path(folder) / name).symlink_to(ROOT / name)
        yield Path(folder)


def typed(clone: Path, data: str, line: str) -> str:
    """A line in a shell of the operator's."""
    env = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")}
    env["TILTYARD_DATA_DIR"] = str(clone / data)
    done = subprocess.run(["sh", "-euc", line], cwd=clone, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{line}\n{done.stderr[-2000:]}"
    return done.stdout


def test_the_page_makes_a_backup_and_restores_it(clone: Path) -> None:
    people = f"{PYTHON} database psql --tuples-only --command 'TABLE teams_user'"
    typed(clone, "old", f"{PYTHON} database {PYTHON} prepare_site --no-link")
    assert "Backed up 0 runs, 0 datasets, 1 people, 0 checkpoints." in typed(
        clone, "old", commands("Back up", "backup")
    )
    restore = commands("Restore", "restore")
    assert restore.endswith("restore tiltyard.tar && make up\n")
    printed = typed(clone, "new", restore.replace("make up", "true"))
    assert "Restored 0 runs, 0 datasets, 1 people, 0 checkpoints" in printed
    assert typed(clone, "new", people) == typed(clone, "old", people) != ""
    assert (clone / "new/identity").read_text() == (clone / "old/identity").read_text()
    # What `make up` does first: nothing is to be migrated, and no person is made a second time.
    typed(clone, "new", f"{PYTHON} database {PYTHON} prepare_site --no-link")
    assert typed(clone, "new", people) == typed(clone, "old", people)
