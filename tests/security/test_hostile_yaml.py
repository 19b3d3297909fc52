"""S-c: 6 KB of `[` in the YAML tab cost 50 s of a core: the scanner's time grew with the square of the depth."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from training.config.text import config_from_yaml
from training.errors import ConfigError
from webapp.launch.yaml_text import YamlProblem, config_from_text

SIZE = 64 * 1024 - 8
HOSTILE = {
    "sequences": "[",
    "mappings": "{",
    "keys": "? ",
    "dashes": "- ",
    "in a key": "[a: ",
    "over lines": "[\n",
    "tags": "!",
    "quotes": '"',
    "anchors": "&a ",
    "comments": "#",
    "spaces": " ",
    "percent": "%",
}


def cpu_s(read: Callable[[str], object], text: str) -> float:
    """The least of three: another process may have disturbed one of them."""
    took = []
    for _ in range(3):
        began = time.thread_time()
        with pytest.raises((ConfigError, YamlProblem)):
            read(text)
        took.append(time.thread_time() - began)
    return min(took)


@pytest.mark.parametrize("read", [config_from_yaml, config_from_text], ids=["library", "page"])
@pytest.mark.parametrize("piece", HOSTILE.values(), ids=HOSTILE)
def test_hostile_yaml_is_refused_quickly(piece: str, read: Callable[[str], object]) -> None:
    text = (piece * SIZE)[:SIZE]
    half, whole = cpu_s(read, text[: SIZE // 2]), cpu_s(read, text)
    assert whole <= 0.1, whole
    assert whole <= 2.5 * half + 0.005, (half, whole)  # 5 ms: below it only the clock is measured


def test_an_alias_and_a_deep_text_are_told_apart() -> None:
    with pytest.raises(ConfigError, match="aliases"):
        config_from_yaml("a: &x [1]\nb: *x\n")
    with pytest.raises(ConfigError, match="nested too deeply"):
        config_from_yaml("a: " + "[" * 65 + "]" * 65)
    with pytest.raises(YamlProblem) as told:
        config_from_text("model:\n  source: starter\nrun:\n  steps: many\n")
    assert {(problem.line, problem.path) for problem in told.value.problems} >= {(4, "run.steps")}
