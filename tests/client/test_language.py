"""The client's own words: English in the code, all of them in Chinese, by the terminal's language."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import polib
import pytest
import typer
from tiltyard_client import cli, show, words

from tests.client.catalogue import PATH, client_messages, help_texts
from tests.client.conftest import Tool, refused
from tests.test_words import FORBIDDEN, HALF_WIDTH
from webapp.ops.management.commands.collect_messages import catalogue_problems

ROOT = Path(__file__).resolve().parents[2]
HAN = re.compile("[\u4e00-\u9fff]")


def terminal(*arguments: str, **env: str) -> str:
    """What ``tiltyard`` prints in a process of its own, on a terminal of 80 columns."""
    kept = {name: value for name, value in os.environ.items() if name not in words.VARIABLES}
    here = {**kept, "PYTHONPATH": str(ROOT / "client"), "COLUMNS": "80", "XDG_CONFIG_HOME": "/nowhere", **env}
    argv = [sys.executable, "-m", "tiltyard_client", *arguments]
    made = subprocess.run(argv, env=here, capture_output=True, text=True, timeout=60)
    return made.stdout + made.stderr


def test_every_text_has_its_chinese() -> None:
    problems = catalogue_problems(PATH, client_messages())
    shown = "\n".join(problems[:40])
    assert not problems, f"{len(problems)} problems; `make messages`, then translate:\n{shown}"


def test_the_texts_are_found_wherever_they_are() -> None:
    """Help of a group, a command, an argument, an option and typer's own; a state, a plural, a text in an exception."""
    found = {message.text for message in client_messages()}
    assert {
        "Models.",
        "Put your star on runs; only you see it.",
        "The suite's name.",
        "The job as YAML.",
        "Show this message and exit.",
        "queued",
        "{n} file in {folder}, as it was sent.",
        "There is no run '{name}' in {project}.",
    } <= found
    assert len(found) > 250


def test_chinese_has_one_word_for_each_notion() -> None:
    wrong = []
    for entry in polib.pofile(str(PATH)):
        for text in [entry.msgstr, *entry.msgstr_plural.values()]:
            wrong += [f"{text}: {why}" for word, why in FORBIDDEN.items() if word in text]
            wrong += [f"{text}: {match[0]}" for match in HALF_WIDTH.finditer(text)]
    assert wrong == []


def test_the_catalogue_is_read_as_polib_reads_it() -> None:
    """Entries over several lines, plurals, quotes and escapes included."""
    mine = words.messages_of(PATH.read_text(encoding="utf-8"))
    other = {entry.msgid: entry.msgstr or entry.msgstr_plural[0] for entry in polib.pofile(str(PATH))}
    assert mine == other and len(mine) > 250
    header, plain = 'msgid ""\nmsgstr "x: y"\n', 'msgid "e"\nmsgstr ""\n'
    tricky = '#: a.py\nmsgid ""\n"a \\"b\\" "\n"c\\n"\nmsgstr ""\n"d\\\\"\n'
    assert words.messages_of("\n".join((header, tricky, plain))) == {'a "b" c\n': "d\\"}


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh-hans"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "en_US.UTF-8"}, "en"),
        ({"LANG": "en_US.UTF-8", "LC_ALL": "zh_CN.UTF-8"}, "zh-hans"),
        ({"LANG": "en_US.UTF-8", "LC_MESSAGES": "zh_CN.UTF-8"}, "zh-hans"),
        ({"LC_ALL": "C", "TILTYARD_LANG": "zh"}, "zh-hans"),
        ({"LC_ALL": "zh_CN.UTF-8", "TILTYARD_LANG": "en"}, "en"),
        ({"TILTYARD_LANG": "zh-Hans"}, "zh-hans"),
        ({"TILTYARD_LANG": "", "LANG": "zh_CN"}, "zh-hans"),
        ({"TILTYARD_LANG": "klingon"}, "en"),
    ],
)
def test_the_language_is_the_terminals(monkeypatch: pytest.MonkeyPatch, env: dict[str, str], expected: str) -> None:
    for name in words.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert words.language() == expected


def test_help_is_in_the_readers_language() -> None:
    shown = terminal("run", "--help", LANG="zh_CN.UTF-8")
    assert "给训练任务加星" in shown and "显示本说明并退出" in shown and "─ 选项 ─" in shown and "─ 命令 ─" in shown
    assert "Put your star on runs" in terminal("run", "--help", LANG="C.UTF-8")
    output = terminal("run", "list", TILTYARD_LANG="zh")
    assert output.startswith("请先登录：tiltyard login")


def test_no_chinese_help_is_cut_off(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Text without a space cannot be wrapped: what does not fit into 80 columns would end in dots."""
    monkeypatch.setenv("TILTYARD_LANG", "zh")
    monkeypatch.setenv("COLUMNS", "80")
    command = words.translated(typer.main.get_command(cli.app))
    assert all(HAN.search(text) for text in help_texts(command))
    ways = [[], *([name] for name in command.commands)]
    ways += [[name, below] for name, group in command.commands.items() for below in getattr(group, "commands", {})]
    assert len(ways) > 45
    cut = []
    for way in ways:
        command([*way, "--help"], prog_name="tiltyard", standalone_mode=False)
        shown = capsys.readouterr().out
        assert "显示本说明并退出" in shown, way
        cut += [f"{' '.join(way)}: {line}" for line in shown.splitlines() if "…" in line]
    assert cut == []


def test_sentences_tables_and_numbers_are_in_chinese(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("TILTYARD_LANG", "zh")
    show.runs([{"name": "a", "kind": "grpo", "state": "paused", "step": 1, "total_steps": 2, "last_reward": 0.5}])
    shown = capsys.readouterr().out
    assert "训练任务" in shown and "已暂停" in shown and "grpo" in shown
    assert show.interval("success", {"value": 0.75, "low": 0.5, "high": 1.0}) == "75%（50 至 100）"
    assert words.ngettext("{n} file in {folder}, as it was sent.", "{n} files", 1).startswith("{folder} 中有")
    assert show.state("a state of a newer site") == "a state of a newer site"


class _Site(BaseHTTPRequestHandler):
    heard: list[str] = []

    def do_GET(self) -> None:
        """No Tiltyard, but it hears which language was asked for."""
        self.heard.append(self.headers.get("Accept-Language", ""))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def deaf() -> Iterator[str]:
    """A server that answers, but not as a site does."""
    _Site.heard.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Site)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_the_site_is_asked_in_the_same_language(deaf: str) -> None:
    place = {"TILTYARD_URL": deaf, "TILTYARD_TOKEN": "x"}
    assert "但不像演武场站点的回答" in terminal("project", "list", TILTYARD_LANG="zh", **place)
    assert "not as a Tiltyard site does" in terminal("project", "list", TILTYARD_LANG="en", **place)
    assert _Site.heard == ["zh-hans", "en"]


@pytest.mark.django_db(transaction=True)
def test_both_sides_speak_chinese(tool: Tool, make_run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """What the client refuses, and what the server does."""
    make_run(name="busy", state="running")
    monkeypatch.setenv("TILTYARD_LANG", "zh")
    refused(tool("run", "show", "nothing"), "joust 中没有训练任务“nothing”。")
    answer = tool("run", "archive", "busy")
    assert answer.exit_code == 1 and HAN.search(answer.stderr) and "has not ended" not in answer.stderr
