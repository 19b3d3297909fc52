from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial

import pytest

from envs.bfcl.application import gold_steps, play, validate
from envs.bfcl.package import entries
from envs.bfcl.tasks import read_row, resolve
from tests.envs.client import ROOT, run_module

bfcl = partial(run_module, "envs.bfcl")

# Entries with a turn of more than six calls: upstream's limit of five attempts leaves no way to make them one by one.
TOO_LONG = {
    *(f"multi_turn_{split}_{number}" for split in ("base", "miss_func", "miss_param") for number in (39, 65)),
    *(f"multi_turn_long_context_{number}" for number in (38, 39, 46, 65)),
}


@pytest.mark.slow
def test_gold_solves_all_800_and_nothing_else_scores() -> None:
    summary = validate()
    assert summary["ok"], summary
    assert (summary["entries"], summary["gold_score_mean"]) == (800, 1.0)
    assert summary["bad_score_max"] <= 0.1


def test_gold_with_one_call_a_message_solves_all_but_the_ten_known() -> None:
    steps = {name: gold_steps(resolve(read_row({"id": name}), 0), one_by_one=True) for name in entries()}
    unsolved = {name for name, gold in steps.items() if play({"id": name}, gold)[-1].reward != 1.0}
    assert unsolved == TOO_LONG


def test_augmented_errors_change_no_score() -> None:
    for name in list(entries())[::8]:
        gold = gold_steps(resolve(read_row({"id": name}), 0))
        assert play({"id": name, "errors": "augmented", "compat": True}, gold)[-1].reward == 1.0


def test_rows_are_the_same_in_every_process_and_play() -> None:
    words = ("tasks", "--split", "miss_func", "--output", "-")
    one, two = bfcl(*words, PYTHONHASHSEED="1", TZ="Asia/Tokyo"), bfcl(*words, PYTHONHASHSEED="2")
    assert one.returncode == 0 and one.stdout == two.stdout
    rows = [json.loads(line) for line in one.stdout.splitlines()]
    assert len(rows) == 200
    first = play(rows[0], gold_steps(resolve(read_row(rows[0]), 0)))
    assert first[-1].reward == 1.0
    assert [message.content for message in first[0].messages] == [item["content"] for item in rows[0]["messages"]]


def test_episodes_are_the_same_in_every_process() -> None:
    """Neither the hash seed nor the time zone may show in a result."""
    code = (
        "import hashlib\n"
        "from envs.bfcl.tasks import read_row, resolve\n"
        "from envs.bfcl.application import gold_steps, ids_of, play\n"
        "seen = hashlib.sha256()\n"
        "for name in ids_of(None)[::4]:\n"
        "    for row in ({'id': name}, {'id': name, 'speech': 'text', 'errors': 'augmented'}):\n"
        "        for observation in play(row, gold_steps(resolve(read_row(row), 0))):\n"
        "            seen.update(observation.model_dump_json().encode())\n"
        "print(seen.hexdigest())"
    )
    hashes = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, **environ},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for environ in ({"PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo"}, {"PYTHONHASHSEED": "2", "TZ": "America/Toronto"})
    }
    assert len(hashes) == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--bfcl-version", "v4"), "v4 was asked for"),
        (("tasks", "--output", "/nowhere/x"), "Cannot write"),
        (("--host", "0.0.0.0"), "--token-file"),
    ],
    ids=["version", "output", "host"],
)
def test_bad_options_end_with_a_sentence(words: tuple[str, ...], sentence: str) -> None:
    done = bfcl(*words)
    assert done.returncode == 2
    assert sentence in done.stderr and "Traceback" not in done.stderr


def test_only_the_classes_are_imported_from_the_package() -> None:
    code = (
        "import sys, envs.bfcl.application as v; v.validate(['multi_turn_base_0', 'multi_turn_base_199'])\n"
        "print(sorted({'openenv', 'fastapi', 'torch', 'openai', 'anthropic', 'numpy', 'requests'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
