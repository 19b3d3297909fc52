"""Settings that are read from the environment."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from webapp.common.env import (
    env_bool,
    env_int,
    env_list,
    env_ports,
    env_str,
    files_place,
    proxy_addresses,
    retention,
    secret_key,
    sign_on_groups,
    sign_on_issuer,
)

NAME = "TILTYARD_REPLICA_PORTS"


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("", range(0)),
        ("8200-8231", range(8200, 8232)),
        ("1024-1024", range(1024, 1025)),
        ("65535-65535", range(65535, 65536)),
    ],
)
def test_ports_are_first_and_last(monkeypatch: pytest.MonkeyPatch, value: str, found: range) -> None:
    monkeypatch.setenv(NAME, value)
    assert env_ports(NAME) == found


@pytest.mark.parametrize(
    "value", ["8200", "8200-", "-8200", "8231-8200", "1023-1024", "65535-65536", "a-b", "1-2-3", "８２００-8201"]
)
def test_other_ports_stop_the_start_with_a_sentence(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(NAME, value)
    with pytest.raises(
        ImproperlyConfigured, match=f"{NAME} must be two ports between 1024 and 65535, such as 8200-8231"
    ):
        env_ports(NAME)


# --- Values ---------------------------------------------------------------------------------------------------------
def test_a_value_is_the_variable_its_file_or_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert env_str("ODD_NAME", "usual") == "usual"
    monkeypatch.setenv("ODD_NAME", "set")
    assert env_str("ODD_NAME", "usual") == "set"
    (tmp_path / "value").write_text(" of the file\n")
    monkeypatch.setenv("ODD_NAME_FILE", str(tmp_path / "value"))
    assert env_str("ODD_NAME", "usual") == "of the file"
    monkeypatch.setenv("ODD_NAME_FILE", str(tmp_path / "gone"))
    with pytest.raises(ImproperlyConfigured, match="ODD_NAME_FILE points at a file that cannot be read"):
        env_str("ODD_NAME")


@pytest.mark.parametrize(
    ("value", "found"),
    [("", None), *((word, True) for word in ("1", "TRUE", "yes", "on")), *((w, False) for w in ("0", "no", "Off"))],
)
def test_a_choice_is_on_or_off(monkeypatch: pytest.MonkeyPatch, value: str, found: bool | None) -> None:
    monkeypatch.setenv("ODD_NAME", value)
    usual = [env_bool("ODD_NAME", default) for default in (True, False)]
    assert usual == ([True, False] if found is None else [found, found])


def test_what_is_no_choice_or_number_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODD_NAME", "2")
    with pytest.raises(ImproperlyConfigured, match="ODD_NAME must be true or false, not '2'"):
        env_bool("ODD_NAME", True)
    assert (env_int("ODD_NAME", 7), env_int("ODD_NAME", 7, least=2), env_int("NOT_SET", 7, least=7)) == (2, 2, 7)
    with pytest.raises(ImproperlyConfigured, match="ODD_NAME must be at least 3, not 2"):
        env_int("ODD_NAME", 7, least=3)
    monkeypatch.setenv("ODD_NAME", "2.5")
    with pytest.raises(ImproperlyConfigured, match="ODD_NAME must be a whole number"):
        env_int("ODD_NAME", 7)


@pytest.mark.parametrize(("value", "found"), [("", ["usual"]), (" a, b ,,c", ["a", "b", "c"]), (",", [])])
def test_a_list_has_commas(monkeypatch: pytest.MonkeyPatch, value: str, found: list[str]) -> None:
    monkeypatch.setenv("ODD_NAME", value)
    assert env_list("ODD_NAME", ["usual"]) == found


# --- Settings with a form of their own ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("issuer", "taken"),
    [
        *(("", True), ("https://id.example.org/realm", True), ("http://localhost:8080", True)),
        *(("http://id.example.org", False), ("https://", False), ("https://id.example.org?a=b", False)),
        ("ftp://localhost", False),
    ],
)
def test_single_sign_on_is_asked_over_https(monkeypatch: pytest.MonkeyPatch, issuer: str, taken: bool) -> None:
    monkeypatch.setenv("TILTYARD_OIDC_ISSUER", issuer)
    monkeypatch.setenv("TILTYARD_OIDC_CLIENT_ID", "a")
    monkeypatch.setenv("TILTYARD_OIDC_CLIENT_SECRET", "b")
    if taken:
        assert sign_on_issuer() == issuer
        for name in ("TILTYARD_OIDC_CLIENT_SECRET", "TILTYARD_OIDC_CLIENT_ID") if issuer else ():
            with monkeypatch.context() as without:
                without.delenv(name)
                with pytest.raises(ImproperlyConfigured, match="needs TILTYARD_OIDC_CLIENT_ID and"):
                    sign_on_issuer()
    else:
        with pytest.raises(ImproperlyConfigured, match="must be an https address without a query"):
            sign_on_issuer()


def test_groups_have_roles_and_kinds_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILTYARD_OIDC_GROUPS", "a=b=editor, leads = owner @ My team")
    assert sign_on_groups() == [("a=b", "editor", ""), ("leads", "owner", "My team")]
    monkeypatch.setenv("TILTYARD_RETENTION", "tokens=30d, checkpoints=500GiB, tokens=999999GiB")
    none = {"days": None, "gib": None}
    assert retention() == {
        "words": none,
        "tokens": {"days": 30, "gib": 999_999},
        "logs": none,
        "checkpoints": {"days": None, "gib": 500},
    }
    for name, read, wrong in (
        ("TILTYARD_OIDC_GROUPS", sign_on_groups, ["=editor", "a=admin", "a"]),
        ("TILTYARD_RETENTION", retention, ["models=3d", "logs=0d", "logs=3", "logs=1000000d", "logs"]),
    ):
        for value in wrong:
            monkeypatch.setenv(name, value)
            with pytest.raises(ImproperlyConfigured, match=name):
                read()


def test_proxies_are_addresses_or_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert proxy_addresses() == ["127.0.0.1", "::1"]
    monkeypatch.setenv("TILTYARD_PROXY_ADDRESSES", "172.18.0.5/16, ::1")
    assert proxy_addresses() == ["172.18.0.5/16", "::1"]
    for value in ("*", "proxy", "10.0.0.1,*"):
        monkeypatch.setenv("TILTYARD_PROXY_ADDRESSES", value)
        with pytest.raises(ImproperlyConfigured, match="must be IP addresses or networks"):
            proxy_addresses()


@pytest.mark.parametrize(
    ("place", "found"),
    [
        *(("", ""), ("s3://bucket/prefix/", "s3://bucket/prefix"), ("/mnt/files", "/mnt/files")),
        *(("files", None), ("s3://", None), ("s3://bucket?a=b", None), ("http://bucket", None)),
    ],
)
def test_files_are_published_in_a_bucket_or_a_folder(
    monkeypatch: pytest.MonkeyPatch, place: str, found: str | None
) -> None:
    monkeypatch.setenv("TILTYARD_FILES", place)
    if found is not None:
        assert files_place() == found
    else:
        with pytest.raises(ImproperlyConfigured, match="TILTYARD_FILES must be"):
            files_place()


def test_a_secret_key_is_long_and_made_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "data" / "secret_key"
    made = secret_key(path, "ODD_KEY")
    assert len(made) >= 50 and secret_key(path, "ODD_KEY") == made
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert [each.name for each in path.parent.iterdir()] == ["secret_key"]
    monkeypatch.setenv("ODD_KEY", "x" * 50)
    assert secret_key(path, "ODD_KEY") == "x" * 50
    monkeypatch.setenv("ODD_KEY", "x" * 49)
    with pytest.raises(ImproperlyConfigured, match="ODD_KEY is too short to be secret"):
        secret_key(path, "ODD_KEY")
    monkeypatch.delenv("ODD_KEY")
    path.write_text("x" * 49)
    with pytest.raises(ImproperlyConfigured, match="holds no whole key"):
        secret_key(path, "ODD_KEY")
