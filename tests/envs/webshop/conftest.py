from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from envs.webshop.catalogue import load_catalogue
from envs.webshop.generator import generated_catalogue
from envs.webshop.session import Shop
from tests.envs.client import Server
from tests.envs.webshop.servers import running_shop

SEED_DATA = Path(__file__).resolve().parents[4] / "shared" / "data" / "seed4_webshop"


@pytest.fixture(scope="session")
def webshop_data() -> Path:
    """The real files, where this machine has them."""
    folder = SEED_DATA / "webshop_1000"
    if not folder.is_dir():
        pytest.skip(f"the real WebShop data is not on this machine ({folder})")
    return folder


@pytest.fixture(scope="session")
def real_shop(webshop_data: Path) -> Shop:
    return Shop(load_catalogue(webshop_data))


@pytest.fixture(scope="session")
def shop() -> Shop:
    """A small generated shop."""
    return Shop(generated_catalogue(200))


@pytest.fixture(scope="session")
def shop_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_shop(tmp_path_factory.mktemp("webshop"), "--products", "200") as started:
        yield started


@pytest.fixture
def strict_shop(tmp_path: Path) -> Iterator[Server]:
    """Two slots, a token, and sessions that expire after two seconds."""
    options = ("--products", "50", "--slots", "2", "--idle-s", "2")
    with running_shop(tmp_path, *options, token="only-for-the-tests-0123456789") as started:
        yield started
