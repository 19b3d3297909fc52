"""A new GRPO run from the recipe: what a person does is counted, and takes less than a minute."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from django.urls import reverse

from webapp.people.teams.models import Project, User
from webapp.runs.models import Run

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

# Seconds of a skilled person by the keystroke-level model (Card, Moran and Newell 1980).
KEY_S, POINT_S, CLICK_S, HAND_S, THINK_S = 0.28, 1.1, 0.2, 0.4, 1.35
PERSON_LIMIT_S = 60


class Person:
    """Uses the page, and counts the seconds that it costs."""

    def __init__(self, page: Page) -> None:
        self.page, self.seconds = page, 0.0

    def click(self, selector: str) -> None:
        self.page.click(selector)
        self.seconds += THINK_S + POINT_S + CLICK_S

    def choose(self, name: str, value: str) -> None:
        """Open a select, and click on one of its lines."""
        self.page.select_option(f"[name='{name}']", value)
        self.seconds += THINK_S + 2 * (POINT_S + CLICK_S)

    def write(self, name: str, text: str) -> None:
        """Select what is in a field, and type over it."""
        self.page.fill(f"[name='{name}']", text)
        self.seconds += THINK_S + POINT_S + 3 * CLICK_S + 2 * HAND_S + KEY_S * len(text)


def rows() -> list[dict[str, Any]]:
    return [{"messages": [{"role": "user", "content": f"What is {n} + 1?"}], "answer": str(n + 1)} for n in range(200)]


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_a_run_is_made_from_the_recipe_within_a_minute(
    project: Project,
    bob: User,
    page_for: Any,
    make_dataset: Any,
    make_environment: Any,
    make_reward_spec: Any,
    locale: str,
) -> None:
    data, environment, spec = make_dataset(rows()), make_environment(), make_reward_spec()
    page = page_for(bob, locale=locale)
    page.goto(reverse("run-new", args=[project.slug]))
    shown = page.locator("#options .field:visible")
    assert 16 <= shown.count() <= 22
    box = page.locator("#options").bounding_box()
    assert box["height"] <= 900, "the recipe is one screen"
    person = Person(page)
    person.write("name", "first-try")
    person.choose("data.train", data.reference)
    person.choose("environment.name", environment.reference)
    person.choose("rewards.spec", spec.reference)
    person.write("model.lora_rank", "16")
    person.write("run.max_steps", "60")
    person.write("optim.learning_rate", "0.0002")
    page.wait_for_selector("#plan dd:has-text('32')")
    person.click("#launch")
    page.wait_for_url(re.compile(r"/runs/[0-9a-f-]{36}/"))
    assert person.seconds < PERSON_LIMIT_S
    print({"seconds": round(person.seconds, 1), "limit": PERSON_LIMIT_S})
    config = Run.objects.get(name="first-try").config
    assert config["model"]["lora_rank"] == 16 and config["optim"]["learning_rate"] == 0.0002
    assert config["evaluate"]["every"] == 12 and config["evaluate"]["share"] > 0.1


def test_views_show_the_recipe_the_changes_or_what_is_searched(
    project: Project, bob: User, page_for: Any, make_dataset: Any, make_environment: Any
) -> None:
    page = page_for(bob)
    page.goto(reverse("run-new", args=[project.slug]) + "?preset=webshop&size=demo")

    def paths() -> set[str]:
        return set(
            page.locator("#options .field[data-path]:visible").evaluate_all("all => all.map(f => f.dataset.path)")
        )

    assert {"optim.learning_rate", "grpo.loss_type", "run.save_every"} <= paths() and "grpo.delta" not in paths()
    page.click("[data-view='changed']")
    changed = paths()
    assert "optim.learning_rate" in changed and "grpo.loss_type" not in changed
    assert page.inner_text("#changed-count") == str(len(changed))
    page.fill("#option-search", "clip ratio")
    assert "grpo.epsilon" in paths() and "run.max_steps" not in paths()
    page.fill("#option-search", "quasiquark")
    assert paths() == set() and page.inner_text("#form-views-words") == "No option of this method matches."
    page.click("[data-view='all']")
    assert page.input_value("#option-search") == "" and len(page.query_selector_all("details.fold:visible")) > 3
    page.click("[data-view='changed']")
    page.select_option("[name='kind']", "sft")
    assert not any(path.startswith("grpo.") for path in paths())
    page.press("#option-search", "Enter")  # searches, and launches nothing
    assert Run.objects.count() == 0


def test_options_that_are_set_for_a_person_are_in_view(project: Project, bob: User, page_for: Any) -> None:
    page = page_for(bob)
    page.goto(reverse("run-new", args=[project.slug]))
    for chosen, then in (("all", "all"), ("changed", "changed"), ("recipe", "changed")):
        page.click(f"[data-view='{chosen}']")
        page.evaluate("document.getElementById('run-form').dispatchEvent(new Event('options-set'))")
        assert page.get_attribute("[data-view][aria-pressed='true']", "data-view") == then, chosen


def test_an_error_in_a_folded_option_is_shown(project: Project, bob: User, page_for: Any, make_dataset: Any) -> None:
    page = page_for(bob)
    page.goto(reverse("run-new", args=[project.slug]))
    page.click("[data-view='all']")
    page.evaluate("document.querySelector('[name=\"grpo.epsilon\"]').closest('details').open = true")
    page.fill("[name='grpo.epsilon']", "5")
    page.click("[data-view='recipe']")
    assert not page.locator("[name='grpo.epsilon']").is_visible()
    page.click("#launch")  # which the browser refuses, and has to say where
    page.locator("[name='grpo.epsilon']").wait_for(state="visible")
    assert Run.objects.count() == 0
    page.evaluate("document.getElementById('run-form').noValidate = true")
    page.click("[data-view='recipe']")
    page.click("#launch")
    page.wait_for_selector(".field[data-invalid]")
    assert page.locator("[name='grpo.epsilon']").is_visible()
