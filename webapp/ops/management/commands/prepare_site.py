"""``manage.py prepare_site``: migrate, make the first user and team, print a login link as JSON. Used by `up`."""

from __future__ import annotations

import json
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandParser
from django.db import connection, transaction

from webapp.common.workers.beating import folder_problem
from webapp.common.workers.models import DataFolder
from webapp.environments.models import Environment, Kind
from webapp.people.teams.logins import login_link_create, login_link_path
from webapp.people.teams.models import DEMO, Membership, Project, Role, Team, User

# Makes the first user, team and project of an installation.

ADMIN = "admin"
FIRST_START_LOCK = 7_171_001  # any constant: two first starts at once must not make two teams


@transaction.atomic
def site_prepare(*, demo: bool = False) -> User:
    """Make sure that there is an administrator with a team and a project. Changes nothing that is already there."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [FIRST_START_LOCK])
    if not folder_problem():  # the first start of an installation writes the identity of its data folder
        DataFolder.objects.filter(pk=1).update(path=str(settings.DATA_DIR))
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


class Command(BaseCommand):
    """Bring the database up to date and make what a first start needs."""

    help = __doc__
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Options."""
        parser.add_argument("--demo", action="store_true", help="make the project Demo too")
        parser.add_argument("--no-link", action="store_true", help="print no login link: the output is kept in a log")
        parser.add_argument("--tools-moved", nargs=2, metavar=("OLD", "NEW"), help="new URL of the tools environment")

    def handle(self, *args: Any, **options: Any) -> None:
        """Safe to repeat."""
        call_command("migrate", interactive=False, verbosity=0)
        user = site_prepare(demo=options["demo"])
        if options["tools_moved"]:
            old, new = options["tools_moved"]
            Environment.objects.filter(url__in=[old, f"{old}/"], kind=Kind.URL).update(url=new)
        if options["no_link"]:
            return
        token = login_link_create(user=user)
        self.stdout.write(json.dumps({"username": user.username, "login_path": login_link_path(token)}))
