"""Playing environments by hand in real Chromium: forms made from schemas, texts, clickables, and what is kept."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from envs.tools.tasks import draw_task
from envs.webshop.generator import generated_catalogue
from envs.webshop.session import Shop
from envs.webshop.validate import perfect_steps
from tests.processes import ROOT, running, wait_for_http
from tests.servers import make_child_env
from webapp.common.host import free_port
from webapp.datasets.models import Dataset
from webapp.environments.models import Environment
from webapp.environments.playground.play import MAX_CALLS
from webapp.people.teams.models import User
from webapp.rewards.models import RewardCase

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.timeout(240)]
LIMIT_MS = 60_000
SHOTS = os.environ.get("TILTYARD_SHOTS", "")


@pytest.fixture(scope="module")
def other_port() -> int:
    """Where the server of a slow journey listens."""
    return free_port()


@pytest.fixture(scope="module")
def site(django_db_setup: None, other_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """As all others', but one more address may be reached from it."""
    port, log = free_port(), tmp_path_factory.mktemp("site") / "log"
    argv = [
        sys.executable,
        "-m",
        "uvicorn",
        "webapp.asgi:application",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--ws-max-size",
        "65536",
        "--no-access-log",
    ]
    allow = f"{os.environ['TILTYARD_OUTBOUND_ALLOW']},127.0.0.1:{other_port}"
    with running(argv, log, make_child_env(TILTYARD_PORT=str(port), TILTYARD_OUTBOUND_ALLOW=allow)) as child:
        wait_for_http(f"http://127.0.0.1:{port}/", child, log)
        yield f"http://127.0.0.1:{port}"


class Table:
    """One person at one environment."""

    def __init__(self, page: Any, environment: Environment) -> None:
        self.page, self.environment = page, environment
        self.problems: list[str] = []
        page.on("console", lambda line: self.problems.append(line.text) if line.type in {"error", "warning"} else None)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.set_default_timeout(LIMIT_MS)
        page.goto(f"/p/{environment.project.slug}/environments/{environment.pk}/play/")
        page.wait_for_selector("#task-start:enabled")

    def start(self, *, task: dict[str, Any] | None = None, seed: int = 0) -> None:
        if task is not None:
            self.page.check("input[name=kind][value=task]")
            self.page.fill("#task-json", json.dumps(task))
        self.page.fill("#task-seed", str(seed))
        self.page.click("#task-start")
        self.page.wait_for_selector("#act:visible")

    def fill(self, tool: str, arguments: dict[str, Any]) -> None:
        """Open a tool's tab and fill its form, as its fields are."""
        self.page.click(f'.play-tab[data-tool="{tool}"]')
        for name, value in arguments.items():
            field = self.page.locator(f'[data-argument="{name}"]')
            if field.evaluate("node => node.tagName") == "SELECT":
                field.select_option(label=str(value).lower() if isinstance(value, bool) else str(value))
            else:
                field.fill(value if isinstance(value, str) else json.dumps(value))

    def queue(self, tool: str, arguments: dict[str, Any]) -> None:
        self.fill(tool, arguments)
        self.page.click("#act-queue")

    def send(self) -> None:
        """Send the turn and wait for its answer."""
        self._answered(lambda: self.page.click("#act-send"))

    def press(self, label: str) -> None:
        """Click one of the clickables."""
        found = self.page.locator(".play-click").filter(has_text=re.compile(f"^{re.escape(label)}$", re.I)).first
        self._answered(found.click)

    def say(self, text: str) -> None:
        self.page.click('.play-tab[data-tool=""]')
        self.page.fill("#act-message", text)
        self.send()

    def _answered(self, act: Callable[[], Any]) -> None:
        before = int(self.page.inner_text("#out-turns"))
        act()
        self.page.wait_for_selector(f"#out-turns:text-is('{before + 1}')")
        assert not self.page.is_visible("#act-problem")

    @property
    def reward(self) -> str:
        return str(self.page.inner_text("#out-reward"))

    def keep(self, name: str) -> Dataset:
        """Save the episode as a demonstration; the link leads to it."""
        self.page.fill("#save-dataset", name)
        self.page.click("#save-row-button")
        self.page.wait_for_selector("#save-row-note a")
        made = Dataset.objects.filter(name=name).order_by("-version").first()
        assert made is not None and self.page.inner_text("#save-row-note") == f"Added to {made}."
        return made

    def shoot(self, name: str) -> None:
        """A picture in light, dark and on a phone, if TILTYARD_SHOTS names a folder."""
        if not SHOTS:
            return
        for theme, width in (("light", 1280), ("dark", 1280), ("light", 390)):
            self.page.emulate_media(color_scheme=theme)
            self.page.set_viewport_size({"width": width, "height": 900})
            self.page.evaluate("window.scrollTo(0, 0)")
            self.page.wait_for_timeout(400)  # the rail slides away
            self.page.screenshot(path=str(Path(SHOTS) / f"{name}-{theme}-{width}.png"), full_page=True)
        self.page.emulate_media(color_scheme="light")
        self.page.set_viewport_size({"width": 1280, "height": 900})


@pytest.fixture
def sit(page_for: Callable[..., Any], bob: User) -> Callable[..., Table]:
    """``sit(environment)``: bob at it."""
    return lambda environment, **options: Table(page_for(bob, **options), environment)


def _calculator_seed() -> tuple[int, Any]:
    """A seed whose task is solved by one call of the calculator."""
    for seed in range(200):
        task = draw_task(seed)
        if [call.name for call in task.calls] == ["calculator"]:
            return seed, task
    raise AssertionError("no seed of 200 draws a calculation")


def test_a_calculation_is_played_to_its_reward_and_kept(
    sit: Callable[..., Table], make_environment: Callable[..., Environment], tools_server: str
) -> None:
    seed, task = _calculator_seed()
    table = sit(make_environment(url=tools_server, name="tools", health={"slots": 512, "sessions": 0}))
    page = table.page
    table.shoot("tools-0-empty")
    table.start(seed=seed)
    assert task.question in page.inner_text("#transcript")
    page.click('.play-tab[data-tool="calculator"]')
    page.click("#act-send")  # nothing is filled in yet
    assert page.inner_text("#act-fields .field-error:visible") == "This argument is required."
    table.fill("calculator", {"expression": task.calls[0].arguments["expression"]})
    table.shoot("tools-1-form")
    table.send()
    assert task.contains[0] in page.inner_text("#transcript .message[data-role=tool]")
    assert table.reward == "not yet" and page.inner_text("#out-done") == "no"
    table.say(task.final)
    page.wait_for_selector("#play-status:text-is('episode over')")
    assert table.reward == "1.00" and page.inner_text("#out-done") == "yes"
    assert "task_success" in page.inner_text("#out-parts") and not page.is_visible("#act")
    made = table.keep("demonstrations")
    page.fill("#save-case-name", "one calculation")
    page.locator("#range-total input").nth(0).fill("0.9")
    page.locator("#range-total input").nth(1).fill("1")
    page.click("#save-case-button")
    page.wait_for_selector("#save-case-note a")
    case = RewardCase.objects.get()
    assert (case.name, case.env_reward, case.total) == ("one calculation", 1.0, [0.9, 1])
    table.shoot("tools-2-over")
    row = json.loads(made.upload_path.read_text())
    assert [item["role"] for item in row["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert row["messages"][1]["tool_calls"][0]["arguments"] == task.calls[0].arguments
    assert row["provenance"]["seed"] == seed and row["provenance"]["reward"] == 1.0
    page.click("#save-row-note a")
    page.wait_for_selector("h1:has-text('demonstrations@1')")
    assert table.problems == []


def test_it_works_on_a_phone_in_chinese_and_by_keyboard(
    sit: Callable[..., Table], make_environment: Callable[..., Environment], tools_server: str, make_dataset: Any
) -> None:
    row = {"messages": [{"role": "user", "content": "What is 6 * 7?"}], "answer": {"contains": ["42"]}}
    make_dataset([row], name="mine")
    table = sit(make_environment(url=tools_server), viewport={"width": 390, "height": 844}, locale="zh-CN")
    page = table.page
    page.check("input[name=kind][value=row]")
    page.wait_for_selector("#task-preview:has-text('What is 6 * 7?')")
    page.focus("#task-seed")
    page.keyboard.press("Enter")
    page.wait_for_selector("#act:visible")
    page.focus('.play-tab[aria-selected="true"]')
    while page.locator('.play-tab[aria-selected="true"]').get_attribute("data-tool") != "calculator":
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.keyboard.type("6 * 7")
    page.keyboard.press("Enter")
    page.wait_for_selector("#out-turns:text-is('1')")
    assert "42" in page.inner_text("#transcript .message[data-role=tool]")
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    if SHOTS:
        page.screenshot(path=str(Path(SHOTS) / "tools-3-zh-390.png"), full_page=True)
    assert table.problems == []


def test_no_more_calls_are_queued_than_a_turn_may_have(
    sit: Callable[..., Table], make_environment: Callable[..., Environment], tools_server: str
) -> None:
    table = sit(make_environment(url=tools_server))
    table.start()
    for number in range(MAX_CALLS + 1):
        table.queue("calculator", {"expression": str(number)})
    assert table.page.inner_text("#act-problem") == f"A turn has at most {MAX_CALLS} calls."
    assert table.page.locator("#act-queued li").count() == MAX_CALLS
    table.page.fill("#act-message", "All at once.")
    table.send()
    assert table.page.locator("#act-queued li").count() == 0, "what was sent is not sent again with the next turn"
    assert table.page.input_value("#act-message") == ""
    table.fill("calculator", {"expression": "2 + 3"})
    table.send()
    said = table.page.locator("#transcript, .transcript").first.inner_text()
    assert said.count("All at once.") == 1 and "5" in said
    assert table.problems == []


def test_a_line_that_is_silent_is_lost_and_one_that_answers_is_not(
    page_for: Callable[..., Any], bob: User, make_environment: Any, tools_server: str
) -> None:
    """A network that drops everything closes nothing: the page offered to play on, and no click did anything."""
    environment, page, answers = make_environment(url=tools_server), page_for(bob), []
    silent = False

    def line(socket: Any) -> None:
        server = socket.connect_to_server()

        def forward(text: str) -> None:
            answers.append(json.loads(text)["type"])
            if not silent:
                socket.send(text)

        server.on_message(forward)

    def pass_pings(count: int) -> None:
        for _ in range(count):
            before = answers.count("pong")
            page.clock.fast_forward(20_000)
            for _ in range(200):
                if answers.count("pong") > before:
                    break
                page.wait_for_timeout(20)
            assert answers.count("pong") > before

    page.clock.install()
    page.route_web_socket("**/ws/**", line)
    page.goto(f"/p/{environment.project.slug}/environments/{environment.pk}/play/")
    page.wait_for_selector("#task-start:enabled")
    pass_pings(4)
    assert page.is_hidden("#play-lost") and page.is_enabled("#task-start")
    silent = True
    pass_pings(3)
    assert page.is_hidden("#play-lost")
    page.clock.fast_forward(20_000)
    page.wait_for_selector("#play-lost:visible")
    assert "The connection was lost" in page.inner_text("#play-lost") and page.is_disabled("#task-start")


def test_a_second_tab_shows_why_it_may_not(
    sit: Callable[..., Table], page_for: Callable[..., Any], bob: User, make_environment: Any, tools_server: str
) -> None:
    environment = make_environment(url=tools_server)
    first = sit(environment)
    second = page_for(bob)
    second.goto(f"/p/{environment.project.slug}/environments/{environment.pk}/play/")
    second.wait_for_selector("#play-lost:visible")
    assert "in another tab already" in second.inner_text("#play-lost")
    first.page.close()
    second.wait_for_timeout(500)
    second.reload()
    second.wait_for_selector("#task-start:enabled")


@pytest.fixture
def serve(other_port: int, tmp_path: Path, make_environment: Callable[..., Environment]) -> Iterator[Any]:
    """``serve("bfcl", …arguments)``: that server, started and registered."""
    children = []

    def make(name: str, *arguments: str) -> Environment:
        argv = [sys.executable, "-m", f"envs.{name}", *arguments, "--port", str(other_port)]
        context = running(argv, tmp_path / "log")
        child = context.__enter__()
        children.append(context)
        url = f"http://127.0.0.1:{other_port}"
        wait_for_http(f"{url}/health", child, tmp_path / "log", limit_s=120)
        return make_environment(url=url, name=name, server_name=name)

    yield make
    for context in children:
        context.__exit__(None, None, None)


def _bfcl(table: Table) -> None:
    table.start(task={"id": "multi_turn_base_0"})
    assert "final_report.pdf" in table.page.inner_text("#transcript")
    table.queue("cd", {"folder": "document"})
    table.queue("mkdir", {"dir_name": "temp"})
    table.queue("mv", {"source": "final_report.pdf", "destination": "temp"})
    table.shoot("bfcl-1-queue")
    table.send()
    table.say("Moved.")
    table.queue("cd", {"folder": "temp"})
    table.queue("grep", {"file_name": "final_report.pdf", "pattern": "budget analysis"})
    table.send()
    table.say("Found.")
    table.fill("sort", {"file_name": "final_report.pdf"})
    table.send()
    table.say("Sorted.")
    table.queue("cd", {"folder": ".."})
    table.queue("mv", {"source": "previous_report.pdf", "destination": "temp"})
    table.queue("cd", {"folder": "temp"})
    table.queue("diff", {"file_name1": "final_report.pdf", "file_name2": "previous_report.pdf"})
    table.send()
    table.say("Compared.")
    assert table.reward == "1.00"


def _webshop(table: Table) -> None:
    shop = Shop(generated_catalogue())  # what the server sells
    search, *clicks = [step.tool_calls[0].arguments for step in perfect_steps(shop, 3)]
    table.start(task={"session_id": 3})
    table.fill("search", search)
    table.send()
    table.shoot("webshop-1-results")
    for click in clicks:
        table.press(click["value"])
        if click["value"] == shop.goals[3].product.asin:
            table.shoot("webshop-2-product")
    assert table.reward == "1.00"


def _toolbench(table: Table) -> None:
    from envs.toolbench.world import draw_task as draw  # type: ignore[import-not-found,unused-ignore]
    from envs.toolbench.world import gold_calls

    argv = [sys.executable, "-m", "envs.toolbench", "tasks", "--count", "1", "--output", "-"]
    row = json.loads(subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, timeout=60).stdout)
    table.start(task=row)
    for number, call in enumerate(gold_calls(draw(0))):
        table.fill(call.function, call.arguments)
        table.shoot(f"toolbench-{number}")
        table.send()
    assert table.reward == "1.00"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "play"), [("bfcl", _bfcl), ("webshop", _webshop), ("toolbench", _toolbench)])
def test_every_environment_is_played_and_kept(
    name: str, play: Callable[[Table], None], serve: Any, sit: Callable[..., Table]
) -> None:
    if find_spec(f"envs.{name}") is None:
        pytest.skip(f"envs.{name} is not here")
    table = sit(serve(name))
    play(table)
    table.page.wait_for_selector("#play-status:text-is('episode over')")
    made = table.keep(f"{name} by hand")
    row = json.loads(made.upload_path.read_text())
    assert row["provenance"]["environment"] == name and row["provenance"]["done"] is True
    assert f"{row['provenance']['reward']:.2f}" == table.reward[:4]
    assert sum(item["role"] == "assistant" for item in row["messages"]) == int(table.page.inner_text("#out-turns"))
    table.shoot(f"{name}-9-over")
    assert table.problems == []


def test_a_reward_s_page_shows_its_verdicts(
    page_for: Callable[..., Any], bob: User, project: Any, make_reward_spec: Callable[..., Any]
) -> None:
    talk = [
        {"role": "user", "content": "What is 6 * 7?"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "name": "calculator", "arguments": {}}]},
        {"role": "tool", "content": "42", "tool_call_id": "1", "name": "calculator"},
        {"role": "assistant", "content": "6 times 7 is 42."},
    ]
    common = {"project": project, "environment": "tools", "messages": talk, "prompt_length": 1, "created_by": bob}
    RewardCase.objects.create(name="right", env_reward=1.0, expected={"task_success": [1, 1]}, total=[0.9, 1], **common)
    RewardCase.objects.create(name="unjudged", env_reward=None, expected={"task_success": [1, 1]}, **common)
    parts = [{"name": "task_success", "weight": 0.5, "params": {}}, {"name": "coherence", "weight": 0.5, "params": {}}]
    spec = make_reward_spec(name="mine", components=parts)
    page = page_for(bob, viewport={"width": 1280, "height": 900})
    page.goto(f"/p/{project.slug}/rewards/{spec.pk}/")
    assert "as expected" in page.inner_text('[data-case="right"] tr >> nth=1')
    assert "missing" in page.inner_text('[data-case="unjudged"] .parts-total')
    assert "could not be computed" in page.inner_text('[data-case="unjudged"] tr >> nth=1')
    if SHOTS:
        for theme, width in (("light", 1280), ("dark", 1280), ("light", 390)):
            page.emulate_media(color_scheme=theme)
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_timeout(400)
            page.screenshot(path=str(Path(SHOTS) / f"reward-{theme}-{width}.png"), full_page=True)
    page.click('[data-case="unjudged"] button')
    page.wait_for_selector("text=The test case unjudged was deleted.")
    assert [case.name for case in RewardCase.objects.all()] == ["right"]
