"""Collecting texts without the gettext tools."""

from __future__ import annotations

from pathlib import Path

import polib
import pytest

from webapp.ops.management.commands.collect_messages import (
    Message,
    catalogue_problems,
    catalogue_update,
    messages_of_python,
    messages_of_template,
    placeholders,
)


def test_python_texts_are_found_wherever_they_are() -> None:
    source = """
_("one" " long")
f"{_('inside')}"
help(title=gettext_lazy("title"))
ngettext("%(n)s row", "%(n)s rows", n)
pgettext("verb", "run")
_(variable)
translation.gettext("by module")
"""
    assert set(messages_of_python(source)) == {
        Message(None, "one long"),
        Message(None, "inside"),
        Message(None, "title"),
        Message("verb", "run"),
        Message(None, "%(n)s row", "%(n)s rows"),
        Message(None, "by module"),
    }


def test_template_texts_are_found() -> None:
    source = """
{% translate "Runs" %} {% translate 'Stop' context "verb" %} {{ _("Log") }} {% include "x.html" with t=_("Tab") %}
{% blocktranslate trimmed with n=run.name %}
  Run {{ n }}
  ended
{% endblocktranslate %}
{% blocktranslate count n=rows %}{{ n }} row{% plural %}{{ n }} rows{% endblocktranslate %}
"""
    assert set(messages_of_template(source)) == {
        Message(None, "Runs"),
        Message("verb", "Stop"),
        Message(None, "Log"),
        Message(None, "Tab"),
        Message(None, "Run %(n)s ended"),
        Message(None, "%(n)s row", "%(n)s rows"),
    }


def test_an_update_keeps_translations_and_drops_what_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "zh_Hans" / "LC_MESSAGES" / "django.po"
    assert catalogue_update(path, {Message(None, "run"): ["a.py"], Message(None, "old"): ["a.py"]}) == (2, 0)
    catalogue = polib.pofile(str(path))
    for entry in catalogue:
        entry.msgstr = "训练任务"
    catalogue.save()
    now = {Message(None, "run"): ["b.py"], Message(None, "new"): ["b.py"]}
    assert catalogue_update(path, now) == (1, 1)
    assert {entry.msgid: entry.msgstr for entry in polib.pofile(str(path))} == {"run": "训练任务", "new": ""}
    assert catalogue_problems(path, now) == ["not translated: 'new'"]


@pytest.mark.parametrize(
    ("translation", "problems"),
    [("第 %(n)s 步", 0), ("一步", 1), ("第 %(m)s 步", 1), ("", 1)],
)
def test_a_translation_keeps_its_placeholders(tmp_path: Path, translation: str, problems: int) -> None:
    path = tmp_path / "django.po"
    messages = {Message(None, "step %(n)s"): ["a.py"]}
    catalogue_update(path, messages)
    catalogue = polib.pofile(str(path))
    catalogue[0].msgstr = translation
    catalogue.save()
    assert len(catalogue_problems(path, messages)) == problems


def test_placeholders_of_all_kinds() -> None:
    assert placeholders("%(a)s %(b).2f {c} {} %d 100%") == {"%(a)s", "%(b).2f", "{c}", "{}", "%d"}
