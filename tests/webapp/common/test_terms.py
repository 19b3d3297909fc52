"""Words of the field, explained where they are used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.template import Context, Template
from django.utils import translation

from webapp.common.ui import TERMS

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", TERMS)
def test_a_button_opens_its_own_explanation(name: str) -> None:
    with translation.override("en"):
        shown = Template(f'{{% load ui %}}{{% term "{name}" %}}{{% term "{name}" "pass^4" %}}').render(Context())
        word, text = map(str, TERMS[name])
    places = re.findall(r'popovertarget="([^"]+)"', shown)
    assert places == [f"term-{name}", f"term-{name}-pass4"] and re.findall(r'id="([^"]+)" popover>', shown) == places
    assert shown.count(f'aria-label="What does “{word}” mean?"') == 2
    assert text.replace("'", "&#x27;").replace("<", "&lt;") in shown


def test_every_term_is_used_and_every_use_is_known() -> None:
    texts = [path.read_text() for path in (ROOT / "templates").rglob("*.html")]
    used = {name for text in texts for name in re.findall(r'\{% term "(\w+)"[^%]*%\}', text)}
    assert used == set(TERMS)
