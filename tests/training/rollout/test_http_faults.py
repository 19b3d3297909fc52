"""Whatever an HTTP server does, each protocol ends in time with its typed error."""

from __future__ import annotations

import time
from typing import Any

import pytest

from envs.wire import StepRequest
from tests.training.rollout import foreign
from tests.training.rollout.foreign import Asked, Raw, Reply, call, http_server, play, say, settings
from tests.training.rollout.test_agentgym import BABYAI, Guessing
from tests.training.rollout.test_mcp import Mcp
from tests.training.rollout.test_virtual import ROW, Virtual
from training.errors import (
    EnvironmentFull,
    EnvironmentProtocolError,
    EnvironmentTimeout,
    EnvironmentUnreachable,
    TiltyardError,
)

METADATA = "http://169.254.169.254/latest"
FAULTS: dict[str, tuple[Any, type[TiltyardError]]] = {
    "hangs": (foreign.hang, EnvironmentTimeout),
    "drips": (foreign.drip, EnvironmentTimeout),
    "hangs up": (foreign.hang_up, EnvironmentUnreachable),
    "stops half way": (foreign.half, EnvironmentUnreachable),
    "sends 2 GB": (foreign.flood, EnvironmentProtocolError),
    "is not HTTP": (foreign.garbage, EnvironmentUnreachable),
    "sends 5 MB": (foreign.five_megabytes, EnvironmentProtocolError),
    "redirects": (Reply(302, b"", {"Location": METADATA}), EnvironmentUnreachable),
    "redirects and keeps the method": (Reply(307, b"", {"Location": METADATA}), EnvironmentUnreachable),
    "refuses": (Reply(401, b""), EnvironmentUnreachable),
    "is busy": (Reply(503, b""), EnvironmentFull),
    "limits rates": (Reply(429, b""), EnvironmentFull),
    "is not JSON": (Reply(200, b"<html>"), EnvironmentProtocolError),
    "compresses": (Reply(200, b"{}", {"Content-Encoding": "gzip"}), EnvironmentProtocolError),
    "has no such route": (Reply(405, b""), EnvironmentProtocolError),
}
Playing = tuple[Any, str, dict[str, Any], StepRequest, dict[str, Any], str]
PROTOCOLS: dict[str, Playing] = {
    "agentgym": (Guessing, "/step", BABYAI, say("1"), {"session_id": 1}, ""),
    "virtual": (Virtual, "/virtual", {}, call("code_for_barcode_monster", code="1"), ROW, ""),
    "mcp": (Mcp, "tools/call", {}, call("add", a=1), {}, "/mcp"),
}


def _is(asked: Asked, place: str) -> bool:
    method = asked.body.get("method") if isinstance(asked.body, dict) else None
    return place in (asked.path, method)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_fault_in_mid_episode_has_its_typed_error_in_time(protocol: str, fault: str) -> None:
    make, place, options, turn, task, path = PROTOCOLS[protocol]
    good, (bad, expected) = make(), FAULTS[fault]

    def answer(asked: Asked) -> Reply | Raw:
        if not _is(asked, place):
            return good(asked)
        return bad(asked) if bad is foreign.five_megabytes else bad

    began = time.monotonic()
    with http_server(answer) as url:
        config = settings(
            url + path, protocol, options=options, step_timeout_s=0.8 if expected is EnvironmentFull else 0.3
        )
        if fault.startswith("sends"):
            config.step_timeout_s = 5
        with pytest.raises(expected) as caught:
            play(config, [turn], task)
        assert caught.value.message.endswith(".")
    assert time.monotonic() - began < 6


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_episode_limit_counts_waits_over_all_turns(protocol: str) -> None:
    make, place, options, turn, task, path = PROTOCOLS[protocol]
    good = make()

    def slow(asked: Asked) -> Reply | Raw:
        if _is(asked, place):
            time.sleep(0.15)
        return good(asked)

    with http_server(slow) as url, pytest.raises(EnvironmentTimeout, match="episode"):
        play(settings(url + path, protocol, options=options, episode_timeout_s=0.4), [turn] * 4, task)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_closed_port_is_unreachable(protocol: str) -> None:
    with http_server(lambda asked: Reply(200, None)) as url:
        pass
    _make, _place, options, turn, task, path = PROTOCOLS[protocol]
    with pytest.raises(EnvironmentUnreachable):
        play(settings(url + path, protocol, options=options), [turn], task)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_bearer_token_goes_with_every_request(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, _place, options, turn, task, path = PROTOCOLS[protocol]
    good, seen = make(), []

    def look(asked: Asked) -> Reply | Raw:
        seen.append(asked.headers.get("authorization"))
        return good(asked)

    monkeypatch.setenv("TILTYARD_ENV_TOKEN", "s3cret")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with http_server(look) as url:
        play(settings(url + path, protocol, options=options), [turn], task)
    assert set(seen) == {"Bearer s3cret"}


def test_a_goodbye_that_hangs_delays_no_caller() -> None:
    good = Guessing()

    def hang_at_close(asked: Asked) -> Reply | Raw:
        return foreign.hang if asked.path == "/close" else good(asked)

    with http_server(hang_at_close) as url:
        began = time.monotonic()
        play(settings(url, "agentgym", options=BABYAI), [], {"session_id": 1})
        assert time.monotonic() - began < 1.5
