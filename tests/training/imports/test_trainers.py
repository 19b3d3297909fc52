"""Runs of Hugging Face's Trainer and of TRL, TensorBoard's events, weights of rewards, and packed files."""

from __future__ import annotations

import gzip
import io
import json
import math
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.training.imports.test_readers import of, read
from training.data.files.sources import Given
from training.imports.__main__ import main
from training.imports.read import import_files
from training.imports.rows import weights_in
from training.imports.trackers import masked_crc

STATE = {
    "best_metric": None,
    "epoch": 1.0,
    "global_step": 4,
    "log_history": [
        {"epoch": 0.5, "loss": 0.25, "learning_rate": 1e-6, "reward": 0.5, "rewards/f/mean": 0.5, "step": 2},
        {"epoch": 1.0, "loss": float("nan"), "reward": 0.75, "kind": "x", "step": 4},
        {"eval_loss": 0.125, "step": 4},
        {"epoch": 1.0, "loss": 0.5},
    ],
    "max_steps": 4,
}


def figures(events: list[Any]) -> dict[int, dict[str, float]]:
    """Every figure by step; the first word on each counts here, as the last line repeats the last step."""
    found: dict[int, dict[str, float]] = {}
    for event in of(events, "metrics"):
        found.setdefault(event.step, {}).update(event.values)
    return found


def test_a_trainer_state(tmp_path: Path) -> None:
    report, events = read(tmp_path, ("trainer_state.json", json.dumps(STATE, indent=2).encode()))
    assert (report.tool, report.steps, report.last_step) == ("Hugging Face Trainer", 2, 4)
    assert report.files[0].kind == "trainer_state" and report.files[0].left_out == {
        "kind": "its values are not numbers"
    }
    found = figures(events)
    assert found[2] == {"epoch": 0.5, "loss": 0.25, "learning_rate": 1e-6, "reward": 0.5, "rewards/f/mean": 0.5}
    assert math.isnan(found[4].pop("loss")) and found[4] == {"epoch": 1.0, "reward": 0.75, "eval_loss": 0.125}
    assert [(bad.line, bad.reason) for bad in report.bad] == [(4, "it has no step number")]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"global_step": 1, "log_history": [{"step": 1,', "cut off or is not valid JSON"),
        (b'{"global_step": 1, "log_history": []}', "an empty log_history"),
        (b'{"global_step": 1, "log_history": ' + b"[" * 100_000, "cut off or is not valid JSON"),
    ],
)
def test_a_damaged_trainer_state(tmp_path: Path, data: bytes, words: str) -> None:
    report, _events = read(tmp_path, ("trainer_state.json", data))
    assert report.verdict == "rejected" and words in report.message


CONSOLE = b"""Loading checkpoint shards: 100%|##########| 2/2 [00:01<00:00]
  0%|          | 0/6 [00:00<?, ?it/s]\r 33%|###3      | 2/6 [00:02<00:04,  1.0s/it]
{'loss': 0.5, 'grad_norm': 1.25, 'learning_rate': 1e-06, 'reward': 0.25, 'epoch': 0.33}
 67%|######6   | 4/6 [00:04<00:02,  1.0s/it]{'loss': '0.25', 'grad_norm': np.float64(2.5), 'reward': nan, 'epoch': 0.67}
{'eval_loss': 0.125, 'epoch': 0.67}
100%|##########| 6/6 [00:06<00:00,  1.0s/it]
{'loss': 0.125, 'note': 'fine', 'epoch': 1.0}
{'train_runtime': 6.5, 'train_loss': 0.3, 'epoch': 1.0}
done {'not': 'figures'}
"""


def test_what_a_trainer_prints(tmp_path: Path) -> None:
    """Steps come from the progress bar: every second step is logged here."""
    report, events = read(tmp_path, ("train.log", CONSOLE))
    found = figures(events)
    assert sorted(found) == [2, 4, 6] and report.files[0].kind == "trainer_console"
    assert found[2] == {"loss": 0.5, "grad_norm": 1.25, "learning_rate": 1e-6, "reward": 0.25, "epoch": 0.33}
    assert (found[4]["loss"], found[4]["grad_norm"], found[4]["eval_loss"]) == (0.25, 2.5, 0.125)
    assert (found[6]["loss"], found[6]["train_runtime"]) == (0.125, 6.5)
    assert "taken from the progress bar" in report.files[0].notes[0]
    assert [(each.line, each.reason) for each in report.remarks] == [(7, "'note: fine' is not a name with a number")]


def test_lines_without_a_progress_bar_are_numbered(tmp_path: Path) -> None:
    data = b"".join(b"{'loss': %d.5, 'epoch': 0.1}\n" % number for number in range(3))
    report, events = read(tmp_path, ("train.log", data))
    assert {step: values["loss"] for step, values in figures(events).items()} == {1: 0.5, 2: 1.5, 3: 2.5}
    assert report.files[0].notes == ["Its lines have no step number: they are numbered in their order."]


def _key(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)


def _varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def _bytes(number: int, data: bytes) -> bytes:
    return _key(number, 2) + _varint(len(data)) + data


def _record(data: bytes) -> bytes:
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", masked_crc(head)) + data + struct.pack("<I", masked_crc(data))


def _event(step: int, *values: bytes) -> bytes:
    time = _key(1, 1) + struct.pack("<d", 1_700_000_000.5 + step)
    return _record(time + _key(2, 0) + _varint(step) + _bytes(5, b"".join(_bytes(1, value) for value in values)))


def _simple(tag: str, value: float) -> bytes:
    return _bytes(1, tag.encode()) + _key(2, 5) + struct.pack("<f", value)


def _tensor(tag: str, kind: int, body: bytes) -> bytes:
    return _bytes(1, tag.encode()) + _bytes(8, _key(1, 0) + _varint(kind) + body)


BEGINS = _record(_key(1, 1) + struct.pack("<d", 1_700_000_000.0) + _bytes(3, b"brain.Event:2"))
EVENTS = (
    BEGINS
    + _event(1, _simple("train/reward", 0.5), _simple("actor/kl_loss", 0.25))
    + _event(300, _tensor("train/loss", 1, _bytes(4, struct.pack("<f", 1.5))))
    + _event(301, _tensor("train/loss", 2, _bytes(6, struct.pack("<d", 2.5))), _tensor("args", 7, _bytes(8, b"{}")))
    + _event(302, _tensor("train/loss", 1, _key(5, 5) + struct.pack("<f", 3.5)))
)


def test_the_checksum_is_crc32c() -> None:
    """The check value of CRC-32C is e3069283 for "123456789" (RFC 3720's polynomial); TensorFlow's mask is undone."""
    masked = masked_crc(b"123456789") - 0xA282EAD8 & 0xFFFFFFFF
    assert (masked >> 17 | masked << 15) & 0xFFFFFFFF == 0xE3069283


def test_tensorboard_events(tmp_path: Path) -> None:
    report, events = read(tmp_path, ("events.out.tfevents.1.host", EVENTS))
    assert (report.files[0].kind, report.steps, report.last_step, report.bad_rows) == ("tensorboard", 4, 302, 0)
    found = figures(events)
    assert found[1] == {"train/reward": 0.5, "reward": 0.5, "actor/kl_loss": 0.25, "kl": 0.25}
    assert [found[step]["train/loss"] for step in (300, 301, 302)] == [1.5, 2.5, 3.5]
    assert report.files[0].left_out == {"args": "its values are not numbers"}
    assert of(events, "metrics")[0].t == 1_700_000_001.5


def test_damaged_events_are_listed(tmp_path: Path) -> None:
    broken = bytearray(EVENTS)
    broken[len(BEGINS) + 40] ^= 1
    report, _events = read(tmp_path, ("tf", bytes(broken)))
    assert [(bad.line, bad.reason) for bad in report.bad] == [(2, "its checksum is wrong")] and report.steps == 3


def test_events_that_end_in_the_middle(tmp_path: Path) -> None:
    report, _events = read(tmp_path, ("tf", EVENTS[:-5]))
    assert report.bad[0].reason == "the file ends in the middle of this record" and report.steps == 3


def test_a_length_that_lies_reads_nothing_more(tmp_path: Path) -> None:
    head = struct.pack("<Q", 1 << 62)
    lie = head + struct.pack("<I", masked_crc(head))
    report, _events = read(tmp_path, ("tf", EVENTS + lie + b"x" * 100))
    assert report.bad[0].reason == "its length is damaged, so that nothing after it can be read" and report.steps == 4


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200))
def test_any_bytes_in_an_event_end_with_a_reason(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "tf").write_bytes(
        BEGINS + _record(data) + _event(1, _bytes(1, data), data) + _event(2, _simple("a", 1))
    )
    out = tmp_path / "out"
    out.mkdir(exist_ok=True)
    report = import_files([Given(tmp_path / "tf", "tf")], out)
    assert report.verdict in ("ok", "bad_rows") and all(
        file.rows_in == file.rows + file.bad_rows for file in report.files
    )


ROWS = [
    {"step": 1, "prompt": "q", "completion": "a", "accuracy": 1.0, "format": 1.0, "length": 90.0, "advantage": 0.7},
    {"step": 1, "prompt": "q", "completion": "b", "accuracy": 0.0, "format": 1.0, "length": 10.0, "advantage": -0.7},
]
COMPLETIONS = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
CONFIGS = {
    "yaml": b"learning_rate: 1e-6\nreward_weights: [1.0, 0.5]\n",
    "block": b"reward_weights:\n- 1.0\n- 0.5\nlearning_rate: 1e-6\n",
    "wandb": b"reward_weights:\n    value:\n        - 1\n        - 0.5\nseed:\n    value: 3\n",
    "json": b'{"reward_weights": [1.0, 0.5], "seed": 1}',
    "printed": b"GRPOConfig(reward_weights=[1.0, 0.5], seed=1)",
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_rewards_are_summed_by_the_weights_of_the_run(tmp_path: Path, kind: str) -> None:
    """Raw sums were 92 and 11, of which 90 and 10 are lengths that the run only logged."""
    report, events = read(tmp_path, ("completions_00001.jsonl", COMPLETIONS), ("config", CONFIGS[kind]))
    assert [end.reward for end in of(events, "rollout_finished")] == [1.5, 0.5]
    completions = next(file for file in report.files if file.kind == "trl_completions")
    assert "by `reward_weights`: 1 × accuracy, 0.5 × format." in completions.notes[0]
    assert [file.kind for file in report.files if file.name == "config"] == ["trl_config"]


def test_raw_sums_that_the_advantages_contradict_are_reported(tmp_path: Path) -> None:
    rows = [
        {"prompt": "q", "completion": str(n), "step": 1, "a": a, "b": b, "advantage": adv}
        for n, (a, b, adv) in enumerate([(1.0, 0.0, 1.0), (0.0, 1.0, -0.5), (0.0, 0.5, -0.5)])
    ]
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    report, _events = read(tmp_path, ("completions_1.jsonl", data))
    assert any("In 1 of 1 groups the advantages do not match this sum" in note for note in report.files[0].notes)
    (tmp_path / "weighted").mkdir()
    given = [Given(tmp_path / "in-0", "completions_1.jsonl")]
    again = import_files(given, tmp_path / "weighted", weights=[1.0, 0.0])
    assert not any("do not match" in note for note in again.files[0].notes)


def test_weights_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.jsonl").write_bytes(COMPLETIONS)
    words = ["--input", str(tmp_path / "c.jsonl"), "--output", str(tmp_path / "run"), "--reward-weights"]
    assert main([*words, "1.0,zero"]) == 2 and "not a list of numbers" in capsys.readouterr().err
    assert main([*words, "1.0,0.5"]) == 0
    journal = (tmp_path / "run" / "journal.jsonl").read_text()
    assert '"reward":1.5' in journal and '"reward":0.5' in journal


def test_more_weights_than_parts_is_a_bad_row(tmp_path: Path) -> None:
    report, _events = read(tmp_path, ("completions_1.jsonl", COMPLETIONS), ("c.yaml", b"reward_weights: [1, 1, 1, 1]"))
    assert report.verdict == "rejected" and "it has 3 parts, and there are 4 weights" in report.message


@pytest.mark.parametrize(
    "text", ["reward_weights: [" + "1," * 3000, "reward_weights:\n" + "- 1\n" * 5000, "[" * 60_000]
)
def test_hostile_configs_are_no_weights(tmp_path: Path, text: str) -> None:
    (tmp_path / "c").write_text(text)
    try:
        assert len(weights_in(tmp_path / "c")) <= 64
    except Exception as exc:
        assert "not a list of numbers" in str(exc)


def test_a_packed_log(tmp_path: Path) -> None:
    report, events = read(tmp_path, ("train.log.gz", gzip.compress(CONSOLE)))
    assert report.files[0].name == "train.log" and sorted(figures(events)) == [2, 4, 6]


def test_a_gzip_bomb_is_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as file:
        for _piece in range(100):
            file.write(b"\n" * (1 << 20))
    report, _events = read(tmp_path, ("train.log.gz", buffer.getvalue()))
    assert report.verdict == "rejected" and "unpacks to far more than its size allows" in report.message
    assert not (tmp_path / "out" / "unpacked").exists()


def test_a_config_alone_is_no_run(tmp_path: Path) -> None:
    report, _events = read(tmp_path, ("c.yaml", CONFIGS["yaml"]))
    assert report.verdict == "rejected" and "There is only a config, without a file of its run." in report.message
