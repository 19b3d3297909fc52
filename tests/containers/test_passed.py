"""What docker-compose.yml hands to whom: settings of .env, and secrets, read from the file itself. Needs no Docker."""

from __future__ import annotations

import re

from tests.containers.composed import ROOT
from tests.containers.test_files import COMPOSE, ENVIRONMENTS, SERVICES, SITE, texts
from training.config import TRACKERS
from webapp.ops.compose import SECRETS

TOKEN = {"tiltyard_env_token"}


def test_no_secret_is_a_variable_or_an_argument() -> None:
    """Both are shown by `docker inspect`, the second by `ps` to everyone. Each is a file, for who needs it."""
    assert {name for one in SERVICES.values() for name in SECRETS if name in one.get("environment", {})} == set()
    named = {name for _path, value in texts(SERVICES) for name in SECRETS if re.search(rf"\$\{{{name}\b", value)}
    assert named == set()
    given = {name: set(one.get("secrets", [])) for name, one in SERVICES.items()}
    site = {"database_url", "redis_url", "tiltyard_secret_key", "tiltyard_files_secret"}
    asking = dict.fromkeys(
        ("web", "worker", "worker-gpu", "worker-endpoint", "worker-short", "worker-long", "keeper"), site | TOKEN
    )
    asking["web"] = asking["web"] | {"tiltyard_metrics_token"}
    others = {
        "prepare": site - {"redis_url"},
        "clock": site,
        "postgres": {"postgres_password"},
        "redis": {"redis_users"},
        "vllm": {"vllm_api_key"},
        "sampler": set(),
        "gate": set(),
        "prometheus": {"tiltyard_metrics_token"},
        "files": {"tiltyard_files_secret"},
    }
    assert given == asking | others | dict.fromkeys(ENVIRONMENTS, TOKEN)
    assert set(COMPOSE["secrets"]) == {name for names in given.values() for name in names}
    for name, one in COMPOSE["secrets"].items():
        assert one == {"file": f"${{TILTYARD_SECRETS:?run `make compose-init` first}}/{name}"}
    files = {
        (name, key, value)
        for name in SITE
        for key, value in SERVICES[name]["environment"].items()
        if key.endswith("_FILE")
    }
    read = {(name, value.rpartition("/")[2].rstrip("}")) for name, _key, value in files if value}
    assert read == {(name, secret) for name in SITE for secret in given[name]}


def test_keys_of_operators_reach_only_who_uses_them() -> None:
    having = {
        name: {service for service in SERVICES if name in SERVICES[service].get("environment", {})}
        for name in (
            "EMAIL_HOST_PASSWORD",
            "TILTYARD_HUB_TOKEN",
            "TILTYARD_OIDC_CLIENT_SECRET",
            "WANDB_API_KEY",
            "JUDGE_KEY",
        )
    }
    workers = {"worker", "worker-gpu", "worker-endpoint", "worker-short", "worker-long"}
    pool = {"web", "worker-short", "worker-long"}
    assert having == {
        "EMAIL_HOST_PASSWORD": pool,
        "TILTYARD_HUB_TOKEN": pool,
        "TILTYARD_OIDC_CLIENT_SECRET": {"web"},
        "WANDB_API_KEY": workers,
        "JUDGE_KEY": workers,
    }


# Of docs/settings.md, what containers do not take from .env, and why.
NOT_PASSED = {
    "DATABASE_URL": "a file: the password is in it",
    "REDIS_URL": "a file: the password is in it",
    "TILTYARD_SECRET_KEY": "a file",
    "TILTYARD_ENV_TOKEN": "a file",
    "TILTYARD_FILES_SECRET": "a file",
    "TILTYARD_METRICS_TOKEN": "a file",
    "TILTYARD_DATA_DIR": "the volume's place is fixed in the image",
    "HF_HOME": "on the volume, fixed in the image",
    "TILTYARD_STATIC_FINDERS": "the image has collected them",
    "TILTYARD_STATIC_ROOT": "fixed in the image",
    "TILTYARD_DEBUG": "pages of errors are for a clone",
    "TILTYARD_ENVIRONMENT_IMAGES": "no container has the engine's socket",
    "TILTYARD_VLLM_PYTHON": "the image has no vLLM: `sampler` has",
    "TILTYARD_VERL_PYTHON": "the image has no verl",
    "TILTYARD_RAY_ADDRESS": "the image has no verl",
    "CUDA_VISIBLE_DEVICES": "TRAIN_GPU chooses the device",
    "JUDGE_KEY_<NAME>": "names of your own: docker-compose.override.yml",
    "JUDGE_KEY_<NAME>_HOST": "names of your own: docker-compose.override.yml",
}


def test_every_setting_reaches_a_container() -> None:
    """Forty of them did not, without a word: no mail, no token of the hub, no key of a judge."""
    table = (ROOT / "docs" / "settings.md").read_text().partition("## Set by Tiltyard itself")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    documented = {name for row in rows for name in re.findall(r"`([A-Z_<>]+)`", row)}
    assert len(documented) > 50 and NOT_PASSED.keys() <= documented
    passed = {name for service in SITE for name in SERVICES[service]["environment"]}
    assert documented - passed == NOT_PASSED.keys()
    trackers = {name for one in TRACKERS.values() for name in one.variables} - {"HF_HOME"}
    for worker in ("worker", "worker-gpu", "worker-endpoint", "worker-short", "worker-long"):
        assert trackers <= SERVICES[worker]["environment"].keys()
    # What has no value of ours is not set at all where .env lacks it: empty would be a value.
    ours = {name for name, value in COMPOSE["x-settings"].items() if value is not None}
    assert ours == {
        "DATABASE_URL_FILE",
        "REDIS_URL_FILE",
        "TILTYARD_SECRET_KEY_FILE",
        "TILTYARD_FILES_SECRET_FILE",
        "TILTYARD_OUTBOUND_ALLOW",
        "TILTYARD_PROXY_ADDRESSES",
        "TILTYARD_PORT",
    }
