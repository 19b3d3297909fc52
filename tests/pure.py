"""What tests need that know no database: loaded by ``tests/training/pytest.ini`` and ``tests/envs/pytest.ini``.

These two files make `python -m pytest tests/training/…` start in seconds: pytest takes the configuration next to the
tests, so neither Django nor PostgreSQL nor Redis is started. Run from above (`python -m pytest tests`), the same tests
are part of the whole, with ``tests/plugin.py``.
"""

from __future__ import annotations

import gc
import os
import sys
import tomllib
from pathlib import Path

import pytest

from training.garbage import freeze
from webapp.common.host import free_port

ROOT = Path(__file__).resolve().parents[1]
pytest_plugins = ["tests.processes"]


def set_library_environment() -> None:
    """The environment of tests and of the programs that they start: nothing of the caller's own settings."""
    tools_port = free_port()
    os.environ |= {
        "TILTYARD_TEST_TOOLS_PORT": str(tools_port),
        "TILTYARD_OUTBOUND_ALLOW": f"127.0.0.1:{tools_port}",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONPATH": str(ROOT),
    }
    for name in ("TILTYARD_DEBUG", "TILTYARD_HTTPS", "TILTYARD_HOSTS", "TILTYARD_ORIGINS"):
        os.environ.pop(name, None)
    if "PYTEST_XDIST_WORKER" in os.environ:  # several processes share the cores: one thread each beats four that fight
        os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure(config: pytest.Config) -> None:
    """The markers of pyproject.toml."""
    set_library_environment()
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    for marker in options["markers"]:
        config.addinivalue_line("markers", marker)


MANY_MODULES = 150
_put_aside = 0


def _put_imports_aside() -> None:
    """Modules stay as long as the session, and each collection of garbage walks all of them: 0.3 s once torch is there.

    Trainers collect when they begin, and the interpreter does now and then, so whatever was imported is taken out of
    sight as soon as it is much.
    """
    global _put_aside
    if len(sys.modules) - _put_aside >= MANY_MODULES:
        freeze()
        _put_aside = len(sys.modules)


def pytest_collectstart() -> None:
    """While tests are imported nothing becomes garbage; again and again, because `webapp.asgi` turns it on."""
    gc.disable()


def pytest_collection_finish() -> None:
    """All tests are imported."""
    _put_imports_aside()
    gc.enable()


def pytest_runtest_teardown() -> None:
    """A test may have imported a library."""
    _put_imports_aside()
