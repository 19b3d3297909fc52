"""Who reaches what, by value: strangers find nothing, and a role is asked of the object's own project."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest
from django.utils import timezone

from webapp.evaluation.sharing.models import Comment, SavedComparison
from webapp.people.teams.access import (
    can_edit,
    object_for,
    object_of_team,
    own,
    project_for,
    projects_of,
    role_in,
    team_for,
)
from webapp.people.teams.audit import audit, audit_lines, audit_names, was_done
from webapp.people.teams.models import ApiToken, AuditAction, AuditEntry, Membership, Project, Role, User
from webapp.runs.models import Run
from webapp.runs.removal.models import Removal

pytestmark = pytest.mark.django_db
ANONYMOUS = AnonymousUser()


def test_a_role_is_that_of_the_projects_team(
    project: Project, alice: User, bob: User, rita: User, charlie: User
) -> None:
    assert [role_in(user, project) for user in (alice, bob, rita)] == [Role.OWNER, Role.EDITOR, Role.VIEWER]
    assert role_in(charlie, project) is None and role_in(ANONYMOUS, project) is None
    elsewhere = Project.objects.get(slug="elsewhere")
    assert role_in(charlie, elsewhere) == Role.OWNER and role_in(alice, elsewhere) is None
    alice.is_active = False
    assert role_in(alice, project) is None


@pytest.mark.parametrize(
    ("name", "need", "found"),
    [
        ("alice", "owner", True),
        ("alice", "viewer", True),
        ("bob", "owner", False),
        ("bob", "editor", True),
        ("rita", "editor", False),
        ("rita", "owner", False),
        ("rita", "viewer", True),
    ],
)
def test_a_project_needs_the_role(
    project: Project, alice: User, bob: User, rita: User, name: str, need: str, found: bool
) -> None:
    user = User.objects.get(username=name)
    if found:
        reached = project_for(user, "joust", need=Role(need))
        assert reached == project and reached.role == role_in(user, project)  # type: ignore[attr-defined]
        return
    with pytest.raises(PermissionDenied) as denied:
        project_for(user, "joust", need=Role(need))
    have = "editor" if name == "bob" else "viewer"
    assert str(denied.value) == f"Your role in this team is {have}; this needs {need}."


def test_reading_is_what_is_needed_where_no_right_is_named(project: Project, rita: User, make_run: Any) -> None:
    assert project_for(rita, "joust") == project
    run = make_run()
    assert object_for(rita, Run, run.pk) == run


def test_what_is_not_there_and_what_is_not_theirs_look_the_same(
    project: Project, charlie: User, alice: User, make_run: Any
) -> None:
    run = make_run()
    for user in (charlie, ANONYMOUS):
        for ask in (lambda user=user: project_for(user, "joust"), lambda user=user: object_for(user, Run, run.pk)):
            with pytest.raises(Http404):
                ask()
    for pk in (uuid.uuid4(), "not-an-id", ""):
        with pytest.raises(Http404):
            object_for(alice, Run, pk)
    with pytest.raises(Http404):
        project_for(alice, "nowhere")


def test_an_object_needs_the_role_and_the_given_queryset(
    project: Project, bob: User, rita: User, make_run: Any
) -> None:
    run, other = make_run(), make_run()
    assert object_for(bob, Run, str(run.pk), need=Role.EDITOR) == run
    with pytest.raises(PermissionDenied):
        object_for(rita, Run, run.pk, need=Role.EDITOR)
    assert object_for(bob, Run, run.pk, within=Run.objects.filter(pk=run.pk)) == run
    with pytest.raises(Http404):
        object_for(bob, Run, run.pk, within=Run.objects.filter(pk=other.pk))


def test_a_role_in_one_project_opens_no_object_of_another(
    project: Project, elsewhere: Project, alice: User, make_run: Any
) -> None:
    mine, theirs = make_run(), make_run()
    Run.objects.filter(pk=theirs.pk).update(project=elsewhere)
    asked = project_for(alice, "joust")
    assert object_for(alice, Run, mine.pk, need=Role.OWNER, project=asked) == mine
    with pytest.raises(Http404):
        object_for(alice, Run, theirs.pk, project=asked)


def asked_by(user: Any) -> HttpRequest:
    request = HttpRequest()
    request.user = user
    return request


def test_a_projects_own_object_needs_the_role_in_it(
    project: Project, alice: User, bob: User, rita: User, charlie: User, make_run: Any
) -> None:
    run = make_run()
    assert own(asked_by(rita), "joust", Run, run.pk) == (project, run)
    reached, found = own(asked_by(bob), "joust", Run, str(run.pk), need=Role.EDITOR)
    assert (reached, found, reached.role) == (project, run, Role.EDITOR)  # type: ignore[attr-defined]
    with pytest.raises(PermissionDenied, match="this needs editor"):
        own(asked_by(rita), "joust", Run, run.pk, need=Role.EDITOR)
    with pytest.raises(PermissionDenied, match="this needs editor"):  # before the object is looked for
        own(asked_by(rita), "joust", Run, uuid.uuid4(), need=Role.EDITOR)
    for user, slug, pk in (
        (charlie, "joust", run.pk),
        (charlie, "elsewhere", run.pk),
        (ANONYMOUS, "joust", run.pk),
        (alice, "nowhere", run.pk),
        (alice, "joust", uuid.uuid4()),
        (alice, "joust", "not-an-id"),
    ):
        with pytest.raises(Http404):
            own(asked_by(user), slug, Run, pk)


def test_a_projects_own_object_is_in_the_rows_to_look_in(project: Project, alice: User, make_run: Any) -> None:
    run, hidden = make_run(), make_run()
    archery = Project.objects.create(team=project.team, name="Archery", slug="archery")

    def but_one(asked: Project) -> Any:
        return Run.objects.filter(project=asked).exclude(pk=hidden.pk)

    assert own(asked_by(alice), "joust", Run, run.pk, within=but_one) == (project, run)
    with pytest.raises(Http404):
        own(asked_by(alice), "joust", Run, hidden.pk, within=but_one)
    with pytest.raises(Http404):  # the same person's, of another project
        own(asked_by(alice), archery.slug, Run, run.pk)


def test_a_role_is_read_once_for_an_object_with_a_project(
    project: Project, bob: User, make_run: Any, django_assert_num_queries: Any
) -> None:
    run = make_run()
    with django_assert_num_queries(2):
        own(asked_by(bob), "joust", Run, run.pk, need=Role.EDITOR)


def test_an_object_of_an_object_of_the_project_is_reached_too(project: Project, alice: User, rita: User) -> None:
    saved = SavedComparison.objects.create(project=project, name="two", contestants=[], created_by=alice)
    comment = Comment.objects.create(comparison=saved, created_by=alice, text="Look at this.")

    def comments(asked: Project) -> Any:
        return Comment.objects.filter(comparison__project=asked)

    assert own(asked_by(rita), "joust", Comment, comment.pk, within=comments) == (project, comment)
    with pytest.raises(PermissionDenied):
        own(asked_by(rita), "joust", Comment, comment.pk, need=Role.OWNER, within=comments)


def test_a_persons_projects_by_name(project: Project, alice: User, charlie: User) -> None:
    Project.objects.create(team=project.team, name="Archery", slug="archery")
    assert [found.name for found in projects_of(alice)] == ["Archery", "Joust"]
    assert [found.slug for found in projects_of(charlie)] == ["elsewhere"]
    assert list(projects_of(ANONYMOUS)) == []
    Membership.objects.all().delete()
    assert list(projects_of(alice)) == []


def test_what_outlives_its_project_is_of_its_team(
    project: Project, alice: User, bob: User, rita: User, charlie: User
) -> None:
    removal = Removal.objects.create(team=project.team, kind="runs.Run", name="gone")
    assert object_of_team(alice, Removal, removal.pk, need=Role.OWNER) == removal
    assert object_of_team(bob, Removal, removal.pk, need=Role.EDITOR) == removal
    for user in (bob, rita):
        with pytest.raises(PermissionDenied, match="this needs owner"):
            object_of_team(user, Removal, removal.pk, need=Role.OWNER)
    for user, pk in ((charlie, removal.pk), (ANONYMOUS, removal.pk), (alice, uuid.uuid4())):
        with pytest.raises(Http404):
            object_of_team(user, Removal, pk, need=Role.VIEWER)


def test_who_may_write_is_known_of_a_fetched_project_only(project: Project, alice: User, bob: User, rita: User) -> None:
    assert [can_edit(project_for(user, "joust")) for user in (alice, bob, rita)] == [True, True, False]
    assert can_edit(Project.objects.get(slug="joust")) is False


def test_a_project_comes_with_its_team(project: Project, alice: User, django_assert_num_queries: Any) -> None:
    reached, (listed, *_rest) = project_for(alice, "joust"), list(projects_of(alice))
    with django_assert_num_queries(0):
        assert reached.team.pk == project.team_id and listed.team.pk


def with_token(user: User, **limits: Any) -> User:
    """The person as a script of theirs comes."""
    person = User.objects.get(pk=user.pk)
    person.api_token = ApiToken(user=person, **limits)  # type: ignore[attr-defined]
    return person


def test_a_team_is_reached_by_its_owner_and_by_a_token_without_a_project(
    project: Project, alice: User, bob: User, charlie: User
) -> None:
    team = project.team
    for user in (alice, with_token(alice, role="owner")):
        assert team_for(user, team.pk, need=Role.OWNER) == team
    assert team_for(bob, team.pk, need=Role.EDITOR) == team
    for user in (bob, with_token(alice, role="editor")):
        with pytest.raises(PermissionDenied, match="this needs owner"):
            team_for(user, team.pk, need=Role.OWNER)
    gone = User.objects.get(pk=alice.pk)
    gone.is_active = False
    for user in (charlie, ANONYMOUS, gone, with_token(alice, role="owner", project=project)):
        with pytest.raises(Http404):
            team_for(user, team.pk, need=Role.VIEWER)
    team.removed_at = timezone.now()
    team.save(update_fields=["removed_at"])
    with pytest.raises(Http404):
        team_for(alice, team.pk, need=Role.VIEWER)


def test_outside_of_a_request_no_one_acts(client_for: Any, project: Project, alice: User) -> None:
    assert client_for(alice).get("/tokens/").status_code == 200
    assert audit(AuditAction.CODE_TESTED, project) is None and not AuditEntry.objects.exists()


def test_what_was_done_is_known_by_act_project_and_subject(project: Project, alice: User) -> None:
    other = Project.objects.create(team=project.team, name="Archery", slug="archery")
    audit(AuditAction.CODE_TESTED, by=alice, subject="a", project=project)
    long = audit(AuditAction.CODE_TESTED, by=alice, subject="x" * 201, project=project)
    assert long is not None and long.subject == "x" * 200
    assert was_done(AuditAction.CODE_TESTED, project, "a")
    for action, where, subject in (
        (AuditAction.CODE_TESTED, project, "b"),
        (AuditAction.CODE_TESTED, other, "a"),
        (AuditAction.DATASET_ADDED, project, "a"),
    ):
        assert not was_done(action, where, subject)


def test_the_audit_names_projects_and_people_by_name_and_links_what_is_there(
    project: Project, alice: User, bob: User, make_run: Any
) -> None:
    other, run = Project.objects.create(team=project.team, name="Archery", slug="archery"), make_run(name="night")
    gone = make_run()
    audit(AuditAction.CODE_TESTED, run, by=bob)
    audit(AuditAction.CODE_TESTED, gone, by=alice)
    gone.delete()
    audit(AuditAction.PROJECT_ADDED, other, by=alice)
    audit(AuditAction.CODE_TESTED, run, by=alice, subject="cut", project=other)
    assert audit_names() == {"projects": ["Archery", "Joust"], "people": ["alice", "bob"]}
    rows = AuditEntry.objects.order_by("pk")
    assert [(line.entry.subject, line.url) for line in audit_lines(rows) if line.entry.subject != str(gone)] == [
        (str(run), f"/p/joust/runs/{run.pk}/"),
        (str(other), "/p/archery/"),
        ("cut", f"/p/archery/runs/{run.pk}/"),
    ]
    assert next(line.url for line in audit_lines(rows) if line.entry.subject == str(gone)) == ""
