"""Runs on models of other families than the starter's, with their own chat templates."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.training.algorithms.conftest import MakeJob
from tests.training.helpers import demonstration_rows, write_rows
from tests.training.rollout.templates import SILENT, model_with
from training.algorithms.grpo import run_grpo
from training.errors import TemplateError


def test_a_run_with_tools_does_not_begin_where_no_call_can_be_read(
    make_job: MakeJob, starter_folder: Path, tmp_path: Path
) -> None:
    folder = model_with(SILENT, starter_folder, tmp_path / "silent")
    data = write_rows(tmp_path / "with-tools.jsonl", demonstration_rows())
    with pytest.raises(TemplateError, match=r"leaves tool calls out\."):
        run_grpo(make_job(model={"source": str(folder)}, data={"train": str(data)}))
