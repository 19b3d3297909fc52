"""Which model is better? The whole way in real Chromium, on real parts.

Two GRPO runs with different rewards, a suite on what they held out, an endpoint as third contestant, a comparison,
blind votes of three people, a report in a private window.

Real web server, Celery workers, environment server and trainer; the endpoint alone is a stub, which solves every task.
"""

from __future__ import annotations

import csv
import io
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.urls import reverse

from tests.browser.test_journey import wait_until
from tests.browser.way import KEY, LIMIT_MS, Clever, Way
from tests.processes import ROOT, running, wait_for_http
from tests.servers import celery_processes, make_child_env
from webapp.common.host import free_port
from webapp.common.text import percent
from webapp.evaluation.sharing.models import SavedComparison
from webapp.evaluation.suites.models import Suite
from webapp.evaluation.votes.models import Vote, VoteRound
from webapp.ops.programs import web_program
from webapp.people.notifications.models import Notification
from webapp.people.teams.models import Project, User
from webapp.rewards.models import RewardSpec
from webapp.runs.models import Run

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(900),
]
Page = Any
BALLOTS = 6
PHONE = {"width": 390, "height": 844}


@pytest.fixture
def stub() -> Iterator[Clever]:
    """The endpoint, at work."""
    server = Clever()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def allowed(stub: Clever) -> str:
    """The servers that the installation may reach: the tools environment and the stub."""
    return f"{os.environ['TILTYARD_OUTBOUND_ALLOW']},127.0.0.1:{stub.server_address[1]}"


@pytest.fixture
def site(allowed: str, transactional_db: None, tmp_path: Path) -> Iterator[str]:
    """As the session's, but it may reach the stub."""
    port, log = free_port(), tmp_path / "site.log"
    argv = web_program("127.0.0.1", port, behind_proxy=False).argv
    with running(argv, log, make_child_env(TILTYARD_PORT=str(port), TILTYARD_OUTBOUND_ALLOW=allowed)) as child:
        wait_for_http(f"http://127.0.0.1:{port}/", child, log)
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def workers(allowed: str, transactional_db: None, tmp_path: Path) -> Iterator[None]:
    """As all others', but they may reach the stub."""
    with celery_processes(tmp_path, TILTYARD_OUTBOUND_ALLOW=allowed):
        yield


def test_which_is_better(
    page_for: Callable[..., Page],
    alice: User,
    bob: User,
    rita: User,
    project: Project,
    workers: None,
    tools_server: str,
    stub: Clever,
    tmp_path: Path,
) -> None:
    way = Way(page_for(None), project.slug)
    way.log_in()
    way.upload(_tasks(tmp_path), "tasks")
    way.weigh("lancelot", tool_call_correctness=0.1)
    way.weigh("galahad", tool_call_correctness=0.6)
    way.register(tools_server)
    way.train("lancelot")
    way.train("galahad")
    _the_list_shows_held_out_success(way)
    way.add_endpoint(stub)
    way.make_suite()
    for contestant in ("model:lancelot", "model:galahad", "endpoint:merlin"):
        way.have_played(contestant)
    played = _until_played(way)
    _leaderboard(way, played)
    _same_figures_everywhere(way, played)
    way.evaluate("lancelot")
    way.evaluate("galahad")
    _specs_that_differ(way)
    _scored_again(way, project)
    made = _vote(way, page_for, alice, bob, rita)
    _results(way, made)
    _share(way, page_for, project)
    _forms(way, page_for, alice)
    assert way.problems == []


def _tasks(folder: Path) -> Path:
    path = folder / "tasks.jsonl"
    rows = [sys.executable, "-m", "envs.tools", "tasks", "--count", "40", "--difficulty", "starter"]
    subprocess.run([*rows, "--output", str(path)], cwd=ROOT, check=True, timeout=60)
    return path


def _the_list_shows_held_out_success(way: Way) -> None:
    """The figure of the ★ line on the run's page is the one in the list of runs."""
    page = way.page
    page.goto(f"{way.base}/runs/")
    way.see("runs")
    for name, best in way.best.items():
        row = page.locator("#run-list tr", has=page.get_by_role("link", name=name, exact=True))
        assert row.locator("td[data-label='Held-out success']").inner_text().split()[0] == best


def _until_played(way: Way) -> dict[str, Run]:
    """The suite's three runs by contestant, once all have ended well."""
    suite = Suite.objects.get()

    def ended() -> dict[str, Run]:
        rows = suite.versions.get().evaluations.all()
        found = {row.contestant: row.runs.get().run for row in rows}
        states = {run.state for run in found.values()}
        assert not states & {"failed", "paused", "cancelled"}, {run.name: run.error for run in found.values()}
        return found if states == {"succeeded"} else {}

    return dict(wait_until(ended, "all three have played the suite", LIMIT_MS / 1000))


def _leaderboard(way: Way, played: dict[str, Run]) -> None:
    """The endpoint solves all; scores are those of the runs' own reports; all played the tasks that were held out."""
    page = way.page
    page.goto(way.seen["suite"])
    rows = page.locator("#leaderboard tbody tr:not([data-baseline])")
    assert rows.count() == 3 and rows.first.locator("strong").inner_text() == "merlin (endpoint)"
    assert rows.first.locator("td.num").first.inner_text().startswith("100%")
    tasks = {run.evaluation["tasks"] for run in played.values()}
    assert len(tasks) == 1 and 3 <= tasks.pop() <= 20
    shown = {row.locator("strong").inner_text(): row.locator("td.num").first.inner_text() for row in rows.all()}
    for contestant, run in played.items():
        value = run.evaluation["figures"]["success"]["value"]
        title = contestant.partition(":")[2] + (" (endpoint)" if contestant.startswith("endpoint") else "")
        assert shown[title].split()[0] == percent(value)
    page.get_by_role("link", name="Compare task by task: tasks").click()
    page.wait_for_url("**/compare/?c=*")
    way.see("compare")


def _same_figures_everywhere(way: Way, played: dict[str, Run]) -> None:
    """Page, CSV and API say the same."""
    page = way.page
    page.goto(way.seen["compare"])
    ids = parse_qs(urlsplit(page.url).query)["c"]
    found = page.request.get(f"/api/v1/projects/joust/compare?{urlsplit(page.url).query}").json()
    with page.expect_download() as download:
        page.get_by_text("Export", exact=True).click()
        page.get_by_role("link", name="Figures as CSV").click()
    table = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text(encoding="utf-8-sig"))))
    lines = {row["run"]: float(row["value"]) for row in table if row["figure"] == "success"}
    for number, item in enumerate(found["items"]):
        figure = item["figures"]["success"]
        run = next(run for run in played.values() if run.name == item["name"])
        assert ids[number] == str(run.pk) and figure["value"] == run.evaluation["figures"]["success"]["value"]
        assert lines[run.name] == pytest.approx(figure["value"])
        row = page.locator("#figures tbody tr", has_text=run.name).first
        assert row.locator("td.num").first.inner_text().split()[0] == percent(figure["value"])
    texts = page.locator("#verdicts li").all_inner_texts()
    assert texts == [verdict["text"] for verdict in found["verdicts"]] and len(texts) == 3


def _specs_that_differ(way: Way) -> None:
    """From the boxes of the run list: no rewards side by side before one spec is chosen for both."""
    page = way.page
    page.goto(f"{way.base}/runs/")
    for name in ("lancelot-held-out", "galahad-held-out"):
        page.get_by_label(f"Choose {name}", exact=True).check()
    page.get_by_role("button", name="Compare", exact=True).click()
    page.wait_for_url("**/compare/?c=*")
    way.see("compare-specs")
    assert page.locator("#specs-differ").is_visible()
    heads = "#figures thead th"
    assert "Reward" not in page.locator(heads).all_inner_texts()
    page.get_by_label("Reward spec").select_option(index=1)
    page.get_by_role("button", name="Weigh again").click()
    page.wait_for_url("**spec=*")
    assert "Reward" in page.locator(heads).all_inner_texts()
    way.see("compare-weighed")


def _scored_again(way: Way, project: Project) -> None:
    """A spec with a component that was not recorded: a worker computes it from the transcripts."""
    page, heads = way.page, "#figures thead th"
    components = [{"name": "regex_match", "weight": 1.0, "params": {"pattern": "The answer is"}}]
    RewardSpec.objects.create(project=project, name="calm", components=components)
    page.goto(way.seen["compare-specs"])
    page.get_by_label("Reward spec").select_option(label="calm@1")
    page.get_by_role("button", name="Weigh again").click()
    page.wait_for_url("**spec=*")
    assert "Reward" not in page.locator(heads).all_inner_texts()
    page.get_by_role("button", name="Score the rollouts").click()
    page.get_by_text("computed from the transcripts of").first.wait_for(timeout=LIMIT_MS)
    assert "Reward" in page.locator(heads).all_inner_texts()
    assert page.get_by_role("button", name="Score the rollouts").count() == 0
    way.see("compare-scored")


def _vote(way: Way, page_for: Callable[..., Page], alice: User, bob: User, rita: User) -> VoteRound:
    """Save the comparison of the suite, open a round on it; three people find it by their bell and vote by keys."""
    page = way.page
    page.goto(way.seen["compare"])
    page.locator(".save-menu summary").click()
    page.locator("#save-name").fill("week 47")
    page.locator(".save-form").get_by_role("button", name="Save").click()
    page.wait_for_url("**/compare/saved/*/")
    way.see("saved")
    page.goto(way.seen["compare"])
    page.get_by_role("link", name="Blind vote").click()
    page.get_by_label("Name").fill("taste")
    page.get_by_label("Ballots").fill(str(BALLOTS))
    way.see("round-new")
    page.get_by_role("button", name="Open the round").click()
    page.wait_for_url("**/votes/*-*/")
    made = VoteRound.objects.get()
    wait_until(lambda: Notification.objects.filter(event__object_id=str(made.pk)).count() == 2, "bob, rita notified")
    for user in (alice, bob, rita):
        voter = page if user == alice else page_for(user)
        if user != alice:
            voter.goto("/notifications/")
            voter.get_by_role("link", name="Votes are asked for: taste").click()
        else:
            voter.goto(f"{way.base}/votes/{made.pk}/")
        voter.wait_for_url(f"**/votes/{made.pk}/")
        voter.get_by_role("link", name="Vote", exact=True).first.press("Enter")
        voter.wait_for_url(f"**/votes/{made.pk}/vote/")
        way.seen["vote"] = voter.url
        for number in range(1, BALLOTS + 1):
            assert voter.locator("#ballot h1").inner_text() == f"Ballot {number} of {BALLOTS}"
            assert not any(name in voter.content() for name in ("lancelot", "galahad", "merlin", "gpt-oss"))
            _answer(voter)
        assert "That was the last ballot" in voter.locator("#ballot").inner_text()
    assert Vote.objects.count() == 3 * BALLOTS
    return made


def _answer(page: Page) -> None:
    """The arrow towards the one that solves the task; both bad where neither does."""
    solved = []
    for side in ("left", "right"):
        texts = page.locator(f'.ballot-turn[data-side="{side}"]').all_inner_texts()
        if "The answer is" in " ".join(texts):
            solved.append(side)
    key = {"left": "ArrowLeft", "right": "ArrowRight"}[solved[0]] if solved else "ArrowUp"
    with page.expect_response(lambda answer: answer.request.method == "POST"):
        page.keyboard.press(key)
    page.locator("#ballot:not([data-sending])").wait_for()


def _results(way: Way, made: VoteRound) -> None:
    """Everybody prefers the endpoint, and agrees."""
    page = way.page
    page.goto(f"{way.base}/votes/{made.pk}/")
    way.see("round")
    against = (
        made.ballots.filter(first__name__contains="merlin").count()
        + made.ballots.filter(second__name__contains="merlin").count()
    )
    assert 0 < against < BALLOTS
    text = re.sub(r"\s+", " ", page.locator("#results").inner_text())
    assert f"votes: {3 * BALLOTS} · people: 3 · ballots: {BALLOTS}" in text
    assert "merlin" in page.locator("#scores tbody tr .contestant a").first.inner_text()
    assert "α = 1.00" in text
    wins = page.locator("#matrix tbody tr", has=page.locator("th", has_text="merlin")).locator("td").all_inner_texts()
    counts = [int(found) for cell in wins for found in re.findall(r"(\d+) of", cell)]
    assert sum(counts) == 3 * against


def _share(way: Way, page_for: Callable[..., Page], project: Project) -> None:
    """A link opens the report in Chinese on a phone, and nothing else; revoked it says that it has ended."""
    page = way.page
    page.goto(way.seen["saved"])
    page.get_by_role("link", name="Share by link").click()
    way.see("links")
    page.get_by_role("button", name="Make a link").click()
    url = page.locator("#new-link").inner_text()
    reader = page_for(None, viewport=PHONE, locale="zh-CN")
    assert reader.goto(url).status == 200
    assert reader.locator("html").get_attribute("lang") == "zh-hans"
    assert reader.locator("h1").inner_text() == "week 47"
    percents = [percent(run.evaluation["figures"]["success"]["value"]) for run in _compared(way)]
    assert reader.locator(".forest").first.locator(".forest-value strong").all_inner_texts() == percents
    assert reader.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert not any(word in reader.content() for word in (KEY, "127.0.0.1:", "The answer is", "Compute "))
    assert reader.context.cookies() == []
    inside = [
        way.seen[name] for name in ("compare", "saved", "suite", "endpoint", "round", "run-lancelot", "model-lancelot")
    ]
    for address in inside:
        reader.goto(address)
        assert "/login/" in reader.url, address
    saved = SavedComparison.objects.get()
    assert reader.request.get(f"/api/v1/comparisons/{saved.pk}").status == 401
    page.goto(reverse("compare-links", args=[project.slug, saved.pk]))
    page.get_by_role("button", name="Revoke").click()
    page.get_by_text("The link is revoked").wait_for()
    assert reader.goto(url).status == 404
    assert reader.locator("h1").inner_text() == "此链接不存在或已失效"


def _compared(way: Way) -> list[Run]:
    ids = parse_qs(urlsplit(way.seen["compare"]).query)["c"]
    return [Run.objects.get(pk=pk) for pk in ids]


def _forms(way: Way, page_for: Callable[..., Page], alice: User) -> None:
    """Every page of the way in Chinese on a phone: nothing is wider than the screen, and the console is silent."""
    alice.refresh_from_db()  # logging in by password has hashed it again
    page, problems = page_for(alice, viewport=PHONE, locale="zh-CN"), []
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    for name, address in way.seen.items():
        page.goto(address)
        assert page.url == address, name
        assert page.locator("html").get_attribute("lang") == "zh-hans", name
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], name
    assert problems == []
