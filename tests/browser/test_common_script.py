"""What the script of every page does: a form is sent once at a time, and short messages go by themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from webapp.people.teams.models import User

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.timeout(120)]
FORM = """() => {
  const form = document.body.appendChild(Object.assign(document.createElement("form"), { method: "post" }));
  window.sends = () => form.dispatchEvent(new SubmitEvent("submit", { bubbles: true, cancelable: true }));
}"""


@pytest.fixture
def page(page_for: Callable[..., Any], bob: User) -> Any:
    """The front page, whose clock the test moves."""
    page = page_for(bob)
    page.clock.install()
    page.goto("/")
    page.wait_for_function("document.querySelector('time[data-ago]') || document.readyState === 'complete'")
    return page


def test_a_form_is_sent_once_and_again_after_thirty_seconds_without_an_answer(page: Any) -> None:
    page.evaluate(FORM)
    assert [page.evaluate("sends()") for _click in range(3)] == [True, False, False]
    page.clock.fast_forward(29_900)
    assert not page.evaluate("sends()")
    page.clock.fast_forward(200)
    assert page.locator("#toasts .notice p").all_inner_texts() == ["Tiltyard has not answered within 30 s. Try again."]
    assert page.evaluate("sends()")


def test_messages_go_after_six_seconds_and_errors_stay(page: Any) -> None:
    source = page.locator('script[src*="js/app"]').get_attribute("src")
    page.evaluate(f"async () => {{ window.toast = (await import({source!r})).toast; }}")
    for kind in ("info", "error", "success"):
        page.evaluate(f"toast({kind!r}, {kind!r})")
    texts = page.locator("#toasts .notice p")
    assert texts.all_inner_texts() == ["info", "error", "success"]
    page.clock.fast_forward(6_000)
    assert texts.all_inner_texts() == ["error"]
    for number in range(5):
        page.evaluate(f"toast('more {number}', 'error')")
    assert texts.all_inner_texts() == [f"more {number}" for number in range(1, 5)], "four at most, the newest"
    page.locator("#toasts button").first.click()
    assert texts.count() == 3


COPY = """async ([source, text]) => {
  Object.defineProperty(navigator, "clipboard", { value: undefined, configurable: true });
  const dialog = document.body.appendChild(document.createElement("dialog"));
  dialog.showModal();
  await (await import(source)).copy(text);
  dialog.close();
  Reflect.deleteProperty(navigator, "clipboard");
}"""


def test_text_is_copied_from_a_dialog_of_a_page_without_tls_and_a_failure_is_shown(page: Any) -> None:
    """There the browser has no `navigator.clipboard`; a field behind the dialog cannot be selected."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    source = page.locator('script[src*="js/app"]').get_attribute("src")
    page.evaluate("navigator.clipboard.writeText('before')")
    page.evaluate(COPY, [source, "secret-token"])
    assert page.locator("#toasts .notice p").all_inner_texts() == ["Copied"]
    assert page.evaluate("navigator.clipboard.readText()") == "secret-token"
    page.evaluate("document.execCommand = () => false")
    page.evaluate(COPY, [source, "lost"])
    assert page.locator('#toasts .notice[data-kind="error"] p').inner_text().startswith("Your browser did not copy it.")
