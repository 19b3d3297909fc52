"""Each kind of real file is uploaded, recognised, looked at and checked in real Chromium; tables are mapped, bad rows
are fixed.

The check itself is run by the test where a worker would: the journey is about the pages.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.training.data.test_seed_files import BFCL, STABLE
from tests.working import done
from webapp.datasets.models import Dataset
from webapp.people.teams.models import Project, User

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
LIMIT_MS = 20_000
KINDS = [
    ("seed0_toolbench/derived/toolllama_conversations_from_data_example.json", "ToolBench conversations", 30),
    (f"{STABLE}/test_instruction/G3_instruction.json", "StableToolBench queries", 61),
    (f"{BFCL['v3']}/BFCL_v3_multi_turn_base.json", "BFCL", 200),
    ("seed1_envtuning_bfcl/bfcl_val.parquet", "verl", 100),
    ("seed2_multiturn_tools/huangweiding_demo/multiturn_with_toolcall_sample_data.jsonl", "Conversations", 15),
    ("seed2_multiturn_tools/ms_swift/frozen_lake.jsonl", "ms-swift agent and gym rows", 128),
    ("seed2_multiturn_tools/verl_gsm8k_multiturn/w_tool_32.jsonl", "verl", 32),
    ("seed3_helloagents_gsm8k/gsm8k_test.jsonl", "GSM8K and HelloAgents", 1319),
    ("seed4_webshop/webshop_1000/goals_synthetic_seed233.jsonl", "AgentTraj and AgentEval", 6910),
]


class Journey:
    """One person in one tab; nothing may go wrong in the console."""

    def __init__(self, page: Page, slug: str) -> None:
        self.page, self.base = page, f"/p/{slug}"
        page.set_default_timeout(LIMIT_MS)
        self.problems: list[str] = []
        page.on("console", lambda message: self.problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.problems.append(str(error)))

    def upload(self, path: Path, name: str, *, look: bool = False, **companions: Any) -> Dataset:
        self.page.goto(f"{self.base}/datasets/new/")
        self.page.fill("#id_name", name)
        self.page.set_input_files("#id_file", path)
        if look or companions:
            self.page.click("summary:has-text('Format and columns')")
        if look:
            self.page.check("#id_look")
        for kind, files in companions.items():
            self.page.set_input_files(f"#id_{kind}", files)
        self.page.click("#upload-button")
        self.page.wait_for_url(re.compile(r"/datasets/[0-9a-f-]{36}/$"))
        return self.checked(name)

    def checked(self, name: str, version: int = 1) -> Dataset:
        """What a worker would do; the page then loads itself again."""
        dataset = Dataset.objects.filter(name=name, version=version)[0]
        done(dataset)
        self.page.wait_for_selector(f".page-head .badge[data-state={dataset.state}]")
        return dataset


def test_fields_of_objects_are_mapped_by_path_and_template(
    project: Project, bob: User, page_for: Callable[..., Page], tmp_path: Path
) -> None:
    """Nested JSON, the commonest odd shape, was a dead end: only whole columns could be chosen."""
    file = tmp_path / "odd.jsonl"
    rows = [
        {"qid": n, "payload": {"ask": f"What is {n} + 1?", "lang": "en"}, "gold": {"value": str(n + 1), "unit": "m"}}
        for n in range(5)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    journey = Journey(page_for(bob), project.slug)
    page = journey.page
    assert journey.upload(file, "odd").state == "needs_mapping"
    assert "payload.ask" in page.inner_text("table.first-row") and "What is 0 + 1?" in page.inner_text(".first-row")
    page.click("text=Choose how to read it")
    page.fill("[name=map_prompt]", "payload")
    page.wait_for_selector("#look >> text=name one of its fields, such as payload.ask")
    page.fill("[name=map_prompt]", "{payload.ask} ({payload.lang})")
    page.wait_for_selector("#look >> text=What is 0 + 1? (en)")
    page.fill("[name=map_answer]", "gold.value")
    page.wait_for_selector("#look >> text=Of the first 5 rows, 5 are good and 0 would be left out.")
    page.click("text=Apply and check every row")
    page.wait_for_url(re.compile(r"/datasets/[0-9a-f-]{36}/$"))
    dataset = journey.checked("odd")
    assert (dataset.state, dataset.rows, dataset.bad_rows) == ("ready", 5, 0)
    first = json.loads(dataset.rows_path.read_text().splitlines()[0])
    assert first["messages"] == [{"role": "user", "content": "What is 0 + 1? (en)"}] and first["ground_truth"] == "1"


def test_a_table_is_mapped_and_its_bad_rows_are_mended(
    project: Project, bob: User, page_for: Callable[..., Page], tmp_path: Path
) -> None:
    table = tmp_path / "sums.csv"
    table.write_text('frage,loesung\n"What is 2 + 3?",5\n"二加三是多少?",5\n,7\n', encoding="utf-8")
    journey = Journey(page_for(bob), project.slug)
    page = journey.page
    assert journey.upload(table, "sums").state == "needs_mapping"
    page.click("text=Choose how to read it")
    page.wait_for_selector("#look >> text=Read this way, the file has no rows")
    page.fill("[name=map_prompt]", "frage")
    page.wait_for_selector("#look >> text=Of the first 3 rows, 2 are good and 1 would be left out.")
    page.fill("[name=map_answer]", "loesung")
    page.select_option("[name=shape]", "sft")
    page.wait_for_selector("#look .message[data-role=assistant]")
    page.click("text=Apply and check every row")
    page.wait_for_url(re.compile(r"/datasets/[0-9a-f-]{36}/$"))
    dataset = journey.checked("sums")
    assert (dataset.state, dataset.rows, dataset.bad_rows) == ("needs_choice", 2, 1)
    page.click("text=All, with filter and download")
    page.click(".chip:has-text('not one of')")
    with page.expect_download() as download:
        page.click("text=Download as CSV")
    lines = list(csv.reader(Path(download.value.path()).read_text("utf-8-sig").splitlines()))
    assert [line[:3] for line in lines[1:]] == [["4", "shape", "left out"]]
    page.click(".tab:has-text('Rows'):not(:has-text('fix'))")
    page.click("text=Keep 2 good rows")
    page.wait_for_selector(".page-head .badge[data-state=ready]")
    page.click(".tab:has-text('Quality')")
    assert page.locator("[data-plot=languages]").inner_text().count("50%") == 2
    assert journey.problems == []


@pytest.mark.slow
def test_each_kind_of_real_file(project: Project, bob: User, page_for: Callable[..., Page], seed_data: Path) -> None:
    journey = Journey(page_for(bob), project.slug)
    page = journey.page
    for number, (name, title, rows) in enumerate(KINDS):
        dataset = journey.upload(seed_data / name, f"kind {number}")
        assert (dataset.state, dataset.rows, dataset.bad_rows) == ("ready", rows, 0), (name, dataset.report["message"])
        assert title in page.locator("section.card:has(#reference)").inner_text(), name
        assert page.locator("details.fold:has-text('Row 1')").count() >= 1
        page.click(".tab:has-text('Quality')")
        assert page.locator("[data-plot=turns] .bars tr").count() >= 1
    assert journey.problems == []


@pytest.mark.slow
def test_questions_come_with_their_answers_and_documents(
    project: Project, bob: User, page_for: Callable[..., Page], seed_data: Path
) -> None:
    folder = seed_data / BFCL["v4"]
    journey = Journey(page_for(bob), project.slug)
    page = journey.page
    dataset = journey.upload(
        folder / "BFCL_v4_multi_turn_base.json",
        "bfcl",
        look=True,
        answers=folder / "possible_answer" / "BFCL_v4_multi_turn_base.json",
        documents=sorted((folder / "multi_turn_func_doc").glob("*.json"))[:8],
    )
    assert dataset.state == "needs_mapping"
    page.click("text=Choose how to read it")
    page.wait_for_selector("#look >> text=200 are good and 0 would be left out")
    page.click("text=Apply and check every row")
    page.wait_for_url(re.compile(r"/datasets/[0-9a-f-]{36}/$"))
    dataset = journey.checked("bfcl")
    row = json.loads(dataset.rows_path.read_text().splitlines()[0])
    assert (dataset.rows, dataset.bad_rows) == (200, 0) and row["ground_truth"] and row["tools"]
    assert journey.problems == []


@pytest.mark.slow
def test_step_prefixes_are_cut_as_the_next_version(
    project: Project, bob: User, page_for: Callable[..., Page], seed_data: Path
) -> None:
    journey = Journey(page_for(bob), project.slug)
    page = journey.page
    first = journey.upload(seed_data / KINDS[0][0], "steps")
    page.click("text=Change how it is read")
    page.wait_for_selector("#look .message")
    page.select_option("[name=cut]", "query")
    page.wait_for_selector("#look .message")
    page.click("text=Apply and check every row")
    page.wait_for_url(re.compile(rf"/datasets/(?!{first.pk})[0-9a-f-]{{36}}/$"))
    made = journey.checked("steps", 2)
    roles = [[message["role"] for message in json.loads(line)["messages"]] for line in made.rows_path.open()]
    assert made.rows == 30 and all("assistant" not in found for found in roles)
    assert journey.problems == []
