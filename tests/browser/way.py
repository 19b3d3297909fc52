"""One person's way through "which model is better?" in a browser, and the endpoint that takes part in it."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.browser.test_journey import Journey
from tests.chat_stub import Stub, says

Page = Any
LIMIT_MS = 240_000
KEY = "sk-stub-0123456789abcdefghij"
# A quarter is held out: the same rows for every run and for the suite, for a row is chosen by its text alone.
SHARE = 0.25
JOB = """
kind: grpo
model: {{source: starter}}
data: {{train: "dataset:tasks@1"}}
environment: {{name: "environment:tools"}}
rewards: {{spec: "reward:{reward}@1"}}
rollout: {{prompts_per_step: 2, num_generations: 4, max_turns: 3, max_turn_tokens: 24, max_completion_tokens: 72}}
evaluate: {{every: 1, share: 0.25, samples: 1}}
run: {{max_steps: 2, seed: 3, threads: 1}}
"""


class Clever(Stub):
    """An endpoint that solves the starter's tasks: it calls the tool that the task needs, then says what that said."""

    def reply(self, body: dict[str, Any]) -> tuple[int, bytes, dict[str, str]]:
        last = body["messages"][-1]
        if last["role"] == "tool":
            return says(f"The answer is {last['content']}.")
        task, known = str(last["content"]), {tool["function"]["name"] for tool in body["tools"]}
        city = re.fullmatch(r"Weather in (.+)\?", task)
        if known == {"add"}:  # the test of an endpoint
            name, arguments = "add", {"a": 2, "b": 3}
        elif city:
            name, arguments = "weather_query", {"city": city[1]}
        else:
            name, arguments = "calculator", {"expression": "".join(re.findall(r"[0-9+*/-]+", task))}
        called = {"id": "c1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        return says("", "tool_calls", tool_calls=[called])


class Way(Journey):
    """Alice's way, page by page. ``seen`` are the addresses on it, ``best`` is each run's best held-out success as its
    page has it."""

    def __init__(self, page: Page, slug: str) -> None:
        super().__init__(page, slug)
        page.set_default_timeout(90_000)  # workers start at the same time, on few cores
        self.seen: dict[str, str] = {}
        self.best: dict[str, str] = {}

    def see(self, name: str) -> None:
        self.seen[name] = self.page.url

    def launch_yaml(self, name: str, text: str) -> None:
        """Choose the references in the form, paste the whole config, and launch it under this name."""
        page = self.page
        page.goto(f"{self.base}/runs/new/")
        page.fill("#id_name", name)
        page.select_option("[name='data.train']", "dataset:tasks@1")
        page.select_option("[name='environment.name']", "environment:tools")
        page.click("nav.tabs button.tab")
        page.locator("#yaml-form textarea").fill(text)
        page.get_by_role("button", name="Show as form").click()
        page.wait_for_selector("#run-form")
        self.launch_as(name)

    def launch_as(self, name: str) -> None:
        """Launch what the form shows."""
        self.page.fill("#id_name", name)
        self.launch()

    def train(self, name: str) -> None:
        """A GRPO run to its end; its page shows its evaluations on held-out tasks, and leads to its model."""
        page = self.page
        self.launch_yaml(name, JOB.format(reward=name))
        self.wait_state("succeeded", "failed", limit_ms=LIMIT_MS)
        page.reload()
        steps = page.locator("#held-out tbody tr td:first-child a").all_inner_texts()
        assert sorted(steps) == ["0", "1", "2"]
        best = page.locator("#held-out tr[data-best] td[data-label='Success']")
        self.best[name] = best.inner_text().split()[0]
        self.see(f"run-{name}")
        page.locator("#ended-model .ended-value a").click()
        page.wait_for_url(re.compile(r"/models/[0-9a-f-]{36}/$"))
        self.see(f"model-{name}")

    def evaluate(self, name: str) -> None:
        """*Evaluate* on the page of a run, unchanged."""
        self.page.goto(self.seen[f"run-{name}"])
        self.page.locator("#ended-held-out").get_by_role("link", name="Evaluate").click()
        self.launch_as(f"{name}-held-out")
        self.wait_state("succeeded", "failed", limit_ms=LIMIT_MS)
        self.see(f"evaluation-{name}")

    def add_endpoint(self, stub: Clever) -> None:
        """The stub as an endpoint of the project, tested with its button."""
        page = self.page
        page.goto(f"{self.base}/endpoints/new/")
        page.get_by_label("Name").fill("merlin")
        page.get_by_label("Address").fill(stub.url)
        page.get_by_label("Model", exact=True).fill("gpt-oss")
        page.locator("#id_key").fill(KEY)
        page.locator("#id_price_in").fill("1")
        page.locator("#id_price_out").fill("3")
        page.get_by_role("button", name="Add the endpoint").click()
        page.wait_for_url(re.compile(r"/endpoints/[0-9a-f-]{36}/$"))
        page.get_by_role("button", name="Test it").click()
        page.wait_for_selector("#endpoint-test [data-state=ok]")
        assert KEY not in page.content()
        self.see("endpoint")

    def make_suite(self) -> None:
        """A suite on the rows that both runs held out."""
        page = self.page
        page.goto(f"{self.base}/compare/")
        page.locator("#main").get_by_role("link", name="Suites").click()
        page.get_by_role("link", name="New suite").first.click()
        page.get_by_label("Name").fill("held-out")
        page.get_by_label("Tries of a task").fill("2")
        page.get_by_label("Turns at most").fill("3")
        page.locator("#id_part0-dataset").select_option("dataset:tasks@1")
        page.locator("#id_part0-environment").select_option("environment:tools")
        page.locator("#id_part0-share").fill(str(SHARE))
        self.see("suite-new")
        page.get_by_role("button", name="Save").click()
        page.wait_for_url(re.compile(r"/suites/[0-9a-f-]{36}/$"))
        self.see("suite")

    def have_played(self, contestant: str) -> None:
        """Have a contestant play the suite."""
        self.page.goto(self.seen["suite"])
        self.page.get_by_label("Who plays").select_option(contestant)
        self.page.get_by_role("button", name="Evaluate").click()
        self.page.wait_for_selector("h2:has-text('Without a score')")
