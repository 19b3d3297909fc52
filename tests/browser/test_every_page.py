"""Every page that links lead to, as `up` serves it: nothing fails to load, the console is silent, nothing overflows
or touches, and axe finds nothing that keeps a person out.

Icons made by scripts came from a file that only the clone serves (404 under `up`), and no test looked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import call_command
from django.test import Client, override_settings
from django.utils import timezone

from tests.processes import running, wait_for_http
from tests.servers import make_child_env
from training.config import JobConfig, RewardComponent
from webapp.common.host import free_port
from webapp.ops.programs import web_program
from webapp.people.teams.models import Project, User
from webapp.rewards.services import reward_spec_save
from webapp.runs.registry.models import RegisteredModel
from webapp.runs.rollouts.models import Rollout, Turn

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(580),
]
PLAIN = {"staticfiles": {"BACKEND": "tests.webapp.site.run_pages.test_lean.Plain"}}
SKIPPED = re.compile(
    r"/(log|config|verl|download|rows|export|events|logout|language)/|\.csv|openapi\.json|/card/|\?(before|page|sort)="
)
AXE = Path(__file__).resolve().parents[1] / "js" / "node_modules" / "axe-core" / "axe.min.js"
FAULTS = """async () => (await axe.run(document, {resultTypes: ["violations"]})).violations.flatMap((rule) =>
    rule.nodes.map((node) => `${rule.id} at ${node.target.join(" ")}: ${node.failureSummary.replace(/\\s+/g, " ")}`))"""
TOUCHING = """() => {
  const cards = [...document.querySelectorAll(".card + .card")].filter((node) => node.checkVisibility());
  const touching = cards.filter((node) => {
    const [above, below] = [node.previousElementSibling, node].map((each) => each.getBoundingClientRect());
    return above.height && above.left < below.right && below.left < above.right && below.top - above.bottom < 6;
  });
  return touching.map((node) => node.id || node.className);
}"""
TWICE = """() => {
  const twice = (found) => [...new Set(found.filter((each, at) => found.indexOf(each) !== at))];
  const fields = "input:not([type=checkbox], [type=radio], [type=hidden], [type=submit]), select, textarea";
  const names = [...document.forms].flatMap((form) =>
    twice([...form.querySelectorAll(fields)].map((node) => node.name).filter(Boolean)),
  );
  return [...twice([...document.querySelectorAll("[id]")].map((node) => node.id)), ...names];
}"""
PARTS = [{"name": "task_success", "weight": 1.0}, {"name": "final_answer", "weight": 0.5}]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """A web server with collected files under hashed names."""
    with override_settings(STATIC_ROOT=tmp_path / "static", STORAGES=PLAIN):
        call_command("collectstatic", "--noinput", verbosity=0)
    port, log = free_port(), tmp_path / "log"
    places = {"TILTYARD_STATIC_FINDERS": "false", "TILTYARD_STATIC_ROOT": str(tmp_path / "static")}
    argv = web_program("127.0.0.1", port, behind_proxy=False).argv
    with running(argv, log, make_child_env(TILTYARD_PORT=str(port), **places)) as child:
        wait_for_http(f"http://127.0.0.1:{port}/", child, log)
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def furnished(project: Project, alice: User, make_dataset: Any, make_run: Any, make_environment: Any) -> Project:
    """A project with one of each: a dataset, an environment, a spec, a model, and a run with a rollout."""
    data, _server = make_dataset(), make_environment()
    components = [RewardComponent.model_validate(part) for part in PARTS]
    reward_spec_save(project=project, user=alice, name="mine", components=components)
    RegisteredModel.objects.create(project=project, name="small", kind="hub", source="Qwen/Qwen3-0.6B")
    config = JobConfig.model_validate({"data": {"train": data.reference}, "rewards": {"components": PARTS}})
    run = make_run(config=config, state="succeeded", step=1, attempt=1)
    place = {"attempt": 1, "step": 1, "group": 0, "index": 0, "status": "completed", "seq": 1}
    values = {"reward": 1.0, "parts": {"task_success": 1.0, "final_answer": 0.0}}
    rollout = Rollout.objects.create(run=run, started_at=timezone.now(), **place, **values)
    answered = [{"role": "assistant", "content": "Four."}]
    Turn.objects.create(rollout=rollout, run=run, number=0, messages=answered, seq=1)
    return project


class Walk:
    """One person who follows every link below a project and notes what goes wrong."""

    def __init__(self, context: Any, project: Project) -> None:
        self.page, self.base = context.new_page(), f"/p/{project.slug}/"
        self.seen: set[str] = set()
        self.problems: list[str] = []
        self.page.on("console", lambda line: self.note(line.text) if line.type in {"error", "warning"} else None)
        self.page.on("pageerror", lambda error: self.note(str(error)))
        self.page.on("response", self.heard)

    def heard(self, answer: Any) -> None:
        """An answer that a page asked for."""
        if answer.status >= 400:
            self.note(f"{answer.status} {answer.url}")

    def note(self, text: str) -> None:
        """htmx reports a request that ended because the page was left; nothing is wrong with that."""
        if text not in {"htmx:afterRequest", "htmx:sendAbort"}:
            self.problems.append(f"{self.page.url}: {text}")

    def links(self) -> list[str]:
        """Addresses of this site."""
        found = self.page.evaluate("[...document.querySelectorAll('a[href]')].map(node => node.getAttribute('href'))")
        return [link for link in found if re.match(r"/(?!/)", link) and not SKIPPED.search(link)]

    def look(self, address: str) -> list[str]:
        """Open a page, wait until it rests, and give its links."""
        self.page.goto(address)
        self.page.wait_for_timeout(300)
        width = self.page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        if width[0] > width[1]:
            self.note(f"{width[0]} px wide on a screen of {width[1]}")
        for name in self.page.evaluate(TOUCHING):
            self.note(f"the card {name} touches the one above it")
        for name in self.page.evaluate(TWICE):
            self.note(f"two elements have the id, or two fields of a form the name, {name}")
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        for fault in self.page.evaluate(FAULTS):
            self.note(fault)
        return self.links()

    def go(self) -> None:
        """Breadth first, one page of each kind."""
        waiting = [self.base]
        while waiting:
            address = waiting.pop(0)
            kind = re.sub(r"[0-9a-f-]{36}", "*", address.split("#")[0])
            if kind not in self.seen:
                self.seen.add(kind)
                waiting += self.look(address)


@pytest.mark.parametrize(("width", "locale", "scheme"), [(1280, "en-US", "light"), (390, "zh-CN", "dark")])
def test_no_page_fails_to_load_anything(
    width: int, locale: str, scheme: str, served: str, furnished: Project, alice: User, chromium: Any
) -> None:
    screen = {"viewport": {"width": width, "height": 844}, "color_scheme": scheme}
    context = chromium.new_context(base_url=served, locale=locale, **screen)
    client = Client()
    client.force_login(alice)
    name = settings.SESSION_COOKIE_NAME
    context.add_cookies([{"name": name, "value": client.cookies[name].value, "url": served}])
    walk = Walk(context, furnished)
    walk.go()
    context.close()
    assert not walk.problems, "\n".join(walk.problems)
    assert len(walk.seen) > 25, sorted(walk.seen)
