"""A web host and a training host for real, as docs/containers.md says to start them: each has a Docker engine and a
network of its own, and they reach each other by a link with one address at each end. A run outlives the loss of either.

Needs root, dockerd and the command ip. Where the image of the S3 server cannot be had, a small one of ours takes its
place (files_server.py).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.containers.browsing import Visitor
from tests.containers.composed import ROOT, Composed, compose_argv, docker, docker_answers
from tests.containers.test_training import ENDED, RUN_LIMIT_S, chromium, config_of, rollouts, task_rows
from tests.processes import running
from webapp.common.host import free_port
from webapp.ops.compose import env_read

pytestmark = [pytest.mark.docker, pytest.mark.timeout(3600)]
PROJECT = "tiltyard-hosts"
WEB, TRAIN = "198.51.100.65", "198.51.100.66"
FILES_IMAGE = "tiltyard-tests-files"
STEPS = 40
START_LIMIT_S, TYPED_LIMIT_S = 600, 900
CLONE = ("Makefile", "docker-compose.yml", "docker-compose.train.yml", "webapp/ops/compose.py")


class Host:
    """A machine with a clone, an engine, and what an operator types there."""

    def __init__(self, folder: Path, **env: str) -> None:
        for name in CLONE:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
        outer = {name: value for name, value in os.environ.items() if not name.startswith(("TILTYARD_", "COMPOSE_"))}
        self.folder, self.env = folder, outer | {"COMPOSE_PROJECT_NAME": PROJECT} | env

    def typed(self, lines: str) -> str:
        """The output of lines of a page in the shell of the clone's folder."""
        argv = compose_argv()
        assert argv is not None
        lines = re.sub(r"\bdocker compose\b", " ".join(argv), lines)
        done = subprocess.run(
            ["sh", "-euc", lines],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=TYPED_LIMIT_S,
        )
        assert done.returncode == 0, f"{lines}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def containers(self, *more: str) -> list[str]:
        """Ids of the site's containers here."""
        label = f"label=com.docker.compose.project={PROJECT}"
        return self.typed(f"docker ps --quiet --filter {label} {' '.join(more)}").split()

    def healthy(self, limit_s: float = START_LIMIT_S) -> None:
        """Wait until all that has a health has a good one."""
        deadline = time.monotonic() + limit_s
        while self.containers("--filter health=starting") or self.containers("--filter health=unhealthy"):
            shown = self.typed("docker ps --all --format '{{.Names}} {{.Status}}'")
            assert time.monotonic() < deadline, f"not healthy:\n{shown}"
            time.sleep(1)

    def lose(self) -> None:
        """All containers at once, as when the power fails."""
        self.typed(f"docker kill {' '.join(self.containers())}")

    def down(self) -> None:
        """Remove it with its volumes, also where it did not start."""
        chosen = f"--quiet --filter label=com.docker.compose.project={PROJECT} | xargs --no-run-if-empty docker"
        self.typed(f"docker ps --all {chosen} rm --force --volumes")
        self.typed(f"docker volume ls {chosen} volume rm --force && docker network ls {chosen} network rm")


def block(containing: str) -> str:
    """The one block of docs/containers.md with these words."""
    blocks = re.findall(r"^```\n(.*?)^```$", (ROOT / "docs/containers.md").read_text(), re.DOTALL | re.MULTILINE)
    (found,) = [one for one in blocks if containing in one]
    return str(found)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@contextmanager
def linked(namespace: str) -> Iterator[None]:
    """A network of its own, linked to this one."""
    try:
        ip("netns", "add", namespace)
        ip("link", "add", namespace, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        ip("addr", "add", f"{WEB}/30", "dev", namespace)
        ip("link", "set", namespace, "up")
        ip("-n", namespace, "addr", "add", f"{TRAIN}/30", "dev", "eth0")
        for device in ("lo", "eth0"):
            ip("-n", namespace, "link", "set", device, "up")
        ip("-n", namespace, "route", "add", "default", "via", WEB)
        yield
    finally:
        subprocess.run(["ip", "netns", "del", namespace], check=False, capture_output=True)


@contextmanager
def engine(namespace: str) -> Iterator[str]:
    """The address of a Docker engine in that network, with a store of its own."""
    folder = Path(tempfile.mkdtemp(prefix="tiltyard-engine-", dir="/var/tmp"))
    address = f"unix://{folder}/docker.sock"
    # `ip netns exec` would hide the cgroups: it mounts /sys again.
    argv = ["nsenter", f"--net=/run/netns/{namespace}", "dockerd", "--host", address, "--pidfile", f"{folder}/pid"]
    argv += ["--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec"]
    try:
        with running(argv, folder / "log"):
            deadline = time.monotonic() + 60
            while subprocess.run(["docker", "--host", address, "info"], capture_output=True).returncode:
                assert time.monotonic() < deadline, (folder / "log").read_text()[-3000:]
                time.sleep(0.5)
            yield address
    finally:
        for mount in Path("/proc/mounts").read_text().splitlines():
            if str(folder) in (place := mount.split()[1]):
                subprocess.run(["umount", "--lazy", place], check=False)
        shutil.rmtree(folder, ignore_errors=True)


def files_image() -> str:
    """The image of the S3 server: the one of docker-compose.yml where it is here or can be had, else ours."""
    (named,) = re.findall(r"FILES_IMAGE:-([^}]+)", (ROOT / "docker-compose.yml").read_text())
    if not subprocess.run(["docker", "image", "inspect", named], capture_output=True).returncode:
        return str(named)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(Path(__file__).with_name("files_server.py"), folder)
        fetch = "import sys, urllib.request as r; r.urlopen(sys.argv[-1], timeout=4)"
        (Path(folder) / "Dockerfile").write_text(
            "FROM python:3.11-slim-bookworm\n"
            "COPY files_server.py /\n"
            "RUN printf '#!/bin/sh\\nexec python /files_server.py \"$@\"\\n' > /usr/local/bin/versitygw"
            f' && printf \'#!/bin/sh\\nexec python -c "{fetch}" "$@"\\n\' > /usr/local/bin/wget'
            " && chmod +x /usr/local/bin/*\n"
        )
        docker("build", "--network", "host", "--tag", FILES_IMAGE, folder)
    return FILES_IMAGE


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Host, Host]]:
    """The web host and the training host, started by the lines of the page."""
    if not docker_answers() or os.geteuid() or not shutil.which("dockerd") or not shutil.which("ip"):
        pytest.skip("needs a Docker engine, root, dockerd and the command ip")
    Composed(tmp_path_factory.mktemp("build")).build()
    web = Host(
        tmp_path_factory.mktemp("web"),
        TILTYARD_PORT=str(free_port()),
        TILTYARD_SUBNET="10.213.79",
        FILES_IMAGE=files_image(),
    )
    namespace = f"tilt{os.getpid() % 100_000}"
    with linked(namespace), engine(namespace) as address:
        train = Host(tmp_path_factory.mktemp("train"), DOCKER_HOST=address)
        saved = "docker save tiltyard | docker --host"
        subprocess.run(["sh", "-euc", f"{saved} {address} load --quiet"], check=True, capture_output=True, timeout=900)
        try:
            web.typed(block("make web-host").replace("10.8.0.1", WEB))
            secrets = f"cp {web.folder}/gpu-1.env .env\nsed -i s/^COMPOSE_PROFILES=gpu/COMPOSE_PROFILES=cpu/ .env\n"
            train.typed(block("scp web:").replace("scp web:tiltyard/gpu-1.env .env\n", secrets))
            web.healthy()
            train.healthy()
            yield web, train
        finally:
            for host in (train, web):
                host.down()


@pytest.fixture(scope="module")
def visitor(hosts: tuple[Host, Host]) -> Visitor:
    """A person who used the documented way in."""
    link = hosts[0].typed("docker compose exec -T web python manage.py login_link").strip()
    return Visitor(link)


@pytest.fixture(scope="module")
def slug(visitor: Visitor) -> str:
    """A project with an environment and a dataset."""
    slug = str(visitor.get("projects")["items"][0]["slug"])
    made = visitor.post(f"projects/{slug}/environments", name="webshop", url="http://webshop:8104")
    assert made["healthy"] is True
    sent = {"file": ("webshop.jsonl", "\n".join(task_rows("webshop")).encode())}
    dataset = visitor.post(f"projects/{slug}/datasets", name="webshop", files=sent)
    visitor.wait(f"datasets/{dataset['id']}", lambda found: found["state"] == "ready", "dataset checked", 120)
    return slug


def launched(visitor: Visitor, slug: str, name: str, *, until: int) -> str:
    """The path of a new run, once it has made so many steps."""
    config = config_of("webshop", STEPS)
    config["run"]["save_every"] = 5
    path = f"runs/{visitor.post(f'projects/{slug}/runs', name=name, config=config)['id']}"
    visitor.wait(path, lambda found: found["step"] >= until or found["state"] in ENDED, f"step {until}", RUN_LIMIT_S)
    return path


def is_whole(visitor: Visitor, path: str) -> list[int]:
    """Each step has its eight rollouts, once, and its figures. Returns the attempt that made each."""
    played = rollouts(visitor, path.removeprefix("runs/"), range(1, STEPS + 1))
    assert len(played) == 8 * STEPS and not [one for one in played if one["status"] == "excluded"]
    curve = visitor.get(f"{path}/metrics", name="grad_norm")["curves"]["grad_norm"]
    assert curve["steps"] == list(range(1, STEPS + 1))
    return list(curve["attempts"])


def test_only_the_private_address_is_open_and_it_leads_to_the_services(hosts: tuple[Host, Host]) -> None:
    web, train = hosts
    bound = r'"HostIp":"([^"]*)","HostPort":"(\d+)"'
    asked = "docker inspect --format '{{json .NetworkSettings.Ports}}' "
    published, there = (set(re.findall(bound, host.typed(asked + " ".join(host.containers())))) for host in hosts)
    ports = {"5432", "6379", "9000", "8101", "8105", "8103", "8104", *map(str, range(8200, 8232))}
    private = {(WEB, port) for port in ports}
    assert published == private | {("127.0.0.1", web.env["TILTYARD_PORT"])} and there == set()
    values = env_read((train.folder / ".env").read_text())
    secrets = [values[name] for name in ("POSTGRES_PASSWORD", "REDIS_PASSWORD", "TILTYARD_FILES_SECRET")]
    for host in hosts:
        inspected = host.typed(f"docker inspect {' '.join(host.containers())}")
        assert not [one for one in secrets if one in inspected]


def test_an_environment_reaches_no_database_through_the_gate(hosts: tuple[Host, Host]) -> None:
    """Both are in one network."""
    web, train = hosts
    probe = (
        "import socket, sys\n"
        "def reached(name, port):\n"
        "    try: socket.create_connection((name, port), timeout=2).close()\n"
        "    except OSError: return 0\n"
        "    return 1\n"
        f"print([reached(name, port) for name in ('gate', '{WEB}') for port in (5432, 6379, 9000, 8101)])"
    )
    (web.folder / "probe.py").write_text(probe)
    for name in ("tools", "webshop"):
        assert web.typed(f"docker compose exec -T {name} python - < probe.py").strip() == str([0] * 8)
    (train.folder / "probe.py").write_text(probe.replace("'gate'", "'postgres'"))
    there = train.typed("docker compose exec -T worker python - < probe.py").strip()
    assert there == str([1] * 8), "so the probe finds what is open"


def test_a_run_trains_there_with_servers_that_were_started_in_the_browser(visitor: Visitor, slug: str) -> None:
    """The keeper started them on the web host."""
    made = visitor.post(
        f"projects/{slug}/environments", name="started", program="webshop", slots=4, memory_mb=1536, wanted=2
    )
    environment = f"environments/{made['id']}"

    found = visitor.wait(
        environment, lambda one: [each["state"] for each in one["replicas"]] == ["healthy"] * 2, "two servers", 120
    )
    assert {one["url"] for one in found["replicas"]} == {"http://keeper:8200", "http://keeper:8201"}
    config = config_of("webshop", 3)
    config["environment"]["name"] = "environment:started"
    path = f"runs/{visitor.post(f'projects/{slug}/runs', name='by-browser', config=config)['id']}"
    ended = visitor.wait(path, lambda found: found["state"] in ENDED, "run ended", RUN_LIMIT_S)
    assert (ended["state"], ended["step"]) == ("succeeded", 3)
    played = rollouts(visitor, path.removeprefix("runs/"), range(1, 4))
    assert len(played) == 24 and not [one for one in played if one["status"] == "excluded"]


def test_a_run_trains_there_and_outlives_the_training_host(
    hosts: tuple[Host, Host], visitor: Visitor, slug: str
) -> None:
    _web, train = hosts
    path = launched(visitor, slug, "outlives-its-host", until=12)
    train.lose()
    train.typed("docker compose down --volumes && docker compose up --detach")
    ended = visitor.wait(path, lambda found: found["state"] in ENDED, "run ended", RUN_LIMIT_S)
    assert (ended["state"], ended["step"], ended["attempt"]) == ("succeeded", STEPS, 2)
    attempts = is_whole(visitor, path)
    continued = attempts.index(2)
    assert continued in (5, 10, 15, 20), "after a checkpoint that had reached the files: the disk was lost too"
    assert attempts == [1] * continued + [2] * (STEPS - continued)


def test_a_run_outlives_the_web_host(hosts: tuple[Host, Host], visitor: Visitor, slug: str, tmp_path: Path) -> None:
    web, _train = hosts
    path = launched(visitor, slug, "outlives-the-site", until=12)
    web.lose()
    time.sleep(10)
    web.typed("docker compose up --detach")
    web.healthy()
    ended = visitor.wait(path, lambda found: found["state"] in ENDED, "run ended", RUN_LIMIT_S)
    assert (ended["state"], ended["step"], ended["attempt"]) == ("succeeded", STEPS, 1), "its trainer waited"
    assert is_whole(visitor, path) == [1] * STEPS
    # The site's own folder has what the training host made.
    folder = f"/data/{path}"
    deadline = time.monotonic() + 60
    while "adapter" not in (found := web.typed(f"docker compose exec -T web find {folder} -type f")) and (
        "model.safetensors" not in found
    ):
        assert time.monotonic() < deadline, found
        time.sleep(1)
    shows_all(web, slug, path, tmp_path)


def shows_all(web: Host, slug: str, path: str, pictures: Path) -> None:
    """The pages, in a browser."""
    with chromium() as page:
        page.goto(web.typed("docker compose exec -T web python manage.py login_link").strip())
        page.click("main form button")
        page.wait_for_url(lambda url: "/login/" not in url)
        origin = f"http://127.0.0.1:{web.env['TILTYARD_PORT']}"
        page.goto(f"{origin}/p/{slug}/{path}/")
        page.wait_for_selector("#run-state[data-state=succeeded]")
        page.screenshot(path=str(pictures / "run.png"), full_page=True)
        page.goto(f"{origin}/workers/")
        assert "train@gpu-1" in page.inner_text("main")
        page.screenshot(path=str(pictures / "workers.png"), full_page=True)
