"""Searches that other agents made on upstream's own Lucene index of the same 1,000 products."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from envs.webshop.session import HITS_PER_PAGE, Shop, parse_action

HIT = re.compile(r"\[(?:clicked )?button\] (B[0-9A-Z]{9}) \[(?:clicked )?button_\]")
MIN_MEAN_OVERLAP, MIN_OVERLAP = 0.97, 0.9


@pytest.fixture(scope="module")
def lucene_pages(webshop_data: Path) -> dict[str, list[str]]:
    """The hits of each search's first page, best first."""
    pages = {}
    for path in sorted((webshop_data.parent / "agent_trajs").glob("*.json")):
        for trajectory in json.loads(path.read_text(encoding="utf-8"))["trajectories"]:
            for step in trajectory["steps"]:
                if step["action_taken"].startswith("search[") and "Page 1 (Total" in step["next_observation"]:
                    pages[step["action_taken"]] = HIT.findall(step["next_observation"])
    return pages


def test_first_pages_hold_what_lucene_s_hold(real_shop: Shop, lucene_pages: dict[str, list[str]]) -> None:
    overlaps = []
    for text, theirs in lucene_pages.items():
        action = parse_action(text)
        assert action is not None and len(theirs) == HITS_PER_PAGE
        ours = [product.asin for product in real_shop.searcher.find(action.argument, "0")][:HITS_PER_PAGE]
        assert ours[0] == theirs[0], text
        overlaps.append(len(set(ours) & set(theirs)) / HITS_PER_PAGE)
    assert len(overlaps) >= 20
    print(f"overlap with Lucene: mean {sum(overlaps) / len(overlaps):.3f}, least {min(overlaps):.2f}")
    assert sum(overlaps) / len(overlaps) >= MIN_MEAN_OVERLAP
    assert min(overlaps) >= MIN_OVERLAP
