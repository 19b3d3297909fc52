"""With the supervisor's allow-list the trainer connects only to addresses that it has checked."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from envs.wire import ResetRequest
from tests.training.helpers import scripted_server
from tests.training.rollout.foreign import Asked, Reply, call, http_server, play, settings
from tests.training.rollout.test_mcp import Mcp
from tests.training.rollout.test_virtual import ROW, Virtual
from training import connections
from training.addresses import AddressRefused, AllowList, parse_place
from training.connections import Access
from training.errors import EnvironmentUnreachable
from training.rollout import client
from training.rollout.protocols import check_server, open_session
from training.rollout.protocols.base import ServerFacts

INTERNAL = [
    "http://169.254.169.254",
    "http://127.0.0.1:6379",
    "http://[::ffff:10.0.0.1]",
    "http://10.0.0.7:8000",
    "http://2130706433:8000",
    "http://user@8.8.8.8",
    "http://0.0.0.0:80",
    "http://[::1]:8000",
]


def allow(monkeypatch: pytest.MonkeyPatch, *entries: str) -> None:
    monkeypatch.setenv("TILTYARD_OUTBOUND_ALLOW", ",".join(entries))


def port_of(url: str) -> str:
    return url.rpartition(":")[2]


@pytest.mark.parametrize("url", INTERNAL)
@pytest.mark.parametrize("protocol", ["openenv", "openenv-mcp", "agentgym", "virtual", "mcp"])
def test_a_private_address_is_refused_before_anything_is_sent(
    protocol: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(monkeypatch)
    reached: list[Any] = []
    monkeypatch.setattr(socket.socket, "connect", lambda self, address: reached.append(address))
    with pytest.raises(AddressRefused) as caught:
        check_server(settings(url, protocol))
    with pytest.raises(AddressRefused):
        play(settings(url, protocol), [call("code_for_barcode_monster")], {**ROW, "session_id": 1})
    assert reached == [] and caught.value.code == "environment_unreachable" and caught.value.message.endswith(".")


@pytest.mark.parametrize("url", ["http://127.0.0.1:{}", "http://localhost:{}"])
def test_an_allowed_address_is_played_and_the_name_stays_in_host(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts: list[str] = []
    server = Virtual()

    def look(asked: Asked) -> Reply:
        hosts.append(asked.headers["host"])
        return server(asked)

    answers = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]
    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", _resolver(answers))
    with http_server(look) as base:
        allow(monkeypatch, f"127.0.0.1:{port_of(base)}")
        address = url.format(port_of(base))
        play(settings(address, "virtual"), [call("code_for_barcode_monster", code="1")], ROW)
    assert hosts == [address.removeprefix("http://")]


def _resolver(*rounds: list[Any]) -> Any:
    """A resolver that answers differently each time, as a rebinding one does; the last answer stays."""
    left = list(rounds)

    async def getaddrinfo(self: Any, host: Any, port: Any, **more: Any) -> list[Any]:
        found = left.pop(0) if len(left) > 1 else left[0]
        return [(*answer[:4], (answer[4][0], port)) for answer in found]

    return getaddrinfo


def _ipv4(text: str) -> Any:
    return (socket.AF_INET, socket.SOCK_STREAM, 6, "", (text, 0))


@pytest.mark.parametrize("protocol", ["openenv", "mcp"])
def test_a_name_that_answers_differently_the_second_time_gains_nothing(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer is allowed and taken; the second would lead to the machine's metadata."""
    monkeypatch.setattr(
        asyncio.BaseEventLoop, "getaddrinfo", _resolver([_ipv4("127.0.0.1")], [_ipv4("169.254.169.254")])
    )
    if protocol == "mcp":
        with http_server(Mcp()) as url:
            allow(monkeypatch, f"127.0.0.1:{port_of(url)}")
            assert play(settings(f"http://rebind.example:{port_of(url)}/mcp", "mcp"), [call("add", a=1)])
        return

    async def reset(url: str) -> None:
        session = await open_session(settings(url, "openenv"))
        assert (await session.reset(ResetRequest())).tools
        await session.close()

    with scripted_server() as url:
        allow(monkeypatch, f"127.0.0.1:{port_of(url)}")
        asyncio.run(reset(f"http://rebind.example:{port_of(url)}"))


def test_every_address_of_a_name_must_be_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch, "127.0.0.1:8000")
    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", _resolver([_ipv4("127.0.0.1"), _ipv4("10.0.0.7")]))
    for protocol in ("openenv", "virtual"):
        with pytest.raises(AddressRefused):
            check_server(settings("http://two.example:8000", protocol))


def test_the_next_address_is_tried_when_one_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", _resolver([_ipv4("127.0.0.2"), _ipv4("127.0.0.1")]))
    with http_server(Virtual()) as url:
        allow(monkeypatch, f"127.0.0.1:{port_of(url)}", f"127.0.0.2:{port_of(url)}")
        facts = check_server(settings(f"http://two.example:{port_of(url)}", "virtual"))
    assert isinstance(facts, ServerFacts)


def test_a_peer_that_is_not_the_checked_address_is_refused() -> None:
    with pytest.raises(AddressRefused, match="another address"):
        connections._require_peer(("10.0.0.7", 80), PUBLIC)
    connections._require_peer(("::ffff:93.184.215.14", 80, 0, 0), PUBLIC)


PUBLIC = connections.plain_address("93.184.215.14")


def _certificate(folder: Path, name: str) -> Path:
    """A key and a certificate of its own for a name."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder(who, who, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = folder / "pair.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, *plain) + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


@pytest.mark.parametrize("checked", [True, False])
def test_tls_is_spoken_to_the_address_in_the_name_of_the_host(
    checked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str | None] = []
    pair = _certificate(tmp_path, "env.example")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pair)
    server.sni_callback = lambda stream, name, context: names.append(name)
    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", _resolver([_ipv4("127.0.0.1")]))
    with http_server(Virtual(), server) as url:
        if checked:
            allow(monkeypatch, f"127.0.0.1:{port_of(url)}")
        named, other = (f"https://{name}.example:{port_of(url)}" for name in ("env", "other"))
        for protocol in ("virtual", "openenv"):  # a certificate that no authority signed
            with pytest.raises(EnvironmentUnreachable, match="certificate"):
                play(settings(named, protocol), [call("code_for_barcode_monster")], ROW)
        trusting = ssl.create_default_context(cafile=str(pair))
        monkeypatch.setattr(connections, "tls", lambda: trusting)
        monkeypatch.setattr(client, "tls", lambda: trusting)
        names.clear()
        assert check_server(settings(named, "virtual"))
        with pytest.raises(EnvironmentUnreachable, match="HTTP 404"):  # it speaks TLS, but no websocket
            play(settings(named, "openenv"), [])
        assert names == ["env.example"] * 2
        for protocol in ("virtual", "openenv"):  # a certificate for another name
            with pytest.raises(EnvironmentUnreachable, match="certificate"):
                play(settings(other, protocol), [call("code_for_barcode_monster")], ROW)


def test_without_the_variable_the_operators_addresses_are_taken() -> None:
    with http_server(Virtual()) as url:
        assert check_server(settings(url, "virtual"))


def test_a_context_may_reach_only_what_it_names_with_its_own_token(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens: list[str] = []
    server = Virtual()

    def look(asked: Asked) -> Reply:
        tokens.append(asked.headers.get("authorization", ""))
        return server(asked)

    monkeypatch.setenv("TILTYARD_ENV_TOKEN", "the-process-s-own-token")
    with http_server(look) as url:
        allow(monkeypatch, f"127.0.0.1:{port_of(url)}")
        with connections.reaching(Access(AllowList([]))), pytest.raises(AddressRefused):
            check_server(settings(url, "virtual"))
        with connections.reaching(Access(AllowList([f"127.0.0.1:{port_of(url)}"]), "its-own-token")):
            check_server(settings(url, "virtual"))
        check_server(settings(url, "virtual"))
    assert tokens == ["Bearer its-own-token", "Bearer the-process-s-own-token"]


def test_of_several_tokens_a_server_is_shown_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILTYARD_ENV_TOKENS", json.dumps({"one:8101": "first", "two:8102": "second"}))
    monkeypatch.setenv("TILTYARD_ENV_TOKEN", "nobody-s")
    asked = ("http://one:8101/reset", "ws://Two:8102/ws", "http://three:8103", "http://one:8102", "http://one")
    shown = [connections.auth_headers(url).get("Authorization") for url in asked]
    assert shown == ["Bearer first", "Bearer second", None, None, None]


def test_an_unknown_name_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(self: Any, *args: Any, **more: Any) -> list[Any]:
        raise socket.gaierror("no such name")

    allow(monkeypatch)
    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", unknown)
    for protocol in ("openenv", "virtual"):
        with pytest.raises(EnvironmentUnreachable, match="not known"):
            check_server(settings("http://nowhere.example", protocol))


def test_allow_list_entries_that_are_none_allow_nothing() -> None:
    allowed = AllowList(["", "x", "127.0.0.1", "10.0.0.0/99", ":80", "localhost:x"])
    place = parse_place("http://127.0.0.1:8000")
    with pytest.raises(AddressRefused):
        allowed.check(connections.plain_address("127.0.0.1"), place.host, place.port)
