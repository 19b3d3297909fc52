"""`up` gave the tools server the operator's whole environment, and no token."""

from __future__ import annotations

import ast
import os
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.processes import ROOT, running, wait_for_http
from webapp.common.host import free_port, write_private
from webapp.environments.tokens import site_token
from webapp.ops.programs import tools_program

SECRET = "canary-of-the-operator"
TOKEN = "a-token-of-more-than-sixteen-characters"


def test_the_tools_server_knows_nothing_of_us_and_asks_for_its_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, token_file = free_port(), tmp_path / "tools.token"
    write_private(token_file, TOKEN)
    program = tools_program(port, token_file)
    env = {**os.environ, "OPENAI_API_KEY": SECRET, "DATABASE_URL": f"postgresql://{SECRET}@x/y"}
    with running(program.argv, tmp_path / "log", env) as child:
        wait_for_http(f"http://127.0.0.1:{port}/health", child, tmp_path / "log")
        known = psutil.Process(child.pid).environ()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/reset", data=b"{}", method="POST")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=5)
        assert refused.value.code == 401
        refused.value.close()
    assert SECRET not in str(known) and TOKEN not in str(known) and TOKEN not in " ".join(program.argv)
    places = {"PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH"}
    assert set(known) <= places | {"PYTHONPATH", "PYTHONUNBUFFERED"}


def test_only_the_tools_server_is_shown_its_token(settings: Any) -> None:
    settings.TOOLS_URL, settings.TOOLS_TOKEN = "http://127.0.0.1:8101", TOKEN
    settings.OUTBOUND_ALLOW, settings.ENVIRONMENT_TOKEN = ["127.0.0.1:8101", "10.0.0.5:9000"], "the operator's"
    assert site_token("http://127.0.0.1:8101") == TOKEN
    assert site_token("http://10.0.0.5:9000") == "the operator's"
    assert site_token("http://127.0.0.1:9999") == "" and site_token("http://evil.example:8101") == ""


def test_one_list_says_what_a_child_may_know() -> None:
    """Five places copied variables of ours for a child, each by a list of its own."""
    copies = []
    for folder in ("webapp", "training"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                loops = node.generators if isinstance(node, ast.DictComp) else []
                if any("os.environ" in ast.unparse(part) for loop in loops for part in [loop.iter, *loop.ifs]):
                    copies.append(str(path.relative_to(ROOT)))
    assert copies == ["training/children.py"]
