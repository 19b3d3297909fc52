"""6 KB of `[` in the YAML tab cost 50 s of a core: the scanner's time grew with the square of the depth."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.growth import assert_linear
from training.config.job import config_from_yaml
from training.errors import ConfigError
from webapp.launch.findings import YamlProblem, config_from_text

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


def refused(read: Callable[[str], object], text: str) -> Callable[[], None]:
    def work() -> None:
        with pytest.raises((ConfigError, YamlProblem)):
            read(text)

    return work


@pytest.mark.parametrize("read", [config_from_yaml, config_from_text], ids=["library", "page"])
@pytest.mark.parametrize("piece", HOSTILE.values(), ids=HOSTILE)
def test_hostile_yaml_is_refused_quickly(piece: str, read: Callable[[str], object]) -> None:
    text = (piece * SIZE)[:SIZE]
    assert_linear(lambda size: refused(read, text[:size]), SIZE, limit_s=0.1, quiet_s=0.005)


def test_an_alias_and_a_deep_text_get_different_messages() -> None:
    with pytest.raises(ConfigError, match="aliases"):
        config_from_yaml("a: &x [1]\nb: *x\n")
    with pytest.raises(ConfigError, match="nested too deeply"):
        config_from_yaml("a: " + "[" * 65 + "]" * 65)
    with pytest.raises(YamlProblem) as caught:
        config_from_text("model:\n  source: starter\nrun:\n  steps: many\n")
    assert {(problem.line, problem.path) for problem in caught.value.problems} >= {(4, "run.steps")}
