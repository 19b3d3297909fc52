"""Deleting a sweep: its page alone, or its runs too; all of them or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.webapp.evaluation.sweeps.conftest import hold_out, runs_of
from tests.working import at_once, done
from webapp.common.storage import run_dir
from webapp.launch.models import Sweep, SweepRun
from webapp.launch.sweeps import sweeps_of
from webapp.people.teams.models import AuditEntry, Project, User
from webapp.runs.models import Run
from webapp.runs.removal.models import Removal
from webapp.runs.states import RunState

pytestmark = pytest.mark.django_db(transaction=True)
RATE = "optim.learning_rate"
Clients, MakeSweep = Callable[..., Client], Callable[..., Sweep]


@pytest.fixture(autouse=True)
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return at_once(monkeypatch)


@pytest.fixture
def sweep(make_sweep: MakeSweep) -> Sweep:
    """Two runs that have ended, one with three rollouts and 1,500 bytes of files."""
    made = make_sweep([(RATE, [1e-5, 3e-5])])
    first = runs_of(made)[0]
    hold_out(first, {0: [1.0, 0.0], 1: [1.0]})
    run_dir(first.pk).mkdir(parents=True)
    (run_dir(first.pk) / "journal.jsonl").write_text("x" * 1500)
    return made


def page_of(sweep: Sweep, name: str = "sweep-detail") -> str:
    return reverse(name, args=[sweep.project.slug, sweep.pk])


def set_state(run: Run, state: RunState) -> None:
    Run.objects.filter(pk=run.pk).update(state=state)


def audited() -> list[tuple[str, str]]:
    return list(AuditEntry.objects.order_by("pk").values_list("action", "subject"))


def test_an_editor_deletes_the_sweep_and_its_runs_stay(sweep: Sweep, bob: User, client_for: Clients) -> None:
    client = client_for(bob)
    page = client.get(page_of(sweep)).content.decode()
    assert 'data-dialog="delete-sweep"' in page and "its runs stay" in page
    assert page_of(sweep, "sweep-delete-runs") not in page, "only owners delete runs"
    set_state(runs_of(sweep)[1], RunState.RUNNING)  # an open run is no obstacle: it stays
    answer = client.post(page_of(sweep, "sweep-delete"), follow=True)
    assert "rates is deleted; its runs stay." in answer.content.decode()
    assert not Sweep.objects.exists() and not SweepRun.objects.exists() and Run.objects.count() == 2
    assert audited() == [("sweep_deleted", "rates")] and not Removal.objects.exists()
    assert client.get(page_of(sweep)).status_code == 404


def test_a_viewer_sees_no_button(sweep: Sweep, rita: User, client_for: Clients) -> None:
    client = client_for(rita)
    assert "delete-sweep" not in client.get(page_of(sweep)).content.decode()
    assert client.post(page_of(sweep, "sweep-delete")).status_code == 403 and Sweep.objects.exists()


def test_an_owner_deletes_its_runs_too_after_typing_its_name(sweep: Sweep, alice: User, client_for: Clients) -> None:
    client, address = client_for(alice), page_of(sweep, "sweep-delete-runs")
    assert address in client.get(page_of(sweep)).content.decode()
    page = client.get(address).content.decode()
    assert "This frees 1.5\xa0KB" in page and "2 runs with all that they recorded" in page
    assert "3 rollouts with their turns" in page
    assert client.post(address, {"name": "rate"}).status_code == 422 and Sweep.objects.exists()
    names = [run.name for run in runs_of(sweep)]
    assert client.post(address, {"name": "rates"}).url == reverse("sweep-list", args=[sweep.project.slug])
    assert not Sweep.objects.exists() and not Run.objects.exists() and Run.all_objects.count() == 2
    assert audited() == [*(("run_deleted", name) for name in names), ("sweep_deleted", "rates")]
    for removal in Removal.objects.all():
        done(removal)
    assert not Run.all_objects.exists()


def test_the_runs_of_other_sweeps_and_no_sweep_stay(
    sweep: Sweep, make_sweep: MakeSweep, make_run: Any, alice: User, client_for: Clients
) -> None:
    other, alone = make_sweep([(RATE, [1e-5, 3e-5])], name="other"), make_run(name="alone", state="succeeded")
    client_for(alice).post(page_of(sweep, "sweep-delete-runs"), {"name": "rates"})
    assert {run.pk for run in Run.objects.all()} == {alone.pk, *(run.pk for run in runs_of(other))}


@pytest.mark.parametrize("state", [RunState.QUEUED, RunState.RUNNING, RunState.PAUSING, RunState.STOPPING])
def test_open_runs_are_named_and_nothing_is_deleted(
    sweep: Sweep, alice: User, client_for: Clients, state: RunState
) -> None:
    client, address = client_for(alice), f"/api/v1/sweeps/{sweep.pk}?runs=true"
    set_state(runs_of(sweep)[1], state)
    answer = client.delete(address)
    sentence = "Runs have not ended: rates-1. Stop them first, or delete the sweep alone."
    assert answer.status_code == 409 and answer.json()["message"] == sentence
    page = client.get(page_of(sweep, "sweep-delete-runs")).content.decode()
    assert sentence in page and 'name="name"' not in page
    assert Run.objects.count() == 2 and Sweep.objects.exists() and not audited() and not Removal.objects.exists()
    set_state(runs_of(sweep)[1], RunState.CANCELLED)
    assert client.delete(address).json() == {"deleted": "rates"} and not Run.objects.exists()


def test_of_many_open_runs_three_are_named(make_sweep: MakeSweep, alice: User, client_for: Clients) -> None:
    made = make_sweep([(RATE, [1e-6, 2e-6, 3e-6, 4e-6, 5e-6])], state=RunState.QUEUED)
    said = client_for(alice).delete(f"/api/v1/sweeps/{made.pk}?runs=true").json()["message"]
    assert said.startswith("Runs have not ended: rates-0, rates-1, rates-2 and 2 more.")
    for run in runs_of(made)[3:]:
        set_state(run, RunState.FAILED)
    said = client_for(alice).delete(f"/api/v1/sweeps/{made.pk}?runs=true").json()["message"]
    assert said.startswith("Runs have not ended: rates-0, rates-1, rates-2. Stop")


def test_what_uses_a_run_is_named_with_it(sweep: Sweep, make_run: Any, alice: User, client_for: Clients) -> None:
    make_run(name="after", state="draft", after=runs_of(sweep)[0])
    answer = client_for(alice).delete(f"/api/v1/sweeps/{sweep.pk}?runs=true")
    assert answer.status_code == 409
    assert answer.json()["message"] == "rates-0: A run waits for its model: after."
    assert Run.objects.count() == 3 and Sweep.objects.exists()


def test_over_the_api_an_editor_may_delete_only_the_sweep(
    sweep: Sweep, bob: User, rita: User, client_for: Clients
) -> None:
    address = f"/api/v1/sweeps/{sweep.pk}"
    assert client_for(rita).delete(address).status_code == 403
    assert client_for(bob).delete(f"{address}?runs=true").status_code == 403 and Run.objects.count() == 2
    assert client_for(bob).delete(address).json() == {"deleted": "rates"}
    assert Run.objects.count() == 2 and not Sweep.objects.exists()


def test_a_name_is_free_again(
    sweep: Sweep, project: Project, bob: User, client_for: Clients, make_sweep: MakeSweep
) -> None:
    client_for(bob).post(page_of(sweep, "sweep-delete"))
    Run.objects.all().delete()
    assert [found.name for found in sweeps_of(project)] == []
    assert make_sweep([(RATE, [1e-5, 3e-5])]).name == "rates"
