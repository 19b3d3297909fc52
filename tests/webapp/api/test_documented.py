"""The example of docs/api.md, run as it is there against a real server."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from webapp.people.teams.models import Project, User
from webapp.people.teams.tokens import token_create
from webapp.runs.models import Run

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.django_db(transaction=True)
def test_the_example_makes_a_run(live_server: Any, project: Project, bob: User, tmp_path: Path) -> None:
    _token, text = token_create(user=bob, name="example", role="editor")
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    code = re.findall(r"```python\n(.*?)```", page, re.S)[0]
    for example, ours in {
        "http://127.0.0.1:8000": live_server.url,
        "tiltyard_…": text,
        "/projects/demo/": f"/projects/{project.slug}/",
        '"idempotency_key"': '"launch": False, "idempotency_key"',
    }.items():
        assert example in code, example
        code = code.replace(example, ours)
    (tmp_path / "job.yaml").write_text("run:\n  max_steps: 7\n")
    argv = [sys.executable, "-c", code + "\nprint(run['id'])"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
    assert Run.objects.get(pk=done.stdout.strip()).config["run"]["max_steps"] == 7
