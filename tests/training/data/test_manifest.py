"""Every file of the seeds' manifest: checked with its exact row count, read again, or named as one without a reader."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from training.data.checking.check import check_file, preview
from training.data.reader import load_rows

from .test_seed_files import FILES

PASSES = "seed0_toolbench/stabletoolbench/data_example"
MIRROR = "seed0_toolbench/mirrorapi_bench"
VIRTUAL = [f"virtual_chatgpt_{way}" for way in ("cot", "dfs")]
TABLES: list[tuple[str, int, int]] = [
    *((f"{PASSES}/pass_rate_results/{way}/G1_instruction_{way}.csv", 3, 0) for way in VIRTUAL),
    (f"{PASSES}/preference_results/G1_instruction_{VIRTUAL[0]}_{VIRTUAL[1]}.csv", 3, 0),
    (f"{MIRROR}/id_high.jsonl", 96, 4),
    (f"{MIRROR}/id_medium.jsonl", 99, 1),
    (f"{MIRROR}/id_low.jsonl", 100, 0),
    (f"{MIRROR}/ood_successful.jsonl", 200, 0),
    (f"{MIRROR}/ood_failed.jsonl", 100, 0),
    ("seed4_webshop/webshop_1000/items_shuffle_1000.json", 1000, 0),
]
"""Tables, recognised by their columns or marks; there is no writer for them. Rows kept, and rows that hold NUL."""
NOT_DATASETS = (
    r"seed0_toolbench/(stabletoolbench/data_example|toolbench)/(answer|model_predictions|pass_rate|preference).*\.json",
    r"seed0_toolbench/stabletoolbench/default_evalset/.*",
    r"seed0_toolbench/toolbench/toolenv/.*",
    r"seed0_toolbench/derived/(tool_docs|tools/|tool_response_cache/).*",
    r"seed1_envtuning_bfcl/bfcl_v._\w+/multi_turn_func_doc/.*",
    r"seed1_envtuning_bfcl/verl_(console_log|rollout_dump)/.*",
    r".*/golden_\w+\.jsonl",
    r"seed4_webshop/(human_trajs|agent_trajs|mock_pages|verl_metrics)/.*",
    r"seed4_webshop/(human_goals|goal_query_map)\.json",
    r"seed4_webshop/webshop_1000/(items_ins_v2_1000|items_human_ins)\.json",
    r"seed4_webshop/webshop_1000/search_documents_1000\.jsonl",
)
"""Tool trees, catalogues, logs, metrics and golden transcripts: read by environments and by imports of runs."""


def test_the_manifest_names_no_other_file(seed_data: Path) -> None:
    listed = [line.split("\t")[0] for line in (seed_data / "MANIFEST.tsv").read_text().splitlines()[1:]]
    known = {name for name, *_ in FILES} | {name for name, *_ in TABLES}
    assert known <= set(listed)
    rest = [name for name in listed if name not in known and not any(re.fullmatch(each, name) for each in NOT_DATASETS)]
    assert rest == []


def again(path: Path, folder: Path, rows: int, bad: int) -> None:
    """The check keeps and lists so many; what it keeps is read with the same values."""
    report = check_file(path, folder)
    assert (report.rows, report.bad_rows) == (rows, bad), report.message
    assert len(report.preview) == min(20, rows) and {finding.code for finding in report.bad} <= {"nul"}
    kept = load_rows(folder / "rows.jsonl")
    assert len(kept) == rows
    if not bad:
        assert [row.normal() for row in kept] == [row.normal() for row in load_rows(path)]


@pytest.mark.parametrize(("name", "rows", "bad"), TABLES)
def test_a_table_is_recognised_and_checked(seed_data: Path, tmp_path: Path, name: str, rows: int, bad: int) -> None:
    shown = preview(seed_data / name, rows=3)
    assert (
        shown.format == ("marked" if name.startswith(MIRROR) else "columns") and len(shown.rows) + len(shown.bad) == 3
    )
    again(seed_data / name, tmp_path, rows, bad)


@pytest.mark.parametrize(
    "name",
    [
        *(f"verl_rollout_dump/step_{step}.jsonl" for step in (1, 15, 30)),
        "verl_console_log/train_2026-03-11.log",
    ],
)
def test_a_file_of_a_run_is_not_taken_for_tasks(seed_data: Path, tmp_path: Path, name: str) -> None:
    """A rollout dump was read as a table of questions."""
    report = check_file(seed_data / "seed1_envtuning_bfcl" / name, tmp_path)
    assert (report.verdict, report.link, report.rows) == ("rejected", "import_run", 0)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "form", "rows"), FILES)
def test_a_file_is_checked_and_read_again(seed_data: Path, tmp_path: Path, name: str, form: str, rows: int) -> None:
    again(seed_data / name, tmp_path, rows, 0)
