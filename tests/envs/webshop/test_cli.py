from __future__ import annotations

import json
from pathlib import Path

import pytest

from envs.webshop.__main__ import main


def test_tasks_are_written(tmp_path: Path) -> None:
    output = tmp_path / "tasks.jsonl"
    assert main(["tasks", "--products", "50", "--count", "5", "--start", "3", "--output", str(output)]) == 0
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["session_id"] for row in rows] == [3, 4, 5, 6, 7]
    messages = rows[0].pop("messages")
    assert rows[0] == {"id": "webshop-generated-50-0-3", "session_id": 3, "catalogue": "generated-50-0"}
    assert [message["role"] for message in messages] == ["system", "user"]
    assert messages[1]["content"].startswith("WebShop [SEP] Instruction: [SEP] Find me ")


def test_a_written_catalogue_is_validated_and_played(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--products", "60", "--catalogue-seed", "2", "--output", str(tmp_path / "shop")]) == 0
    assert main(["validate", "--data", str(tmp_path / "shop"), "--seeds", "5"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True
    assert main(["baseline", "--data", str(tmp_path / "shop"), "--count", "20", "--reward", "fixed"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert (figures["episodes"], figures["catalogue"]) == (20, "webshop-60")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["validate", "--data", "/nowhere"], "must hold one file items_shuffle"),
        (["serve", "--data", "/nowhere", "--port", "0"], "must hold one file items_shuffle"),
        (["serve", "--port", "0", "--host", "0.0.0.0"], "--token-file"),
        (["--slots", "0", "--port", "0"], "--slots must be at least 1"),
        (["tasks", "--products", "5", "--output", "/nowhere/x"], "Cannot write /nowhere/x"),
        (["tasks", "--products", "1", "--goals", "human", "--output", "-"], "no human goals"),
    ],
)
def test_bad_options_are_a_sentence(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["tasks"], ["validate", "--seeds", "0"], ["generate", "--products", "0", "--output", "x"]]
)
def test_wrong_options_are_explained(words: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
