"""A machine account for the tables of addresses, made without a row in the audit."""

from __future__ import annotations

from uuid import UUID

from webapp.people.teams.models import ApiToken, Machine, Membership, Project, User


def machine_in(project: Project) -> dict[str, UUID]:
    """One of the project's team with a token, by the parts of addresses that name them."""
    user = User.objects.create_user("robot", is_machine=True)
    Membership.objects.create(team=project.team, user=user, role="viewer")
    made = Machine.objects.create(team=project.team, user=user, name="robot", role="viewer")
    token = ApiToken.objects.create(user=user, name="1", role="viewer", token_hash="m", hint="m")
    return {"machines": made.pk, "machine_id": made.pk, "machine_token": token.pk}
