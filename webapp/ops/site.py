"""Makes the first user, team and project of an installation."""

from __future__ import annotations

from django.db import connection, transaction

from webapp.common.workers.beating import folder_problem
from webapp.people.teams.models import DEMO, Membership, Project, Role, Team, User

ADMIN = "admin"
FIRST_START_LOCK = 7_171_001  # any constant: two first starts at once must not make two teams


@transaction.atomic
def site_prepare(*, demo: bool = False) -> User:
    """Make sure that there is an administrator with a team and a project. Changes nothing that is already there."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [FIRST_START_LOCK])
    folder_problem()  # the first start of an installation writes the identity of its data folder
    user = User.objects.filter(is_superuser=True, is_active=True).order_by("date_joined").first()
    if user is None:
        user = User(username=ADMIN, is_staff=True, is_superuser=True)
        user.set_unusable_password()
        user.save()
    membership = Membership.objects.filter(user=user, role=Role.OWNER).select_related("team").first()
    if membership is None:
        team = Team.objects.create(name="My team")
        membership = Membership.objects.create(team=team, user=user, role=Role.OWNER)
        Project.objects.create(team=team, name="My project", slug=_free_slug("my-project"))
    if demo:
        demo_project(membership.team)
    return user


def demo_project(team: Team) -> Project:
    """The team's project for the demo."""
    found = Project.objects.filter(team=team, name=DEMO).first()
    return found or Project.objects.create(team=team, name=DEMO, slug=_free_slug("demo"))


def _free_slug(wanted: str) -> str:
    taken = set(Project.objects.filter(slug__startswith=wanted).values_list("slug", flat=True))
    return next(slug for n in range(1, len(taken) + 3) if (slug := wanted if n == 1 else f"{wanted}-{n}") not in taken)
