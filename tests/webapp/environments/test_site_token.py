"""Only the servers that the operator listed by host and port learn the installation's token."""

from __future__ import annotations

from typing import Any

import pytest

from tests.training.rollout import foreign
from webapp.engine.trainer import trainer_env
from webapp.environments.models import Environment
from webapp.environments.services import environment_register
from webapp.environments.tokens import site_token, token_write, trainer_access
from webapp.people.teams.models import Project, User


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("http://webshop:8104", True),
        ("http://WebShop:8104/", True),
        ("http://webshop:8105", False),
        ("http://webshop", False),
        ("http://webshop:8104@evil.example", False),
        ("http://10.0.0.0/8", False),
        ("https://evil.example", False),
        ("", False),
    ],
)
def test_which_servers_get_the_token(url: str, sent: bool, settings: Any) -> None:
    settings.OUTBOUND_ALLOW = ["tools:8101", "webshop:8104", "10.0.0.0/8"]
    settings.ENVIRONMENT_TOKEN = "s3cret"
    assert site_token(url) == ("s3cret" if sent else "")


def test_there_may_be_none(settings: Any) -> None:
    settings.OUTBOUND_ALLOW, settings.ENVIRONMENT_TOKEN = ["tools:8101"], ""
    assert site_token("http://tools:8101") == ""


def test_a_trainer_gets_it_unless_the_registration_names_its_own(project: Project, settings: Any) -> None:
    settings.OUTBOUND_ALLOW, settings.ENVIRONMENT_TOKEN = ["webshop:8104"], "s3cret"
    made = Environment.objects.create(project=project, name="webshop", url="http://webshop:8104")
    assert trainer_env(3, trainer_access(project, "environment:webshop"))["TILTYARD_ENV_TOKEN"] == "s3cret"
    token_write(made.pk, "its own token, given here")
    assert trainer_access(project, "environment:webshop")["TILTYARD_ENV_TOKEN"] == "its own token, given here"


def test_a_listed_server_is_examined_with_it(project: Project, bob: User, settings: Any) -> None:
    shown: list[str] = []

    def answer(asked: foreign.Asked) -> foreign.Reply:
        shown.append(asked.headers.get("authorization", ""))
        return foreign.Reply(200, "This is environment BabyAI.")

    with foreign.http_server(answer) as url:
        settings.OUTBOUND_ALLOW, settings.ENVIRONMENT_TOKEN = [url.removeprefix("http://")], "s3cret"
        environment_register(project=project, user=bob, name="babyai", url=url, protocol="agentgym")
    assert set(shown) == {"Bearer s3cret"}
