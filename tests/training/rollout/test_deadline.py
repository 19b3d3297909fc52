"""Code of others ends in time, and what it leaves behind is as it was."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from tests.training.rollout.templates import SILENT, text_of, tokenizer_for
from training.errors import ModelError, TemplateError
from training.rollout import tokens
from training.rollout.session import OutOfTime, deadline
from training.rollout.templates import use_training_template
from training.rollout.tokens import ChatTemplate

LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}" + SILENT
"""Within the sandbox's limit of a range, and ten thousand million rounds long."""


def ticking() -> Callable[[], float]:
    """A clock that advances by a second whenever it is looked at."""
    seconds = iter(range(10**9))
    return lambda: float(next(seconds))


def lines(count: int) -> int:
    done = 0
    for _ in range(count):
        done += 1
    return done


def test_a_block_that_takes_too_long_ends_at_its_next_line_and_one_in_time_does_not() -> None:
    with pytest.raises(OutOfTime), deadline(50, clock=ticking()):
        lines(1000)
    with deadline(50, clock=ticking()):
        assert lines(5) == 5


def test_nothing_inside_takes_the_end_for_an_error_of_its_own() -> None:
    def careless() -> None:
        while True:
            try:
                lines(1000)
            except Exception:  # noqa: S112 - what is tested
                continue

    with pytest.raises(OutOfTime), deadline(50, clock=ticking()):
        careless()


def test_another_trace_continues_afterwards() -> None:
    before = sys.gettrace()
    with pytest.raises(OutOfTime), deadline(0, clock=ticking()):
        lines(3)
    assert sys.gettrace() is before


@pytest.mark.parametrize("prepare", [use_training_template, lambda tokenizer: ChatTemplate(tokenizer).family])
def test_a_template_that_loops_is_refused_by_name(
    prepare: Callable[[object], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "PROBES_S", 0.2)
    with pytest.raises(ModelError, match=r"takes more than 0\.2 seconds to render a few short messages") as found:
        prepare(tokenizer_for(LOOPS))
    assert not isinstance(found.value, TemplateError)  # no other template is looked for


def test_a_template_in_time_is_what_it_was() -> None:
    chat = ChatTemplate(tokenizer_for(text_of("qwen3")))
    assert chat.family.dialect == "hermes"
