"""Splitting, subsetting, filtering, mixing, cutting, downloading: by value, with the real check of what is made."""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from tests.working import at_once, claimed, done, perform
from training.data.making import OPERATIONS, make
from webapp.datasets import operations, services
from webapp.datasets.models import Dataset, DatasetExport, DatasetState
from webapp.datasets.operations import children_of, lineage_of, operation_order
from webapp.people.teams.models import Project, User

Builder = Callable[..., Any]
ClientFor = Callable[..., Client]


def rows(count: int, name: str = "a") -> list[dict[str, Any]]:
    """Rows with an id, a category and an exact number."""
    return [
        {
            "messages": [{"role": "user", "content": f"{name} {n}"}, {"role": "assistant", "content": "好" * (n + 1)}],
            "id": f"{name}-{n}",
            "category": "even" if n % 2 == 0 else "odd",
            "n": n,
        }
        for n in range(count)
    ]


def lines(dataset: Dataset) -> list[str]:
    return dataset.rows_path.read_text().splitlines()


def numbers(dataset: Dataset) -> list[int]:
    return [json.loads(line)["n"] for line in lines(dataset)]


@pytest.fixture(autouse=True)
def _no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages are not sent; the tests have the work done themselves, as ``look`` would."""
    at_once(monkeypatch)


def order(operation: str, options: dict[str, Any], *parents: Dataset, names: tuple[str, ...] = ("new",)) -> Any:
    """Ask for it and let a worker make and check it."""
    made = operation_order(parents=parents, user=None, operation=operation, options=options, names=names)
    for dataset in made:
        assert dataset.state == DatasetState.CHECKING and not dataset.upload_path.exists()
        done(dataset)
    return made if len(made) > 1 else made[0]


def test_a_split_shuffles_as_the_guide_does_and_copies_bytes(make_dataset: Builder) -> None:
    parent = make_dataset(lines=rows(50), sha256="ab" * 32)
    train, val = order("split", {"train_ratio": 0.8}, parent, names=("train", "val"))
    shuffled = list(range(50))
    random.seed(42)
    random.shuffle(shuffled)
    assert (numbers(train), numbers(val)) == (shuffled[:40], shuffled[40:])
    assert set(lines(train)) | set(lines(val)) == set(lines(parent))
    assert (train.state, train.rows, len(train.sha256)) == (DatasetState.READY, 40, 64)
    assert train.lineage == {
        "operation": "split",
        "options": {"train_ratio": 0.8, "seed": 42, "part": "train"},
        "rows": 40,
        "parents": [
            {"id": str(parent.pk), "reference": parent.reference, "sha256": "ab" * 32, "rows": 50, "taken": 40},
        ],
    }
    assert [item.pk for item in children_of(parent)] == [train.pk, val.pk]
    again, _ = order("split", {"train_ratio": 0.8}, parent, names=("train", "val"))
    assert (again.version, again.sha256) == (2, train.sha256)


@pytest.mark.parametrize(
    ("operation", "options", "kept"),
    [
        ("subset", {"rows": 3}, [0, 1, 2]),
        ("subset", {"rows": 4, "seed": 7}, sorted(random.Random(7).sample(range(12), 4))),
        ("pick", {"ids": ["a-9", "a-2", "absent"]}, [2, 9]),
        ("pick", {"ids": ["3"], "field": "n"}, [3]),
        (
            "filter",
            {"rules": [{"field": "category", "equals": "odd"}, {"field": "n", "equals": 3, "negate": True}]},
            [1, 5, 7, 9, 11],
        ),
        ("filter", {"rules": [{"field": "text", "min_length": 14}]}, [9, 10, 11]),
    ],
)
def test_rows_that_are_kept_are_the_parents_own(
    tmp_path: Path, operation: str, options: dict[str, Any], kept: list[int]
) -> None:
    parent, target = tmp_path / "rows.jsonl", tmp_path / "upload"
    texts = [json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows(12)]
    parent.write_bytes(b"".join(texts))
    made = make(operation, OPERATIONS[operation].model_validate(options), [parent], target)
    assert target.read_bytes().splitlines(keepends=True) == [texts[n] for n in kept]
    assert made == (len(kept), target.stat().st_size, [len(kept)]) and target.stat().st_mode & 0o777 == 0o600


def test_a_mix_keeps_to_its_weights(make_dataset: Builder) -> None:
    first, second = make_dataset(lines=rows(40)), make_dataset(lines=rows(40, "b"))
    made = order("mix", {"weights": [3, 1], "rows": 20, "seed": 5}, first, second)
    draw = random.Random(5)
    expected, places = [], [iter(lines(first)), iter(lines(second))]
    for _ in range(20):
        expected.append(next(places[draw.choices(range(2), [3, 1])[0]]))
    assert lines(made) == expected
    taken = [parent["taken"] for parent in made.lineage["parents"]]
    assert sum(taken) == 20 and taken[0] == sum('"id": "a-' in line for line in expected)
    shown = lineage_of(made)
    assert shown.words == "Mixed with the weights 3 : 1; seed 5."
    assert [parent.dataset for parent in shown.parents] == [first, second]


def test_a_cut_ends_before_the_model_continues(make_dataset: Builder) -> None:
    turns = [("system", "s"), ("user", "q"), ("assistant", "a"), ("user", "more"), ("assistant", "b")]
    row = {"messages": [{"role": role, "content": text} for role, text in turns], "id": 1}
    parent = make_dataset(lines=[row, {"messages": [{"role": "assistant", "content": "first"}]}])
    made = order("cut", {"cut": "query"}, parent)
    assert [json.loads(line) for line in lines(made)] == [{"messages": row["messages"][:2], "id": 1}]
    assert made.lineage["parents"][0] | {"taken": 1} == made.lineage["parents"][0]  # one of two: the other had no query
    step = order("cut", {"cut": "last_turn"}, parent, names=("step",))
    assert len(json.loads(lines(step)[0])["messages"]) == 4


def test_what_cannot_be_made_is_a_sentence(make_dataset: Builder, settings: Any) -> None:
    parent = make_dataset(lines=rows(5))
    none = order("filter", {"rules": [{"field": "category", "equals": "absent"}]}, parent)
    assert none.state == DatasetState.REJECTED and none.report["message"].startswith("No row is left.")
    made = operation_order(parents=[parent], user=None, operation="subset", options={"rows": 2}, names=["orphan"])
    reference = parent.reference
    parent.delete()
    done(made[0])
    assert (
        made[0].state == DatasetState.REJECTED
        and f"{reference}, the source of this dataset, was deleted" in made[0].report["message"]
    )
    large = make_dataset(lines=rows(5))
    settings.MAX_UPLOAD_BYTES = 300
    assert "larger than a dataset may be" in order("subset", {"rows": 5}, large).report["message"]


def test_a_lost_worker_is_followed_by_another_and_writes_nothing_more(make_dataset: Builder) -> None:
    made = operation_order(
        parents=[make_dataset(lines=rows(9))], user=None, operation="subset", options={"rows": 4}, names=["s"]
    )[0]
    late = claimed(made)
    made.upload_path.parent.mkdir(parents=True)
    (made.upload_path.parent / "upload.dead").write_text("half a ro")  # what a killed worker left
    Dataset.objects.filter(pk=made.pk).update(token="")  # as ``look`` leaves one whose worker fell silent
    done(made)
    assert (made.state, made.rows) == (DatasetState.READY, 4)
    assert [path.name for path in made.upload_path.parent.glob("upload*")] == ["upload"]
    made.upload_path.unlink()
    perform(late)
    made.refresh_from_db()
    assert made.state == DatasetState.READY and not made.upload_path.exists()  # the late token is no longer valid


@pytest.mark.parametrize(
    ("operation", "options", "names", "words"),
    [
        ("melt", {}, ["x"], "There is no such operation"),
        ("split", {"train_ratio": 2}, ["a", "b"], "train_ratio"),
        ("split", {}, ["a"], "creates 2 datasets"),
        ("split", {}, ["a", "a"], "different names"),
        ("subset", {"rows": 1}, ["../x"], "Use letters"),
        ("filter", {"rules": [{"field": "n"}]}, ["x"], "give a value that the field"),
        ("mix", {"weights": [1]}, ["x"], "at least two datasets"),
        ("mix", {"weights": [1, 0]}, ["x"], "weights.1"),
        ("cut", {"cut": "none"}, ["x"], "cut"),
    ],
)
def test_wrong_orders_are_refused(
    make_dataset: Builder, operation: str, options: dict[str, Any], names: list[str], words: str
) -> None:
    parent = make_dataset()
    with pytest.raises(ValidationError, match=words):
        operation_order(parents=[parent], user=None, operation=operation, options=options, names=names)
    unready = make_dataset(state=DatasetState.NEEDS_CHOICE)
    with pytest.raises(ValidationError, match="not ready"):
        operation_order(parents=[unready], user=None, operation="subset", options={"rows": 1}, names=["x"])
    assert Dataset.objects.count() == 2


def test_the_forms_make_what_they_say(
    make_dataset: Builder, project: Project, bob: User, client_for: ClientFor
) -> None:
    parent, other = make_dataset(lines=rows(8), report={"columns": {"id": 8, "n": 8}}), make_dataset(lines=rows(8, "b"))
    client = client_for(bob)

    def ask(operation: str, **data: Any) -> Any:
        return client.post(reverse("dataset-make", args=[project.slug, parent.pk, operation]), data)

    assert ask("split", train_ratio="0.5", seed="1", name="t", validation_name="v").status_code == 302
    assert ask("subset", way="ids", ids="a-1, a-2\na-3", field="id", name="s").status_code == 302
    assert ask("filter", field_1="n", test_1="equals", value_1="3", negate_1="on", name="f").status_code == 302
    assert ask("mix", weight="2", dataset_1=other.pk, weight_1="1", rows="6", seed="3", name="m").status_code == 302
    made = {item.name: item for item in Dataset.objects.filter(state="checking")}
    assert made["v"].lineage["options"] == {"train_ratio": 0.5, "seed": 1, "part": "validation"}
    assert made["s"].lineage["options"] == {"ids": ["a-1", "a-2", "a-3"], "field": "id"}
    assert made["f"].lineage["options"] == {"rules": [{"field": "n", "equals": 3, "negate": True}]}
    assert made["m"].lineage["options"] == {"weights": [2.0, 1.0], "rows": 6, "seed": 3}
    assert {item.created_by for item in made.values()} == {bob}
    for operation, field in (("split", "train_ratio"), ("subset", "way"), ("filter", "value_1"), ("mix", "dataset_1")):
        page = ask(operation)
        assert page.status_code == 422 and field in page.context["form"].errors and "errorlist" in page.content.decode()
    stranger_data = {"weight": "1", "weight_1": "1", "seed": "1", "name": "x", "dataset_1": "not-an-id"}
    assert ask("mix", **stranger_data).status_code == 422 and ask("melt").status_code == 404


def test_a_filter_counts_while_it_is_written(
    make_dataset: Builder, project: Project, bob: User, client_for: ClientFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent, client = make_dataset(lines=rows(200)), client_for(bob)
    address = reverse("dataset-count", args=[project.slug, parent.pk])
    rule = {"field_1": "category", "test_1": "equals", "value_1": "odd"}
    assert "Keeps 100 of 200 rows (50%)." in client.get(address, rule).content.decode()
    assert (
        "Complete at least one rule" in client.get(address, {"field_1": "n", "test_1": "min_length"}).content.decode()
    )
    monkeypatch.setattr("webapp.datasets.operation_views.COUNT_LIMIT_S", -1)
    assert "Keeps 32 of the first 64 rows" in client.get(address, rule).content.decode()


def test_the_page_shows_where_a_dataset_comes_from(
    make_dataset: Builder, project: Project, bob: User, rita: User, client_for: ClientFor
) -> None:
    parent = make_dataset(lines=rows(6), name="<b>roots</b>")
    made = order("filter", {"rules": [{"field": "category", "contains": "<i>"}]}, parent)
    kept = order("subset", {"rows": 2, "seed": 9}, parent, names=("drawn",))
    page = client_for(bob).get(reverse("dataset-detail", args=[project.slug, kept.pk])).content.decode()
    assert "2 rows drawn with seed 9." in page and "2 of 6 rows" in page and "&lt;b&gt;roots" in page
    assert "<b>roots" not in page and str(parent.pk) in page and "Derive…" in page
    page = client_for(rita).get(reverse("dataset-detail", args=[project.slug, parent.pk])).content.decode()
    assert "Uploaded as data.jsonl." in page and str(kept.pk) in page and "Derive…" not in page
    page = client_for(bob).get(reverse("dataset-detail", args=[project.slug, made.pk])).content.decode()
    assert "category contains “&lt;i&gt;”" in page and "It could not be created" in page
    from webapp.datasets.versions import dataset_append

    added = dataset_append(project=project, user=bob, name="drawn", rows=rows(1), file_name="playground.jsonl")
    shown = lineage_of(added)
    assert shown.words == "1 row added manually." and shown.parents[0].dataset == kept


def _export(client: Client, dataset: Dataset, **data: Any) -> DatasetExport:
    address = reverse("dataset-export", args=[dataset.project.slug, dataset.pk])
    assert client.post(address, {"train_ratio": "0.9", **data}).status_code == 302
    export = DatasetExport.objects.filter(dataset=dataset)[0]
    done(export)
    return export


def _download(client: Client, export: DatasetExport) -> bytes:
    dataset = export.dataset
    answer = client.get(reverse("dataset-export-file", args=[dataset.project.slug, dataset.pk, export.pk]))
    assert export.file_name in answer["Content-Disposition"]
    return b"".join(answer.streaming_content)


def test_files_are_written_in_any_format(make_dataset: Builder, rita: User, client_for: ClientFor) -> None:
    import pyarrow.parquet as pq

    parent, client = make_dataset(lines=rows(10), name="d"), client_for(rita)
    plain = _export(client, parent, to="jsonl")
    assert plain.state == "done" and _download(client, plain) == parent.rows_path.read_bytes()
    verl = _export(client, parent, to="verl", max_samples="4")
    table = pq.read_table(io.BytesIO(_download(client, verl)))
    assert verl.rows == table.num_rows == 4 and table["extra_info"][3]["id"].as_py() == "a-3"
    chat = _export(client, parent, to="sharegpt")
    first = json.loads(_download(client, chat))[0]
    assert first["conversations"][0] == {"from": "human", "value": "a 0"} and first["n"] == 0
    none = _export(client, parent, to="gsm8k")
    assert none.state == "failed" and "No row can be written in this format. The row is not" in none.error["message"]
    page = client.get(reverse("dataset-export", args=[parent.project.slug, parent.pk])).content.decode()
    assert "d-1.verl.parquet" in page and "No row can be written in this format" in page
    assert "4 rows ·" in page and "10 rows ·" in page
    address = reverse("dataset-exports", args=[parent.project.slug, parent.pk])
    part = client.get(address).content.decode()
    assert f'href="{address}{verl.pk}/"' in part and f"{address}{none.pk}" not in part and "hx-get" not in part
    DatasetExport.objects.filter(pk=verl.pk).update(state="writing", progress={"rows": 5})
    DatasetExport.objects.filter(pk=chat.pk).update(state="waiting")
    part = client.get(address).content.decode()
    assert f'hx-get="{address}"' in part and f"{address}{verl.pk}" not in part
    assert part.count("<progress") == 2 and part.count('value="50"') == 1
    DatasetExport.objects.filter(pk=verl.pk).update(progress={})  # begun, and nothing written yet
    assert client.get(address).content.decode().count('value="0"') == 1
    assert (
        client.post(reverse("dataset-export", args=[parent.project.slug, parent.pk]), {"to": "exe"}).status_code == 422
    )


def test_toolbench_is_split_in_the_browser_as_its_converter_does(
    seed_data: Path, project: Project, bob: User, client_for: ClientFor
) -> None:
    """From upload to download: the same rows, columns and order as the guide's converter writes."""
    import pyarrow.parquet as pq

    source = seed_data / "seed0_toolbench/derived/toolllama_conversations_from_data_example.json"
    file = SimpleUploadedFile("t.json", source.read_bytes())
    dataset = services.dataset_create(project=project, user=bob, name="toolllama", file=file, file_name="t.json")
    done(dataset)
    client = client_for(bob)
    export = _export(client, dataset, to="verl_toolbench", split="on")
    records = json.loads(source.read_text())
    random.seed(42)
    random.shuffle(records)
    at = int(len(records) * 0.9)
    with zipfile.ZipFile(io.BytesIO(_download(client, export))) as archive:
        assert archive.namelist() == ["toolllama-1_train.parquet", "toolllama-1_val.parquet"]
        for name, part in zip(archive.namelist(), (records[:at], records[at:]), strict=True):
            table = pq.read_table(io.BytesIO(archive.read(name)))
            assert table.column_names == ["prompt", "data_source", "reward_model", "extra_info"]
            assert table.to_pylist() == [
                {
                    "prompt": [
                        {"role": turn["from"], "from": turn["from"], "content": turn["value"]}
                        for turn in record["conversations"]
                        if turn["value"]
                    ],
                    "data_source": "toolbench",
                    "reward_model": {"style": "function", "ground_truth": None},
                    "extra_info": {"index": index, "sample_id": record["id"], "category": "G1_category"},
                }
                for index, record in enumerate(part)
            ]


def test_an_export_has_one_worker_and_few_files_are_kept(
    make_dataset: Builder, bob: User, django_capture_on_commit_callbacks: Any
) -> None:
    from webapp.datasets.operations import ExportOptions

    dataset = make_dataset()
    options = ExportOptions(to="jsonl")
    first = operations.export_order(dataset=dataset, user=bob, options=options)
    done(first)
    assert first.state == "done" and first.path.is_file()
    for _ in range(operations.MAX_EXPORTING):
        operations.export_order(dataset=dataset, user=bob, options=options)
    with pytest.raises(ValidationError, match="already"):
        operations.export_order(dataset=dataset, user=bob, options=options)
    for _ in range(operations.KEPT + 1):
        for export in DatasetExport.objects.exclude(state="done"):
            done(export)
        with django_capture_on_commit_callbacks(execute=True):
            operations.export_order(dataset=dataset, user=bob, options=options)
    assert not first.path.exists()
    assert DatasetExport.objects.filter(state="done").count() == operations.KEPT
    assert not DatasetExport.objects.filter(pk=first.pk).exists()


def test_operations_over_the_api(make_dataset: Builder, bob: User, client_for: ClientFor) -> None:
    parent, other = make_dataset(lines=rows(6)), make_dataset(lines=rows(6, "b"))
    client, address = client_for(bob), f"/api/v1/datasets/{parent.pk}"

    def post(tail: str, body: dict[str, Any]) -> Any:
        return client.post(f"{address}/{tail}", body, content_type="application/json")

    mix = {"operation": "mix", "names": ["m"], "options": {"weights": [1, 1], "rows": 4}, "others": [other.reference]}
    made = post("make", mix)
    assert made.status_code == 201
    done(Dataset.objects.get(pk=made.json()[0]["id"]))
    shown = client.get(f"/api/v1/datasets/{made.json()[0]['id']}").json()
    assert shown["state"] == "ready" and shown["lineage"]["operation"] == "mix" and shown["lineage"]["rows"] == 4
    assert client.get(address).json()["lineage"]["operation"] == "upload"
    assert post("make", mix | {"others": ["dataset:absent@1"]}).json()["detail"][0]["path"] == "others"
    asked = post("exports", {"to": "openai"})
    done(DatasetExport.objects.get(pk=asked.json()["id"]))
    [written] = client.get(f"{address}/exports").json()["items"]
    assert written["state"] == "done" and client.get(written["url"]).status_code == 200
    assert post("exports", {"to": "exe"}).status_code == 422
