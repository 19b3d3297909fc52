"""The short way: tests of the library start without Django and without a database."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.processes import ROOT

ONE = """\
import sys, pytest
code = pytest.main(["-q", "-p", "no:cacheprovider", sys.argv[1]])
print("loaded:", sorted({"django", "celery", "torch"} & set(sys.modules)), "code:", int(code))
"""


@pytest.mark.parametrize("test", ["tests/training/dialects/test_dialects.py", "tests/envs/test_episode.py"])
def test_a_pure_test_starts_neither_django_nor_a_database(test: str) -> None:
    env = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", ONE, test], cwd=ROOT, env=env, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.splitlines()[-1] == "loaded: [] code: 0", done.stdout[-2000:] + done.stderr[-2000:]
