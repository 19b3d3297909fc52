from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator

import pytest

from envs.bfcl.package import installed_version
from tests.envs.client import ROOT, Server, port_of


@pytest.fixture(scope="session", autouse=True)
def package() -> None:
    """Every test here needs BFCL's own classes and data."""
    if importlib.util.find_spec("bfcl_eval") is None:
        pytest.skip("bfcl-eval is not installed: pip install --no-deps bfcl-eval==2025.6.8")
    if installed_version() != "v3":
        pytest.skip("texts and counts here are v3's; `python -m envs.bfcl validate` proves any version")


@pytest.fixture(scope="session")
def bfcl_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of this environment on a free port."""
    log = tmp_path_factory.mktemp("bfcl") / "server.log"
    with log.open("wb") as stderr:
        process = subprocess.Popen([sys.executable, "-m", "envs.bfcl", "--port", "0"], cwd=ROOT, stderr=stderr)
    try:
        yield Server(process, log, port_of(log, process))
    finally:
        process.terminate()
        process.wait(10)
