"""In a browser a dangerous choice asks for the password, and continues with what was chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from webapp.people.teams.models import Membership, Project, User

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_a_role_is_changed_after_the_password(
    page_for: Callable[..., Any], alice: User, bob: User, project: Project
) -> None:
    page = page_for(alice, old=True)
    page.goto(f"/p/{project.slug}/settings/")
    page.get_by_label("Role of bob").select_option("viewer")  # the form sends itself
    page.get_by_text("Confirm that it is you, to add or remove a member, or change a role.").wait_for()
    page.get_by_label("Password").fill("correct horse battery staple")
    page.get_by_role("button", name="Confirm").click()
    page.get_by_text("role: viewer").wait_for()
    assert Membership.objects.get(user=bob).role == "editor"
    page.get_by_role("button", name="Continue").click()
    page.get_by_text("bob is now viewer.").wait_for()
    assert page.get_by_label("Role of bob").input_value() == "viewer"
