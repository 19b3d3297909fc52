"""Deleting: hidden at once, gone by a worker, refused while used; nothing could be deleted before."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse
from django.utils import timezone, translation

from tests.markup import dense
from tests.working import at_once, claimed, done, perform
from webapp.common import objects
from webapp.common.secrets.models import Secret
from webapp.common.storage import project_dir, run_dir, trash_dir
from webapp.common.words import failure
from webapp.datasets.models import Dataset
from webapp.endpoints.services import endpoint_create
from webapp.engine.history import event_add
from webapp.environments.tokens import token_write
from webapp.people.teams.models import AuditEntry, Membership, Project, Team, User
from webapp.people.teams.services import hub_token_set, project_create
from webapp.people.teams.tokens import machine_create, token_create
from webapp.rewards.models import RolloutSet
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Run, RunEvent
from webapp.runs.registry.models import Checkpoint
from webapp.runs.registry.services import model_delete, model_register
from webapp.runs.removal import services
from webapp.runs.removal.models import Removal
from webapp.runs.removal.services import forecast, remove
from webapp.runs.rollouts.models import Rollout, Turn

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return at_once(monkeypatch)


@pytest.fixture
def run(project: Project, make_run: Any) -> Run:
    """A run that has ended, with rows of every kind and 1,500 bytes of files."""
    found: Run = make_run(name="lance", state="succeeded", idempotency_key="k")
    for number in range(5):
        rollout = Rollout.objects.create(
            run=found, attempt=1, step=1, group=0, index=number, started_at=timezone.now(), seq=1
        )
        Turn.objects.create(rollout=rollout, run=found, number=0, messages=[], seq=1)
    MetricPoint.objects.create(run=found, attempt=1, step=1, name="reward", value=1.0, seq=1)
    event_add(found.pk, "log", {}, attempt=1)
    _checkpoint(found, 4, 1000)
    (run_dir(found.pk) / "1" / "journal.jsonl").write_text("x" * 500)
    return found


def _checkpoint(run: Run, step: int, size: int) -> Checkpoint:
    path = run_dir(run.pk) / "1" / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / "model.safetensors").write_text("x" * size)
    return Checkpoint.objects.create(
        project=run.project, run=run, attempt=1, step=step, path=f"1/checkpoint-{step}", bytes=size, seq=1,
        created_at=timezone.now(),
    )  # fmt: skip


def _worker() -> Removal:
    return done(Removal.objects.get(state="waiting"))


def test_a_run_is_hidden_at_once_and_then_gone_with_all_it_left(
    run: Run, make_run: Any, alice: User, client_for: Callable[..., Client], sent: list[str]
) -> None:
    other = make_run(name="other", state="succeeded")
    kept = RolloutSet.objects.create(project=run.project, name="set", kind="run", run=run, run_name="lance")
    client, address = client_for(alice), reverse("run-delete", args=[run.project.slug, run.pk])
    page = client.get(address).content.decode()
    assert "This frees 1.5\xa0KB" in page and "5 rollouts with their turns" in page and "1 checkpoint<" in page
    wrong = client.post(address, {"name": "lanc"})
    assert wrong.status_code == 422 and "Type the name exactly" in wrong.content.decode() and sent == []
    assert client.post(address, {"name": "lance"})["Location"] == reverse("run-list", args=[run.project.slug])
    assert list(Run.objects.all()) == [other] and client.get(address).status_code == 404
    again = make_run(name="lance", idempotency_key="k")  # the name and the files' key are free at once
    assert run_dir(run.pk).is_dir() and Rollout.objects.count() == 5
    removal = _worker()
    assert (removal.state, sent) == ("done", [str(removal.pk)])
    assert not run_dir(run.pk).exists() and not trash_dir(removal.pk).exists()
    for model in (Rollout, Turn, MetricPoint, RunEvent, Checkpoint):
        assert not model._base_manager.exists(), model
    assert set(Run.all_objects.all()) == {other, again}
    kept.refresh_from_db()
    assert (kept.run, kept.run_name) == (None, "lance")
    assert AuditEntry.objects.filter(action="run_deleted", subject="lance", username="alice").count() == 1


@pytest.mark.parametrize("state", ["queued", "preparing", "running", "pausing", "stopping"])
def test_a_run_at_work_must_be_stopped_first(run: Run, state: str) -> None:
    Run.objects.update(state=state)
    with pytest.raises(ValidationError) as caught:
        remove(run)
    assert caught.value.messages == ["It is active or queued; stop it first."]
    with pytest.raises(ValidationError, match="stop them first: lance"):
        remove(run.project)
    assert Run.objects.filter(pk=run.pk).exists() and not Removal.objects.exists() and not AuditEntry.objects.exists()


def test_what_uses_a_run_or_a_checkpoint_is_named(run: Run, make_run: Any, alice: User) -> None:
    checkpoint = run.checkpoints.get()  # type: ignore[attr-defined]
    model = model_register(project=run.project, user=alice, name="mine", kind="run", checkpoint=checkpoint)
    waits = make_run(name="next", state="draft", after=run)
    starts = make_run(name="tuned", state="paused", resolved={"model": {"source": str(checkpoint.folder)}})
    waiting = "A run waits for its model: next."
    registered = "A model is registered from it; remove that first: mine."
    starting = "A run that has not ended starts from it: tuned."
    assert forecast(run).against == [waiting, registered, starting]
    assert forecast(checkpoint).against == [registered, starting]
    for item in (run, checkpoint):
        with pytest.raises(ValidationError):
            remove(item)
    Run.objects.filter(pk__in=(waits.pk, starts.pk)).update(state="cancelled")
    model_delete(model=model)
    assert forecast(run).against == forecast(checkpoint).against == []


def test_a_checkpoint_goes_and_the_others_stay(run: Run, alice: User, client_for: Callable[..., Client]) -> None:
    first, second = run.checkpoints.get(), _checkpoint(run, 8, 300)  # type: ignore[attr-defined]
    Run.objects.update(state="paused")
    assert forecast(first).against == ["Its run has not ended and may continue from it."]
    Run.objects.update(state="failed")
    assert (forecast(first).name, forecast(first).bytes) == ("lance, step 4", 1000)
    address = reverse("checkpoint-delete", args=[run.project.slug, first.pk])
    assert client_for(alice).post(address, {"name": "lance, step 4"}).status_code == 302
    assert list(Checkpoint.objects.all()) == [second]
    assert _worker().state == "done"
    assert not (run_dir(run.pk) / "1" / "checkpoint-4").exists() and second.folder.is_dir()


def test_a_project_goes_with_all_that_is_in_it(
    run: Run, make_run: Any, make_dataset: Any, make_environment: Any, make_reward_spec: Any, alice: User,
    charlie: User, client_for: Callable[..., Client], sent: list[str],
) -> None:  # fmt: skip
    project, folder = run.project, make_dataset().rows_path.parent
    theirs = Project.objects.get(slug="elsewhere")
    kept, data = make_run(project=theirs, state="failed"), make_dataset(project=theirs)
    place = make_environment(project=theirs)
    token_write(place.pk, "theirs")
    make_environment()
    make_reward_spec()
    hub_token_set(project=project, token="hf_goes-with-it")
    endpoint_create(project=project, user=alice, name="gpt", key="k", url="https://93.184.216.34", model="m")
    token_write(project.environments.get().pk)
    assert set(Secret.objects.exclude(kind="site").values_list("kind", flat=True)) == {
        "hub_token", "endpoint_key", "environment_token"
    }  # fmt: skip
    client = client_for(alice)
    page = client.get(reverse("project-delete", args=["joust"])).content.decode()
    assert "1 run with all that it recorded" in page and "1 dataset<" in page
    assert client.post(reverse("project-delete", args=["joust"]), {"name": "Joust"}).status_code == 302
    for name in ("project-page", "run-list", "dataset-list"):
        assert client.get(reverse(name, args=["joust"])).status_code == 404
    assert client.get(f"/api/v1/runs/{run.pk}").status_code == 404
    made = Project.objects.create(team=project.team, name="Joust", slug="joust")
    assert _worker().state == "done" and not folder.exists() and not run_dir(run.pk).exists()
    assert not project_dir(project.pk).exists()
    assert set(Secret.objects.exclude(kind="site").values_list("owner", flat=True)) == {place.pk}
    assert set(Project.all_objects.values_list("slug", flat=True)) == {"elsewhere", "joust"}
    assert list(project.team.projects.all()) == [made] and list(Dataset.objects.all()) == [data]
    assert (list(Run.objects.all()), list(theirs.environments.all())) == ([kept], [place])
    assert data.rows_path.is_file()


def test_what_was_published_goes_too(run: Run, settings: Any, tmp_path: Path) -> None:
    settings.FILES = str(tmp_path / "store")
    kept = run_dir(run.pk).with_name("kept") / "file"
    for path in (run_dir(run.pk) / "1/file", kept):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
        objects.publish(path)
    remove(run)
    assert _worker().state == "done"
    assert objects.published_below(run_dir(run.pk).parent) == [kept]
    kept.unlink()


def test_a_worker_that_is_killed_is_followed_by_one_that_continues(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after some rows, and again in the middle of the files: nothing is left, nothing is half."""
    remove(run)
    removal = Removal.objects.get()

    class Killed(BaseException):
        pass

    def die(*_args: Any, **_options: Any) -> None:
        raise Killed

    for target, name in ((services, "files_delete"), (services.files_delete.__globals__["shutil"], "rmtree")):
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(target, name, die)
            perform(claimed(removal))
        Removal.objects.update(token="")
        assert not Run.objects.exists()
    assert not run_dir(run.pk).exists() and trash_dir(removal.pk).exists()
    assert done(removal).state == "done" and not trash_dir(removal.pk).exists()


def test_a_dataset_and_its_files_go_together(make_dataset: Any, bob: User, client_for: Callable[..., Client]) -> None:
    dataset = make_dataset()
    folder: Path = dataset.rows_path.parent
    assert client_for(bob).delete(f"/api/v1/datasets/{dataset.pk}").json() == {"deleted": dataset.reference}
    assert not Dataset.objects.exists() and folder.is_dir()
    assert _worker().state == "done" and not folder.exists()


def test_the_api_deletes_with_the_one_error_shape(
    run: Run, alice: User, bob: User, client_for: Callable[..., Client]
) -> None:
    address = f"/api/v1/runs/{run.pk}"
    refused = client_for(bob).delete(address)
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    Run.objects.update(state="running")
    busy = client_for(alice).delete(address)
    assert (busy.status_code, busy.json()["code"]) == (409, "conflict")
    assert busy.json()["message"] == "It is active or queued; stop it first."
    Run.objects.update(state="cancelled")
    assert client_for(alice).delete(address).json() == {"deleted": "lance"}
    assert client_for(alice).delete(address).status_code == 404


def test_only_owners_see_the_buttons(run: Run, alice: User, bob: User, client_for: Callable[..., Client]) -> None:
    slug = run.project.slug
    pages = {
        reverse("run-detail", args=[slug, run.pk]): reverse("run-delete", args=[slug, run.pk]),
        reverse("model-list", args=[slug]): reverse("checkpoint-delete", args=[slug, Checkpoint.objects.get().pk]),
        reverse("team-settings", args=[slug]): reverse("project-delete", args=[slug]),
    }
    for page, button in pages.items():
        assert button in client_for(alice).get(page).content.decode()
        assert button not in client_for(bob).get(page).content.decode()
    Run.objects.update(state="running")
    page = client_for(alice).get(reverse("run-detail", args=[slug, run.pk])).content.decode()
    assert reverse("run-delete", args=[slug, run.pk]) not in page


def test_rows_go_in_batches(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """No statement deletes more than a batch: 20,000 rollouts in one would hold locks for minutes."""
    monkeypatch.setattr(services, "BATCH", 2)
    sizes: list[int] = []
    real = Rollout._base_manager.filter

    def spied(*args: Any, **options: Any) -> Any:
        if "pk__in" in options:
            sizes.append(len(options["pk__in"]))
        return real(*args, **options)

    monkeypatch.setattr(Rollout._base_manager, "filter", spied)
    remove(run)
    assert _worker().state == "done"
    assert sizes == [2, 2, 1] and not Rollout.objects.exists() and not Turn.objects.exists()


def test_rows_without_a_number_of_their_own_go_in_batches(
    run: Run, make_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand points by their keys of four columns took PostgreSQL 0.8 s, by their places 10 ms."""
    monkeypatch.setattr(services, "BATCH", 2)
    other = make_run(name="other")
    for found in (run, other):
        MetricPoint.objects.bulk_create(
            MetricPoint(run=found, attempt=1, step=step, name="loss", value=1.0, seq=step) for step in range(4)
        )
    field: Any = MetricPoint._meta.get_field("run")
    assert [services._delete_batch(MetricPoint, field, str(run.pk)) for _batch in range(4)] == [2, 2, 1, 0]
    assert set(MetricPoint.objects.values_list("run", "step")) == {(other.pk, step) for step in range(4)}


def test_a_deletion_that_failed_is_seen_and_tried_again(
    run: Run,
    alice: User,
    bob: User,
    charlie: User,
    client_for: Callable[..., Client],
    monkeypatch: Any,
    sent: list[str],
) -> None:
    """It was in the worker's log alone: no person saw that the files were still there, and nothing tried again."""
    remove(run)
    with monkeypatch.context() as patch:
        patch.setattr("webapp.runs.removal.services.shutil.rmtree", _denied)
        assert _worker().state == "failed"
    removal = Removal.objects.get()
    assert removal.error["message"] == "Its files cannot be deleted: Permission denied."
    with translation.override("zh-hans"):
        why = failure(removal.error)
        assert why is not None and why.detail.startswith("无法删除其文件：Permission denied。 请修正")
    runs, again = reverse("run-list", args=["joust"]), reverse("removal-retry", args=[removal.pk])
    for address in (runs, reverse("model-list", args=["joust"]), reverse("dataset-list", args=["joust"]), "/?all=1"):
        page = client_for(alice).get(address).content.decode()
        assert "lance could not be deleted" in page and "Permission denied" in page and again in page
    assert again not in (page := client_for(bob).get(runs).content.decode()) and "An owner of the team" in page
    assert "lance" not in client_for(charlie).get("/?all=1").content.decode()
    assert client_for(bob).post(again).status_code == 403 and client_for(charlie).post(again).status_code == 404
    assert client_for(alice).post(again, {"back": runs})["Location"] == runs
    removal.refresh_from_db()
    assert (removal.state, removal.error, sent) == ("waiting", None, [str(removal.pk)] * 2)
    assert client_for(alice).post(again, {"back": "//elsewhere.example/"})["Location"] == "/?all=1"
    assert len(sent) == 2, "what waits already is not asked for again"
    assert _worker().state == "done" and not trash_dir(removal.pk).exists()
    assert "could not be deleted" not in client_for(alice).get(runs).content.decode()


def test_a_project_whose_deletion_failed_is_named_on_the_front_page(
    run: Run, alice: User, client_for: Callable[..., Client], monkeypatch: Any
) -> None:
    remove(run.project)
    with monkeypatch.context() as patch:
        patch.setattr("webapp.runs.removal.services.shutil.rmtree", _denied)
        assert _worker().state == "failed"
    page = client_for(alice).get("/?all=1").content.decode()
    assert "Joust could not be deleted" in page and "Its files cannot be deleted: Permission denied." in page


def _denied(*_args: Any, **_more: Any) -> None:
    raise PermissionError(13, "Permission denied")


def test_the_files_of_a_project_are_weighed_after_its_page_is_there(
    run: Run, alice: User, client_for: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of runs have a hundred thousand files."""
    weighed: list[int] = []
    count = services.bytes_of
    monkeypatch.setattr(services, "bytes_of", lambda paths: weighed.append(1) or count(paths))
    client, address = client_for(alice), reverse("project-delete", args=[run.project.slug])
    page = dense(client.get(address).content.decode())
    assert not weighed and "This cannot be undone. How much it frees is being counted" in page
    assert 'hx-get="?weigh=1" hx-trigger="load" hx-select="#freed"' in page and "1 run with all" in page
    assert client.post(address, {"name": "wrong"}).status_code == 422 and not weighed
    page = client.get(f"{address}?weigh=1").content.decode()
    assert weighed and re.search(r'<p id="freed">\s*This frees 1.5\xa0KB and cannot be undone', page)


# --- Teams ------------------------------------------------------------------------------------------------------------
def test_a_team_goes_with_all_its_projects_and_its_people_stay(
    run: Run,
    make_run: Any,
    alice: User,
    bob: User,
    charlie: User,
    client_for: Callable[..., Client],
    sent: list[str],
) -> None:
    team, project = run.project.team, run.project
    theirs = Project.objects.get(slug="elsewhere")
    kept = make_run(project=theirs, state="failed")
    theirs_machine = machine_create(project=theirs, by=charlie, name="bot", may="editor", everywhere=True, days=1)[0]
    second = Project.objects.create(team=team, name="Second", slug="second")
    make_run(name="there", project=second, state="failed")
    machine = machine_create(project=project, by=alice, name="ci", may="editor", everywhere=True, days=1)[0]
    client, address = client_for(alice), reverse("team-delete", args=[team.pk])
    page = dense(client.get(address).content.decode())
    assert "2 projects: Joust, Second" in page and "2 runs with all that they recorded" in page
    assert "the memberships of 2 people, whose accounts stay" in page
    assert "1 machine account with its tokens" in page
    assert client.post(address, {"name": "Joust"}).status_code == 422
    assert client.post(address, {"name": team.name})["Location"] == "/?all=1"
    assert list(Project.objects.all()) == [theirs] and client.get(address).status_code == 404
    assert client.get("/projects/new/").status_code == 403  # she owns no other team
    home = client.get("/?all=1").content.decode()
    assert f"The team {team.name} is being deleted: 2 projects are left." in dense(home)
    machine.refresh_from_db()
    assert machine.ended_at is not None and not machine.user.is_active
    removal = _worker()
    assert (removal.state, removal.team) == ("done", None)
    assert list(Team.all_objects.all()) == [theirs.team] and list(Run.objects.all()) == [kept]
    assert [member.user for member in Membership.objects.filter(user__machine=None)] == [charlie]
    theirs_machine.refresh_from_db()
    assert theirs_machine.ended_at is None and not run_dir(run.pk).exists()
    assert User.objects.filter(username__in=["alice", "bob"], is_active=True).count() == 2
    assert "being deleted" not in client.get("/?all=1").content.decode()
    rows = AuditEntry.objects.filter(action="team_deleted").values_list("username", "subject", "object_id")
    assert list(rows) == [("alice", team.name, str(team.pk))]


@pytest.mark.parametrize("state", ["queued", "preparing", "running", "pausing", "stopping"])
def test_a_team_stays_while_a_run_of_any_project_is_at_work(run: Run, make_run: Any, state: str) -> None:
    second = Project.objects.create(team=run.project.team, name="Second", slug="second")
    make_run(name="there", project=second, state=state)
    with pytest.raises(ValidationError) as caught:
        remove(run.project.team)
    assert caught.value.messages == ["Runs are active or queued; stop them first: there."]
    assert Project.objects.count() == 2 and not Removal.objects.exists() and not AuditEntry.objects.exists()


def test_a_team_waits_for_deletions_in_it(run: Run, alice: User) -> None:
    """Their rows would go with the team before their files are gone."""
    removal = services.removal_add("folder", [run_dir(run.pk)], run.project)
    words = ["Deletions in it are not finished; wait for them, or try them again: folder."]
    for state in ("waiting", "failed"):
        Removal.objects.update(state=state)
        assert forecast(run.project.team).against == words
    Removal.objects.update(state="done")
    assert forecast(run.project.team).against == []
    assert Removal.objects.get().pk == removal.pk


def test_a_team_that_could_not_be_deleted_is_tried_again_by_its_owner(
    run: Run, alice: User, client_for: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    team = run.project.team
    remove(team)
    with monkeypatch.context() as broken:

        def refuse(*_paths: Any) -> None:
            raise PermissionError(13, "Permission denied")

        broken.setattr(services, "_move_to_trash", refuse)
        assert _worker().state == "failed"
    client = client_for(alice)
    page = client.get("/?all=1").content.decode()
    assert f"{team.name} could not be deleted" in page and "Permission denied" in page
    removal = Removal.objects.get()
    assert client.post(reverse("removal-retry", args=[removal.pk])).status_code == 302
    assert _worker().state == "done" and not Team.all_objects.exists() and not run_dir(run.pk).exists()


def test_no_project_is_started_in_a_team_that_is_being_deleted(run: Run, alice: User) -> None:
    team = run.project.team
    remove(team)
    with pytest.raises(ValidationError, match="This team was deleted"):
        project_create(team=team, name="Late", by=alice)
    assert not Project.objects.exists()


def test_a_team_is_deleted_over_the_api_by_its_owner(
    run: Run, alice: User, bob: User, charlie: User, client_for: Callable[..., Client]
) -> None:
    team = run.project.team
    assert client_for(bob).get("/api/v1/teams").json()["items"] == [
        {"id": str(team.pk), "name": team.name, "role": "editor"}
    ]
    address = f"/api/v1/teams/{team.pk}"
    assert [client_for(user).delete(address).status_code for user in (bob, charlie)] == [403, 404]
    limited = token_create(user=alice, name="t", role="owner", project=run.project)[1]
    assert Client().delete(address, headers={"Authorization": f"Bearer {limited}"}).status_code == 404
    small = token_create(user=alice, name="s", role="editor")[1]
    assert Client().delete(address, headers={"Authorization": f"Bearer {small}"}).status_code == 403
    assert client_for(alice).delete(address).json() == {"deleted": team.name}
    assert client_for(alice).get("/api/v1/teams").json()["items"] == []
