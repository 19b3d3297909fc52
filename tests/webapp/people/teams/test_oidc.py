"""Single sign-on against a provider that others wrote (oidc-provider-mock), and forged tokens against its checks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from django.core.exceptions import ImproperlyConfigured, SuspiciousOperation
from django.test import Client
from oidc_provider_mock import User as Subject
from oidc_provider_mock import run_server_in_thread

from training.errors import EnvironmentProtocolError
from webapp.common.env import sign_on_groups, sign_on_issuer
from webapp.people.teams import oidc
from webapp.people.teams.models import AuditAction, AuditEntry, Identity, Membership, Role, Team, User
from webapp.people.teams.oidc import Backend, Provider, roles_of
from webapp.people.teams.sudo import CONFIRMED_AT

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore::DeprecationWarning:authlib")]
SignOn = Callable[..., Any]


def subject(name: str, **claims: Any) -> Subject:
    known = {"email": f"{name}@example.org", "email_verified": True, "preferred_username": name, "groups": []}
    return Subject(sub=f"sub-{name}", claims=known | claims)


SUBJECTS = [
    subject("alice"),
    subject("dora", groups=["ml", "all"]),
    subject("erin", groups=["ml", "leads"]),
    subject("faye", email_verified=False, email="alice@example.org"),
    subject("root"),
    subject("gina", preferred_username="Gina O'Neil <b>", groups="ml"),
    subject("hana", preferred_username="alice", email="hana@example.org", groups=["ml"]),
    Subject(sub="sub-stale", claims={"preferred_username": "stale", "auth_time": int(time.time()) - 3600}),
]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with run_server_in_thread(user_claims=SUBJECTS, require_nonce=True) as server:
        yield f"http://localhost:{server.server_port}"


@pytest.fixture
def site(settings: Any, address: str) -> Any:
    """The settings of a site whose operator has named the provider."""
    settings.OIDC_ISSUER, settings.OIDC_NAME = address, "Acme"
    settings.OIDC_RP_CLIENT_ID, settings.OIDC_RP_CLIENT_SECRET = "tiltyard", "a secret/with+signs"
    settings.AUTHENTICATION_BACKENDS = [*settings.AUTHENTICATION_BACKENDS, "webapp.people.teams.oidc.Backend"]
    oidc._kept.clear()
    return settings


@pytest.fixture
def sign_on(site: Any) -> SignOn:
    """``sign_on(client, "dora")``: to the provider, where they log in, and back: the answer of the callback."""

    def go(client: Client, name: str, asked: str = "") -> Any:
        answer = client.get(f"/login/with/{asked}")
        assert answer.status_code == 302, answer.content
        there = httpx.post(answer["Location"], data={"sub": f"sub-{name}"})
        assert there.status_code == 302, there.text
        return client.get(there.headers["Location"])

    return go


def said(client: Client) -> str:
    page: str = client.get("/login/").content.decode()
    return page


def who(client: Client) -> str:
    found = client.session.get("_auth_user_id")
    return User.objects.get(pk=found).username if found else ""


def test_a_new_person_comes_in_and_is_the_same_the_next_time(sign_on: SignOn, team: Team) -> None:
    first, second = Client(), Client()
    answer = sign_on(first, "dora", "?next=/workers/")
    assert answer["Location"] == "/workers/" and who(first) == "dora"
    dora = User.objects.get(username="dora")
    assert dora.email == "dora@example.org" and not dora.has_usable_password() and not dora.is_superuser
    assert not Membership.objects.filter(user=dora).exists(), "without rules groups give nothing"
    User.objects.filter(pk=dora.pk).update(username="renamed", email="")
    assert sign_on(second, "dora")["Location"] == "/" and who(second) == "renamed"
    assert Identity.objects.get().subject == "sub-dora" and User.objects.filter(username="dora").count() == 0
    assert [row.username for row in AuditEntry.objects.filter(action=AuditAction.IDENTITY_LINKED)] == ["dora"]


def test_the_request_has_state_nonce_and_a_challenge_and_no_secret(site: Any) -> None:
    asked = parse_qs(urlsplit(Client().get("/login/with/")["Location"]).query)
    assert asked["scope"] == ["openid email profile"] and asked["code_challenge_method"] == ["S256"]
    assert len(asked["state"][0]) == len(asked["nonce"][0]) == 32 and "client_secret" not in asked
    assert "prompt" not in asked


def test_a_verified_address_finds_a_person_and_a_claimed_one_does_not(sign_on: SignOn, alice: User) -> None:
    client, other = Client(), Client()
    sign_on(client, "alice")
    assert who(client) == "alice" and Identity.objects.get(user=alice).subject == "sub-alice"
    sign_on(other, "faye")
    assert who(other) == "faye" and User.objects.get(username="faye").email == ""


def test_two_people_of_one_address_are_not_guessed_between(sign_on: SignOn, alice: User, bob: User) -> None:
    User.objects.filter(pk=bob.pk).update(email="ALICE@example.org")
    client = Client()
    sign_on(client, "alice")
    assert who(client) == "alice-2"


@pytest.mark.parametrize("right", ["is_superuser", "is_staff"])
def test_an_administrator_is_not_found_by_an_address(right: str, sign_on: SignOn) -> None:
    User.objects.create_user("boss", email="root@example.org", **{right: True})
    client = Client()
    assert sign_on(client, "root")["Location"] == "/login/" and not who(client)
    assert "an administrator&#x27;s address" in said(client) and not Identity.objects.exists()
    assert not User.objects.filter(username="root").exists()


def test_a_deactivated_person_stays_out(sign_on: SignOn, alice: User) -> None:
    sign_on(Client(), "alice")
    User.objects.filter(pk=alice.pk).update(is_active=False)
    client = Client()
    assert sign_on(client, "alice")["Location"] == "/login/" and not who(client)
    assert "This account is deactivated" in said(client)


def test_names_become_names_and_taken_ones_get_a_number(sign_on: SignOn, alice: User) -> None:
    clients = Client(), Client()
    sign_on(clients[0], "gina"), sign_on(clients[1], "hana")
    assert [who(client) for client in clients] == ["Gina-O-Neil-b", "alice-2"]


# --- Groups ---------------------------------------------------------------------------------------------------------


def test_groups_give_roles_and_take_them(sign_on: SignOn, site: Any, team: Team, alice: User) -> None:
    site.OIDC_GROUPS = [("ml", "viewer", ""), ("leads", "owner", "Knights"), ("ml", "editor", "Knights")]
    client = Client()
    sign_on(client, "erin")
    erin = Membership.objects.get(user__username="erin", team=team)
    assert (erin.role, erin.by_group) == (Role.OWNER, True)
    sign_on(client, "erin")  # nothing has changed
    site.OIDC_GROUPS = [("ml", "editor", "Knights")]
    sign_on(client, "erin")
    assert Membership.objects.get(pk=erin.pk).role == Role.EDITOR
    site.OIDC_GROUPS = [("other", "editor", "Knights")]
    sign_on(client, "erin")
    assert not Membership.objects.filter(user__username="erin").exists() and who(client) == "erin"
    assert [row.action for row in AuditEntry.objects.filter(username="erin").order_by("pk")] == [
        "identity_linked", "member_added", "member_role", "member_removed",
    ]  # fmt: skip


def test_what_was_given_by_hand_stays(sign_on: SignOn, site: Any, alice: User, rita: User, team: Team) -> None:
    site.OIDC_GROUPS = [("ml", "editor", "")]
    sign_on(Client(), "alice")
    assert Membership.objects.get(user=alice, team=team).role == Role.OWNER
    User.objects.filter(pk=rita.pk).update(email="dora@example.org")
    sign_on(Client(), "dora")
    assert Membership.objects.get(user=rita, team=team).role == Role.VIEWER
    squires = Team.objects.create(name="Squires")
    site.OIDC_GROUPS = [("ml", "editor", "Knights"), ("ml", "editor", "Squires")]
    sign_on(Client(), "dora")
    assert set(Membership.objects.filter(user=rita).values_list("team", "role", "by_group")) == {
        (team.pk, Role.VIEWER, False),
        (squires.pk, Role.EDITOR, True),
    }


def test_the_last_owner_stays_one(sign_on: SignOn, site: Any, team: Team) -> None:
    site.OIDC_GROUPS = [("leads", "owner", "")]
    sign_on(Client(), "erin")
    site.OIDC_GROUPS = [("leads", "viewer", "")]
    sign_on(Client(), "erin")
    site.OIDC_GROUPS = [("other", "viewer", "")]
    client = Client()
    sign_on(client, "erin")
    assert Membership.objects.get(user__username="erin", team=team).role == Role.OWNER and who(client) == "erin"


def test_with_rules_a_stranger_of_no_group_gets_no_account(sign_on: SignOn, site: Any, alice: User) -> None:
    site.OIDC_GROUPS = [("all", "viewer", "")]
    client = Client()
    assert sign_on(client, "gina")["Location"] == "/login/"
    assert "None of your groups has access here" in said(client) and not User.objects.filter(username="gina").exists()
    sign_on(client, "alice")
    assert who(client) == "alice", "a person who is known keeps the way in"


def test_two_teams_of_one_name_or_two_teams_without_a_name_give_nothing(sign_on: SignOn, site: Any, team: Team) -> None:
    Team.objects.create(name="Knights")
    site.OIDC_GROUPS = [("ml", "editor", "Knights"), ("ml", "editor", ""), ("ml", "editor", "gone")]
    client = Client()
    sign_on(client, "dora")
    assert who(client) == "dora" and not Membership.objects.filter(user__username="dora").exists()


def test_the_highest_role_of_several_groups_counts(site: Any) -> None:
    site.OIDC_GROUPS = [("a", "owner", "X"), ("b", "editor", "X"), ("b", "viewer", "Y")]
    assert roles_of(["a", "b"]) == roles_of(["b", "a"]) == {"X": "owner", "Y": "viewer"}
    assert roles_of(["b"]) == {"X": "editor", "Y": "viewer"} and roles_of([]) == {}


# --- Confirmations --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("age_s", "confirmed"), [(0, True), (14 * 60, True), (16 * 60, False), (-30, True), (-90, False), (None, False)]
)
def test_only_a_fresh_login_at_the_provider_is_a_confirmation(
    age_s: float | None, confirmed: bool, sign_on: SignOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A provider that says nothing of when, or where the person logged in long ago, proves nothing now."""
    verify = Backend.verify_token
    at = None if age_s is None else int(time.time() - age_s)
    monkeypatch.setattr(Backend, "verify_token", lambda *args, **more: {**verify(*args, **more), "auth_time": at})
    client = Client()
    sign_on(client, "dora")
    assert who(client) == "dora" and (CONFIRMED_AT in client.session) is confirmed


def test_a_person_confirms_at_the_provider(sign_on: SignOn, alice: User) -> None:
    client = Client()
    sign_on(client, "stale")
    page = client.get("/confirm/?next=/tokens/").content.decode()
    assert "/login/with/?confirm=1&amp;next=%2Ftokens%2F" in page and "fresh one-time link" not in page
    asked = parse_qs(urlsplit(client.get("/login/with/?confirm=1&next=/tokens/")["Location"]).query)
    assert asked["prompt"] == ["login"] and asked["max_age"] == ["0"]
    assert CONFIRMED_AT not in client.session
    Identity.objects.filter(subject="sub-stale").update(subject="sub-dora")
    assert sign_on(client, "dora", "?confirm=1&next=/tokens/")["Location"] == "/tokens/"
    assert who(client) == "stale" and CONFIRMED_AT in client.session


def test_people_without_an_identity_are_not_sent_there(
    site: Any, alice: User, client_for: Callable[..., Client]
) -> None:
    page = client_for(alice, old=True).get("/confirm/").content.decode()
    assert "/login/with/" not in page


# --- What goes wrong ------------------------------------------------------------------------------------------------


def test_without_a_provider_there_is_nothing(settings: Any) -> None:
    settings.OIDC_ISSUER = ""
    assert Client().get("/login/with/").status_code == Client().get("/login/with/callback/?code=1").status_code == 404
    assert "/login/with/" not in said(Client())


def test_the_login_page_names_it(site: Any) -> None:
    assert "Log in with Acme" in said(Client())


def test_a_provider_that_does_not_answer_is_named(site: Any) -> None:
    site.OIDC_ISSUER = "http://localhost:9"
    client = Client()
    assert client.get("/login/with/")["Location"] == "/login/"
    assert "Nothing accepts connections at this address." in said(client)


DOCUMENT = {
    "issuer": "https://id.example.org/",
    "authorization_endpoint": "https://id.example.org/begin",
    "token_endpoint": "https://id.example.org/token",
    "jwks_uri": "https://id.example.org/keys",
}


def test_a_document_is_of_the_provider_that_was_named_and_whole(settings: Any) -> None:
    settings.OIDC_ISSUER = "https://id.example.org"
    plain = oidc._provider_of(DOCUMENT)
    begin, token, keys = (f"https://id.example.org/{name}" for name in ("begin", "token", "keys"))
    assert plain[:5] == ("https://id.example.org/", begin, token, "", keys)
    assert (plain.algorithms, plain.basic) == (("RS256",), True), "what a provider that says nothing does"
    more = {
        "userinfo_endpoint": "https://id.example.org/who",
        "id_token_signing_alg_values_supported": ["none", "HS256", "EdDSA", "ES256"],
        "token_endpoint_auth_methods_supported": ["client_secret_post"],
    }
    found = oidc._provider_of(DOCUMENT | more)
    assert (found.userinfo, found.basic) == ("https://id.example.org/who", False)
    assert found.algorithms == ("ES256", "EdDSA"), "no secret that we know signs, and no one's signature is none"
    with pytest.raises(EnvironmentProtocolError, match=r"calls itself https://other\.example\.org, not what"):
        oidc._provider_of(DOCUMENT | {"issuer": "https://other.example.org"})
    with pytest.raises(EnvironmentProtocolError, match="does not say its token_endpoint, jwks_uri"):
        oidc._provider_of(DOCUMENT | {"token_endpoint": 7, "jwks_uri": None})


def test_a_provider_is_asked_who_it_is_once_an_hour(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.OIDC_ISSUER, now, asked = "https://id.example.org/", [1000.0], list[str]()
    oidc._kept.clear()

    def read(url: str) -> dict[str, Any]:
        asked.append(url)
        return DOCUMENT | {"token_endpoint": f"https://id.example.org/token-{len(asked)}"}

    monkeypatch.setattr(oidc, "_read_json", read)
    monkeypatch.setattr(oidc.time, "monotonic", lambda: now[0])
    assert oidc.provider().token == oidc.provider().token == "https://id.example.org/token-1"
    now[0] = 4600.0
    assert oidc.provider().token == "https://id.example.org/token-1"
    now[0] = 4600.1
    assert oidc.provider().token == oidc.provider().token == "https://id.example.org/token-2"
    assert asked == ["https://id.example.org/.well-known/openid-configuration"] * 2
    settings.OIDC_ISSUER = "https://id.example.org"
    assert oidc.provider().token == "https://id.example.org/token-3", "another name is another provider"


@pytest.mark.parametrize(
    ("issuer", "place"),
    [
        ("https://id.example.org/a", ("id.example.org", 443)),
        ("http://id.example.org", ("id.example.org", 80)),
        ("https://id.example.org:8443", ("id.example.org", 8443)),
    ],
)
def test_only_the_provider_s_own_place_may_be_in_a_private_network(
    issuer: str, place: tuple[str, int], settings: Any
) -> None:
    settings.OIDC_ISSUER = issuer
    assert oidc._places() == {place}


@pytest.mark.parametrize(
    ("status", "body", "shown"),
    [
        (400, b'{"error": "invalid_grant"}', "status 400 (invalid_grant)"),
        (200, b"[1]", "status 200 (no reason given)"),
        (502, b"<html>", "status 502 (no reason given)"),
        (400, b'{"error": "' + b"x" * 81 + b'"}', f"status 400 ({'x' * 80})"),
    ],
)
def test_an_answer_that_is_none_is_shown_with_the_providers_reason(status: int, body: bytes, shown: str) -> None:
    with pytest.raises(EnvironmentProtocolError) as refused:
        oidc._parsed(status, body)
    assert refused.value.message == f"The sign-on service answers with {shown}."


def test_an_answer_is_taken_once_and_by_the_browser_that_asked(sign_on: SignOn, site: Any) -> None:
    client, thief = Client(), Client()
    asked = client.get("/login/with/")["Location"]
    back = httpx.post(asked, data={"sub": "sub-dora"}).headers["Location"]
    assert thief.get(back)["Location"] == "/login/" and not who(thief)
    assert "was not valid for this login" in said(thief)
    client.get(back)
    assert who(client) == "dora"
    client.logout()
    assert client.get(back)["Location"] == "/login/" and not who(client)


def test_a_refusal_is_shown_and_logs_no_one_out(site: Any, alice: User) -> None:
    client = Client()
    client.get("/login/with/callback/?error=access_denied&error_description=<i>not+today")
    page = said(client)
    assert "Acme did not log you in: &lt;i&gt;not today" in page
    client.get("/login/with/callback/?error=login_required")
    assert "Acme did not log you in: login_required" in said(client), "it gives no sentence"
    client.force_login(alice, backend="django.contrib.auth.backends.ModelBackend")
    client.get("/login/with/callback/?error=login_required")
    assert who(client) == "alice"


def test_a_password_form_with_a_code_in_its_address_asks_no_provider(site: Any, alice: User) -> None:
    site.OIDC_ISSUER = "http://localhost:9"
    answer = Client().post("/login/?code=abc&state=def", {"username": "alice", "password": "wrong"})
    assert answer.status_code == 422


def test_who_is_logged_in_stays_so_while_the_provider_is_down(sign_on: SignOn, site: Any) -> None:
    client = Client()
    sign_on(client, "dora")
    site.OIDC_ISSUER = "http://localhost:9"
    oidc._kept.clear()
    assert client.get("/tokens/").status_code == 200


# --- Tokens ---------------------------------------------------------------------------------------------------------

KEY, OTHER = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
KNOWN = Provider("https://id.example.org", "", "", "", "", ("RS256",), True)


def claims(**over: Any) -> dict[str, Any]:
    now = int(time.time())
    found = {"iss": KNOWN.issuer, "aud": "tiltyard", "sub": "s", "nonce": "n", "iat": now, "exp": now + 60} | over
    return {name: value for name, value in found.items() if value is not None}


@pytest.fixture
def checked(site: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, Any]]:
    key = {**jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key(), as_dict=True), "kid": "one", "use": "sig"}
    encryption = {**jwt.algorithms.RSAAlgorithm.to_jwk(OTHER.public_key(), as_dict=True), "kid": "two", "use": "enc"}
    monkeypatch.setattr(oidc, "provider", lambda: KNOWN)
    monkeypatch.setattr(oidc, "_read_json", lambda _url: {"keys": [encryption, key]})
    return lambda token: Backend().verify_token(token, nonce="n")


def signed(found: dict[str, Any], key: Any = KEY, alg: str = "RS256", **headers: Any) -> str:
    return jwt.encode(found, key, algorithm=alg, headers={"kid": "one"} | headers)


def test_a_token_for_us_is_taken(checked: Callable[[str], dict[str, Any]]) -> None:
    assert checked(signed(claims()))["sub"] == "s"
    assert checked(signed(claims(aud=["tiltyard", "another"], azp="tiltyard")))["sub"] == "s"
    assert checked(signed(claims(exp=int(time.time()) - 55)))["sub"] == "s"
    assert checked(jwt.encode(claims(), KEY, algorithm="RS256"))["sub"] == "s", "one key needs no name"


@pytest.mark.parametrize(
    "token",
    [
        signed(claims(aud="another")),
        signed(claims(aud=["another"])),
        signed(claims(aud=None)),
        signed(claims(aud=["tiltyard", "another"], azp="another")),
        signed(claims(iss="https://evil.example")),
        signed(claims(nonce="another")),
        signed(claims(nonce=None)),
        signed(claims(sub=None)),
        signed(claims(exp=None)),
        signed(claims(exp=int(time.time()) - 90)),
        signed(claims(iat=int(time.time()) + 600)),
        signed(claims(), OTHER),
        signed(claims(), OTHER, kid="two"),
        signed(claims(), KEY, kid="three"),
        signed(claims(), KEY, alg="RS512"),
        signed(claims(), "a secret/with+signs" * 4, alg="HS256"),
        jwt.encode(claims(), None, algorithm="none", headers={"kid": "one"}),
        "not.a.token",
        "",
    ],
)
def test_a_token_that_is_not_for_us_is_refused(token: str, checked: Callable[[str], dict[str, Any]]) -> None:
    with pytest.raises(SuspiciousOperation):
        checked(token)


# --- Settings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "issuer", ["http://id.example.org", "id.example.org", "https://", "https://id.example.org/?x=1", "ftp://localhost"]
)
def test_an_issuer_that_cannot_be_one_stops_the_start(issuer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILTYARD_OIDC_ISSUER", issuer)
    with pytest.raises(ImproperlyConfigured, match="must be an https address"):
        sign_on_issuer()


def test_an_issuer_needs_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILTYARD_OIDC_ISSUER", "https://id.example.org/realms/acme")
    monkeypatch.setenv("TILTYARD_OIDC_CLIENT_ID", "tiltyard")
    with pytest.raises(ImproperlyConfigured, match="needs TILTYARD_OIDC_CLIENT_ID and TILTYARD_OIDC_CLIENT_SECRET"):
        sign_on_issuer()
    monkeypatch.setenv("TILTYARD_OIDC_CLIENT_SECRET", "secret")
    assert sign_on_issuer() == "https://id.example.org/realms/acme"
    monkeypatch.delenv("TILTYARD_OIDC_ISSUER")
    assert sign_on_issuer() == ""


def test_rules_are_read_with_and_without_a_team(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILTYARD_OIDC_GROUPS", "ml=editor, cn=ops,dc=acme")
    with pytest.raises(ImproperlyConfigured):
        sign_on_groups()
    monkeypatch.setenv("TILTYARD_OIDC_GROUPS", "ml=editor, a=b=owner@My team")
    assert sign_on_groups() == [("ml", "editor", ""), ("a=b", "owner", "My team")]
    for wrong in ("ml", "=editor", "ml=admin", "ml=@My team"):
        monkeypatch.setenv("TILTYARD_OIDC_GROUPS", wrong)
        with pytest.raises(ImproperlyConfigured, match="must be rules such as"):
            sign_on_groups()
