"""Texts that an earlier release stored, and that no code has any more, are Chinese on Chinese pages all the same."""

from __future__ import annotations

from pathlib import Path

import polib
from django.conf import settings
from django.utils import translation

from webapp.common.text import in_words

CATALOGUES = [Path(folder) / "zh_Hans" / "LC_MESSAGES" / "django.po" for folder in settings.LOCALE_PATHS]


def test_a_stored_sentence_of_an_earlier_release_is_translated() -> None:
    stored = {"template": "{count} other files of it are left out: {names}.", "values": {"count": 2, "names": "a, b"}}
    assert in_words(stored) == "2 other files of it are left out: a, b."
    with translation.override("zh-hans"):
        assert in_words(stored) == "其中另外 2 个文件未采用：a, b。"


def test_the_retired_catalogue_is_whole_and_has_no_text_of_today() -> None:
    today, retired = (polib.pofile(str(path)) for path in CATALOGUES)
    assert len(retired) > 200 and not retired.untranslated_entries() and not retired.fuzzy_entries()
    assert {entry.msgid for entry in retired} & {entry.msgid for entry in today} == set()
