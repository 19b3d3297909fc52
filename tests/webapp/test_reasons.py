"""What a person typed wrongly is explained in their language; it was Python's English: "Expecting value: line 1 …"."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.utils import translation

from webapp.common.text import json_words, os_words
from webapp.environments.views import EnvironmentForm
from webapp.launch.findings import YamlProblem, config_from_text
from webapp.rewards.pasted import conversations_of, pasted_episodes

BROKEN = '{"a":\n tru}'
FOREIGN = ("Expecting", "line 2 column", "mapping values", "Errno")


def _environment_options() -> None:
    form: Any = EnvironmentForm.__new__(EnvironmentForm)
    form.cleaned_data = {"options": BROKEN}
    form.clean_options()


TYPED: dict[str, Callable[[], object]] = {
    "options of an environment": _environment_options,
    "a conversation to try": lambda: pasted_episodes(BROKEN),
    "conversations of the lab": lambda: list(conversations_of(BROKEN.replace("\n", ""))),
    "a config as YAML": lambda: config_from_text("kind: grpo\na: b: c\n"),
}


@pytest.mark.parametrize("what", TYPED)
def test_broken_texts_are_explained_in_the_readers_language(what: str) -> None:
    with translation.override("zh-hans"), pytest.raises((ValidationError, YamlProblem)) as caught:
        TYPED[what]()
    message = str(caught.value)
    assert not any(word in message for word in FOREIGN)
    assert any("\u4e00" <= letter <= "\u9fff" for letter in message), message


def test_the_place_of_the_mistake_is_named() -> None:
    with pytest.raises(ValidationError) as caught:
        pasted_episodes(BROKEN)
    assert caught.value.messages == [
        "This is not valid JSON: a value is missing, misspelt or without quotes (line 2, column 2)."
    ]
    assert json_words(RecursionError()) == "This JSON is nested too deeply."
    with translation.override("zh-hans"):
        assert os_words(OSError(errno.ENOSPC, "No space left on device")) == "磁盘已满"
