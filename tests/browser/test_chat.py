"""Talking with models in real Chromium, answered by a real worker."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.urls import reverse

from tests.servers import celery_processes
from tests.webapp.chat.conftest import make_chat, tiny, tiny_folder
from webapp.chat.models import Answer, AnswerState, Chat
from webapp.datasets.models import Dataset
from webapp.people.teams.models import Project, User
from webapp.runs.registry.models import RegisteredModel

__all__ = ["make_chat", "tiny", "tiny_folder"]
pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.timeout(240)]
LIMIT_MS = 60_000
SHOTS = os.environ.get("TILTYARD_SHOTS", "")


@pytest.fixture
def answering(tmp_path: Path) -> Iterator[None]:
    """The workers, as the site has them."""
    with celery_processes(tmp_path):
        yield


@pytest.fixture
def open_page(page_for: Callable[..., Any]) -> Callable[..., Any]:
    """``open_page(user)``: a tab that fails the test on anything its console says."""

    def make(user: User, **options: Any) -> Any:
        page = page_for(user, **options)
        page.problems = []
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("console", lambda line: page.problems.append(line.text) if line.type in {"error", "warning"} else None)
        page.set_default_timeout(LIMIT_MS)
        return page

    return make


def _shot(page: Any, name: str) -> None:
    if SHOTS:
        page.screenshot(path=f"{SHOTS}/{name}.png", full_page=False)


def _say(page: Any, text: str) -> None:
    page.fill("#chat-text", text)
    page.press("#chat-text", "Enter")


def test_a_person_talks_with_a_model(
    answering: None, open_page: Callable[..., Any], alice: User, project: Project, tiny: RegisteredModel
) -> None:
    page = open_page(alice)
    page.goto(reverse("model-list", args=[project.slug]))
    page.click("tr:has-text('model:tiny') a:text-is('Chat')")
    page.select_option("#chat-model", "model:tiny")
    page.select_option("#chat-other", "model:tiny")
    page.click("button:has-text('Start the chat')")
    page.wait_for_selector("#chat-status[data-state=ok]")
    page.fill("#chat-max-tokens", "24")
    _say(page, "Say red please.")
    page.wait_for_selector(".chat-answer[data-state=waiting], .chat-answer[data-state=answering]")
    assert page.locator(".chat-wait:visible").first.inner_text()
    page.wait_for_selector(".chat-answer[data-state=done] >> nth=1")
    _shot(page, "two")
    # Regenerating keeps the earlier answer next to the new one.
    page.click("button:has-text('Regenerate') >> nth=0")
    page.wait_for_selector("text=2 of 2")
    page.wait_for_selector(".chat-answer[data-state=done] >> nth=1")
    page.click("[aria-label='Earlier answer']")
    page.wait_for_selector("text=1 of 2")
    # A long answer is stopped by Escape, and what there is stays. The most likely words of random weights repeat
    # themselves for as long as they may, where drawn ones end by chance.
    page.fill("#chat-max-tokens", "3500")
    page.fill("#chat-temperature", "0")
    _say(page, "Go on for long.")
    page.wait_for_selector(".chat-growing")
    page.keyboard.press("Escape")
    page.wait_for_selector(".chat-answer[data-state=stopped] >> nth=1")
    # Editing the first message keeps what followed as an earlier version.
    page.fill("#chat-max-tokens", "8")
    page.click("button:has-text('Edit') >> nth=0")
    page.fill(".chat-person textarea", "Say green please.")
    page.click("button:has-text('Send the changed message')")
    page.wait_for_selector("text=Earlier versions (1)")
    page.wait_for_selector(".chat-answer[data-state=done] >> nth=1")
    assert page.locator(".chat-turn").count() == 1
    page.click("text=Earlier versions (1)")
    _shot(page, "edited")
    # A case of a reward has a total, between two figures; a row of a dataset has none.
    assert not page.is_visible("#keep-total")
    page.select_option("#keep-kind", "case")
    assert page.is_visible("#keep-total")
    page.click("#keep-button")
    page.wait_for_selector("#keep-note[data-kind=error]")
    page.select_option("#keep-kind", "row")
    assert not page.is_visible("#keep-total")
    page.fill("#keep-name", "talks")
    page.click("#keep-button")
    page.wait_for_selector("#keep-note[data-kind=success]")
    saved = Dataset.objects.get(project=project, name="talks")
    assert '"Say green please."' in saved.upload_path.read_text()
    assert page.problems == []
    chat = Chat.objects.get()
    assert (chat.title, len(chat.contestants)) == ("Say green please.", 2)
    assert Answer.objects.filter(state=AnswerState.STOPPED, stop=True).count() == 2


def test_two_tabs_of_one_chat_see_the_same_and_a_viewer_only_reads(
    answering: None, open_page: Callable[..., Any], alice: User, rita: User, make_chat: Callable[..., Chat]
) -> None:
    chat = make_chat(parameters={"max_tokens": 12})
    address = reverse("chat-detail", args=[chat.project.slug, chat.pk])
    first, second = open_page(alice), open_page(rita)
    first.goto(address)
    second.goto(address)
    second.wait_for_selector("text=your role can only read")
    assert second.locator("#composer").count() == 0
    first.wait_for_selector("#chat-status[data-state=ok]")
    _say(first, "Say red please.")
    for page in (first, second):
        page.wait_for_selector(".chat-answer[data-state=done]")
    texts = [page.locator(".chat-answer").inner_text() for page in (first, second)]
    assert re.sub(r"\s*Regenerate\s*", "", texts[0]) == texts[1].strip()
    assert first.problems == second.problems == []


HELD = """
const asked = window.fetch;
window.fetch = async (...what) => {
  const answer = await asked(...what);
  if (String(what[0]).endsWith("/messages")) await new Promise((go) => { window.letGo = go; });
  return answer;
};
"""


def test_without_a_worker_the_page_says_so_and_keeps_the_message(
    open_page: Callable[..., Any], alice: User, make_chat: Callable[..., Chat]
) -> None:
    """The message's own confirmation is still on its way when the answer is stopped: stop was dropped in silence."""
    chat = make_chat()
    page = open_page(alice)
    page.add_init_script(HELD)
    page.goto(reverse("chat-detail", args=[chat.project.slug, chat.pk]))
    page.wait_for_selector("#chat-status[data-state=ok]")
    _say(page, "Is anybody there?")
    page.wait_for_selector(".chat-wait:has-text('No worker is available')")
    assert page.locator(".chat-wait a").get_attribute("href") == reverse("worker-list")
    page.click("#chat-stop")
    page.wait_for_selector(".chat-answer[data-state=stopped]")
    page.evaluate("window.letGo()")
    page.wait_for_selector("#chat-send:visible")
    _shot(page, "nobody")
    assert Answer.objects.get().state == AnswerState.STOPPED
    _say(page, "And now?")  # every answer can be stopped, not only the first one of a page
    page.wait_for_selector(".chat-turn:nth-child(2) .chat-wait")
    page.click("#chat-stop")
    page.wait_for_selector(".chat-answer[data-state=stopped] >> nth=1")
    assert set(Answer.objects.values_list("state", flat=True)) == {AnswerState.STOPPED}


def test_a_message_whose_confirmation_is_lost_is_in_the_chat_once(
    open_page: Callable[..., Any], alice: User, make_chat: Callable[..., Chat]
) -> None:
    """It said "try again" while the message was already there, and a second try was a second message."""
    chat, keys = make_chat(), []
    page = open_page(alice)

    def lose(route: Any, *, after: bool) -> None:
        keys.append(route.request.headers["idempotency-key"])
        if after:
            route.fetch()
        route.abort()

    page.goto(reverse("chat-detail", args=[chat.project.slug, chat.pk]))
    page.wait_for_selector("#chat-status[data-state=ok]")
    page.route("**/messages", lambda route: lose(route, after=False))
    _say(page, "Is it there?")
    page.wait_for_selector("#chat-problem:visible")
    assert page.input_value("#chat-text") == "Is it there?" and not chat.turns.exists()
    # The socket shows a message before its confirmation is lost: the page takes it as confirmed.
    page.unroute("**/messages")
    page.route("**/messages", lambda route: lose(route, after=True))
    page.press("#chat-text", "Enter")
    page.wait_for_selector(".chat-person:has-text('Is it there?')")
    page.wait_for_function("!document.getElementById('chat-text').value")
    assert page.is_hidden("#chat-problem")
    page.click("#chat-stop")
    page.wait_for_selector("#chat-send:visible")
    # The same words after that are another message.
    page.unroute("**/messages")
    with page.expect_request("**/messages") as sent:
        _say(page, "Is it there?")
    page.wait_for_selector(".chat-turn:nth-child(2) .chat-wait")
    keys.append(sent.value.headers["idempotency-key"])
    assert keys[0] == keys[1] != keys[2]
    assert [turn.text for turn in chat.turns.all()] == ["Is it there?"] * 2
