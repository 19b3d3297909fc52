"""The comparison with published code counts what it compared, and what it could not measure is no pass."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.parity import __main__ as parity
from benchmarks.parity import helloagents
from benchmarks.parity.bfcl import perturbed, written
from benchmarks.parity.upstream import Skipped, Tally, folder, importable
from envs.bfcl.calls import Call, parse_call
from envs.bfcl.tasks import Task, Turn
from training.data.formats import gsm8k


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    monkeypatch.setattr(sys, "argv", ["parity", *words])
    code = parity.main()
    return code, json.loads(capsys.readouterr().out)["parity"]


def test_what_is_missing_is_skipped_with_a_reason_and_is_no_pass(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    words = ("--upstream", str(tmp_path), "--only", "webshop", "--only", "toolbench", "--only", "agentgym")
    words += ("--only", "helloagents", "--data", str(tmp_path))
    code, found = run(monkeypatch, capsys, *words, "--only", "envtuning")
    assert code == parity.INCOMPLETE
    assert set(found) == {"webshop", "toolbench", "agentgym", "envtuning", "helloagents"}
    assert all(set(system) == {"skipped"} and system["skipped"] for system in found.values())


def test_a_difference_anywhere_fails_whatever_was_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tally = Tally()
    tally.add(True, "a")
    tally.add(False, "b")
    monkeypatch.setattr(parity.bfcl, "measure", lambda data: {"part": tally.report(), "other": {"skipped": "no data"}})
    code, found = run(monkeypatch, capsys, "--only", "bfcl")
    assert code == parity.DIFFERS
    assert found["bfcl"]["part"] == {"compared": 2, "differing": 1, "examples": ["b"]}


def test_the_documented_tool_is_compared_row_by_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seed_data: Path
) -> None:
    monkeypatch.setattr(helloagents, "ROWS", {"test": 1319})
    words = ("--only", "helloagents", "--data", str(seed_data))
    code, found = run(monkeypatch, capsys, *words)
    assert code == 0 and found["helloagents"]["rows"] == {"compared": 2 * 1319 + 2, "differing": 0}
    assert found["helloagents"]["answers"] == {"compared": 2 * 3 + 8, "differing": 0}
    monkeypatch.setattr(gsm8k, "prompt_of", lambda question: f"Question: {question}")
    code, found = run(monkeypatch, capsys, *words)
    assert code == parity.DIFFERS and found["helloagents"]["rows"]["differing"] == 2 * 1319


def test_a_package_that_upstream_needs_is_named(tmp_path: Path) -> None:
    (tmp_path / "needy_upstream.py").write_text("import no_such_package_of_anybody\n")
    with (
        pytest.raises(Skipped, match="no_such_package_of_anybody"),
        importable(folder(tmp_path), stand_in__inner={"value": 1}),
    ):
        __import__("needy_upstream")
    assert str(tmp_path) not in sys.path and "stand_in.inner" not in sys.modules


def test_changed_gold_answers_keep_their_turns_and_can_be_written() -> None:
    calls = tuple(Call("mv", {"source": "a'b", "destination": str(number)}) for number in range(7))
    task = Task("multi_turn_base_0", {}, ("GorillaFileSystem",), (Turn("one", calls), Turn("two", ())))
    for seed in range(200):
        plan = perturbed(task, random.Random(seed))
        assert len(plan) == 2 and all(0 <= len(turn) <= 5 for turn in plan)
        for call in (call for turn in plan for message in turn for call in message):
            assert parse_call(written(call)) == call


def test_a_system_that_breaks_fails_and_leaves_the_others_their_figures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(data: Any) -> dict[str, Any]:
        raise RuntimeError("no answer")

    monkeypatch.setattr(parity.bfcl, "measure", broken)
    code, found = run(monkeypatch, capsys, "--only", "bfcl", "--only", "toolbench")
    assert code == parity.DIFFERS and found["bfcl"] == {"failed": "RuntimeError: no answer"}
    assert "skipped" in found["toolbench"]
