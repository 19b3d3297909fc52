from __future__ import annotations

import pytest

from envs.webshop.session import Action, Session, Turn, parse_action, sub_page
from tests.envs.webshop.builders import product, session


def play(visit: Session, *actions: str) -> Turn:
    """Play actions; the last turn."""
    turns = [visit.play(parse_action(action)) for action in actions]
    return turns[-1]


def test_the_start_page() -> None:
    visit = session()
    assert visit.page.observation == f"WebShop [SEP] Instruction: [SEP] {visit.goal.instruction} [SEP] Search"
    assert visit.page.available_actions == {"has_search_bar": True, "clickables": ["search"]}


def test_results_pages_turn_and_are_empty_past_the_end() -> None:
    visit = session()
    first = play(visit, "search[oak]").page
    assert "Back to Search [SEP] Page 1 (Total results: 12) [SEP] Next > [SEP] B000000000 [SEP]" in first.observation
    assert list(first.clickables)[:3] == ["back to search", "next >", "b000000000"]
    second = play(visit, "click[Next >]").page
    assert "Page 2 (Total results: 12) [SEP] < Prev [SEP] Next > [SEP]" in second.observation
    third = play(visit, "click[next >]").page
    assert third.observation.endswith("Page 3 (Total results: 12) [SEP] < Prev [SEP] Next >")
    assert play(visit, "click[< Prev]").page == second
    assert play(visit, "click[< Prev]").page == first


def test_an_item_page_and_its_sub_pages() -> None:
    visit = session()
    item = play(visit, "search[oak]", "click[B000000003]").page
    assert item.observation == (
        f"Instruction: [SEP] {visit.goal.instruction} [SEP] Back to Search [SEP] < Prev "
        "[SEP] color [SEP] dark blue "
        "[SEP] red | white [SEP] size [SEP] xl "
        "[SEP] Oak Table 3 [SEP] Price: $35.0 [SEP] Rating: N.A. [SEP] Description "
        "[SEP] Features [SEP] Reviews [SEP] Buy Now"
    )
    description = play(visit, "click[Description]").page
    assert description.observation.endswith("Back to Search [SEP] < Prev [SEP] A solid table.")
    assert list(description.clickables) == ["back to search", "< prev"]
    assert play(visit, "click[< Prev]").page == item
    assert play(visit, "click[features]").page.observation.endswith("< Prev [SEP] Easy to build [SEP] ")
    assert play(visit, "click[< Prev]", "click[reviews]").page.observation.endswith("Back to Search [SEP] < Prev")


@pytest.mark.parametrize(
    ("bullets", "shown"),
    [([""], " [SEP] "), (["a", "", "b"], " [SEP] a [SEP]  [SEP] b"), ([" \n "], ""), ("", " [SEP] "), ([], "")],
)
def test_an_empty_feature_is_a_text_of_its_page(bullets: list[str] | str, shown: str) -> None:
    """69 of 1,000 real products have one, and their page lacked its last separator."""
    page = sub_page("i", product(small_description=bullets), "Features")
    assert page.observation == f"Instruction: [SEP] i [SEP] Back to Search [SEP] < Prev{shown}"


def test_chosen_options_stay_through_sub_pages_and_are_forgotten_on_the_way_back() -> None:
    visit = session()
    play(visit, "search[oak]", "click[b000000003]", "click[dark blue]", "click[red | white]", "click[xl]")
    assert visit.options == {"color": "red | white", "size": "xl"}
    play(visit, "click[features]", "click[< prev]")
    assert visit.options == {"color": "red | white", "size": "xl"}
    play(visit, "click[< prev]", "click[b000000003]")
    assert visit.options == {}


@pytest.mark.parametrize(
    "action",
    ["search[]", "click[]", "click[search]", "click[buy now]", "click[next >]", "click[b000000003]", "buy", ""],
)
def test_what_the_page_does_not_offer_does_nothing(action: str) -> None:
    visit = session()
    before = visit.page
    assert play(visit, action) == Turn(before, False)


def test_search_works_from_every_page() -> None:
    visit = session()
    for action in ("search[oak]", "click[b000000003]", "click[features]"):
        play(visit, action)
        assert Session.play(visit, Action("search", "oak")).page.kind == "results"
        play(visit, "click[b000000003]", "click[features]")


def test_back_to_search_starts_over() -> None:
    visit = session()
    page = play(visit, "search[oak]", "click[b000000003]", "click[xl]", "click[Back to Search]").page
    assert page.kind == "start"
    assert (visit.options, visit.product) == ({}, None)


def test_only_buying_ends_and_pays_and_only_once() -> None:
    visit = session()
    wanted = [f"click[{value}]" for value in visit.goal.named_options.values()]
    name = visit.goal.product.asin
    page = 2 if name in ("B000000010", "B000000011") else 1
    steps = ["search[oak]", *["click[next >]"] * (page - 1), f"click[{name}]", *wanted]
    assert all(visit.play(parse_action(step)).reward is None for step in steps)
    end = play(visit, "click[Buy Now]")
    assert end.reward is not None and end.reward.score == 1.0
    assert end.page.clickables == {}
    assert "Purchased [SEP] asin [SEP] " + name in end.page.observation
    again = play(visit, "search[oak]")
    assert (again.valid, again.page) == (False, end.page)


def test_options_on_the_last_page_are_json_for_a_page() -> None:
    from envs.webshop.session import done_page

    visit = session()
    page = done_page(visit.goal.product, {"size": "6' <b>", "color": 'é "x" & y'}, 0.5)
    assert (
        'options [SEP] {"color": "\\u00e9 \\"x\\" \\u0026 y", "size": "6\\u0027 \\u003cb\\u003e"} [SEP]'
        in page.observation
    )
