"""The rules of a project: its page, the API, and what the doctor makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse

from tests.markup import words
from tests.training.doctor.planted import FAULTS, healthy, planted
from training.doctor.options import DoctorOptions
from training.doctor.rules import RULES
from webapp.engine.doctor import look, rules_change, rules_of
from webapp.people.teams.models import AuditEntry, Project, User
from webapp.runs.advisories.models import Advisory, DoctorRules
from webapp.runs.models import Run

Clients = Callable[..., Client]
pytestmark = pytest.mark.django_db


def change(project: Project, user: User, reactions: dict[str, str] | None = None, **thresholds: float | None) -> Any:
    return rules_change(project=project, user=user, thresholds=thresholds, reactions=reactions or {})


def audited() -> int:
    return AuditEntry.objects.filter(action="doctor_changed").count()


def test_only_what_differs_from_the_defaults_is_kept(project: Project, alice: User) -> None:
    assert rules_of(project).options == DoctorOptions() and rules_of(project).reaction("stall") == "notify"
    change(project, alice, {"stall": "notify"}, clip_share=0.3)
    assert not DoctorRules.objects.exists() and not audited()
    change(project, alice, {"stall": "pause", "collapse": "notify"}, clip_share=0.4, window=5)
    row = DoctorRules.objects.get()
    assert (row.thresholds, row.reactions, row.changed_by) == ({"clip_share": 0.4}, {"stall": "pause"}, alice)
    found = change(project, alice, {"collapse": "keep"}, kl_ratio=20)
    assert (found.options.clip_share, found.options.kl_ratio) == (0.4, 20.0), "what is not named stays"
    assert found.reactions == {"stall": "pause", "collapse": "keep"}
    change(project, alice, {"stall": "notify", "collapse": "notify"}, clip_share=None, kl_ratio=None)
    row.refresh_from_db()
    assert (row.thresholds, row.reactions) == ({}, {})
    assert audited() == 3
    change(project, alice, {"stall": "notify"}, clip_share=0.3)
    assert audited() == 3, "nothing changed"


@pytest.mark.parametrize(
    ("thresholds", "reactions", "field", "message"),
    [
        ({"clip_share": 1.5}, {}, "clip_share", "It must be at most 1."),
        ({"clip_share": float("nan")}, {}, "clip_share", "It must be"),
        ({"window": 2.5}, {}, "window", "It must be a whole number."),
        ({"mood": 1}, {}, "mood", "There is no such option."),
        ({}, {"mood": "pause"}, "reaction-mood", "There is no such advisory."),
        ({}, {"stall": "sing"}, "reaction-stall", "It must be one of notify, keep, pause."),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    project: Project, alice: User, thresholds: Any, reactions: Any, field: str, message: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        change(project, alice, reactions, **thresholds)
    assert message in " ".join(caught.value.message_dict[field])
    assert not DoctorRules.objects.exists() and not audited()


def test_rules_of_another_version_are_at_their_defaults(project: Project) -> None:
    stored = {"clip_share": 7, "mood": 1, "kl_ratio": 20}
    DoctorRules.objects.create(project=project, thresholds=stored, reactions={"mood": "pause", "stall": "sing"})
    rules = rules_of(project)
    assert (rules.options.clip_share, rules.options.kl_ratio, rules.reactions) == (0.3, 20.0, {})


def test_the_doctor_looks_by_them(running: Run, record: Any, alice: User) -> None:
    change(running.project, alice, clip_share=0.9)
    record(running, planted(FAULTS["clip_share"]))
    look()
    assert not Advisory.objects.filter(code="clip_share").exists()


def test_the_first_look_is_by_them_too(running: Run, record: Any, alice: User) -> None:
    change(running.project, alice, window=2, no_spread_share=0.01)
    record(running, list(healthy(steps=11)))
    look()
    assert Advisory.objects.get(code="no_spread").first <= 10


# --- The page -------------------------------------------------------------------------------------------------------
def url(project: Project) -> str:
    return reverse("doctor-rules", args=[project.slug])


def test_an_owner_sets_them(project: Project, alice: User, client_for: Clients) -> None:
    client = client_for(alice)
    page = client.get(url(project)).content.decode()
    assert page.count('name="reaction-') == len(RULES) and 'name="clip_share"' in page and 'placeholder="0.3"' in page
    sent = {"clip_share": "0.4", "window": "", "reaction-stall": "pause"}
    assert client.post(url(project), sent).status_code == 302
    rules = rules_of(project)
    assert (rules.options.clip_share, rules.options.window, rules.reactions) == (0.4, 5, {"stall": "pause"})
    page = client.get(url(project)).content.decode()
    assert 'value="0.4"' in page and "Default: 0.3." in page and "Last change by alice" in page
    assert '<option value="pause" selected>' in page
    assert client.post(url(project), {}).status_code == 302
    assert rules_of(project).options == DoctorOptions() and not rules_of(project).reactions
    settings = client.get(reverse("team-settings", args=[project.slug])).content.decode()
    assert url(project) in settings


def test_a_threshold_of_several_advisories_has_one_field(project: Project, alice: User, client_for: Clients) -> None:
    """It had one at each of them; the browser sends all, and the last one, which the owner left empty, counted."""
    page = client_for(alice).get(url(project)).content.decode()
    assert {page.count(f'name="{name}"') for name in DoctorOptions.model_fields} == {1}
    rest, rules = page.split('id="rules-title"')
    for name in ("window", "calm", "long_window", "no_spread_share", "no_spread_long", "repetition_share"):
        assert f'name="{name}"' in rest, name
    assert 'name="clip_share"' in rules
    assert words(rest).count("Of: ") == 4 and "Of: Repetition · Text repeats itself more and more." in words(rest)


def test_a_wrong_figure_is_reported_at_its_field(project: Project, alice: User, client_for: Clients) -> None:
    response = client_for(alice).post(url(project), {"clip_share": "3", "kl_ratio": "1", "reaction-stall": "sing"})
    page = response.content.decode()
    assert response.status_code == 422 and page.count('class="errorlist"') == 3 and 'value="3"' in page
    assert "Nothing is saved yet" in page and page.count("autofocus") == 1
    assert not DoctorRules.objects.exists()


def test_others_read_and_strangers_learn_nothing(
    project: Project, bob: User, rita: User, charlie: User, client_for: Clients
) -> None:
    for user in (bob, rita):
        page = client_for(user).get(url(project)).content.decode()
        assert "Owners of the project change these rules." in page and "disabled" in page and ">Save<" not in page
        assert client_for(user).post(url(project), {"clip_share": "0.4"}).status_code == 403
    assert [client_for(user).get(url(project)).status_code for user in (charlie, None)] == [404, 302]
    assert client_for(charlie).post(url(project)).status_code == 404
    assert client_for(bob).put(url(project)).status_code == 405


# --- The API --------------------------------------------------------------------------------------------------------
def test_the_api_reads_and_changes_them(project: Project, alice: User, rita: User, client_for: Clients) -> None:
    address = f"/api/v1/projects/{project.slug}/doctor"
    body = {"thresholds": {"kl_floor": 0.2, "window": None}, "reactions": {"collapse": "pause"}}
    assert client_for(rita).patch(address, body, content_type="application/json").status_code == 403
    answer = client_for(alice).patch(address, body, content_type="application/json").json()
    expected = {"value": 0.2, "default": 0.1, "title": "Least KL of a spike", "unit": "nats"}
    assert answer["thresholds"]["kl_floor"] == expected
    assert (answer["reactions"]["collapse"], answer["reactions"]["stall"]) == ("pause", "notify")
    assert client_for(rita).get(address).json() == answer
    wrong = client_for(alice).patch(address, {"thresholds": {"kl_floor": -1}}, content_type="application/json")
    assert wrong.status_code == 422 and "kl_floor" in wrong.content.decode()
    assert rules_of(project).options.kl_floor == 0.2
