"""A web host and its training hosts: what docker-compose.train.yml promises, and what `make web-host` and `make
training-host` write. Needs no Docker."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.containers.composed import ROOT, compose_argv
from tests.containers.test_files import COMPOSE, ENVIRONMENTS, GATE, SERVICES, texts
from tests.containers.test_init import mode
from webapp.ops import compose
from webapp.ops.compose import SECRETS, STORE, compose_init, env_read, training_host, web_host

TRAIN_FILE = ROOT / "docker-compose.train.yml"
TRAIN: dict[str, Any] = yaml.safe_load(TRAIN_FILE.read_text())
ADDRESS = "10.8.0.1"
OPERATORS = """# ours
EMAIL_HOST_PASSWORD=mail
export HF_TOKEN='hub'
WANDB_API_KEY=wandb
TILTYARD_OIDC_CLIENT_SECRET=login
TILTYARD_HUB_TOKEN=push
TILTYARD_METRICS_TOKEN=figures-of-the-site
TILTYARD_LEASE_TTL_S=40
TILTYARD_OUTBOUND_ALLOW=mine:8110
TILTYARD_ADDRESS=127.0.0.1
TRAIN_MEMORY=4g
POSTGRES_IMAGE=postgres:17
BUILD_NETWORK=host
OF_SOMETHING_ELSE=x
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A clone's folder with what the commands read, after `make compose-init`."""
    (tmp_path / ".env").write_text(OPERATORS)
    shutil.copy(ROOT / "docker-compose.yml", tmp_path)
    compose_init(tmp_path)
    return tmp_path


def values_of(path: Path) -> dict[str, str]:
    return env_read(path.read_text())


# --- The files --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["x-hardened", "x-settings", "x-asking", "x-keys"])
def test_both_files_have_the_same_settings(name: str) -> None:
    assert TRAIN[name] == COMPOSE[name]


@pytest.mark.parametrize("name", ["worker", "worker-gpu"])
def test_a_training_host_s_worker_is_that_of_one_machine_but_for_where_it_finds_what_it_needs(name: str) -> None:
    there, here = TRAIN["services"][name], SERVICES[name]
    own = {"extra_hosts", "hostname", "build"}
    assert {key: value for key, value in there.items() if key not in own} == {
        key: value for key, value in here.items() if key not in {"networks", "depends_on", "build"}
    }
    assert there["build"]["args"].keys() == COMPOSE["services"]["prepare"]["build"]["args"].keys()
    built = SERVICES["prepare" if name == "worker" else name]["build"]
    assert {**there["build"], "args": 0} == {**built, "args": 0} and there["build"]["args"] == built["args"]


def test_a_training_host_runs_workers_alone_and_publishes_nothing() -> None:
    assert set(TRAIN["services"]) == {"worker", "worker-gpu"} and set(TRAIN["volumes"]) == {"data"}
    for one in TRAIN["services"].values():
        assert not {"ports", "networks", "network_mode", "privileged", "depends_on"} & set(one)
    assert {name: one["file"] for name, one in TRAIN["secrets"].items()} == {
        name: COMPOSE["secrets"][name]["file"] for name in TRAIN["services"]["worker"]["secrets"]
    }


def test_it_reaches_by_the_same_names_what_the_gate_passes_on() -> None:
    passed = dict(word.split(":") for word in SERVICES["gate"]["command"])
    assert list(passed.values()) == GATE
    assert passed["keeper"] == SERVICES["keeper"]["environment"]["TILTYARD_REPLICA_PORTS"]
    assert passed.keys() == TRAIN["services"]["worker"]["extra_hosts"].keys()
    assert {name: passed[name] for name in ENVIRONMENTS} == {name: str(port) for name, port in ENVIRONMENTS.items()}
    (away,) = set(TRAIN["services"]["worker"]["extra_hosts"].values())
    assert away.startswith("${TILTYARD_PRIVATE_ADDRESS:?")
    assert STORE["TILTYARD_FILES_ENDPOINT"] == f"http://files:{passed['files']}"
    assert f":{passed['files']}" in SERVICES["files"]["command"]
    bucket = STORE["TILTYARD_FILES"].removeprefix("s3://").partition("/")[0]
    start = SERVICES["files"]["entrypoint"][2]
    assert f"/files/{bucket}\n" in start and f"ROOT_ACCESS_KEY_ID={STORE['TILTYARD_FILES_KEY_ID']} " in start


def test_every_variable_of_the_training_file_is_documented() -> None:
    names = {name for _path, value in texts(TRAIN) for name in re.findall(r"\$\{([A-Z_]+)", value)}
    pages = "".join((ROOT / "docs" / name).read_text() for name in ("containers.md", "settings.md"))
    assert {"TRAIN_HOST", "TILTYARD_PRIVATE_ADDRESS"} <= names
    assert {name for name in names if f"`{name}`" not in pages} == set()


@pytest.mark.parametrize(("profile", "service"), [("cpu", "worker"), ("gpu", "worker-gpu")])
def test_compose_accepts_what_the_commands_write(profile: str, service: str, root: Path, tmp_path_factory: Any) -> None:
    """By the commands' own files alone: compose finds the training file by `.env`, in the folder where it is."""
    argv = compose_argv()
    if argv is None:
        pytest.skip("neither `docker compose` nor docker-compose is here")
    web_host(root, ADDRESS)
    there = tmp_path_factory.mktemp("there")
    text = training_host(root, "gpu-1").read_text().replace("COMPOSE_PROFILES=gpu", f"COMPOSE_PROFILES={profile}")
    (there / ".env").write_text(text)
    shutil.copy(TRAIN_FILE, there)
    compose_init(there)
    done = subprocess.run([*argv, "config"], cwd=there, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shown = yaml.safe_load(done.stdout)
    one = shown["services"][service]
    assert one["hostname"] == "gpu-1" and one["environment"]["TILTYARD_LEASE_TTL_S"] == "40"
    assert one["environment"]["TILTYARD_FILES"] == STORE["TILTYARD_FILES"] and one["environment"]["HF_TOKEN"] == "hub"
    assert not [name for name in (*SECRETS, "TILTYARD_FILES_SECRET") if values_of(there / ".env")[name] in done.stdout]
    for name, each in shown["secrets"].items():
        assert Path(each["file"]).read_text() == (root / ".secrets" / name).read_text(), name
    on_web_host = subprocess.run(
        [*argv, "config"], cwd=root, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True
    )
    ports = str(yaml.safe_load(on_web_host.stdout)["services"]["gate"]["ports"])
    assert on_web_host.returncode == 0 and ADDRESS in ports and "0.0.0.0" not in ports


def test_both_pages_say_the_same_to_type() -> None:
    """docs/containers.md's lines are those that test_hosts.py types."""
    text = {name: (ROOT / "docs" / name).read_text() for name in ("containers.md", "scale.md")}
    blocks = re.findall(r"^```sh\n(.*?)^```$", text["scale.md"], re.DOTALL | re.MULTILINE)
    typed = [one for one in blocks if "make" in one]
    assert len(typed) == 2 and all(f"```\n{one}```\n" in text["containers.md"] for one in typed)


# --- The commands -----------------------------------------------------------------------------------------------------
def test_a_web_host_gets_an_address_a_store_and_no_worker_that_trains(root: Path) -> None:
    before = values_of(root / ".env")
    changed = web_host(root, ADDRESS)
    secret = changed["TILTYARD_FILES_SECRET"]
    assert len(secret) >= 50 and changed == STORE | {
        "TILTYARD_PRIVATE_ADDRESS": ADDRESS,
        "TILTYARD_FILES_SECRET": secret,
        "COMPOSE_PROFILES": "hosts,files",
    }
    assert values_of(root / ".env") == before | changed and mode(root / ".env") == 0o600
    assert (root / ".env").read_text().startswith(OPERATORS)
    assert (root / ".secrets/tiltyard_files_secret").read_text() == secret
    assert web_host(root, ADDRESS) == {} and web_host(root, "10.8.0.2") == {"TILTYARD_PRIVATE_ADDRESS": "10.8.0.2"}
    assert (root / ".env").read_text().count("TILTYARD_PRIVATE_ADDRESS") == 1 and compose_init(root) == []
    assert (root / ".secrets/tiltyard_files_secret").read_text() == secret


@pytest.mark.parametrize(
    ("before", "after"),
    [("gpu", "gpu,hosts"), ("", "hosts"), ("cpu,hosts", "cpu,hosts"), ("cpu,gpu,sampler", "gpu,sampler,hosts")],
)
def test_a_store_of_the_operators_stays_and_so_do_other_profiles(before: str, after: str, tmp_path: Path) -> None:
    own = "TILTYARD_FILES=s3://ours/x\nTILTYARD_FILES_SECRET=of-amazon\n"
    (tmp_path / ".env").write_text(f"{own}COMPOSE_PROFILES={before}\n")
    compose_init(tmp_path)
    web_host(tmp_path, ADDRESS)
    values = values_of(tmp_path / ".env")
    assert values["COMPOSE_PROFILES"] == after and values["TILTYARD_FILES"] == "s3://ours/x"
    assert "TILTYARD_FILES_ENDPOINT" not in values
    assert (tmp_path / ".secrets/tiltyard_files_secret").read_text() == "of-amazon"


@pytest.mark.parametrize("address", ["0.0.0.0", "127.0.0.1", "8.8.8.8", "224.0.0.1", "web", "", "10.8.0.0/24"])
def test_only_an_address_of_a_private_network_is_taken(address: str, root: Path) -> None:
    before = (root / ".env").read_text()
    with pytest.raises(ValueError, match="private network"):
        web_host(root, address)
    assert (root / ".env").read_text() == before


def test_a_training_host_gets_what_its_worker_needs_and_no_more(root: Path) -> None:
    with pytest.raises(ValueError, match="make web-host"):
        training_host(root, "gpu-1")
    web_host(root, ADDRESS)
    path = training_host(root, "gpu-1")
    assert path == root / "gpu-1.env" and mode(path) == 0o600
    values, site = values_of(path), values_of(root / ".env")
    own = {
        "COMPOSE_FILE": TRAIN_FILE.name,
        "COMPOSE_PROJECT_NAME": "tiltyard",
        "COMPOSE_PROFILES": "gpu",
        "TILTYARD_SECRETS": "./.secrets",
        "TRAIN_HOST": "gpu-1",
    }
    taken = {"HF_TOKEN", "BUILD_NETWORK", "WANDB_API_KEY", "TILTYARD_LEASE_TTL_S", "TILTYARD_OUTBOUND_ALLOW"}
    taken |= {*STORE, *compose.SHARED}
    assert values == {name: site[name] for name in taken} | own
    passed = {name for name, value in COMPOSE["x-settings"].items() if value is None} | set(COMPOSE["x-keys"])
    assert {name for name in passed if not name.endswith("_FILE")} <= set(
        compose.worker_settings((root / "docker-compose.yml").read_text())
    )
    assert training_host(root, "gpu-1") == path, "again"
    for name in ("", "-a", "a b", "A", "../x", "a" * 64):
        with pytest.raises(ValueError, match="name of a host"):
            training_host(root, name)


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        ([], 0, "login_link"),
        (["--web-host", ADDRESS], 0, "make training-host NAME="),
        (["--web-host", "0.0.0.0"], 1, "WireGuard"),
        (["--training-host", "gpu-1"], 1, "make web-host"),
    ],
)
def test_the_commands_say_what_comes_next(
    argv: list[str], code: int, said: str, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(root)
    assert compose.main(argv) == code
    shown = capsys.readouterr()
    assert said in (shown.err if code else shown.out)
    if not code:
        assert compose.main(["--web-host", ADDRESS]) == 0 == compose.main(["--training-host", "gpu-1"])
        assert "as .env" in capsys.readouterr().out
        (root / "gpu-1.env").rename(root / ".env")
        assert compose.main([]) == 0 and "login_link" not in capsys.readouterr().out
