"""docker-compose.yml for real: images are built, everything comes up healthy, and runs train in it.

Needs Docker and the base images; takes minutes. The figures of the build are printed.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from playwright.sync_api import sync_playwright

from tests.browsers import chromium_path
from tests.containers.browsing import Visitor
from tests.containers.composed import FILE, PROJECT, ROOT, Composed, docker, docker_answers, services_here
from webapp.common.host import free_port
from webapp.ops.compose import SECRETS
from webapp.runs.states import RunState

pytestmark = [pytest.mark.docker, pytest.mark.timeout(3600)]
PORTS = {"webshop": 8104, "bfcl": 8103}
ENDED = {"succeeded", "failed", "cancelled"}
RUN_LIMIT_S = 300.0
ROWS = 32


@pytest.fixture(scope="module")
def composed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composed]:
    """The running project; it is taken down with its volumes."""
    if not docker_answers():
        pytest.skip("no Docker engine answers")
    one = Composed(tmp_path_factory.mktemp("compose"))
    one.down()
    try:
        one.build()
        one.up()
        yield one
    finally:
        one.down()


@pytest.fixture(scope="module")
def visitor(composed: Composed) -> Visitor:
    """A person who used the documented way in."""
    link = composed.run("exec", "-T", "web", "python", "manage.py", "login_link").strip()
    assert link.startswith(f"{composed.address}/login/")
    return Visitor(link)


@pytest.fixture(scope="module")
def slug(visitor: Visitor) -> str:
    """A project with both servers registered and a dataset for each."""
    slug = str(visitor.get("projects")["items"][0]["slug"])
    for name, port in PORTS.items():
        made = visitor.post(f"projects/{slug}/environments", name=name, url=f"http://{name}:{port}")
        assert (made["server_name"], made["healthy"]) == (name, True)
        sent = {"file": (f"{name}.jsonl", "\n".join(task_rows(name)).encode())}
        dataset = visitor.post(f"projects/{slug}/datasets", name=name, files=sent)
        path = f"datasets/{dataset['id']}"
        checked = visitor.wait(path, lambda found: found["state"] != "checking", "dataset checked", 120)
        assert (checked["state"], checked["rows"]) == ("ready", ROWS)
    return slug


def task_rows(name: str) -> list[str]:
    """The first tasks of an environment."""
    chosen = {"webshop": ["--count", str(ROWS)], "bfcl": ["--split", "base"]}[name]
    argv = [sys.executable, "-m", f"envs.{name}", "tasks", *chosen, "--output", "-"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.splitlines()[:ROWS]


def launch(visitor: Visitor, slug: str, name: str, *, environment: str, steps: int) -> str:
    """Launch such a run; its id."""
    return str(visitor.post(f"projects/{slug}/runs", name=name, config=config_of(environment, steps))["id"])


def config_of(environment: str, steps: int) -> dict[str, Any]:
    """A short GRPO run of the starter model."""
    return {
        "kind": "grpo",
        "model": {"source": "starter"},
        "data": {"train": f"dataset:{environment}@1"},
        "environment": {"name": f"environment:{environment}"},
        # An untrained model solves nothing; the form of its babble differs enough to learn from.
        "rewards": {
            "components": [
                {"name": "task_success", "weight": 1.0},
                {"name": "coherence", "weight": 0.5},
                {"name": "final_answer", "weight": 0.5},
            ]
        },
        "rollout": {
            "prompts_per_step": 2,
            "num_generations": 4,
            "max_turns": 3,
            "max_turn_tokens": 24,
            "max_completion_tokens": 1500,
            "max_prompt_tokens": 2200,
        },
        "run": {"max_steps": steps, "threads": 1},
    }


def rollouts(visitor: Visitor, run: str, steps: range) -> list[dict[str, Any]]:
    """All rollouts of some steps."""
    return [item for step in steps for item in visitor.get(f"runs/{run}/steps/{step}/rollouts")["items"]]


def test_all_are_up_and_locked_down(composed: Composed, capsys: pytest.CaptureFixture[str]) -> None:
    published: list[tuple[str, str, str]] = []
    for name in services_here():
        found = composed.inspect(name)
        host = found["HostConfig"]
        assert host["ReadonlyRootfs"] and host["CapDrop"] == ["ALL"] and host["Memory"] > 0 and host["PidsLimit"] > 0
        assert "no-new-privileges:true" in host["SecurityOpt"]
        assert found["RestartCount"] == 0
        bound = [one for ports in found["NetworkSettings"]["Ports"].values() for one in ports or []]
        published += [(name, one["HostIp"], one["HostPort"]) for one in bound]
    assert published == [("web", "127.0.0.1", str(composed.port))]
    sizes = docker("images", "--format", "{{.Repository}} {{.Size}}").splitlines()
    with capsys.disabled():
        print(f"\n{composed.seconds}", *(line for line in sizes if line.startswith("tiltyard")), sep="\n")


@pytest.mark.parametrize("name", ["tools", "toolbench", "bfcl", "webshop"])
def test_an_environment_reaches_neither_the_database_nor_the_world(composed: Composed, name: str) -> None:
    addresses = {
        service: composed.inspect(service)["NetworkSettings"]["Networks"][f"{PROJECT}_database"]["IPAddress"]
        for service in ("postgres", "redis")
    }
    targets = [(addresses["postgres"], 5432), (addresses["redis"], 6379), ("1.1.1.1", 443), ("169.254.169.254", 80)]
    probe = (
        "import os, socket, sys\n"
        "def reached(place):\n"
        "    try: socket.create_connection(place, timeout=2).close()\n"
        "    except OSError: return False\n"
        "    return True\n"
        f"print(os.getuid(), [reached(place) for place in {targets!r}], 'token' in str(os.environ).lower())"
    )
    assert composed.run("exec", "-T", name, "python", "-c", probe).strip() == "10001 [False, False, False, False] False"


def test_a_server_without_the_token_refuses_every_request(composed: Composed) -> None:
    ask = (
        "import urllib.request as r, urllib.error as e\n"
        "try: r.urlopen('http://webshop:8104/validate', timeout=20)\n"
        "except e.HTTPError as error: print(error.code)"
    )
    assert composed.run("exec", "-T", "web", "python", "-c", ask).strip() == "401"


@pytest.mark.parametrize("environment", sorted(PORTS))
def test_a_run_launched_from_the_browser_trains(
    composed: Composed, visitor: Visitor, slug: str, environment: str
) -> None:
    link = composed.run("exec", "-T", "web", "python", "manage.py", "login_link").strip()
    name = f"trains-on-{environment}"
    with chromium() as page:
        page.goto(link)
        page.click("main form button")
        page.wait_for_url(lambda url: "/login/" not in url)
        page.goto(f"{composed.address}/p/{slug}/runs/new/")
        page.fill("#id_name", name)
        page.select_option("[name='data.train']", f"dataset:{environment}@1")
        page.select_option("[name='environment.name']", f"environment:{environment}")
        page.click("nav.tabs button.tab")
        page.locator("#yaml-form textarea").fill(yaml.safe_dump(config_of(environment, 3)))
        page.click("nav.tabs button.tab")
        page.wait_for_selector("#run-form")
        assert page.input_value("[name='run.max_steps']") == "3"
        page.click("#launch")
        page.wait_for_url(re.compile(r"/runs/[0-9a-f-]{36}/"))
        run = page.url.rstrip("/").rpartition("/")[2].partition("?")[0]
        page.wait_for_selector("#run-state[data-state=succeeded]", timeout=RUN_LIMIT_S * 1000)
        if environment == "webshop":
            assert "Baseline rules" in page.inner_text("main")
    ended = visitor.get(f"runs/{run}")
    assert (ended["name"], ended["state"], ended["step"], ended["attempt"]) == (name, "succeeded", 3, 1)
    played = rollouts(visitor, run, range(1, 4))
    assert len(played) == 24 and not [item for item in played if item["status"] == "excluded"]
    norms = visitor.get(f"runs/{run}/metrics", name="grad_norm")["curves"]["grad_norm"]["values"]
    assert len(norms) == 3 and max(norms) > 0


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """One tab of a real browser."""
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=options)
        page = browser.new_page()
        page.set_default_timeout(60_000)
        yield page
        browser.close()


def test_a_killed_environment_holds_its_step_and_costs_nothing(composed: Composed, visitor: Visitor, slug: str) -> None:
    """With default settings the step waits for the server, and no rollout is excluded."""
    steps = 60
    run = launch(visitor, slug, "survives", environment="webshop", steps=steps)
    path = f"runs/{run}"
    visitor.wait(path, lambda found: found["step"] >= 2, "two steps", RUN_LIMIT_S)
    docker("kill", composed.container("webshop"))
    time.sleep(20)
    held_at = visitor.get(path)["step"]
    time.sleep(10)
    waiting = visitor.get(path)
    assert (waiting["state"], waiting["step"]) == ("running", held_at)

    docker("start", composed.container("webshop"))
    ended = visitor.wait(path, lambda found: found["state"] in ENDED, "run ended", RUN_LIMIT_S)
    assert (ended["state"], ended["step"], ended["attempt"]) == ("succeeded", steps, 1)
    assert not [one for one in rollouts(visitor, run, range(1, steps + 1)) if one["status"] == "excluded"]


def test_a_restarted_worker_takes_its_run_up_again(composed: Composed, visitor: Visitor, slug: str) -> None:
    run = launch(visitor, slug, "restarted", environment="webshop", steps=40)
    visitor.wait(f"runs/{run}", lambda found: found["step"] >= 3, "three steps", RUN_LIMIT_S)
    began = time.monotonic()
    composed.run("restart", "worker")
    assert time.monotonic() - began < 60
    ended = visitor.wait(f"runs/{run}", lambda found: found["state"] in ENDED, "run ended", RUN_LIMIT_S)
    assert (ended["state"], ended["step"], ended["attempt"]) == ("succeeded", 40, 2)


def test_programs_at_work_stay_healthy(composed: Composed) -> None:
    """Each touches its file: one that is older than a minute makes three looks fail within half a minute."""
    services = sorted(set(services_here()) - {"prepare"})
    while young := [name for name in services if up_s(composed, name) < 120]:
        time.sleep(120 - min(up_s(composed, name) for name in young))
    assert {name: composed.health(name) for name in services} == dict.fromkeys(services, "healthy")


def up_s(composed: Composed, service: str) -> float:
    """How long its container has been running."""
    began = datetime.fromisoformat(composed.inspect(service)["State"]["StartedAt"][:19] + "+00:00")
    return time.time() - began.timestamp()


def block(containing: str) -> str:
    """The one block of docs/containers.md with these words."""
    blocks = re.findall(r"```\n(.*?)```", (ROOT / "docs" / "containers.md").read_text(), re.DOTALL)
    (found,) = [one for one in blocks if containing in one]
    return str(found)


def test_the_pages_backup_is_restored_into_empty_volumes(
    composed: Composed, visitor: Visitor, slug: str, tmp_path: Path
) -> None:
    """The commands of the page ended in an empty installation that was healthy."""
    pages = ("projects", f"projects/{slug}/datasets", f"projects/{slug}/environments", f"projects/{slug}/runs")
    before = [[one["name"] for one in visitor.get(path)["items"]] for path in pages]
    assert re.search(r"Backed up \d+ runs, 2 datasets, 1 people", composed.typed(block("prepare backup"), tmp_path))
    assert [(path.name, path.stat().st_mode & 0o777) for path in tmp_path.iterdir()] == [("tiltyard.tar", 0o600)]
    restore = block("prepare restore")
    assert restore.startswith("make compose-init\n")  # .env is there already
    restore = restore.removeprefix("make compose-init\n")
    composed.down()
    output = composed.typed(restore, tmp_path)
    assert re.search(r"Restored \d+ runs, 2 datasets, 1 people", output)
    composed.up()
    assert [[one["name"] for one in visitor.get(path)["items"]] for path in pages] == before
    found = composed.run("exec", "-T", "web", "find", "/data/datasets", "-name", "rows.jsonl")
    assert len(found.splitlines()) == len(PORTS)
    with pytest.raises(AssertionError, match="is not empty"):
        composed.typed(restore, tmp_path)


def test_what_hangs_is_ended_and_comes_back(composed: Composed) -> None:
    """Docker marks a container that hangs, and leaves it so. Ten minutes have passed by the time of two files."""
    passed = 'touch -d "2 minutes ago" /tmp/clock; touch -d "1 hour ago" /tmp/unhealthy-since'
    hang = f'kill -STOP "$(cat /tmp/clock)"; {passed}'
    composed.run("exec", "-T", "clock", "sh", "-c", hang)
    deadline = time.monotonic() + 120
    while composed.inspect("clock")["RestartCount"] == 0:
        assert time.monotonic() < deadline
        time.sleep(1)
    composed.up()  # waits until it is healthy
    composed.run("up", "--detach", "--no-deps", "--force-recreate", "clock")  # others count its restarts
    composed.up()


def prometheus_image(folder: Path) -> str:
    """The image of docker-compose.yml where it is here, else one of Debian's Prometheus."""
    (named,) = re.findall(r"PROMETHEUS_IMAGE:-([^}]+)", FILE.read_text())
    if not subprocess.run(["docker", "image", "inspect", named], capture_output=True).returncode:
        return str(named)
    found = shutil.which("prometheus")
    if found is None:
        pytest.skip(f"neither {named} nor the command prometheus is here (Debian: apt-get install prometheus)")
    shutil.copy(found, folder / "prometheus")
    (folder / "Dockerfile").write_text(
        "FROM python:3.11-slim-bookworm\n"
        "COPY prometheus /usr/local/bin/\n"
        "RUN printf '#!/bin/sh\\nexec curl --fail --silent --output /dev/null http://127.0.0.1:9090/-/healthy\\n' "
        "> /usr/local/bin/wget && chmod +x /usr/local/bin/wget && install -d -o 65534 -g 65534 /prometheus\n"
        "USER 65534:65534\n"
        'ENTRYPOINT ["prometheus"]\n'
    )
    docker("build", "--network", "host", "--tag", "tiltyard-tests-prometheus", str(folder))
    return "tiltyard-tests-prometheus"


def test_a_prometheus_of_the_profile_reads_the_figures_and_the_rules(composed: Composed, tmp_path: Path) -> None:
    """The web server refused it: its name inside the network is none that a browser may use."""
    port = free_port()
    env = {"PROMETHEUS_IMAGE": prometheus_image(tmp_path), "PROMETHEUS_PORT": str(port)}
    composed.run("up", "--detach", "prometheus", env=env)
    deadline = time.monotonic() + 120
    with httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", trust_env=False) as client:

        def asked(query: str) -> list[str]:
            answer = client.get("/query", params={"query": query}).json()
            return [row["value"][1] for row in answer["data"]["result"]]

        while composed.health("prometheus") != "healthy" or asked("up") != ["1"]:
            assert time.monotonic() < deadline, composed.run("logs", "--tail", "20", "prometheus")
            time.sleep(1)
        assert asked("count(tiltyard_runs)") == [str(len(RunState))]
        (group,) = client.get("/rules").json()["data"]["groups"]
        assert len(group["rules"]) == 12 and {rule["health"] for rule in group["rules"]} <= {"ok", "unknown"}
    hostile = "import urllib.request as r; r.urlopen(r.Request('http://web:8000/login/'))"
    with pytest.raises(AssertionError, match="400"):
        composed.run("exec", "-T", "keeper", "python", "-c", hostile)
    composed.run("rm", "--stop", "--force", "prometheus", env=env)


def test_no_secret_is_seen_from_outside(composed: Composed) -> None:
    """Neither `docker inspect` nor `ps` shows one."""
    values = [composed.secret(name) for name in SECRETS]
    shown = [docker("inspect", composed.container(name)) for name in services_here()]
    shown += [docker("top", composed.container(name)) for name in services_here() if name != "prepare"]
    assert all(len(value) >= 50 for value in values)
    assert not [name for name, value in zip(SECRETS, values, strict=True) if any(value in text for text in shown)]
