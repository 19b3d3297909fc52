"""The board and the alert rules of examples/monitoring/ use figures and labels that ``/metrics`` has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.test import Client

from tests.processes import ROOT
from webapp.runs.states import RunState
from webapp.site.monitoring.views import COLLECTORS, QUEUES, figures
from webapp.site.workers import LATE_S

PLACE = ROOT / "examples/monitoring"
BOARD: dict[str, Any] = json.loads((PLACE / "grafana.json").read_text())
RULES: list[dict[str, Any]] = yaml.safe_load((PLACE / "alerts.yml").read_text())["groups"][0]["rules"]
OF_PROMETHEUS = {"up": ()}
"""Its own figure, and the labels that it gives every series."""
OF_SCRAPE = {"job", "instance"}
VALUES = {
    "state": {*RunState.values, "alive", "refusing", "gone", "starting", "healthy", "unhealthy", "failed", "unchecked"},
    "pool": set(QUEUES),
    "queue": set(QUEUES),
}


def board_expressions() -> Iterator[tuple[str, str]]:
    """Expression and legend of each line of the board."""
    for panel in BOARD["panels"]:
        for target in panel["targets"]:
            yield target["expr"], target["legendFormat"]


def expressions() -> list[str]:
    return [*(expr for expr, _legend in board_expressions()), *(rule["expr"] for rule in RULES)]


def problems(expr: str) -> list[str]:
    """What an expression names that ``/metrics`` does not have."""
    declared = {name: set(figure.labels) for name, figure in figures().items()} | OF_PROMETHEUS
    found = []
    for name, _braces, matchers in re.findall(
        r"\b([a-z][a-z0-9_]*)\b(\{([^}]*)\})?(?!\s*\()", re.sub(r"\[\w+\]", "", expr)
    ):
        if not name.startswith("tiltyard_") and name not in OF_PROMETHEUS:
            continue
        if name not in declared:
            found.append(name)
            continue
        for label, _operator, value in re.findall(r'(\w+)(=~|!~|!=|=)"([^"]*)"', matchers):
            if label not in {*declared[name], *OF_SCRAPE}:
                found.append(f"{name}{{{label}}}")
            elif label in VALUES and not set(value.split("|")) <= VALUES[label]:
                found.append(f"{name}{{{label}={value}}}")
    return found


@pytest.mark.parametrize("expr", expressions())
def test_an_expression_names_what_there_is(expr: str) -> None:
    assert re.search(r"\b(tiltyard_\w+|up)\b", expr) and problems(expr) == []


def test_a_wrong_name_label_or_value_is_seen() -> None:
    assert problems('tiltyard_run{state="failed"} > 1') == ["tiltyard_run"]
    assert problems('sum(tiltyard_runs{pool="train"})') == ["tiltyard_runs{pool}"]
    assert problems('delta(tiltyard_runs{job="x", state=~"failed|dead"}[1h])') == ["tiltyard_runs{state=failed|dead}"]


def test_the_board_shows_every_figure_and_the_rules_say_what_to_do() -> None:
    shown = " ".join(expr for expr, _legend in board_expressions())
    assert {name for name in figures() if not re.search(rf"\b{name}\b", shown)} == set()
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule["labels"]["severity"] in {"warning", "critical"} and rule["annotations"]["summary"].endswith(".")


def test_texts_name_labels_that_their_series_have() -> None:
    """A label that a series lacks is an empty text."""
    texts = [(expr, legend, r"\{\{(\w+)\}\}") for expr, legend in board_expressions()]
    texts += [(rule["expr"], rule["annotations"]["summary"], r"\$labels\.(\w+)") for rule in RULES]
    for expr, text, pattern in texts:
        names = re.findall(r"\btiltyard_\w+", expr)
        known = OF_SCRAPE.union(*(figures()[name].labels for name in names))
        assert set(re.findall(pattern, text)) <= known, text


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    panels = BOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for one, other in combinations((panel["gridPos"] for panel in panels), 2):
        apart_x = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        apart_y = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert apart_x or apart_y
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)


def test_every_alert_is_documented() -> None:
    text = (ROOT / "docs" / "monitoring.md").read_text()
    assert set(re.findall(r"`(Tiltyard\w+)`", text)) == {rule["alert"] for rule in RULES}


def test_an_alert_and_the_pages_agree_when_the_clockwork_is_late() -> None:
    (rule,) = [rule for rule in RULES if rule["alert"] == "TiltyardClockworkLate"]
    assert rule["expr"] == f"tiltyard_clockwork_age_seconds > {LATE_S:g}"


# --- Prometheus' own checker ----------------------------------------------------------------------------------------


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not on the PATH (Debian: apt-get install prometheus)")
    return found


def checked(promtool: str, *words: str, text: str = "") -> str:
    done = subprocess.run([promtool, *words], cwd=PLACE, input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_promtool_accepts_the_rules_and_they_fire_when_they_should(promtool: str) -> None:
    assert f"{len(RULES)} rules found" in checked(promtool, "check", "rules", "alerts.yml")
    assert "SUCCESS" in checked(promtool, "test", "rules", "alerts_test.yml")


def test_promtool_accepts_the_scrape_of_the_container(promtool: str) -> None:
    assert "SUCCESS" in checked(promtool, "check", "config", "--syntax-only", "prometheus.yml")


def test_the_container_scrapes_what_the_web_server_answers_to() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    written = yaml.safe_load((PLACE / "prometheus.yml").read_text())
    (scrape,) = written["scrape_configs"]
    assert written["rule_files"] == ["alerts.yml"]
    web, ours = compose["services"]["web"], compose["services"]["prometheus"]
    assert scrape["static_configs"] == [{"targets": [web["environment"]["TILTYARD_METRICS_HOST"]]}]
    assert scrape["job_name"] == "tiltyard", "as the rules name it"
    (secret,) = ours["secrets"]
    assert scrape["authorization"] == {"credentials_file": f"/run/secrets/{secret}"} and secret in web["secrets"]
    assert web["environment"]["TILTYARD_METRICS_TOKEN_FILE"].endswith(f":-/run/secrets/{secret}}}")
    assert set(ours["networks"]) == {"outside"} <= set(web["networks"])


def test_promtool_accepts_the_expressions_of_the_board(promtool: str, tmp_path: Path) -> None:
    rules = [
        {"record": f"board:{n}", "expr": expr.replace("$job", "tiltyard")}
        for n, (expr, _legend) in enumerate(board_expressions())
    ]
    file = tmp_path / "board.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": rules}]}))
    assert f"{len(rules)} rules found" in checked(promtool, "check", "rules", str(file))


@pytest.mark.django_db
def test_promtool_finds_no_fault_in_an_answer(
    promtool: str, client: Client, make_run: Any, make_environment: Any
) -> None:
    make_run(state="running")
    make_environment()
    answer = client.get("/metrics")
    assert answer.status_code == 200 and len(COLLECTORS) > 10
    assert checked(promtool, "check", "metrics", text=answer.content.decode()) == ""
