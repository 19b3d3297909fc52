"""The checks of a server before it is trusted: its identity, its free sessions, and a validation.

Our own protocol is asked over ``webapp.common.outbound``. Foreign protocols are asked by the adapters of
``training.rollout.protocols``, after the same decision about the address.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from django.utils.translation import gettext as _
from pydantic import BaseModel, ConfigDict, Field
from pydantic import ValidationError as ShapeError

from envs.wire import WIRE_VERSION, Baseline, Health, Load, Validation
from training.config import EnvironmentConfig, Protocol
from training.connections import reaching
from training.errors import EnvironmentProtocolError, EnvironmentUnreachable, TiltyardError
from training.rollout.protocols import check_options, check_server
from webapp.common.outbound import NOTHING, Pairs, Reply, access, fetch, target_of
from webapp.common.text import clean_text

VALIDATE_LIMIT_S = 30.0
NATIVE = "openenv"
MAX_PROBLEMS = 5


class Answer(BaseModel):
    """A server's answer under any protocol; missing facts are ``None``."""

    model_config = ConfigDict(extra="ignore")

    status: str = "healthy"
    name: str
    version: str
    sessions: int | None = None
    slots: int | None = None
    deterministic: bool = False
    load: Load | None = None
    baselines: list[Baseline] = Field(default_factory=list)
    doubts: list[str] = []

    @property
    def free(self) -> int | None:
        """Sessions that could be opened now."""
        return None if self.slots is None or self.sessions is None else max(0, self.slots - self.sessions)


class Server(NamedTuple):
    """The address and protocol of one server."""

    url: str
    protocol: str = NATIVE
    options: dict[str, Any] = {}
    token: str = ""
    ours: Pairs = NOTHING


class Finding(NamedTuple):
    """The outcome of one check; a problem that ``may_pass`` can be accepted by the person."""

    title: str
    ok: bool
    sentence: str
    hint: str = ""
    may_pass: bool = False


class Examination(NamedTuple):
    """All findings in order, and the server's answer."""

    findings: list[Finding]
    answer: Answer | None = None
    validation: dict[str, Any] | None = None

    @property
    def refused(self) -> list[Finding]:
        """The problems that no person can accept."""
        return [item for item in self.findings if not item.ok and not item.may_pass]

    @property
    def doubtful(self) -> list[Finding]:
        """The problems that a person may accept."""
        return [item for item in self.findings if not item.ok and item.may_pass]


def health_of(url: str, *, token: str = "", ours: Pairs = NOTHING, total_s: float | None = None) -> Health:
    """Ask a server for its identity and health. Raises ``TiltyardError`` with a sentence when it is not one of ours."""
    reply = fetch(url.rstrip("/") + "/health", token=token, ours=ours, total_s=total_s)
    _require_ok(reply)
    try:
        health = Health.model_validate_json(reply.body)
    except (ShapeError, ValueError, RecursionError) as exc:
        raise EnvironmentProtocolError(
            _("A server answers there, but it is not an environment server."),
            hint=_("Check the address: /health must report name, version, sessions and slots."),
        ) from exc
    if health.wire_version != WIRE_VERSION:
        raise EnvironmentProtocolError(
            _("The server speaks version %(theirs)s of the protocol, and this is version %(ours)s.")
            % {"theirs": health.wire_version, "ours": WIRE_VERSION}
        )
    return health


def ask(server: Server, *, total_s: float | None = None) -> Answer:
    """Ask a server of any protocol. Raises ``TiltyardError`` with a sentence."""
    if server.protocol == NATIVE:
        health = health_of(server.url, token=server.token, ours=server.ours, total_s=total_s)
        answer = Answer.model_validate({**health.model_dump(), "doubts": health.doubts})
    else:
        answer = _ask_foreign(server)
    if "\x00" in answer.name + answer.version or not answer.name or max(len(answer.name), len(answer.version)) > 80:
        raise EnvironmentProtocolError(_("The server's name or version is empty or too long."))
    return answer


def require_identity(answer: Answer, wanted: str) -> None:
    """Raises ``EnvironmentProtocolError`` when the server is another environment than the one that is meant."""
    if wanted and answer.name != wanted:
        raise EnvironmentProtocolError(
            _("This is environment %(name)s, not %(wanted)s.") % {"name": answer.name, "wanted": wanted},
            hint=_(
                "Another server answers at this address: fix the address, or register this server under its own name."
            ),
        )


def validation_of(server: Server) -> Validation:
    """Have a server of our own protocol play its gold and bad answers. Raises ``TiltyardError``."""
    reply = fetch(server.url.rstrip("/") + "/validate", token=server.token, ours=server.ours, total_s=VALIDATE_LIMIT_S)
    if reply.status == 404:
        return Validation(ok=False, episodes=0, problems=[_("The server offers no validation.")])
    _require_ok(reply)
    try:
        return Validation.model_validate_json(reply.body)
    except (ShapeError, ValueError, RecursionError) as exc:
        raise EnvironmentProtocolError(_("The answer of /validate is not one of an environment server.")) from exc


def examine(server: Server, *, wanted: str = "") -> Examination:
    """Every check in order; one that fails for good ends them."""
    findings: list[Finding] = []
    title = _("Health")
    try:
        if server.protocol != NATIVE:
            check_options(_probe_config(server).protocol, server.options)
        answer = ask(server)
        findings.append(Finding(title, True, _("The server answers.")))
        title = _("Identity")
        require_identity(answer, wanted)
    except TiltyardError as exc:
        return Examination([*findings, Finding(title, False, exc.message, exc.hint)])
    message = _("This is environment %(name)s, version %(version)s.")
    findings.append(Finding(title, True, message % {"name": answer.name, "version": answer.version or "–"}))
    findings.append(_capacity_finding(answer))
    if answer.doubts:
        sentence = _("The server's counts of its own work are out of range and left out: %(names)s.")
        names = ", ".join(answer.doubts)
        findings.append(Finding(_("Counts"), False, sentence % {"names": names}, may_pass=True))
    if server.protocol != NATIVE:
        return Examination(findings, answer)
    proof, validation = _validation_finding(server)
    return Examination([*findings, proof], answer, validation)


def _capacity_finding(answer: Answer) -> Finding:
    title = _("Capacity")
    if answer.free is None:
        return Finding(title, True, _("The server does not report how many sessions it holds."))
    counts = {"free": answer.free, "slots": answer.slots}
    sentence = _("%(free)s of %(slots)s sessions are free.") % counts
    hint = "" if answer.free else _("A run would have to wait for others to end.")
    return Finding(title, answer.free > 0, sentence, hint, may_pass=True)


def _validation_finding(server: Server) -> tuple[Finding, dict[str, Any] | None]:
    title = _("Validation")
    try:
        validation = validation_of(server)
    except EnvironmentUnreachable as exc:
        return Finding(title, False, exc.message, exc.hint), None
    except TiltyardError as exc:
        return Finding(title, False, exc.message, exc.hint, may_pass=True), None
    return Finding(title, validation.ok, validation_sentence(validation.model_dump()), may_pass=True), (
        validation.model_dump()
    )


def validation_sentence(found: dict[str, Any]) -> str:
    """The result of a validation, in one sentence."""
    if not found.get("ok"):
        problems = [clean_text(str(item))[:200] for item in found.get("problems", [])[:MAX_PROBLEMS]]
        return " ".join([_("The environment could not be verified."), *problems])
    values = {key: _score_text(found.get(key)) for key in ("gold_reward", "bad_reward")}
    return _("%(episodes)s episodes played: right answers score %(gold)s, wrong ones at most %(bad)s.") % {
        "episodes": found.get("episodes"),
        "gold": values["gold_reward"],
        "bad": values["bad_reward"],
    }


def _score_text(value: Any) -> str:
    return "–" if value is None else f"{value:.2f}"


def _require_ok(reply: Reply) -> None:
    if reply.status in (401, 403):
        raise EnvironmentUnreachable(
            _("The server refused the request (status %(status)s).") % {"status": reply.status},
            hint=_("Give the access token that the server was started with."),
        )
    if reply.status != 200:
        raise EnvironmentProtocolError(_("The server answered with status %(status)s.") % {"status": reply.status})


def _probe_config(server: Server) -> EnvironmentConfig:
    try:
        return EnvironmentConfig(url=server.url, protocol=cast(Protocol, server.protocol), options=server.options)
    except ShapeError as exc:
        raise EnvironmentProtocolError(_("Tiltyard does not speak this protocol.")) from exc


def _ask_foreign(server: Server) -> Answer:
    """The answer of the protocol's own adapter; ``None`` for what it cannot know."""
    target_of(server.url, ours=server.ours)  # its sentences are in the reader's language
    with reaching(access(server.token, server.ours)):
        facts = check_server(_probe_config(server), server.url)
    used = None if facts.slots is None or facts.free is None else facts.slots - facts.free
    return Answer(
        name=facts.name,
        version=facts.version or "",
        slots=facts.slots,
        sessions=used,
        deterministic=facts.deterministic is True,
    )
