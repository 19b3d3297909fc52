"""Long lines of templates are cut where nothing that a browser shows changes, and only there."""

from __future__ import annotations

import re

import pytest
from django.template import Context, Template

from tests.reflow import COLUMNS, TEMPLATES, reflow
from webapp.ops.management.commands.collect_messages import messages_of_template

WORDS = "a sentence that is long enough to fill most of a line on its own, whatever else stands beside it there"


def test_a_tree_on_one_line_becomes_a_tree() -> None:
    cells = "".join(f'<td class="num">{{{{ item.{name} }}}}</td>' for name in ("first", "second", "third", "fourth"))
    made = reflow(f"  {{% for item in items %}}<tr>{cells}</tr>{{% endfor %}}\n")
    assert made.split("\n")[:4] == [
        "  {% for item in items %}",
        "    <tr>",
        '      <td class="num">{{ item.first }}</td>',
        '      <td class="num">{{ item.second }}</td>',
    ]
    assert reflow(made) == made


def test_what_fits_stays_as_it_is() -> None:
    text = "<p><b>x</b>   <i>y</i></p>\n\n\n  <ul><li>z</li></ul>"
    assert reflow(text) == text


def test_inline_parts_get_no_white_space() -> None:
    after = '<span class="tag">{{ x }}</span>{% if y %}, y{% endif %}'
    text = f'<p><a class="button" href="/here">{WORDS}</a>{after}</p>'
    made = reflow(text)
    assert all(len(line) <= COLUMNS for line in made.split("\n"))
    assert _seen(made) == _seen(text) and "</a><span" in made and "</span>{% if y %}, y{% endif %}" in made


def test_what_may_be_empty_stays_empty() -> None:
    """Style sheets hide empty cells; white space would make them full."""
    text = f'<td class="num">{{% if shown %}}{{{{ value }}}}{{% endif %}}</td><td>{WORDS}</td>'
    assert '<td class="num">{% if shown %}{{ value }}{% endif %}</td>' in reflow(text)


@pytest.mark.parametrize("begin", ["<pre>", '<div class="said">', '<p class="soft prewrap">', "<textarea>"])
def test_white_space_that_is_shown_stays(begin: str) -> None:
    text = f"{begin}<b>one</b>  two\n  {WORDS} {WORDS}</{re.findall(r'[a-z]+', begin)[0]}>"
    assert reflow(text) == text


def test_messages_stay_the_same_and_are_cut_by_trimmed() -> None:
    text = (
        f'<p>{{% translate "{WORDS} {WORDS}" %}}</p>'
        f"<p>{{% blocktranslate with name=who %}}{WORDS} of {{{{ name }}}} {WORDS}{{% endblocktranslate %}}</p>"
    )
    made = reflow("{% load i18n %}" + text)
    assert all(len(line) <= COLUMNS for line in made.split("\n")) and "blocktranslate trimmed with name=who" in made
    assert set(messages_of_template(made)) == set(messages_of_template(text))
    shown = [" ".join(Template(one).render(Context({"who": "x"})).split()) for one in (made, "{% load i18n %}" + text)]
    assert shown[0].replace("> ", ">").replace(" <", "<") == shown[1]


def test_every_template_can_be_reflowed_and_is_then_at_rest() -> None:
    for path in TEMPLATES.rglob("*.html"):
        made = reflow(path.read_text(encoding="utf-8"))
        assert reflow(made) == made
        Template(made)


def _seen(text: str) -> str:
    """What a browser shows: white space at the borders of blocks is nothing, any other is one space."""
    text = re.sub(r"(<[^>]*>)", lambda tag: re.sub(r"\s+", " ", tag[0]), text)
    return re.sub(r"\s*(</?(?:p|td|tr)\b[^>]*>)\s*", r"\1", re.sub(r"\s+", " ", text)).strip()
