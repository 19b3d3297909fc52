"""Single sign-on: people log in with a provider of OpenID Connect that the operator names.

The flow (state, nonce, PKCE) is mozilla-django-oidc's. Ours is what it leaves to its user: the provider's addresses
from its discovery document, requests by the one outbound client, the checks of a token's issuer and audience, who a
subject is here, and which roles their groups give.

1. A subject that was here before is the person that it was then.
2. Else a verified mail address may name a person; an administrator is never found by a mail address.
3. Else the subject becomes a new person.
4. Groups give roles (``TILTYARD_OIDC_GROUPS``) at each login. What a person was given by hand stays as it is.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import time
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import jwt
from django.conf import settings
from django.core.exceptions import SuspiciousOperation, ValidationError
from django.db import IntegrityError, transaction
from django.http import HttpRequest
from django.utils.translation import gettext as _
from mozilla_django_oidc.auth import OIDCAuthenticationBackend

from training.errors import EnvironmentProtocolError
from webapp.common.outbound import fetch, post
from webapp.common.text import clean_text
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Identity, Membership, Role, Team, User
from webapp.people.teams.services import member_remove, member_set_role

logger = logging.getLogger(__name__)

KEPT_S = 3600
LEEWAY_S = 60
MAX_SUBJECT = 255
SIGNED_BY = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "EdDSA")
"""Signatures by a key of the provider's. Not those by the shared secret, and not none."""
AUTH_TIME = "oidc_auth_time"
_RANK = {role: place for place, role in enumerate(Role.values)}


class SignOnRefused(ValidationError):
    """The provider vouches for this person, but they may not come in."""


# --- The provider ---------------------------------------------------------------------------------------------------


class Provider(NamedTuple):
    """What a provider says of itself; ``userinfo`` is empty where it has no such address."""

    issuer: str
    authorization: str
    token: str
    userinfo: str
    keys: str
    algorithms: tuple[str, ...]
    basic: bool


_kept: dict[str, tuple[float, Provider]] = {}


def provider() -> Provider:
    """The operator's provider, from its discovery document, which is read once an hour.

    Raises an environment error where it does not answer, or the document lacks what the flow needs.
    """
    issuer = settings.OIDC_ISSUER
    until, known = _kept.get(issuer, (0.0, None))
    if known is None or time.monotonic() > until:
        known = _provider_of(_read_json(f"{issuer.rstrip('/')}/.well-known/openid-configuration"))
        _kept[issuer] = time.monotonic() + KEPT_S, known
    return known


def _provider_of(document: Mapping[str, Any]) -> Provider:
    texts = {name: value for name, value in document.items() if isinstance(value, str)}
    needed = ("issuer", "authorization_endpoint", "token_endpoint", "jwks_uri")
    if lacking := [name for name in needed if name not in texts]:
        sentence = _("The sign-on service does not say its %(names)s.")
        raise EnvironmentProtocolError(sentence % {"names": ", ".join(lacking)})
    if texts["issuer"].rstrip("/") != settings.OIDC_ISSUER.rstrip("/"):
        sentence = _("The sign-on service calls itself %(issuer)s, not what TILTYARD_OIDC_ISSUER names.")
        raise EnvironmentProtocolError(sentence % {"issuer": texts["issuer"][:200]})
    named = document.get("id_token_signing_alg_values_supported") or ["RS256"]
    methods = document.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
    return Provider(
        texts["issuer"],
        texts["authorization_endpoint"],
        texts["token_endpoint"],
        texts.get("userinfo_endpoint", ""),
        texts["jwks_uri"],
        tuple(name for name in SIGNED_BY if name in named),
        "client_secret_basic" in methods,
    )


def _places() -> frozenset[tuple[str, int]]:
    """Where the operator's provider is: it may be in a private network."""
    parts = urlsplit(settings.OIDC_ISSUER)
    return frozenset({(parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))})


def _read_json(url: str, token: str = "") -> dict[str, Any]:
    reply = fetch(url, token=token, ours=_places())
    return _parsed(reply.status, reply.body)


def _parsed(status: int, body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    if status != 200 or not isinstance(found, dict):
        said = found.get("error") if isinstance(found, dict) else None
        sentence = _("The sign-on service answers with status %(status)d (%(said)s).")
        said = clean_text(str(said or _("no reason given")))[:80]
        raise EnvironmentProtocolError(sentence % {"status": status, "said": said})
    return found


# --- The token ------------------------------------------------------------------------------------------------------


class Backend(OIDCAuthenticationBackend):  # type: ignore[misc]  # the package ships no types
    """Exchanges the code of a callback for a person. Raises ``SignOnRefused``, an environment error where the provider
    cannot be reached, and ``SuspiciousOperation`` where a token is not for us."""

    def __init__(self) -> None:
        # Not the package's: it asks for the provider's addresses, and Django makes a backend at every request.
        self.OIDC_RP_CLIENT_ID = settings.OIDC_RP_CLIENT_ID
        self.OIDC_RP_CLIENT_SECRET = settings.OIDC_RP_CLIENT_SECRET
        self.UserModel = User

    def authenticate(self, request: HttpRequest | None, nonce: str | None = None, **credentials: Any) -> User | None:
        """The person that the callback in ``request`` is about; ``None`` for other ways to log in."""
        if request is None or not nonce:
            return None
        found: User | None = super().authenticate(request, nonce=nonce, **credentials)
        return found

    def get_token(self, payload: dict[str, Any]) -> dict[str, Any]:
        """The tokens for the code."""
        known, headers = provider(), {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        if known.basic:
            pair = f"{quote(payload['client_id'], '')}:{quote(payload.pop('client_secret'), '')}"
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        answer = post(known.token, urlencode(payload).encode(), headers, ours=_places())
        return _parsed(answer.status, answer.body)

    def verify_token(self, token: Any, nonce: str | None = None) -> dict[str, Any]:
        """The claims of an ID token that the provider signed for us, for this very login."""
        known = provider()
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                self.retrieve_matching_jwk(token),
                algorithms=list(known.algorithms),
                audience=self.OIDC_RP_CLIENT_ID,
                issuer=known.issuer,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iat", "aud", "iss", "sub"]},
            )
        except (jwt.PyJWTError, TypeError, ValueError) as exc:
            raise SuspiciousOperation(f"the ID token is not valid: {exc}") from exc
        if not nonce or claims.get("nonce") != nonce:
            raise SuspiciousOperation("the ID token is of another login")
        if claims.get("azp", self.OIDC_RP_CLIENT_ID) != self.OIDC_RP_CLIENT_ID:
            raise SuspiciousOperation("the ID token was made for another client")
        return claims

    def retrieve_matching_jwk(self, token: Any) -> jwt.PyJWK:
        """The provider's key that a token names; its only key where the token names none."""
        wanted = jwt.get_unverified_header(token).get("kid")
        keys = jwt.PyJWKSet.from_dict(_read_json(provider().keys)).keys
        found = [key for key in keys if key.public_key_use in (None, "sig") and wanted in (None, key.key_id)]
        if len(found) != 1:
            raise SuspiciousOperation("the provider has no such key")
        return found[0]

    def get_userinfo(self, access_token: str, id_token: str, payload: dict[str, Any]) -> dict[str, Any]:
        """The claims of the ID token, and what the provider adds of the same subject."""
        if not provider().userinfo or not isinstance(access_token, str):
            return payload
        more = _read_json(provider().userinfo, access_token)
        if more.get("sub") != payload["sub"]:
            raise SuspiciousOperation("the provider answered about another subject")
        return {**more, **payload}

    def get_or_create_user(self, access_token: str, id_token: str, payload: dict[str, Any]) -> User:
        """The person, with the roles that their groups give now."""
        claims = self.get_userinfo(access_token, id_token, payload)
        self.request.session[AUTH_TIME] = payload.get("auth_time")
        with transaction.atomic():
            user = person_of(settings.OIDC_ISSUER, claims)
            roles_sync(user, groups_of(claims))
        return user


# --- The person -----------------------------------------------------------------------------------------------------


def person_of(issuer: str, claims: Mapping[str, Any]) -> User:
    """Who a subject is here; a new person where they were never here. Raises ``SignOnRefused``."""
    subject = str(claims["sub"])
    if not subject or len(subject) > MAX_SUBJECT:
        raise SuspiciousOperation("the subject cannot be kept")
    known = Identity.objects.select_related("user").filter(issuer=issuer, subject=subject).first()
    if known is not None:
        user = known.user
    else:
        user = _person_by_mail(claims) or _new_person(claims)
        Identity.objects.create(user=user, issuer=issuer, subject=subject)
        audit(AuditAction.IDENTITY_LINKED, user, by=user)
    if not user.is_active:
        raise SignOnRefused(_("This account is deactivated; an owner of your team can let you in again."))
    return user


def _person_by_mail(claims: Mapping[str, Any]) -> User | None:
    """The one person with the verified address; an address that was only claimed finds no account."""
    mail = claims.get("email")
    if not isinstance(mail, str) or not mail or claims.get("email_verified") is not True:
        return None
    found = list(User.objects.filter(email__iexact=mail, is_machine=False)[:2])
    if any(user.is_staff or user.is_superuser for user in found):
        raise SignOnRefused(
            _("%(mail)s is an administrator's address: log in with the password or a link.") % {"mail": mail[:200]}
        )
    return found[0] if len(found) == 1 else None


def _new_person(claims: Mapping[str, Any]) -> User:
    """A new person without a password. Their name is the one that they go by there, as far as it can be a name here."""
    if settings.OIDC_GROUPS and not roles_of(groups_of(claims)):
        raise SignOnRefused(_("None of your groups has access here. The operator names the groups that do."))
    asked = str(claims.get("preferred_username") or claims.get("email") or claims.get("name") or "")
    base = re.sub(r"[^\w.+-]+", "-", clean_text(asked).partition("@")[0]).strip("-.")[:140] or "person"
    mail = str(claims.get("email") or "") if claims.get("email_verified") is True else ""
    for number in range(1, 1000):
        name = base if number == 1 else f"{base}-{number}"
        if User.objects.filter(username__iexact=name).exists():
            continue
        try:
            with transaction.atomic():
                return User.objects.create_user(name, email=mail)
        except IntegrityError:
            continue
    raise SignOnRefused(_("Too many people have this name already; ask the operator."))


def groups_of(claims: Mapping[str, Any]) -> list[str]:
    """The groups that a provider names: a list, or one name."""
    found = claims.get(settings.OIDC_GROUPS_CLAIM)
    return [str(name) for name in found] if isinstance(found, list) else [str(found)] if found else []


def roles_of(groups: Collection[str]) -> dict[str, str]:
    """The highest role that groups give, by team as the rules name it; ``""`` is the installation's only team."""
    found: dict[str, str] = {}
    for group, role, team in settings.OIDC_GROUPS:
        if group in groups:
            found[team] = _higher(found.get(team, ""), role)
    return found


def _higher(first: str, second: str) -> str:
    return max(first, second, key=lambda role: _RANK.get(role, -1))


def roles_sync(user: User, groups: Collection[str]) -> None:
    """Give a person the roles of their groups, and take those that groups gave before. The last owner of a team stays,
    and so does every membership that was given by hand."""
    roles, wanted = roles_of(groups), dict[Team, str]()
    for name in dict.fromkeys(team for _group, _role, team in settings.OIDC_GROUPS):
        teams = list(Team.objects.filter(**({"name": name} if name else {}))[:2])
        if len(teams) == 1:
            wanted[teams[0]] = _higher(wanted.get(teams[0], ""), roles.get(name, ""))
        else:
            logger.error("no such team", extra={"action": "roles_sync", "team": name, "found": len(teams)})
    for team, role in wanted.items():
        try:
            _role_sync(user, team, role)
        except ValidationError as exc:
            why = " ".join(exc.messages)
            logger.warning("role kept", extra={"action": "roles_sync", "team_id": str(team.pk), "why": why})


def _role_sync(user: User, team: Team, role: str) -> None:
    membership = Membership.objects.select_related("team", "user").filter(team=team, user=user).first()
    if membership is None:
        if role:
            Membership.objects.create(team=team, user=user, role=role, by_group=True)
            audit(AuditAction.MEMBER_ADDED, user, by=user, subject=f"{user.username} · {team.name} · {role}")
    elif membership.by_group and not role:
        member_remove(membership=membership, by=user)
    elif membership.by_group and role != membership.role:
        member_set_role(membership=membership, role=role, by=user)
