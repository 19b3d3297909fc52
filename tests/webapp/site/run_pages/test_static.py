"""Static files: hashes of what others wrote, tokens that agree, texts that exist in both languages."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import polib
import pytest
from django.template.loader import render_to_string
from django.utils import translation

from webapp.common.static_files import PLOTLY
from webapp.common.strings import strings_for

ROOT = Path(__file__).resolve().parents[4]
SCRIPTS = sorted((ROOT / "static/js").rglob("*.js"))
OURS = [
    "app.js",
    "lib/format.js",
    "lib/head.js",
    "lib/failure.js",
    "lib/log.js",
    "lib/curves.js",
    "lib/chart.js",
    "lib/transcript.js",
    "lib/rollouts.js",
    "pages/run.js",
    "pages/run_curves.js",
    "pages/inspector_pane.js",
]


def test_vendor_files_are_what_the_table_says() -> None:
    table = (ROOT / "static/vendor/README.md").read_text()
    for path in [*(ROOT / "static/vendor").glob("*.js"), *(ROOT / "static/vendor").glob("*.woff2")]:
        assert f"{path.name} |" in table
        assert hashlib.sha256(path.read_bytes()).hexdigest() in table


def test_plotly_is_the_published_file_but_for_the_parentheses_around_its_factory() -> None:
    text = (ROOT / "static" / PLOTLY).read_text()
    assert text.count(": this, (() => {") == 1 and text.endswith("})));")
    published = text.replace(": this, (() => {", ": this, () => {").removesuffix("})));") + "}));"
    known = "99784e3abfb07b142a15e521a439e6d9addceadb3f79553fd24c72774f0649ba"
    assert hashlib.sha256(published.encode()).hexdigest() == known


def test_both_ways_to_dark_are_the_same_dark() -> None:
    css = (ROOT / "static/css/tokens.css").read_text()
    blocks = re.findall(r'\[data-theme="(?:system|dark)"\] \{(.*?)\}', css, re.S)
    assert len(blocks) == 2
    assert blocks[0].split() == blocks[1].split()


def test_colours_come_from_tokens_only() -> None:
    for path in (ROOT / "static/css").rglob("*.css"):
        if path.name != "tokens.css":
            assert not re.search(r"#[0-9a-fA-F]{3,8}\b(?![-\w])(?=[^{]*;)|rgb\(|hsl\(", path.read_text()), path.name


def test_css_uses_only_tokens_that_exist() -> None:
    every = "".join(path.read_text() for path in (ROOT / "static/css").rglob("*.css"))
    defined = set(re.findall(r"(--[\w-]+)\s*:", every))
    used = set(re.findall(r"var\((--[\w-]+)\)", every))
    assert used <= defined


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_keep_the_rules(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"\.(innerHTML|outerHTML)\s*=|insertAdjacentHTML|document\.write|\beval\(|new Function", text)
    assert text.count("\n") <= 300


def test_every_text_of_our_scripts_is_in_the_catalogue() -> None:
    known = strings_for("base") | strings_for("run")
    for name in OURS:
        text = (ROOT / "static/js" / name).read_text()
        for key in re.findall(r'\bt\("([^"]+)"', text):
            assert key in known, f"{name}: {key}"


def test_every_text_of_our_pages_is_translated() -> None:
    catalogue = polib.pofile(str(ROOT / "locale/zh_Hans/LC_MESSAGES/django.po"))
    done = {entry.msgid for entry in catalogue if entry.translated()}
    places = ["components", "teams", "rollouts"]
    templates = [path for place in places for path in (ROOT / "templates" / place).glob("*.html")]
    templates += [path for path in (ROOT / "templates/runs").glob("*.html") if "new" not in path.name]
    for path in templates:
        for msgid in re.findall(r"""\{% translate (?:"([^"]+)"|'([^']+)')""", path.read_text()):
            text = (msgid[0] or msgid[1]).replace("%", "%%")  # as Django looks templates' texts up
            assert text in done, f"{path.name}: {msgid}"
    with translation.override("zh-hans"):
        chinese = strings_for("run") | strings_for("base")
    with translation.override("en"):
        english = strings_for("run") | strings_for("base")
    same = {key for key in english if chinese[key] == english[key]}
    assert same <= {"hidden_char"}, same
    for key, text in english.items():
        assert set(re.findall(r"\{\w+\}", text)) == set(re.findall(r"\{\w+\}", chinese[key])), key


def test_templates_are_short() -> None:
    for path in (ROOT / "templates").rglob("*.html"):
        assert path.read_text().count("\n") <= 200, path


def test_the_failure_page_needs_no_context() -> None:
    assert "Tiltyard failed" in render_to_string("500.html")
