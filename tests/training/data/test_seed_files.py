"""Every file of the seeds that a reader exists for: recognised, imported with its exact row count, written back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from training.data.checking.check import preview
from training.data.files.containers import open_values
from training.data.formats.bfcl import Watch, read_answers, read_documents
from training.data.making import ConvertOptions, convert
from training.data.options import ReadOptions
from training.data.reader import open_dataset

QUERIES = {
    "G1_category": 153,
    "G1_instruction": 163,
    "G1_tool": 158,
    "G2_category": 124,
    "G2_instruction": 106,
    "G3_instruction": 61,
}
SPLITS = ("base", "long_context", "miss_func", "miss_param")
STABLE = "seed0_toolbench/stabletoolbench/solvable_queries"
BFCL = {"v3": "seed1_envtuning_bfcl/bfcl_v3_c15b2a15", "v4": "seed1_envtuning_bfcl/bfcl_v4_HEAD"}
FILES: list[tuple[str, str, int]] = [
    ("seed0_toolbench/derived/toolllama_conversations_from_data_example.json", "toolbench", 30),
    *((f"{STABLE}/test_instruction/{name}.json", "toolbench_queries", count) for name, count in QUERIES.items()),
    *((f"{STABLE}/test_query_ids/{name}.json", "toolbench_queries", count) for name, count in QUERIES.items()),
    ("seed0_toolbench/toolbench/instruction/G1_query.json", "toolbench_queries", 5),
    ("seed0_toolbench/toolbench/instruction/G2_query.json", "toolbench_queries", 3),
    ("seed0_toolbench/toolbench/instruction/G3_query.json", "toolbench_queries", 2),
    ("seed0_toolbench/toolbench/instruction/inference_query_demo.json", "toolbench_queries", 1),
    ("seed0_toolbench/toolbench/instruction/inference_query_demo_open_domain.json", "toolbench_queries", 1),
    *((f"{BFCL[v]}/BFCL_{v}_multi_turn_{split}.json", "bfcl", 200) for v in BFCL for split in SPLITS),
    *((f"{BFCL[v]}/possible_answer/BFCL_{v}_multi_turn_{split}.json", "bfcl", 200) for v in BFCL for split in SPLITS),
    ("seed1_envtuning_bfcl/bfcl_train.parquet", "verl", 400),
    ("seed1_envtuning_bfcl/bfcl_train_base.parquet", "verl", 100),
    ("seed1_envtuning_bfcl/bfcl_val.parquet", "verl", 100),
    ("seed1_envtuning_bfcl/bfcl_test.parquet", "verl", 300),
    ("seed2_multiturn_tools/huangweiding_demo/multi_turn_grpo_sample_data.jsonl", "conversation", 3),
    ("seed2_multiturn_tools/huangweiding_demo/multiturn_with_toolcall_sample_data.jsonl", "conversation", 15),
    ("seed2_multiturn_tools/ms_swift/agent_format_doc_samples.jsonl", "swift", 2),
    ("seed2_multiturn_tools/ms_swift/frozen_lake.jsonl", "swift", 128),
    ("seed2_multiturn_tools/verl_gsm8k_multiturn/w_interaction_32.jsonl", "verl", 32),
    ("seed2_multiturn_tools/verl_gsm8k_multiturn/w_tool_32.jsonl", "verl", 32),
    ("seed3_helloagents_gsm8k/gsm8k_test.jsonl", "gsm8k", 1319),
    ("seed3_helloagents_gsm8k/gsm8k_train.jsonl", "gsm8k", 7473),
    ("seed4_webshop/webshop_1000/goals_synthetic_seed233.jsonl", "agentgym", 6910),
]


def values(path: Path) -> list[Any]:
    """The values of a file as any JSON or parquet reader has them."""
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        return list(pq.read_table(path).to_pylist())
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl" or "bfcl" in str(path):
        return [json.loads(line) for line in text.split("\n") if line.strip()]
    found = json.loads(text)
    return [{"query_id": int(name)} for name in found] if isinstance(found, dict) else found


@pytest.mark.parametrize(("name", "form", "rows"), FILES)
def test_a_file_is_recognised_read_and_written_back(seed_data: Path, name: str, form: str, rows: int) -> None:
    path = seed_data / name
    source = open_dataset(path)
    assert source.format.name == form and "of the first" in source.reasons[0]
    records = list(source.records())
    assert len(records) == rows and all(record.row is not None for record in records)
    original = values(path)
    write = source.format.write
    assert write is not None
    if "test_query_ids" in name:
        assert [record.row.extra for record in records] == original  # type: ignore[union-attr]
        return
    assert [write(record.row) for record in records if record.row] == original
    shown = preview(path, rows=3)
    assert shown.format == form and len(shown.rows) == min(3, rows) and shown.bad == []


@pytest.mark.parametrize("name", ["bfcl_train.parquet", "bfcl_val.parquet"])
def test_parquet_is_written_back_with_the_same_values(seed_data: Path, tmp_path: Path, name: str) -> None:
    path = seed_data / "seed1_envtuning_bfcl" / name
    done = convert(path, ConvertOptions(output=tmp_path / "again.parquet", to="verl"))
    assert done.bad_rows == 0
    assert values(tmp_path / "again.parquet") == values(path)


@pytest.mark.parametrize("version", ["v3", "v4"])
def test_bfcl_answers_and_documents_join_their_questions(seed_data: Path, version: str) -> None:
    folder = seed_data / BFCL[version]
    watch = Watch()
    documents = read_documents(folder / "multi_turn_func_doc", watch)
    assert len(documents) == 8 and sum(map(len, documents.values())) == {"v3": 129, "v4": 128}[version]
    answers = read_answers(folder / "possible_answer", watch)
    assert len(answers) == 800 and watch.version == version
    options = ReadOptions(answers=folder / "possible_answer", documents=folder / "multi_turn_func_doc")
    rows = [r.row for r in open_dataset(folder / f"BFCL_{version}_multi_turn_miss_func.json", options).records()]
    first = rows[0]
    assert first is not None and first.extra["bfcl_version"] == version
    assert first.extra["ground_truth"] == answers["multi_turn_miss_func_0"]
    names = {tool["function"]["name"] for tool in first.tools or []}
    assert "mv" in names and "post_tweet" in names and "sort" not in names  # it is missed until turn 3
    assert (first.tools or [])[0]["function"]["parameters"]["type"] == "object"


@pytest.mark.parametrize(("questions", "others"), [("v3", "v4"), ("v4", "v3")])
def test_bfcl_versions_do_not_mix(seed_data: Path, tmp_path: Path, questions: str, others: str) -> None:
    from training.errors import DataError

    path = seed_data / BFCL[questions] / f"BFCL_{questions}_multi_turn_base.json"
    options = ReadOptions(documents=seed_data / BFCL[others] / "multi_turn_func_doc", version=questions)
    with pytest.raises(DataError, match=f"is of BFCL {others}, and the data of {questions}; the two versions"):
        list(open_dataset(path, options).records())
    both = tmp_path / "both.json"
    theirs = seed_data / BFCL[others] / f"BFCL_{others}_multi_turn_base.json"
    both.write_bytes(path.read_bytes() + b"\n" + theirs.read_bytes())
    records = list(open_dataset(both).records())
    bad = [record for record in records if record.row is None]
    assert len(records) == 400 and bad and {record.error.code for record in bad if record.error} == {"bfcl_mixed"}
    assert all(record.line > 200 for record in bad)


def test_ids_choose_queries(seed_data: Path) -> None:
    folder = seed_data / STABLE
    wanted = folder / "test_query_ids" / "G3_instruction.json"
    options = ReadOptions(ids=wanted)
    rows = list(open_dataset(folder / "test_instruction" / "G3_instruction.json", options).records())
    assert len(rows) == 61
    other = ReadOptions(ids=folder / "test_query_ids" / "G1_tool.json")
    kept = list(open_dataset(folder / "test_instruction" / "G3_instruction.json", other).records())
    ids = {int(name) for name in json.loads((folder / "test_query_ids" / "G1_tool.json").read_text())}
    assert len(kept) < 61 and {r.row.extra["query_id"] for r in kept if r.row} <= ids


def test_toolbench_apis_are_read_from_the_text(seed_data: Path) -> None:
    path = seed_data / "seed0_toolbench/derived/toolllama_conversations_from_data_example.json"
    rows = [record.row for record in open_dataset(path).records() if record.row]
    assert all("Finish" in row.offered and not row.notes for row in rows)


def test_mirrored_requests_map_by_column(seed_data: Path) -> None:
    folder = seed_data / "seed0_toolbench" / "mirrorapi_bench"
    options = ReadOptions.model_validate({"mapping": {"prompt": "prompt", "answer": "label"}})
    for path in sorted(folder.glob("*.jsonl")):
        records = list(open_dataset(path, options).records())
        assert len(records) == sum(1 for raw in open_values(path).values())
        assert len(records) == sum(1 for line in path.read_bytes().split(b"\n") if line.strip())
        assert {record.error.code for record in records if record.error} <= {"nul"}
        assert all("ground_truth" in record.row.extra for record in records if record.row)
