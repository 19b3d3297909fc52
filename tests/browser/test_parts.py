"""Parts of a page that come again by themselves leave what a person does there: the focus, a press, a selection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.urls import reverse
from playwright.sync_api import Page, expect

from webapp.environments.models import Environment, ReplicaState
from webapp.people.teams.models import User
from webapp.runs.models import Run
from webapp.runs.states import RunState

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.timeout(120)]
FAILURE = "No answer in 30 s from a server that does not start."
NOTES = "The learning rate was too high; the second try has half of it. " * 2
SELECT = "(node) => getSelection().selectAllChildren(node)"


@pytest.fixture
def failing(make_environment: Callable[..., Environment]) -> Environment:
    """An environment that Tiltyard starts, whose only replica failed."""
    found = make_environment(kind="process", program="tools", url="", wanted=1)
    found.replicas.create(number=1, state=ReplicaState.UNHEALTHY, error={"code": "timeout", "message": FAILURE})
    return found


def again(page: Page, ending: str) -> None:
    """Wait until the part has come once more and is in the page."""
    page.evaluate(
        "() => { window.came = new Promise((done) =>"
        " document.addEventListener('htmx:afterSettle', done, { once: true })); }"
    )
    with page.expect_response(lambda answer: answer.url.endswith(ending)):
        pass
    page.evaluate("() => window.came")


def test_a_part_that_is_asked_for_every_three_seconds(
    page_for: Callable[..., Page], bob: User, failing: Environment
) -> None:
    address = reverse("environment-detail", args=["joust", failing.pk])
    page = page_for(bob)
    page.goto(address)
    failure = page.get_by_text(FAILURE).last
    failure.evaluate(SELECT)
    more = page.get_by_role("button", name="Add one replica")
    more.focus()
    again(page, address)
    assert FAILURE in page.evaluate("getSelection().toString()")
    expect(more).to_be_focused()
    more.hover()
    page.mouse.down()
    again(page, address)
    with page.expect_response(lambda answer: answer.url.endswith("/scale/")):
        page.mouse.up()
    expect(more).to_be_focused()
    failing.refresh_from_db()
    assert failing.wanted == 2


def test_a_list_of_runs(page_for: Callable[..., Page], bob: User, make_run: Callable[..., Run]) -> None:
    """A run that was launched meanwhile takes the first place, not the focus, the open notes or the choice."""
    run = make_run(name="first", notes=NOTES, state=RunState.RUNNING, attempt=1)
    address = reverse("run-list", args=["joust"])
    page = page_for(bob)
    page.goto(address)
    row = page.locator(f"#run-{run.pk}")
    row.locator(".pick").check()
    row.locator(".notes-peek > summary").click()
    row.get_by_role("link", name="first").focus()
    later = make_run(name="second", state=RunState.RUNNING, attempt=1)
    Run.objects.filter(pk=run.pk).update(step=7, total_steps=70)
    again(page, address)
    rows = page.locator("#run-list tbody tr")
    assert [each.get_attribute("id") for each in rows.all()] == [f"run-{later.pk}", f"run-{run.pk}"]
    expect(row).to_contain_text("7 / 70")
    expect(row.locator(".notes-peek > p")).to_be_visible()
    expect(row.locator(".pick")).to_be_checked()
    expect(row.get_by_role("link", name="first")).to_be_focused()
    expect(page.locator(f"#run-{later.pk} .pick")).not_to_be_checked()


def test_a_part_that_has_ended_is_not_asked_for_again(
    page_for: Callable[..., Page], bob: User, make_run: Callable[..., Run]
) -> None:
    """Its element stays, and with it the listeners of its former attributes, if they were not taken away."""
    run = make_run(state=RunState.RUNNING, attempt=1)
    page = page_for(bob)
    page.goto(reverse("run-list", args=["joust"]))
    asked: list[Any] = []
    page.on("request", lambda request: asked.append(request.url) if request.url.endswith("/runs/") else None)
    tick = "document.dispatchEvent(new CustomEvent('live-tick'))"
    Run.objects.filter(pk=run.pk).update(state=RunState.SUCCEEDED)
    again_once = page.evaluate(
        f"""() => new Promise((done) => {{
          document.addEventListener('htmx:afterSettle', () => done(true), {{ once: true }});
          {tick};
        }})"""
    )
    assert again_once and page.locator("#run-list[hx-get]").count() == 0
    known = len(asked)
    for _time in range(3):
        page.evaluate(tick)
    page.wait_for_timeout(300)
    assert len(asked) == known


OWN = """async (source) => {
  const { isOwn } = await import(new URL("lib/morph.js", new URL(source, location.href)));
  const node = (html) => Object.assign(document.createElement("div"), { innerHTML: html }).firstElementChild;
  const fields = ["<input type=checkbox checked>", "<input value=a>", "<textarea>a</textarea>", "<a>"];
  const [box, text, area, link] = fields.map(node);
  const choice = node("<select><option>a<option>b</select>").lastElementChild;
  const own = () => [isOwn("checked", box), isOwn("value", text), isOwn("value", area), isOwn("selected", choice)];
  const before = own();
  [box.checked, text.value, area.value, choice.selected] = [false, "b", "b", true];
  const hidden = Object.assign(node("<input type=hidden value=a>"), { value: "b" });
  return {
    before,
    after: own(),
    always: [isOwn("open", node("<details>")), isOwn("data-changed", link), isOwn("aria-describedby", link)],
    never: [isOwn("value", hidden), isOwn("aria-describedby", text), isOwn("href", link)],
  };
}"""


def test_what_the_reader_typed_or_chose_stays(page_for: Callable[..., Page], bob: User) -> None:
    page = page_for(bob)
    page.goto("/")
    source = page.locator('script[src*="js/app"]').get_attribute("src")
    found = page.evaluate(OWN, source)
    assert found["before"] == [False] * 4 and found["after"] == [True] * 4
    assert found["always"] == [True] * 3 and found["never"] == [False] * 3
