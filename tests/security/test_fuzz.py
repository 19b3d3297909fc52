"""A foreign checker against the API: Schemathesis makes requests by the schema, by rule and at random."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.security.test_authorisation_matrix import objects  # noqa: F401 - one object of each kind
from webapp.people.teams.models import Project, Role, User
from webapp.people.teams.tokens import token_create

LEAST, LIMIT_S = 20_000, 3600
# Left out are checks that a schema cannot settle: whether a name that is no name of ours must be refused, and whether a
# request without a token is refused, which the matrix of roles holds (here 429 follows, after 60 wrong ones).
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_headers_conformance,response_schema_conformance"
)
ITS_OWN = "AST constructor recursion depth mismatch"  # Python 3.11's parser, under deeply nested data of its own
pytestmark = [pytest.mark.slow, pytest.mark.timeout(LIMIT_S + 300)]


def test_no_request_that_the_schema_allows_or_forbids_breaks_the_api(
    transactional_db: None,
    site: str,
    project: Project,
    alice: User,
    objects: dict[str, Any],  # noqa: F811
    tmp_path: Path,
) -> None:
    text = token_create(user=alice, name="fuzz", role=Role.OWNER)[1]
    # Ids that are there, so that not all is 404. What deletes meets made-up ones: the others would soon be gone.
    here = {name: value if isinstance(value, int) else str(value) for name, value in objects.items()}
    lines = [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in here.items()]
    statuses, wrong = Counter[int](), list[str]()
    for name, parameters, more in (
        ("most", lines, ["--exclude-method", "DELETE", "--max-examples", "90"]),
        ("deletes", [], ["--include-method", "DELETE", "--max-examples", "20"]),
    ):
        config, report = tmp_path / f"{name}.toml", tmp_path / f"{name}.ndjson"
        config.write_text("\n".join(["[parameters]", *parameters, ""]))
        argv = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run", *more]
        argv += ["--header", f"Authorization: Bearer {text}", "--checks", CHECKS, "--phases", "coverage,fuzzing"]
        argv += ["--seed", "7", "--no-shrink", "--workers", "2", "--continue-on-failure", "--no-color"]
        argv += ["--report-ndjson-path", str(report), f"{site}/api/v1/openapi.json"]
        done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S)
        assert report.is_file(), done.stdout + done.stderr
        for label, status, problem in _problems_of(report):
            statuses[status] += 1
            wrong += [f"{label} {status}: {problem}"] if problem else []
    print("\nrequests:", statuses.total(), dict(statuses))
    assert not wrong, "\n".join(sorted(set(wrong)))[:6000]
    assert statuses.total() >= LEAST and statuses[200] > LEAST / 10, statuses


def _problems_of(report: Path) -> Iterator[tuple[str, int, str]]:
    """For each request its operation, the status of the answer and what was wrong with it."""
    for line in report.read_text().splitlines():
        kind, event = next(iter(json.loads(line).items()))
        if kind == "NonFatalError" and ITS_OWN not in event["value"]["message"]:
            yield event["label"], 0, event["value"]["message"]
        if kind != "ScenarioFinished":
            continue
        record = event["recorder"]
        for case, exchange in record.get("interactions", {}).items():  # none where a request could not be made
            failed = [check for check in record.get("checks", {}).get(case, ()) if check["status"] != "success"]
            status = (exchange["response"] or {}).get("status_code", 0)
            yield record["label"], status, " ".join(json.dumps(check["failure_info"])[:500] for check in failed)
