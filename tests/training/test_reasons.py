"""Python's and the system's own error texts reached people: "[Errno 28] …", "Expecting value: line 1 column 1"."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import socket

import pytest
import yaml

from training.config.job import yaml_bounded
from training.plain import json_reason, os_reason, yaml_reason
from training.rewards.patterns import pattern_problem
from training.rollout.session import no_connection

FOREIGN = re.compile(r"Errno|Expecting|Extra data|delimiter|Invalid |Unterminated|<block|token|constructor|Error\b")
BROKEN = ["", "{", "[1 2]", '{"a" 1}', "{a: 1}", "1 2", '"a', '"\x01"', '"\\q"', '"\\u12"', "nul", "[1,]", "{'a': 1}"]
YAML = [
    ("a: b: c", "there is a colon where no value can begin"),
    ("a:\n - b\n c: d\n", "the indentation does not fit the lines above"),
    ("a: [1,2", "a list or mapping in brackets is not closed, or a comma is missing"),
    ("a: 'x", "a text has no closing quote"),
    ("\ta: 1", "there is a tab in the indentation; use spaces"),
    ("a: @x", "a character is not allowed here; put the text in quotes"),
    ("a: !!python/object:os.system x", "tags (!name) are not allowed"),
    ("---\na: 1\n---\nb: 2", "it holds more than one document"),
    ('a: "\\q"', "a backslash does not begin an escape that YAML knows"),
]


@pytest.mark.parametrize("text", BROKEN)
def test_broken_json_is_explained_in_our_words(text: str) -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads(text)
    assert not FOREIGN.search(json_reason(caught.value)) and "rules of JSON" not in json_reason(caught.value)


@pytest.mark.parametrize(("text", "words"), YAML)
def test_broken_yaml_is_explained_in_our_words(text: str, words: str) -> None:
    with pytest.raises(yaml.YAMLError) as caught:
        yaml_bounded(text)
    assert yaml_reason(caught.value) == words


def test_refusals_of_the_system_are_explained_in_our_words() -> None:
    assert os_reason(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/x")) == "the disk is full"
    assert os_reason(OSError(errno.EBADF, "Bad file descriptor")) == "the system reports EBADF"
    assert os_reason(socket.gaierror(-2, "Name or service not known")) == "the host name is not known"
    several = OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 9), [Errno 111] …")
    assert os_reason(several) == "nothing listens at this address"


async def test_a_server_that_is_not_there_is_explained_in_our_words() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(OSError) as caught:
        await asyncio.open_connection("127.0.0.1", port)
    behind = RuntimeError("All connection attempts failed")
    behind.__cause__ = caught.value
    for error in (caught.value, behind):
        assert no_connection(error).message == "The environment cannot be reached: nothing listens at this address."


def test_a_pattern_that_cannot_be_read_names_the_place() -> None:
    assert pattern_problem("a(b") == "the pattern is no regular expression; see its character 4"
