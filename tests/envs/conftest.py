from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.envs.client import Server, running_server

TOKEN = "only-for-the-tests-0123456789"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the default limits."""
    with running_server(tmp_path_factory.mktemp("server")) as started:
        yield started


@pytest.fixture(scope="session")
def strict_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a token, two slots, and quick pings and idle limit."""
    options = ("--slots", "2", "--ping-s", "0.4", "--ping-timeout-s", "0.4", "--idle-s", "2")
    with running_server(tmp_path_factory.mktemp("strict"), *options, token=TOKEN) as started:
        yield started
