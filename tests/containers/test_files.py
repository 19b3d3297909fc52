"""What docker-compose.yml and the Dockerfiles promise, read from the files themselves. Needs no Docker."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.containers.composed import FILE, ROOT, compose_argv
from webapp.ops.compose import SECRETS, compose_init, env_read
from webapp.ops.programs import single_programs

COMPOSE: dict[str, Any] = yaml.safe_load(FILE.read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
ENVIRONMENTS = {"tools": 8101, "toolbench": 8105, "bfcl": 8103, "webshop": 8104}
SITE = {"web", "prepare", "worker", "worker-gpu", "worker-endpoint", "worker-short", "worker-long", "clock", "keeper"}
GATE = ["5432", "6379", "9000", "8101", "8105", "8103", "8104", "8200-8231"]
HERE = sorted(path.parent.name for path in (ROOT / "envs").glob("*/Dockerfile"))


def test_all_that_was_promised_is_there() -> None:
    others = {"postgres", "redis", "vllm", "sampler", "gate", "files", "prometheus"}
    assert set(SERVICES) == SITE | set(ENVIRONMENTS) | others
    profiles = {name: one["profiles"] for name, one in SERVICES.items() if "profiles" in one}
    away = {"gate": ["hosts"], "files": ["files"], "prometheus": ["monitoring"]}
    assert profiles == away | {"worker": ["cpu"], "worker-gpu": ["gpu"], "vllm": ["gpu"], "sampler": ["sampler"]}


def test_only_pages_and_the_gate_are_published_each_on_one_address() -> None:
    published = {name: one["ports"] for name, one in SERVICES.items() if "ports" in one}
    assert published == {
        "web": ["${TILTYARD_ADDRESS:-127.0.0.1}:${TILTYARD_PORT:-8000}:8000"],
        "prometheus": ["127.0.0.1:${PROMETHEUS_PORT:-9090}:9090"],
        "gate": [f"${{TILTYARD_PRIVATE_ADDRESS:-127.0.0.1}}:{port}:{port}" for port in GATE],
    }
    assert not [name for name, one in SERVICES.items() if {"network_mode", "privileged", "pid", "ipc"} & set(one)]


def test_networks_keep_environments_from_the_database_and_the_world() -> None:
    internal = {name for name, one in COMPOSE["networks"].items() if one.get("internal")}
    assert internal == {"database", "environments", "sampling"}
    for name in ENVIRONMENTS:
        assert SERVICES[name]["networks"] == ["environments"], name
    assert SERVICES["postgres"]["networks"] == SERVICES["redis"]["networks"] == ["database"]
    assert "database" not in SERVICES["vllm"]["networks"]
    inside = SITE | {"postgres", "redis", "files", "gate"}
    assert {name for name, one in SERVICES.items() if "database" in one["networks"]} == inside
    assert {name for name, one in SERVICES.items() if "private" in one["networks"]} == {"gate"}
    assert "outside" not in SERVICES["gate"]["networks"], "it listens where its one way out is"
    assert SERVICES["files"]["networks"] == ["database"] and "outside" in SERVICES["clock"]["networks"]
    allowed = COMPOSE["x-settings"]["TILTYARD_OUTBOUND_ALLOW"].split(",")
    ours = [*(f"{name}:{port}" for name, port in ENVIRONMENTS.items()), "sampler:8000"]
    assert allowed == [*ours, "${TILTYARD_OUTBOUND_ALLOW:-}"], "what the operator allows comes on top"
    # Who reaches the sampler can change what it samples with.
    assert {name for name, one in SERVICES.items() if "sampling" in one["networks"]} == {"worker-gpu", "sampler"}
    assert SERVICES["sampler"]["networks"] == ["sampling"] and SERVICES["sampler"]["volumes"] == ["data:/data:ro"]


def test_who_reads_the_volume_is_its_owner() -> None:
    """The folder is 0700 of the image's user, and root without capabilities may not enter it."""
    (owner,) = re.findall(r"^USER (\d+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert f"useradd --uid {owner} " in (ROOT / "Dockerfile").read_text()
    readers = {name for name, one in SERVICES.items() if any("/data" in item for item in one.get("volumes", []))}
    assert readers - {"postgres"} == SITE | {"sampler"}
    assert {SERVICES[name].get("user", owner) for name in SITE} == {owner} == {SERVICES["sampler"]["user"]}


def test_a_proxy_on_the_machine_is_believed_and_the_gateway_does_not_move() -> None:
    """The proxy reaches the web server by the gateway of the one network that is published."""
    ((subnet, gateway),) = [tuple(item.values()) for item in COMPOSE["networks"]["outside"]["ipam"]["config"]]
    assert (subnet, gateway) == ("${TILTYARD_SUBNET:-10.213.77}.0/24", "${TILTYARD_SUBNET:-10.213.77}.1")
    believed = COMPOSE["x-settings"]["TILTYARD_PROXY_ADDRESSES"].split(",")
    assert believed == ["127.0.0.1", "::1", gateway, "${TILTYARD_PROXY_ADDRESSES:-}"]


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_each_service_is_hardened_limited_watched_and_restarted(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True and service["cap_drop"] == ["ALL"] and service["init"] is True
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service.get("cap_add", []) == (
        [] if name != "postgres" else ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"]
    )
    assert service["mem_limit"] and service["cpus"] and service["pids_limit"] > 0
    assert service["memswap_limit"] == service["mem_limit"], "no swap on top"
    assert service["logging"]["options"] == {"max-size": "10m", "max-file": "3"}
    assert all(re.fullmatch(r"/\w+:size=\d+[mg]", item) for item in service["tmpfs"])
    assert service["tmpfs"][0].startswith("/tmp:")  # noqa: S108 - a scratch folder inside
    if name == "prepare":  # runs once
        assert service["restart"] == "on-failure:3"
    else:
        assert service["restart"] == "unless-stopped"
        assert service["stop_grace_period"]
        assert service["healthcheck"]["test"] and service["healthcheck"]["interval"]
    # No folder of the machine but our rules, so no engine socket either: named or anonymous volumes only.
    rules = {"./examples/monitoring:/etc/prometheus/tiltyard:ro"} if name == "prometheus" else set()
    volumes = set(service.get("volumes", []))
    assert rules <= volumes
    assert {volume.split(":")[0] for volume in volumes - rules if ":" in volume} <= set(COMPOSE["volumes"])


def test_trainers_have_time_to_save() -> None:
    from django.conf import settings

    seconds = int(SERVICES["worker"]["stop_grace_period"].removesuffix("s"))
    assert seconds >= settings.CELERY_WORKER_SOFT_SHUTDOWN_TIMEOUT + settings.STOP_GRACE_MAX_S
    for name in ("worker-gpu", "worker-endpoint"):
        assert SERVICES[name]["stop_grace_period"] == SERVICES["worker"]["stop_grace_period"]


def test_endpoints_are_asked_while_a_run_trains() -> None:
    """An evaluation that needs no device waited for the one that a training run had. In both profiles."""
    asking, running = SERVICES["worker-endpoint"], SERVICES["worker"]
    assert "profiles" not in asking and "deploy" not in asking
    assert asking["command"] == ["program", "worker-endpoint"] and asking["networks"] == running["networks"]
    assert asking["environment"] == running["environment"] and asking["secrets"] == running["secrets"]
    assert "/tmp/worker-endpoint" in asking["healthcheck"]["test"]  # noqa: S108 - inside the container


def texts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """All texts of a part of the file with the keys that lead there."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from texts(item, f"{path}.{key}")
    elif isinstance(value, list):
        for item in value:
            yield from texts(item, path)
    elif isinstance(value, str):
        yield path, value


def test_every_variable_of_the_file_is_documented() -> None:
    names = {name for _path, value in texts(COMPOSE) for name in re.findall(r"\$\{([A-Z_]+)", value)}
    pages = "".join((ROOT / "docs" / name).read_text() for name in ("containers.md", "settings.md"))
    assert len(names) > 20
    assert {name for name in names if f"`{name}`" not in pages} == set()


def test_images_are_ours_or_pinned() -> None:
    built = {name for name, one in SERVICES.items() if "build" in one}
    assert built == {"prepare", "worker-gpu", *ENVIRONMENTS}, "one build for each image"
    assert {SERVICES[name]["image"] for name in SITE} == {"tiltyard", "tiltyard-gpu"}
    assert SERVICES["gate"]["image"] == "tiltyard"
    foreign = {one["image"] for name, one in SERVICES.items() if name not in SITE | set(ENVIRONMENTS) | {"gate"}}
    assert foreign == {
        "${POSTGRES_IMAGE:-postgres:17}",
        "${REDIS_IMAGE:-redis:7}",
        "${FILES_IMAGE:-versity/versitygw:v1.7.0}",
        "${PROMETHEUS_IMAGE:-prom/prometheus:v3.13.5}",
        "${VLLM_IMAGE:-vllm/vllm-openai:v0.31.0}",
    }
    for name in ENVIRONMENTS:
        assert SERVICES[name]["image"] == f"tiltyard-env-{name}"
        assert SERVICES[name]["build"]["dockerfile"] == f"envs/{name}/Dockerfile"
    bases = {
        line
        for path in [ROOT / "Dockerfile", *(ROOT / "envs").glob("*/Dockerfile")]
        for line in path.read_text().splitlines()
        if line.startswith("FROM ")
    }
    assert {line.split()[1] for line in bases} == {"python:3.11-slim-bookworm"}


def test_gpu_services_ask_for_the_nvidia_driver() -> None:
    for name in ("worker-gpu", "vllm", "sampler"):
        (device,) = SERVICES[name]["deploy"]["resources"]["reservations"]["devices"]
        assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"]) and len(device["device_ids"]) == 1
    assert "deploy" not in SERVICES["worker"]


def test_each_container_of_the_site_is_a_program_and_watched_by_its_own_file() -> None:
    programs = single_programs()
    used = {name: one["command"][1] for name, one in SERVICES.items() if one.get("command", [""])[0] == "program"}
    assert set(used.values()) == set(programs)
    for name, program in used.items():
        if program != "web":
            ready = programs[program].env["TILTYARD_READY_FILE"]
            watched = ["--file", ready, "--needs", "postgres:5432", "redis:6379"]
            assert SERVICES[name]["healthcheck"]["test"] == ["CMD", "python", "envs/base/health.py", *watched]
            assert Path(ready).name == program
    assert "--host 0.0.0.0 --port 8000" in " ".join(programs["web"].argv)


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_compose_accepts_the_file(profile: str, tmp_path: Path) -> None:
    argv = compose_argv()
    if argv is None:
        pytest.skip("neither `docker compose` nor docker-compose is here")
    compose_init(tmp_path)
    with (tmp_path / ".env").open("a") as file:
        file.write("TILTYARD_TIME_ZONE=Asia/Shanghai\n")
    env = {"PATH": os.environ["PATH"], "TILTYARD_SECRETS": str(tmp_path / ".secrets"), "COMPOSE_PROFILES": profile}
    command = [*argv, "-f", str(FILE), "--env-file", str(tmp_path / ".env"), "config"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    shown = yaml.safe_load(done.stdout)
    assert shown["services"]["web"]["environment"]["TILTYARD_TIME_ZONE"] == "Asia/Shanghai", ".env reaches containers"
    assert shown["services"]["web"]["environment"].get("TILTYARD_HUB_TOKEN") is None
    assert shown["secrets"]["database_url"]["file"] == str(tmp_path / ".secrets" / "database_url")
    values = env_read((tmp_path / ".env").read_text())
    assert not [name for name in SECRETS if values[name] in done.stdout]


def test_without_secrets_nothing_starts(tmp_path: Path) -> None:
    argv = compose_argv()
    if argv is None:
        pytest.skip("neither `docker compose` nor docker-compose is here")
    (tmp_path / ".env").write_text("")
    command = [*argv, "-f", str(FILE), "--env-file", str(tmp_path / ".env"), "config"]
    done = subprocess.run(
        command, cwd=ROOT, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0 and "make compose-init" in done.stderr


# --- Dockerfiles ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", HERE)
def test_environments_share_one_dockerfile(name: str) -> None:
    pattern = (ROOT / "envs" / "tools" / "Dockerfile").read_text().replace("tools", name)
    wanted = pattern.replace("8101", str(ENVIRONMENTS[name])).splitlines()
    lines = (ROOT / "envs" / name / "Dockerfile").read_text().splitlines()
    own = [line for line in lines if line not in wanted]
    assert [line for line in lines if line in wanted] == wanted
    assert own == (["RUN pip install --no-deps -r requirements/nodeps.lock"] if name == "bfcl" else [])
    check = SERVICES[name]["healthcheck"]["test"]
    assert check == ["CMD", "python", "envs/base/health.py", "--url", f"http://127.0.0.1:{ENVIRONMENTS[name]}/health"]


@pytest.mark.parametrize("name", HERE)
def test_ports_are_those_of_the_manifests(name: str) -> None:
    manifest = yaml.safe_load((ROOT / "envs" / name / "openenv.yaml").read_text())
    assert (manifest["name"], manifest["port"]) == (name, ENVIRONMENTS[name])


def listed(path: Path) -> set[str]:
    """The names in a requirements file and in those it names, as PyPI spells them."""
    found: set[str] = set()
    for line in path.read_text().splitlines():
        if line.startswith("-r "):
            found |= listed(path.parent / line.removeprefix("-r "))
        elif line and not line.startswith("#"):
            found.add(re.split(r"[=<>~ ]", line)[0].lower())
    return found


@pytest.mark.parametrize("name", HERE)
def test_an_environment_installs_what_it_imports_as_the_lock_pins_it(name: str) -> None:
    names = listed(ROOT / "envs" / name / "requirements.txt")
    locked = listed(ROOT / "requirements/app.lock")
    assert names <= locked and "torch" not in names
    files = [
        *(ROOT / "envs").glob("*.py"),
        *(ROOT / "envs" / "base").glob("*.py"),
        *(ROOT / "envs" / name).rglob("*.py"),
    ]
    modules = {module for path in files for module in imported(path)} - set(sys.stdlib_module_names) - {"envs"}
    owners = packages_distributions()
    assert listed(ROOT / "requirements/nodeps.lock") == {"openenv", "bfcl-eval"}
    extra = {"openenv", "bfcl-eval"} if name == "bfcl" else {"openenv"}
    missing = {module for module in modules if not {one.lower() for one in owners[module]} & (names | extra)}
    assert modules and missing == set()


@pytest.mark.parametrize("name", HERE)
def test_an_environment_server_loads_no_package_that_its_image_lacks(name: str) -> None:
    """OpenEnv's page and clients were 464 of the 730 MB of each image, and no server uses them."""
    absent = ("gradio", "pandas", "openai", "PIL", "fastmcp", "mcp", "rich", "typer", "huggingface_hub", "torch")
    code = f"""
import importlib, sys
class Absent:
    def find_spec(name, *_):
        if name.split(".")[0] in {absent}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent)
import uvicorn, envs.base.server, envs.base.cli
for module in ("server", "__main__"):
    importlib.import_module("envs.{name}." + module)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_no_image_asks_for_all_that_openenv_wants() -> None:
    locked = listed(ROOT / "requirements/app.lock")
    assert not locked & {"openenv", "gradio", "openai", "fastmcp", "mcp", "pillow", "keyring", "authlib"}


def imported(path: Path) -> Iterator[str]:
    """Top-level names that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


def test_an_image_takes_in_only_what_is_named() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert lines[0] == "*"
    taken = {line[1:] for line in lines if line[0] == "!"}
    assert taken == {
        "manage.py",
        "pyproject.toml",
        "requirements/app.hashes",
        "requirements/app.lock",
        "requirements/nodeps.lock",
        "envs",
        "examples",
        "locale",
        "static",
        "templates",
        "training",
        "webapp",
    }


def test_what_an_image_takes_in_is_enough_to_start(tmp_path: Path) -> None:
    """The version is read from a file that no image had, so none could be built."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    for name in (line[1:] for line in lines if line[:1] == "!"):
        kind = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        kind(ROOT / name, tmp_path / name)
    env = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    env |= {"TILTYARD_DATA_DIR": str(tmp_path / "data"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "manage.py", "compile_catalogues"], cwd=tmp_path, env=env, capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr.decode()[-500:]


def test_the_site_runs_as_an_unprivileged_user_and_installs_before_it_copies_code() -> None:
    text = (ROOT / "Dockerfile").read_text()
    final = text.rpartition("\nFROM ")[2]
    assert "\nUSER 10001\n" in final and "HEALTHCHECK" in final
    assert final.index("COPY --from=packages") < final.index("COPY . .") < final.index("USER 10001")
    assert "pip install" not in final
