"""The pages say which columns are in no row, lead from a file of a run to its import, and read packed and GBK files."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Callable

from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import translation

from tests.working import done
from webapp.datasets import services
from webapp.datasets.choices import Choices
from webapp.datasets.models import Dataset, DatasetExport, DatasetState, ExportState
from webapp.datasets.quality import lost_words
from webapp.people.teams.models import Project, User

USER = {"role": "user", "content": "hi"}


def _checked(project: Project, user: User, data: bytes) -> Dataset:
    made = services.dataset_create(
        project=project,
        user=user,
        name="tasks",
        file=SimpleUploadedFile("x", data),
        file_name="x",
        choices=Choices(),
    )
    return done(made)


def _page(client: Client, name: str, dataset: Dataset) -> str:
    return client.get(reverse(name, args=[dataset.project.slug, dataset.pk])).content.decode()


def test_the_quality_page_lists_kept_and_ignored_columns(
    project: Project, bob: User, client_for: Callable[..., Client]
) -> None:
    row = json.dumps({"messages": [USER], "seed": 3, "source": "a"})[:-1] + ', "score": NaN}\n'
    dataset = _checked(project, bob, row.encode() * 2)
    assert (dataset.state, dataset.rows) == (DatasetState.READY, 2)
    page = _page(client_for(bob), "dataset-quality", dataset)
    assert "Ignored values of column <code>score</code>: 2 rows hold NaN or an infinity there." in page
    text = " ".join(page.split())
    assert "seed · 2" in text and "source · 2" in text and "No column was ignored." not in page
    with translation.override("zh-hans"):
        from webapp.datasets.quality import ignored_of

        assert ignored_of(dataset.report) == ["已忽略列 `score` 的部分值：2 行中是 NaN 或无穷大。"]


def test_a_file_of_a_run_leads_to_the_import_of_runs(
    project: Project, bob: User, rita: User, client_for: Callable[..., Client]
) -> None:
    dataset = _checked(project, bob, b"step,reward\n1,0.5\n2,0.75\n")
    assert dataset.state == DatasetState.REJECTED and dataset.report["link"] == "import_run"
    address = f'href="{reverse("run-import", args=[project.slug])}"'
    page = _page(client_for(bob), "dataset-detail", dataset)
    assert "This is a table of metrics of a run, not a dataset." in page and address in page
    assert address not in _page(client_for(rita), "dataset-detail", dataset)  # a viewer may not import


def test_packed_files_and_gbk_tables_are_read_when_uploaded(project: Project, bob: User) -> None:
    line = (json.dumps({"messages": [USER]}) + "\n").encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.jsonl", line)
        archive.writestr("b.jsonl", line * 2)
    for data, rows in ((gzip.compress(line * 5), 5), (buffer.getvalue(), 3)):
        dataset = _checked(project, bob, data)
        assert (dataset.state, dataset.rows) == (DatasetState.READY, rows), dataset.report["message"]
    dataset = _checked(project, bob, "instruction,output\n今天天气怎么样,下雨\n".encode("gbk"))
    assert (dataset.state, dataset.rows) == (DatasetState.READY, 1)
    assert json.loads(dataset.rows_path.read_text())["messages"][0]["content"] == "今天天气怎么样"
    assert any("GB18030" in text for text in dataset.report["format"]["evidence"])


def test_an_export_says_what_its_format_has_no_place_for(
    project: Project, bob: User, client_for: Callable[..., Client]
) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    dataset = _checked(project, bob, (json.dumps({"messages": [USER], "tools": [tool], "seed": 1}) + "\n").encode())
    export = DatasetExport.objects.create(dataset=dataset, options={"to": "verl_toolbench"}, file_name="x.parquet")
    done(export)
    export.refresh_from_db()
    assert export.state == ExportState.DONE, export.error
    assert export.lost == {"tools": 1, "column seed": 1}
    page = _page(client_for(bob), "dataset-exports", dataset)
    assert "This format has no place for tools of 1 row." in page
    assert "This format has no place for column seed of 1 row." in page and 'role="alert"' not in page
    with translation.override("zh-hans"):
        assert [lost_words(name) for name in export.lost] == ["工具", "列 seed"]
