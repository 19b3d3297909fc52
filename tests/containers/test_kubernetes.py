"""The manifests of examples/kubernetes/: Kubernetes' own schemas accept them, and they run what there is to run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from django.core.management import load_command_class
from django.test import Client

from webapp.common.env import settings_names
from webapp.ops.programs import RUNNERS, TRAIN_STOP_WAIT_S, single_programs

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "kubernetes"
FILES = sorted(path for path in FOLDER.glob("*.yaml") if path.name != "kustomization.yaml")
VERSIONS = ("1.31", kubernetes_validate.latest_version().rpartition(".")[0])
SECRETS = "/run/secrets/tiltyard/"


def _documents() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in FILES:
        for document in yaml.safe_load_all(path.read_text()):
            yield f"{path.name}: {document['kind']} {document['metadata']['name']}", document


def _pods() -> dict[str, dict[str, Any]]:
    """The pods of deployments and jobs, by the name of their only container."""
    specs = [
        found["spec"]["template"]["spec"] for _name, found in _documents() if found["kind"] in ("Deployment", "Job")
    ]
    assert all(len(spec["containers"]) == 1 for spec in specs)
    return {spec["containers"][0]["name"]: spec for spec in specs}


def _of(kind: str) -> dict[str, dict[str, Any]]:
    return {found["metadata"]["name"]: found for _name, found in _documents() if found["kind"] == kind}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_schemas_of_kubernetes_accept_them(version: str) -> None:
    for _name, document in _documents():
        kubernetes_validate.validate(document, version, strict=True)


def test_a_wrong_field_is_refused() -> None:
    document = _of("Deployment")["tiltyard-web"]
    document["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, VERSIONS[0], strict=True)


def test_every_program_runs_and_the_database_is_prepared() -> None:
    pods, ours = _pods(), set(single_programs())
    assert set(pods) == ours | {"prepare", "tools"}
    for name in ours | {"prepare"}:
        command, *words = pods[name]["containers"][0]["args"]
        options = vars(load_command_class("webapp.ops", command).create_parser("m", command).parse_args(words))
        assert options.get("name", "prepare") == name
    train = pods["worker-train"]["containers"][0]["resources"]["limits"]
    assert train["nvidia.com/gpu"] == 1
    assert not any("nvidia.com/gpu" in str(pods[name]) for name in ours - {"worker-train"})


def test_a_program_may_take_the_time_that_it_needs_to_end() -> None:
    for name, program in single_programs().items():
        assert _pods()[name]["terminationGracePeriodSeconds"] > program.stop_wait_s, name
        if name.startswith(RUNNERS):
            assert _pods()[name]["terminationGracePeriodSeconds"] > TRAIN_STOP_WAIT_S


def test_every_container_is_closed_and_bounded() -> None:
    for name, spec in _pods().items():
        (container,) = spec["containers"]
        assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"] == 10001, name
        assert spec["automountServiceAccountToken"] is False and "memory" in container["resources"]["limits"], name
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, name


def test_settings_are_settings_and_secrets_are_files_that_the_page_makes() -> None:
    data = _of("ConfigMap")["tiltyard"]["data"]
    assert set(data) - set(settings_names()) - {"TILTYARD_ENV_TOKEN_FILE"} == {"TILTYARD_NEEDS"}
    files = {value.removeprefix(SECRETS) for name, value in data.items() if name.endswith("_FILE")}
    made = set(re.findall(r"--from-(?:file|literal)=(\w+)=", (ROOT / "docs" / "containers.md").read_text()))
    assert files == made == {"database_url", "redis_url", "secret_key", "env_token"}
    for name in set(single_programs()) | {"prepare"}:
        (container,) = _pods()[name]["containers"]
        mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        assert (mounts["secrets"] + "/", mounts["data"]) == (SECRETS, "/data")
        assert container["envFrom"] == [{"configMapRef": {"name": "tiltyard"}}]


def test_the_kustomization_names_every_file_and_image() -> None:
    found = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    assert sorted(found["resources"]) == [path.name for path in FILES]
    used = {spec["containers"][0]["image"].partition(":")[0] for spec in _pods().values()}
    assert {image["name"] for image in found["images"]} == used


@pytest.mark.django_db
def test_the_probes_of_the_web_server_are_answered(settings: Any) -> None:
    """With HTTPS on, as the settings say: neither a redirect nor a refused host name, which a probe takes for health
    or for a fault."""
    data = _of("ConfigMap")["tiltyard"]["data"]
    settings.ALLOWED_HOSTS = data["TILTYARD_HOSTS"].split(",")
    settings.SECURE_SSL_REDIRECT = data["TILTYARD_HTTPS"] == "true"
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    (container,) = _pods()["web"]["containers"]
    for probe, answers in (("livenessProbe", {200}), ("readinessProbe", {200, 503})):
        asked = container[probe]["httpGet"]
        headers = {each["name"]: each["value"] for each in asked["httpHeaders"]}
        assert Client().get(asked["path"], headers=headers).status_code in answers, probe
        bare = Client().get(asked["path"], headers={"Host": "10.1.2.3"}).status_code
        assert bare in (301, 400), "without the headers it proves nothing"


def test_a_program_is_not_ended_while_what_it_needs_is_away() -> None:
    for name in set(single_programs()) - {"web"}:
        (shell, _option, line) = _pods()[name]["containers"][0]["livenessProbe"]["exec"]["command"]
        assert shell == "sh" and line == (
            f"exec python envs/base/health.py --file /tmp/{name} --alive --needs $TILTYARD_NEEDS"
        )


def test_environments_have_no_way_out() -> None:
    policy = _of("NetworkPolicy")["tiltyard-environments"]["spec"]
    assert policy["egress"] == [] and set(policy["policyTypes"]) == {"Ingress", "Egress"}
    closed = _of("NetworkPolicy")["tiltyard-closed"]["spec"]
    assert closed["policyTypes"] == ["Ingress"] and "ingress" not in closed
