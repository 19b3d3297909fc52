from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from envs.toolbench.bench import Bench, Data, open_bench
from tests.envs.client import Server
from tests.envs.conftest import TOKEN
from tests.envs.toolbench.builders import DATA_OPTIONS, write_data
from tests.envs.toolbench.servers import running_toolbench


@pytest.fixture(scope="session")
def real(seed_data: Path) -> Path:
    """ToolBench's real files, where this machine has them."""
    folder = seed_data / "seed0_toolbench"
    if not folder.is_dir():
        pytest.skip(f"ToolBench's real data is not on this machine ({folder})")
    return folder


@pytest.fixture(scope="session")
def real_data(real: Path) -> Data:
    files = sorted((real / "stabletoolbench/solvable_queries/test_instruction").glob("*.json"))
    return Data(real / "derived/tools", real / "derived/tool_response_cache", tuple(files))


@pytest.fixture(scope="session")
def real_bench(real_data: Data) -> Bench:
    return open_bench(real_data)


@pytest.fixture(scope="session")
def world() -> Bench:
    return open_bench()


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few files in upstream's layout, by hand."""
    return write_data(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="session")
def bench(files: Path) -> Bench:
    return open_bench(Data(files / "tools", files / "cache", (files / "queries.json",)))


@pytest.fixture(scope="session")
def file_server(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the files by hand."""
    options = [word.format(files=files) for word in DATA_OPTIONS]
    with running_toolbench(tmp_path_factory.mktemp("toolbench"), *options) as started:
        yield started


@pytest.fixture(scope="session")
def guarded_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Our own world behind a token, with two slots."""
    with running_toolbench(tmp_path_factory.mktemp("guarded"), "--slots", "2", token=TOKEN) as started:
        yield started
