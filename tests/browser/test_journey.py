"""The main journey in real Chromium on real parts: web server, Celery workers, tools environment, trainer, databases.

Log in, upload a file with a bad row, weigh rewards, register the environment, fill the form and its YAML, launch, watch
turns arrive, reload in the middle without missing a point, stop a second run, find both in the list.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.processes import ROOT
from training.journal import JOURNAL_NAME, CheckpointSaved, Metrics, RolloutStarted, TurnAdded, read_events
from webapp.common.storage import attempt_dir
from webapp.datasets.models import Dataset
from webapp.rewards.models import RewardSpec
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, Turn

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.timeout(400)]
PASSWORD = "correct horse battery staple"
STEPS = 40
LIMIT_MS = 90_000


def own_rows(folder: Path) -> Path:
    """Thirty tasks of the starter kind and, as line 31, something that is no conversation."""
    path = folder / "own-tasks.jsonl"
    argv = [sys.executable, "-m", "envs.tools", "tasks", "--count", "30", "--seed", "7", "--difficulty", "starter"]
    subprocess.run([*argv, "--output", str(path)], cwd=ROOT, check=True, timeout=60)
    with path.open("a", encoding="utf-8") as file:
        file.write('{"question": "who am I?"}\n')
    return path


def real_rows(seed_data: Path) -> Path:
    """The conversations that the tool-calling seed ships."""
    return seed_data / "seed2_multiturn_tools" / "huangweiding_demo" / "multiturn_with_toolcall_sample_data.jsonl"


def wait_until(check: Callable[[], Any], what: str, limit_s: float = 60) -> Any:
    """Whatever true thing ``check`` gives in time."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        found = check()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {limit_s} s: {what}")


class Journey:
    """One person in one tab."""

    def __init__(self, page: Any, slug: str) -> None:
        self.page, self.base = page, f"/p/{slug}"
        page.set_default_timeout(30_000)
        self.problems: list[str] = []
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.problems.append(str(error)))

    def log_in(self) -> None:
        self.page.goto(self.base + "/")
        self.page.fill("input[name=username]", "alice")
        self.page.fill("input[name=password]", PASSWORD)
        self.page.click("main button")
        self.page.wait_for_url(re.compile(re.escape(self.base)))

    def upload(self, path: Path, name: str) -> None:
        self.page.goto(f"{self.base}/datasets/new/")
        self.page.fill("#id_name", name)
        self.page.set_input_files("#id_file", path)
        self.page.click("#upload-button")
        self.page.wait_for_selector(".page-head .badge:is([data-state=ready], [data-state=needs_choice])")

    def keep_good_rows(self) -> None:
        self.page.click("form[action$='/keep/'] button.button-primary")
        self.page.wait_for_selector(".page-head .badge[data-state=ready]")

    def weigh(self, name: str, **weights: float) -> None:
        self.page.goto(f"{self.base}/rewards/new/")
        self.page.fill("#id_name", name)
        for component, weight in weights.items():
            self.page.fill(f"[name='{component}.weight']", str(weight))
        self.page.click("#reward-form .form-actions button.button-primary")
        self.page.wait_for_selector("#reference")

    def register(self, url: str) -> None:
        self.page.goto(f"{self.base}/environments/new/")
        self.page.fill("#id_name", "tools")
        self.page.fill("#id_url", url)
        self.page.click("main form button.button-primary")
        self.page.wait_for_url(re.compile(r"/environments/[0-9a-f-]{36}/$"))

    def fill_run(self, name: str, *, dataset: str, reward: str, steps: int) -> None:
        """Through the form, over to YAML, where the steps are set, and back."""
        page = self.page
        page.goto(f"{self.base}/runs/new/")
        page.fill("#id_name", name)
        page.select_option("[name='model.source']", "starter")
        page.select_option("[name='data.train']", f"dataset:{dataset}@1")
        page.select_option("[name='environment.name']", "environment:tools")
        page.select_option("[name='rewards.spec']", f"reward:{reward}@1")
        page.fill("[name='rollout.prompts_per_step']", "2")
        page.fill("[name='rollout.num_generations']", "4")
        page.fill("[name='rollout.max_turns']", "2")
        page.click("nav.tabs button.tab")
        box = page.locator("#yaml-form textarea")
        text = box.input_value()
        assert "num_generations: 4" in text and f"dataset:{dataset}@1" in text
        small = "max_turn_tokens: 24\n  max_completion_tokens: 96"
        text = re.sub(r"max_turn_tokens: \d+", "max_turn_tokens: 24", text)
        text = re.sub(r"max_completion_tokens: \d+", "max_completion_tokens: 96", text)
        if "max_turn_tokens" not in text:
            text = text.replace("  max_turns: 2", f"  max_turns: 2\n  {small}")
        text = re.sub(r"\nrun:\n(?:  .*\n?)*", "\n", text) + f"\nrun:\n  max_steps: {steps}\n  threads: 1\n"
        box.fill(text)
        page.click("nav.tabs button.tab")
        page.wait_for_selector("#run-form")
        assert page.input_value("[name='run.max_steps']") == str(steps)

    def check_first(self) -> None:
        self.page.click("#run-form button[hx-post]")
        self.page.wait_for_selector("#preflight .checks")
        remarked = self.page.locator("#preflight li[data-ok=false]")
        assert [line.get_attribute("data-level") for line in remarked.all()] in ([], ["remark"]), (
            remarked.all_inner_texts()
        )
        assert all("±" in line for line in remarked.all_inner_texts()), "that few tasks are held out"

    def launch(self) -> None:
        self.page.click("#launch")
        self.page.wait_for_url(re.compile(r"/runs/[0-9a-f-]{36}/"), timeout=60_000)

    def wait_state(self, *states: str, limit_ms: int = LIMIT_MS) -> None:
        wanted = ", ".join(f"#run-state[data-state={state}]" for state in states)
        self.page.wait_for_selector(wanted, timeout=limit_ms)

    def see_turns_while_running(self) -> None:
        """A rollout's transcript grows while the run is going."""
        page, address = self.page, self.page.url
        page.click("[data-tab=rollouts]")
        page.locator(".found-place").first.click(timeout=LIMIT_MS)
        wait_until(lambda: len(page.inner_text("#transcript")) > 20, "the transcript of a rollout")  # no eval under CSP
        assert Run.objects.get(name="first").state == "running"
        page.goto(address)

    def _heard(self, message: Any) -> None:
        """What the console calls an error, but for htmx's word on a request that ended because the page was left."""
        if message.type == "error" and message.text not in {"htmx:afterRequest", "htmx:sendAbort"}:
            self.problems.append(message.text)

    def curves(self) -> list[list[float | None]]:
        """The values of every line on the page, from the charts' own data."""
        self.page.click("[data-tab=curves]")
        self.page.wait_for_selector(".chart-plot:has(svg)")
        script = "[...document.querySelectorAll('.chart-plot:has(svg)')].flatMap(p => p.data.map(d => Array.from(d.y)))"
        return list(self.page.evaluate(script))

    def drawn(self, chart: str) -> int:
        """How many points the drawn line of a chart has; the data alone would not show a chart that did not change."""
        return self.page.locator(f"[data-chart='{chart}'] path.line").first.get_attribute("d").count(",")


def database_equals_journal(run: Run) -> None:
    """Every point, rollout and turn of the journal is in the database, and nothing else is."""
    points: dict[tuple[int, str], float] = {}
    rollouts: set[str] = set()  # an evaluation begins one again whose environment failed
    turns: set[tuple[str, int]] = set()
    for _, event in read_events(attempt_dir(run.pk, run.attempt) / JOURNAL_NAME, 0, 1 << 30):
        if isinstance(event, Metrics):
            points |= {(event.step, name): value for name, value in event.values.items()}
        if isinstance(event, CheckpointSaved) and event.seconds is not None and not event.final:
            points[event.step, "timing/saving"] = event.seconds
        if isinstance(event, RolloutStarted):
            rollouts.add(event.rollout)
        if isinstance(event, TurnAdded):
            turns.add((event.rollout, event.turn))
    stored = {(p.step, p.name): p.value for p in MetricPoint.objects.filter(run=run)}
    assert json.dumps(sorted(stored.items())) == json.dumps(sorted(points.items()))  # NaN equals NaN as text
    assert Rollout.objects.filter(run=run).count() == len(rollouts) > 0
    assert Turn.objects.filter(run=run).count() == len(turns) > 0


def questions_in(path: Path) -> set[str]:
    """The last user message of each good row of the file."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return {row["conversation"][-1]["content"] for row in rows if "conversation" in row}


def prompts_of(run: Run) -> set[str]:
    """The user messages that the run's rollouts began with; each began with exactly one conversation."""
    turns = Turn.objects.filter(run=run, number=0).values_list("messages", flat=True)
    return {message["content"] for messages in turns for message in messages if message["role"] == "user"}


def walk(journey: Journey, *, path: Path, name: str, tools_server: str, bad_rows: int) -> None:
    """Steps 1 to 6."""
    journey.log_in()
    journey.upload(path, name)
    if bad_rows:
        assert "31" in journey.page.inner_text("table:has(th.num)")
        journey.keep_good_rows()
    assert Dataset.objects.get(name=name).bad_rows == bad_rows
    journey.weigh("mine", tool_call_correctness=0.5, coherence=0.05, task_success=1.0)
    spec = RewardSpec.objects.get(name="mine")
    assert {part["name"]: part["weight"] for part in spec.components}["tool_call_correctness"] == 0.5
    journey.register(tools_server)
    journey.fill_run("first", dataset=name, reward="mine", steps=STEPS)
    journey.check_first()
    journey.launch()
    journey.wait_state("running")
    journey.see_turns_while_running()
    journey.page.reload()
    journey.page.click("[data-tab=curves]")
    journey.wait_state("succeeded", "failed")
    first = Run.objects.get(name="first")
    assert (first.state, first.error) == ("succeeded", None)
    database_equals_journal(first)
    assert prompts_of(first) <= questions_in(path)
    rewards = MetricPoint.objects.filter(run=first, name="reward").order_by("step").values_list("value", flat=True)
    assert len(rewards) == STEPS
    # A figure has nine digits on its way to a screen, which is more than a float32 has.
    shown = [float(f"{reward:.9g}") for reward in rewards]
    wait_until(lambda: shown in journey.curves(), "every reward on the curve after the reload", 10)
    wait_until(lambda: journey.drawn("reward") == STEPS, "as many points drawn as there are", 10)
    stop_a_second_run(journey, name)
    journey.page.goto(f"{journey.base}/runs/")
    listed = journey.page.inner_text("main")
    assert "first" in listed and "second" in listed
    assert journey.problems == []


def stop_a_second_run(journey: Journey, dataset: str) -> None:
    """A run that would go on for long ends within ten seconds of pressing Stop."""
    journey.fill_run("second", dataset=dataset, reward="mine", steps=5000)
    journey.launch()
    journey.wait_state("running")
    journey.page.click("[data-dialog=stop-dialog]")
    journey.page.click("#stop-dialog button.button-danger-solid")
    pressed = time.monotonic()
    journey.wait_state("cancelled", limit_ms=20_000)
    assert time.monotonic() - pressed < 12
    database_equals_journal(Run.objects.get(name="second"))


@pytest.mark.slow  # the same way as with the seeds' conversations, with a file of our own
def test_the_journey_with_an_own_file(
    page: Any, alice: Any, project: Any, workers: None, tools_server: str, tmp_path: Path
) -> None:
    journey = Journey(page, project.slug)
    walk(journey, path=own_rows(tmp_path), name="own-tasks", tools_server=tools_server, bad_rows=1)


def test_the_journey_with_the_seeds_conversations(
    page: Any, alice: Any, project: Any, workers: None, tools_server: str, seed_data: Path
) -> None:
    journey = Journey(page, project.slug)
    walk(journey, path=real_rows(seed_data), name="seed-rows", tools_server=tools_server, bad_rows=0)
