"""What djangofmt must not change in templates: it knows neither our style sheets nor our catalogues."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.template import Context, Template

from webapp.ops.management.commands.collect_messages import messages_of_template

ROOT = Path(__file__).resolve().parents[1]
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
WORDS = "a sentence that is long enough to fill most of a line on its own, whatever else is written next to it there"
SHOWN = r"said|chat-said|prewrap|log-line|tree-leaf|plain-text|card-text|comment-text|token-block"
"""Classes that style sheets let show their white space, on elements other than ``pre``."""


def formatted(text: str) -> str:
    """The text as `make fmt` leaves it."""
    tool = Path(sys.executable).with_name("djangofmt")
    argv = [str(tool), "--quiet", "--stdin-filename", "templates/made.html", "-"]
    return subprocess.run(argv, input=text, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_a_tree_on_one_line_becomes_a_tree() -> None:
    names = ("first", "second", "third", "fourth")
    cells = "".join(f'<td class="num">{{{{ item.{name} }}}}</td>' for name in names)
    made = formatted(f"<table>{{% for item in items %}}<tr>{cells}</tr>{{% endfor %}}</table>\n")
    lines = [line for line in made.split("\n") if "<td" in line]
    assert lines == [f'      <td class="num">{{{{ item.{name} }}}}</td>' for name in names]
    assert formatted(made) == made


def test_inline_parts_get_no_white_space() -> None:
    after = '<span class="tag">{{ x }}</span>{% if y %}, y{% endif %}'
    made = formatted(f'<p><a class="button" href="/here">{WORDS}</a>{after}</p>')
    assert re.search(r"</a\s*><span", made) and re.search(r"</span\s*>{% if y %}, y{% endif %}", made)


@pytest.mark.parametrize("begin", ["<pre>", "<textarea>", '{# djangofmt: ignore[format] #}\n<div class="said">'])
def test_white_space_that_is_shown_stays(begin: str) -> None:
    name = re.findall(r"<([a-z]+)", begin)[0]
    text = f"{begin}<b>one</b>  two\n  {WORDS} {WORDS}</{name}>\n"
    assert formatted(text) == text


def test_messages_stay_the_same() -> None:
    text = (
        f'{{% load i18n %}}<p>{{% translate "{WORDS} {WORDS}" %}}</p>'
        f"<p>{{% blocktranslate with name=who %}}{WORDS} of {{{{ name }}}} {WORDS}{{% endblocktranslate %}}</p>"
    )
    made = formatted(text)
    assert set(messages_of_template(made)) == set(messages_of_template(text))
    shown = [re.sub(r"\s*(</?p>)\s*", r"\1", Template(one).render(Context({"who": "x"}))) for one in (made, text)]
    assert shown[0].strip() == shown[1]


def test_every_template_is_formatted_and_compiles() -> None:
    tool = Path(sys.executable).with_name("djangofmt")
    done = subprocess.run([tool, "--check", "templates"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for path in TEMPLATES:
        Template(path.read_text(encoding="utf-8"))


def test_what_shows_its_white_space_has_none_of_its_own() -> None:
    """Else each text would begin with an empty line; ``{# djangofmt: ignore[format] #}`` before it keeps it whole."""
    begin = rf'<(\w+)\b[^<>]*class="(?:[^"]*[ }}])?(?:{SHOWN})(?:[ {{][^"]*)?"(?:{{%.*?%}}|[^<>{{]|{{(?!%))*>(?=\s)'
    wrong = [f"{path.name}: {found[0]}" for path in TEMPLATES for found in re.finditer(begin, path.read_text("utf-8"))]
    assert wrong == []


def test_a_cell_that_may_be_empty_has_no_white_space() -> None:
    """On a phone the cells of ``table-cards`` are lines with labels, and empty ones are hidden by ``td:empty``."""
    only = re.compile(r"<td\b[^<>]*>\s+{% if [^%]*%}((?:(?!</?td\b).)*?){% endif %}\s+</td>", re.DOTALL)
    cards = re.compile(r'<table class="[^"]*table-cards.*?</table>', re.DOTALL)
    tables = [(path, table) for path in TEMPLATES for table in cards.findall(path.read_text(encoding="utf-8"))]
    found = [f"{path.name}: {cell}" for path, table in tables for cell in only.findall(table)]
    assert tables and [cell for cell in found if "{% else %}" not in cell] == []


VALUE = r"""(?:"[^"]*"|'[^']*'|{%.*?%}|{{.*?}}|[^<>"'{])*"""
NAMED = ("aria-label", "aria-labelledby", "aria-hidden")


def _tags(pattern: str) -> list[tuple[Path, str, str]]:
    """The opening tags that a pattern begins, with their template and what is before them."""
    texts = [(path, re.sub("{#.*?#}", "", path.read_text(encoding="utf-8"))) for path in TEMPLATES]
    tag = re.compile(rf"<(?:{pattern})\b{VALUE}>", re.DOTALL)
    pages = [(path, text) for path, text in texts if path.name not in ("styleguide.html", "_editor.html")]
    return [(path, found[0], text[: found.start()]) for path, text in pages for found in tag.finditer(text)]


@pytest.mark.parametrize("tag", ["progress", "dialog", "nav"])
def test_what_has_no_text_of_its_own_has_a_name(tag: str) -> None:
    found = _tags(tag)
    assert len(found) > 12
    assert [f"{path.name}: {text}" for path, text, _ in found if not any(name in text for name in NAMED)] == []


def test_a_button_without_words_has_a_name() -> None:
    found = [(path, text) for path, text, _ in _tags("button|a|summary") if "button-icon" in text]
    assert len(found) > 20 and [f"{path.name}: {text}" for path, text in found if "aria-label=" not in text] == []


def test_a_field_has_a_label_or_a_name() -> None:
    """A field with an id has its label elsewhere; the others are inside of one, or carry it."""
    found = [one for one in _tags("input|select|textarea") if not re.search('type="(hidden|checkbox|radio)"', one[1])]
    bare = [one for one in found if "aria-label" not in one[1] and " id=" not in re.sub(r"\s", " ", one[1])]
    outside = [
        f"{path.name}: {text}" for path, text, before in bare if before.rfind("<label") < before.rfind("</label")
    ]
    assert len(found) > 60 and outside == []


def test_a_drawing_is_hidden_from_who_hears_the_page_or_has_a_name() -> None:
    """What is around it may be hidden as a whole."""
    parts = {"_facts.html", "_spread.html", "_plot_axis.html", "_times.html", "_devices.html"}
    found = [(path, text) for path, text, _ in _tags("svg") if path.name not in parts]
    assert len(found) > 8
    assert [path.name for path, text in found if "aria-hidden" not in text and 'role="img"' not in text] == []


def test_errors_of_a_form_are_announced() -> None:
    quiet = {"_memory.html", "_plan.html"}  # lists that come while one types, inside of what is announced as a whole
    found = [(path, text) for path, text, _ in _tags("ul") if "errorlist" in text and path.name not in quiet]
    assert len(found) > 8 and [path.name for path, text in found if 'role="alert"' not in text] == []


def test_the_last_crumb_is_the_page() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in TEMPLATES}
    crumbs = {
        path: re.findall(r"{% block crumbs %}\s(.*?){% endblock %}\s", text, re.DOTALL) for path, text in texts.items()
    }
    made = {str(path.relative_to(ROOT)): found[0] for path, found in crumbs.items() if found and found[0].strip()}
    assert len(made) > 50
    assert [
        name for name, text in made.items() if 'aria-current="page"' not in text and "{% block here" not in text
    ] == []


REPLACED = {
    "inspector/_rows.html": "its rows move while the list follows the newest rollout; the script keeps the place",
    "reading/_pane.html": "the script adds marks to its turns, and gives the scroll and the focus back",
}


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: str(path.relative_to(ROOT / "templates")))
def test_a_part_that_comes_again_by_itself_is_morphed(path: Path) -> None:
    """A part that is replaced loses the focus, the selection and a press that has begun."""
    tags = re.findall(r"<[a-z]+\b[^<>]*?hx-trigger=\"(?:every|[^\"]* from:document)[^<>]*", path.read_text())
    replaced = [tag for tag in tags if 'hx-swap="morph' not in tag]
    assert bool(replaced) == (path.relative_to(ROOT / "templates").as_posix() in REPLACED)
