from __future__ import annotations

import json
from pathlib import Path

import pytest

from envs.toolbench.__main__ import main


def test_tasks_are_written(files: Path, tmp_path: Path) -> None:
    output = tmp_path / "tasks.jsonl"
    assert main(["tasks", "--count", "2", "--start", "5", "--output", str(output)]) == 0
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [(row["query_id"], row["task_set"], row["id"]) for row in rows] == [
        *((5, "world-1", "toolbench-world-1-5"), (6, "world-1", "toolbench-world-1-6"))
    ]
    words = ["tasks", "--queries", str(files / "queries.json"), "--query-ids", str(files / "ids.json")]
    assert main([*words, "--speech", "text", "--output", str(output)]) == 0
    (row,) = [json.loads(line) for line in output.read_text().splitlines()]
    messages = row.pop("messages")
    assert [message["role"] for message in messages] == ["system", "user"] and messages[1]["content"] == "And Rome?"
    assert "Action Input" in messages[0]["content"]
    assert row == {
        **{"id": "toolbench-queries-9", "query_id": 9, "task_set": "queries", "speech": "text", "question": "And Rome?"}
    }


def test_demonstrations_are_written(tmp_path: Path) -> None:
    output = tmp_path / "sft.jsonl"
    assert main(["demonstrations", "--count", "3", "--output", str(output)]) == 0
    assert len(output.read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--tools", "/nowhere"], "--tools /nowhere is not a folder"),
        (["--cache", "/nowhere"], "--cache /nowhere is not a folder"),
        (["--queries", "/nowhere"], "/nowhere cannot be read as JSON"),
        (["--query-ids", "/nowhere"], "--query-ids chooses from --queries"),
        (["--simulator-url", "file:///x", "--simulator-model", "m"], "--simulator-url must be"),
        (["--simulator-url", "http://127.0.0.1:9"], "--simulator-model"),
        (["--simulator-url", "http://127.0.0.1:9", "--simulator-key-file", "/nowhere"], "key file /nowhere"),
        (["--host", "0.0.0.0"], "--token-file"),
    ],
)
def test_bad_options_are_a_sentence(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--port", "0", *words]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["[5]", '{"a": 1}', '[{"query": "x"}]', '[{"query_id": "y", "query": "x", "api_list": []}]']
)
def test_files_that_are_no_queries_are_named(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "queries.json"
    path.write_text(text)
    assert main(["tasks", "--queries", str(path), "--output", "-"]) == 2
    assert "is not a list of queries" in capsys.readouterr().err


@pytest.mark.parametrize(("ids", "sentence"), [("[1]", "leave no query"), ('["x"]', "query ids"), ("5", "query ids")])
def test_ids_that_choose_nothing(
    ids: str, sentence: str, files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ids.json").write_text(ids)
    words = ["--queries", str(files / "queries.json"), "--query-ids", str(tmp_path / "ids.json")]
    assert main(["tasks", *words, "--output", "-"]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["tasks"], ["--max-turns", "0"], ["--max-observation", "1"], ["--dialect", "x"], ["nothing"]]
)
def test_wrong_options_are_explained(words: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
