"""The tables of `make mutants` speak of code and tests that exist; the mutants themselves are judged there."""

from __future__ import annotations

import pytest

from tests.mutants.run import ROOT, function_of, good, settings_of, summary, table


@pytest.mark.parametrize("fault", table("planted.toml")["fault"], ids=lambda fault: fault["name"])
def test_a_planted_fault_fits_one_place_in_its_module(fault: dict[str, str]) -> None:
    """Else the fault would not be planted, and its tests would pass for no reason."""
    assert (ROOT / fault["module"]).read_text(encoding="utf-8").count(fault["was"]) == 1
    assert fault["was"] != fault["now"]
    assert "tests" in fault or fault["module"] in table("modules.toml")


def test_modules_and_their_tests_exist() -> None:
    modules = table("modules.toml")
    faults = table("planted.toml")["fault"]
    named = [path for row in [*modules.values(), *faults] for path in row.get("tests", [])]
    files = [path.removeprefix("--deselect=").partition("::")[0] for path in [*modules, *named]]
    assert [path for path in files if not (ROOT / path).exists()] == []


def test_every_survivor_has_a_reason_and_a_module() -> None:
    rows = table("survivors.toml").get("survivor", [])
    modules = table("modules.toml")
    assert [row for row in rows if row["module"] not in modules or len(row["reason"]) < 15] == []


def test_a_survivor_without_a_reason_breaks_the_net() -> None:
    judged = [{"name": f"x_look__mutmut_{number}", "status": "killed", "was": "", "now": ""} for number in range(9)]
    row = summary("webapp/common/work.py", judged)
    assert good(row) and (row["mutants"], row["killed"], row["survived"]) == (9, 9, 0)
    alive = {"name": "xǁClaimǁkeep__mutmut_3", "status": "survived", "was": "a", "now": "b"}
    row = summary("webapp/common/work.py", [*judged, alive])
    assert row["unlisted"] == [{"function": "Claim.keep", "was": "a", "now": "b"}] and row["share"] == 0.9
    assert not good(row) and not good({"planted": "x", "killed": False})


def test_names_and_settings_of_mutmut() -> None:
    assert function_of("x__predecessor_ready__mutmut_6") == "_predecessor_ready"
    assert "only_mutate =\n  webapp/common/work.py\n" in settings_of("webapp/common/work.py")
