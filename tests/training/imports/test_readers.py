"""Readers on small files: TRL's completions, tables, chat marks, archives, and files that mean harm."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import training
from training.data.files.sources import Given
from training.data.problems import CheckLimits
from training.imports.__main__ import main
from training.imports.read import import_files, run_import
from training.imports.recorder import METRICS, mapped, ours
from training.imports.report import ImportReport
from training.imports.rollouts import split_texts
from training.journal import read_events
from training.words import Sentence
from webapp.ops.management.commands.collect_messages import messages_of_python

NAN = float("nan")
NAMES = {"ChatML", "Llama 3"}
GOOD = {"input": "hi", "output": "ho", "score": 1.0, "step": 1}
LINE = json.dumps(GOOD).encode()


@cache
def marked() -> set[str]:
    """Texts of these packages that have a translation."""
    package = Path(training.__file__).parent
    sources = [path for pattern in ("imports/*.py", "data/**/*.py", "plain.py") for path in package.glob(pattern)]
    return {message.text for path in sources for message in messages_of_python(path.read_text(encoding="utf-8"))}


def read(folder: Path, *files: tuple[str, bytes]) -> tuple[ImportReport, list[Any]]:
    given = []
    for number, (name, data) in enumerate(files):
        (folder / f"in-{number}").write_bytes(data)
        given.append(Given(folder / f"in-{number}", name))
    (folder / "out").mkdir()
    report = import_files(given, folder / "out")
    assert all(file.rows_in == file.rows + file.bad_rows for file in report.files)
    assert_can_be_translated(report)
    journal = folder / "out" / "journal.jsonl"
    assert journal.exists() == (report.verdict != "rejected") and not journal.with_suffix(".jsonl.part").exists()
    return report, [event for _, event in read_events(journal, max_bytes=1 << 30)] if journal.exists() else []


def assert_can_be_translated(report: ImportReport) -> None:
    """Each sentence says in English what its template and values do, and the template is marked for translation."""
    listed = report.bad + report.remarks
    assert [item.reason for item in listed] == [str(item.told)[:200] for item in listed]
    assert report.message == " ".join(map(str, report.told))
    assert [file.notes for file in report.files] == [[*map(str, file.told)] for file in report.files]
    reasons = {why for file in report.files for why in file.left_out.values()}
    sentence = (
        [item.told for item in listed if item.told]
        + report.told
        + [sentence for file in report.files for sentence in file.told]
    )
    assert reasons | {text for each in sentence for text in templates(each)} <= marked() | NAMES


def templates(sentence: Sentence) -> Iterator[str]:
    yield sentence.template
    for value in sentence.values.values():
        if isinstance(value, Sentence):
            yield from templates(value)


def of(events: list[Any], kind: str) -> list[Any]:
    return [event for event in events if event.type == kind]


def test_completions_as_trl_writes_them(tmp_path: Path) -> None:
    """The columns of ``GRPOTrainer.log``: a reward that is missing is NaN there, the total is not recorded."""
    pandas = pytest.importorskip("pandas")
    ask = [{"role": "user", "content": "2+2?"}]
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 2}}}
    done = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "name": "add", "content": "4"},
        {"role": "assistant", "content": "It is 4."},
    ]
    table = {
        "step": [5] * 4,
        "prompt": [ask] * 4,
        "completion": [done, done, done, done],
        "accuracy": [1.0, 0.0, NAN, NAN],
        "format": [0.5, 0.5, 0.25, NAN],
        "note": ["a", "b", "c", "d"],
        "advantage": [0.7, -0.7, 0.0, 0.0],
    }
    buffer = io.BytesIO()
    pandas.DataFrame(table).to_parquet(buffer)
    report, events = read(tmp_path, ("completions_00005.parquet", buffer.getvalue()))
    assert (report.tool, report.rollouts, report.groups, report.last_step) == ("TRL", 4, 1, 5)
    ends = of(events, "rollout_finished")
    assert [end.reward for end in ends] == [1.5, 0.5, 0.25, None]
    assert [end.parts["accuracy"] for end in ends] == [1.0, 0.0, None, None]
    assert [end.status for end in ends] == ["completed"] * 3 + ["excluded"] and {end.turns for end in ends} == {2}
    assert of(events, "group_scored")[0].advantages == [0.7, -0.7, 0.0, 0.0]
    turns = [turn.messages for turn in of(events, "turn") if turn.rollout == "5/0/0"]
    assert [[message.role for message in turn] for turn in turns] == [["user"], ["assistant"], ["tool"], ["assistant"]]
    assert turns[1][0].tool_calls[0].arguments == {"a": 2, "b": 2} and turns[2][0].name == "add"
    figures = {name: value for event in of(events, "metrics") for name, value in event.values.items()}
    assert (figures["reward"], figures["rewards/accuracy/mean"], figures["rollouts/excluded"]) == (0.75, 0.5, 1)
    assert list(report.files[0].left_out) == ["note"] and "weight 1" in report.files[0].notes[0]


CHATML = (
    "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
    "ho<|im_end|>\n<|im_start|>user\nmore<|im_end|>\n<|im_start|>assistant\nend<|im_end|>",
)
SYSTEM, USER, ASSISTANT = (
    f"<|start_header_id|>{role}<|end_header_id|>\n\n" for role in ("system", "user", "assistant")
)
LLAMA = (
    f"<|begin_of_text|>{SYSTEM}Be brief.<|eot_id|>{USER}hi<|eot_id|>{ASSISTANT}",
    f"ho<|eot_id|>{USER}more<|eot_id|>{ASSISTANT}end<|eot_id|>",
)
PLAIN = ("system\nBe brief.\nuser\nhi\nassistant\n", "ho\nuser\nmore\nassistant\nend\n")
TALK = ["system: Be brief.", "user: hi", "assistant: ho", "user: more", "assistant: end"]


@pytest.mark.parametrize(("marks", "texts"), [("ChatML", CHATML), ("Llama 3", LLAMA), ("plain roles", PLAIN)])
def test_marks_of_chat_templates(marks: str, texts: tuple[str, str]) -> None:
    messages, prompt, found = split_texts(*texts)
    assert ([f"{m.role}: {m.content}" for m in messages], prompt, found) == (TALK, 2, marks)


@pytest.mark.parametrize("prompt", ["hi", "the user\nassistant\n", "user\nhi", "assistant\n"])
def test_a_text_without_marks_is_one_question_and_one_answer(prompt: str) -> None:
    messages, count, found = split_texts(prompt, "a\nuser\nb")
    assert ([m.role for m in messages], [m.content for m in messages]) == (
        ["user", "assistant"],
        [prompt, "a\nuser\nb"],
    )
    assert (count, found) == (1, "")


def test_groups_by_input_or_uid_across_files(tmp_path: Path) -> None:
    rows = [GOOD | {"score": score, "uid": uid} for score, uid in ((1, "a"), (0, "b"), (0, "a"))]
    first, second = (b"\n".join(json.dumps(row).encode() for row in part) for part in (rows[:2], rows[2:]))
    report, events = read(tmp_path, ("1-a.jsonl", first), ("1-b.jsonl", second))
    last = {(event.step, event.group): event for event in of(events, "group_scored")}
    assert report.groups == 2 and last[1, 0].rollouts == ["1/0/0", "1/0/1"]
    assert last[1, 0].reward_mean == 0.5 and last[1, 1].zero_variance


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.csv", "step,name,value\n1,loss,0.5\n1,reward,1\n2,loss,nan\n", {(1, "loss"): 0.5, (1, "reward"): 1.0}),
        ("run-tag-critic_score_mean.csv", "Wall time,Step,Value\n1.7e9,3,0.25\n", {(3, "reward"): 0.25}),
        ("w.csv", '"Step","r - train/loss","r - train/loss__MAX"\n4,1,9\n', {(4, "loss"): 1.0, (4, "train/loss"): 1.0}),
        ("h.csv", "_step,train/global_step,x\n9,4,1\n", {(4, "x"): 1.0, (4, "_step"): 9.0}),
        ("h.jsonl", '{"step": 2, "kl": 0.1, "mode": "train"}\n', {(2, "kl"): 0.1}),
        ("bom.csv", "\ufeffstep;loss\r\n1;0.5\r\n", {(1, "loss"): 0.5}),
    ],
)
def test_tables(tmp_path: Path, name: str, text: str, expected: dict[tuple[int, str], float]) -> None:
    _report, events = read(tmp_path, (name, text.encode()))
    figures = {(event.step, key): value for event in of(events, "metrics") for key, value in event.values.items()}
    assert expected.items() <= figures.items() and "MAX" not in str(figures)


def test_names_that_mean_the_same() -> None:
    values, became = mapped({"critic/rewards/mean": 1.0, "critic/score/mean": 2.0, "train/rewards/f/mean": 3.0})
    assert values["reward"] == 2.0 and values["critic/rewards/mean"] == 1.0 and values["rewards/f/mean"] == 3.0
    assert became == {"critic/score/mean": "reward", "train/rewards/f/mean": "rewards/f/mean"}
    assert mapped({"critic_vf_explained_var": 0.4, "critic/vf_loss": 0.1})[0]["value/explained_variance"] == 0.4
    assert mapped({"reward": 5.0, "critic/score/mean": 2.0})[0]["reward"] == 5.0
    assert ours("val-core/gsm8k/acc") == "" and all(
        ours(name) == our for our, names in METRICS.items() for name in names
    )


ROWS: dict[str, tuple[bytes, str]] = {
    "not_json": (b"{hello", "not valid JSON"),
    "a_list": (b"[1]", "not a JSON object"),
    "nul": (LINE.replace(b"ho", b"h\\u0000"), "NUL character"),
    "nul_byte": (LINE.replace(b"ho", b"h\0"), "NUL byte"),
    "surrogate": (LINE.replace(b"ho", b"\\ud83d"), "half of a surrogate pair"),
    "surrogate_key": (LINE[:-1] + b', "\\udc00": 1}', "half of a surrogate pair"),
    "latin1": (LINE.replace(b"ho", b"\xe9"), "not UTF-8"),
    "deep": (LINE[:-1] + b', "x": ' + b"[" * 10_000 + b"]" * 10_000 + b"}", "nested deeper"),
    "deep_objects": (b'{"a":' * 10_000, "nested deeper"),
    "twice": (LINE[:-1] + b', "score": 0}', "the key 'score' appears twice in one object"),
    "huge": (LINE[:-1] + b', "x": 1e999}', "too large"),
    "digits": (LINE[:-1] + b', "x": ' + b"9" * 5000 + b"}", "too many digits"),
    "output_number": (LINE.replace(b'"ho"', b"1"), "`input` or `output` is not text"),
    "step_text": (LINE.replace(b'"step": 1', b'"step": "x"'), "'x' is not a number"),
    "step_negative": (LINE.replace(b'"step": 1', b'"step": -1'), "not a whole number"),
    "step_nan": (LINE.replace(b'"step": 1', b'"step": 1.5'), "not a whole number"),
    "score_text": (LINE.replace(b"1.0", b'"high"'), "'high' is not a number"),
    "long": (b'{"input": "' + b"y" * (5 << 20) + b'"}', "longer than 4 MB"),
    "columns": (json.dumps(GOOD | {f"c{i}": 1 for i in range(250)}).encode(), "columns"),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_bad_row_is_listed_and_its_neighbours_are_kept(tmp_path: Path, name: str) -> None:
    row, words = ROWS[name]
    report, events = read(tmp_path, ("dump.jsonl", LINE + b"\r\n" + row + b"\n" + LINE[:-3]))
    assert (report.verdict, report.rows_in, report.rollouts, len(report.bad)) == ("bad_rows", 3, 1, 2)
    assert (report.bad[0].line, report.bad[1].line) == (2, 3) and words in report.bad[0].reason
    assert report.bad[1].reason == "the file ends in the middle of this line"
    assert of(events, "rollout_finished")[0].reward == 1.0


def test_a_row_of_2_mb_is_kept_and_nan_is_missing(tmp_path: Path) -> None:
    rows = [GOOD | {"output": "y" * (2 << 20)}, GOOD | {"score": NAN, "part": NAN}]
    report, events = read(tmp_path, ("1.jsonl", b"\n".join(json.dumps(row).encode() for row in rows)))
    ends = of(events, "rollout_finished")
    assert report.verdict == "ok" and [end.reward for end in ends] == [1.0, None] and ends[1].parts == {"part": None}


def test_a_console_log_that_is_torn_and_noisy(tmp_path: Path) -> None:
    noise = b"a line in Latin-1: \xe9 \0 step:9 - nothing here\nstep:x - a:1\n" + b"z" * (5 << 20) + b"\n"
    lines = b"step:1 - reward:0.5 - broken - mean:np.float32(2.0)\nstep:2 - a:1 - b:0.67"
    report, events = read(tmp_path, ("log", noise + lines))
    figures = {(event.step, name): v for event in of(events, "metrics") for name, v in event.values.items()}
    assert figures == {(1, "reward"): 0.5, (1, "mean"): 2.0, (2, "a"): 1.0}
    assert [(bad.line, bad.reason) for bad in report.bad] == [(2, "'x' is not a number")]
    assert [(item.line, "cut off" in item.reason) for item in report.remarks] == [(4, False), (5, True)]


def zipped(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name.replace("__", "/").replace("DOTS", ".."), data)
    return buffer.getvalue()


def _link() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        link = zipfile.ZipInfo("log")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    return buffer.getvalue()


def _parquet(**columns: Any) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


def _bomb(*, store_schema: bool) -> bytes:
    """100 KB of text, 3,000 times by number. With the schema it stays a dictionary when it is decoded."""
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 3000, pa.int32()), pa.array(["y" * 100_000]))
    buffer = io.BytesIO()
    table = pa.table({"prompt": text, "completion": ["x"] * 3000, "step": [1] * 3000})
    pq.write_table(table, buffer, store_schema=store_schema)
    return buffer.getvalue()


# What takes long to make is a function: every process that collects the tests imports this, and one needs it.
WHOLE: dict[str, tuple[bytes | Callable[[], bytes], str]] = {
    "empty": (b"", "f: The file is empty"),
    "slip": (zipped(DOTS__evil=LINE), "a path outside itself"),
    "absolute": (zipped(__etc__x=LINE), "a path outside itself"),
    "bomb": (lambda: zipped(log=bytes(200 << 20)), "far more than its size allows"),
    "nested": (zipped(inner=zipped(log=LINE)), "holds another archive"),
    "link": (_link(), "holds a link"),
    "torn_zip": (zipped(log=LINE)[:40], "damaged"),
    "no_members": (zipped(), "holds no files"),
    "utf16": (LINE.decode().encode("utf-16"), "UTF-16"),
    "pickle": (b"\x80\x04\x95abc", "pickle"),
    "parquet_torn": (b"PAR1" + b"\xff" * 400 + b"PAR1", "parquet file is damaged"),
    "parquet_of_something": (_parquet(a=[1]), "no columns prompt and completion"),
    "parquet_bomb": (lambda: _bomb(store_schema=False), "decodes to more than"),
    "parquet_bomb_of_a_dictionary": (lambda: _bomb(store_schema=True), "decodes to more than"),
    "blank": (b"\n \n\n", "not a known file of a run"),
    "only_bad": (b'{"input": "a", "output": 1}\n' * 3, "None of the 3 rows can be used. f, line 1"),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_file_that_cannot_be_read_is_a_sentence(tmp_path: Path, name: str) -> None:
    made, words = WHOLE[name]
    report, _events = read(tmp_path, ("f", made() if callable(made) else made))
    assert report.verdict == "rejected" and words in report.message and len(report.message) < 400
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["import.json"]


def test_an_archive_of_a_run(tmp_path: Path) -> None:
    dumps = {f"rollouts__{step}.jsonl": json.dumps(GOOD | {"step": step}).encode() for step in (10, 9)}
    data = zipped(**dumps, train__log=b"step:9 - critic/score/mean:0.5\n")
    report, events = read(tmp_path, ("run.zip", data))
    assert [file.name for file in report.files] == ["train/log", "rollouts/9.jsonl", "rollouts/10.jsonl"]
    figures = {(event.step, name): v for event in of(events, "metrics") for name, v in event.values.items()}
    assert (figures[9, "reward"], figures[10, "reward"]) == (0.5, 1.0)  # the log's word counts before ours


@pytest.mark.plain_start  # its memory is the subject, and a forked one has more modules
def test_a_limited_child_reads_large_files_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "9.jsonl"
    row = json.dumps(GOOD | {"output": "word " * 4000}).encode() + b"\n"
    with open(path, "wb") as file:
        for _ in range(20):
            file.write(row * 50)
    seen: list[Any] = []
    limits = CheckLimits(memory_bytes=512 << 20)  # the child may not have more
    report = run_import([Given(path, path.name)], tmp_path / "out", limits=limits, on_progress=seen.append)
    assert (report.verdict, report.rollouts, report.groups) == ("ok", 1000, 1)
    assert seen[-1].bytes == seen[-1].total == path.stat().st_size
    late = run_import([Given(path, path.name)], tmp_path / "late", limits=CheckLimits(wall_s=0.05))
    assert "took longer" in late.message and not (tmp_path / "late" / "journal.jsonl").exists()


def test_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"step:1 - critic/score/mean:0.5\n")
    argv = [
        sys.executable,
        "-m",
        "training",
        "import",
        "--input",
        str(tmp_path / "log"),
        "--output",
        str(tmp_path / "o"),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert "1 of 1 rows were read." in done.stdout and "verl: 1 steps, 2 metrics" in done.stdout
    assert main(argv[4:]) == 2  # the folder holds a run now
