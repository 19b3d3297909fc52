"""An upgrade rehearsed: our trainers on the newest TRL and transformers that resolve with the torch that is installed.

They are put into a throw-away folder before all other packages; what is installed stays as it is. What comes of it
belongs into docs/upgrades.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[3]
TRIED = ("trl", "transformers", "peft", "accelerate", "datasets", "tokenizers", "huggingface_hub", "safetensors")
TESTS = ("seam", "grpo", "ppo", "rloo", "sft", "dpo")


def pip(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the newest versions; the test is skipped where they are those that are installed."""
    folder = tmp_path_factory.mktemp("newest")
    torch = f"torch=={version('torch').partition('+')[0]}"
    report = folder / "report.json"
    words = ("--dry-run", "--quiet", "--upgrade", "--report", str(report), *TRIED, torch)
    if (done := pip("install", *words)).returncode:
        pytest.skip(f"nothing can be resolved here: {done.stderr.strip()[-300:]}")
    found = {
        item["metadata"]["name"]: item["metadata"]["version"] for item in json.loads(report.read_text())["install"]
    }
    if not any(name.replace("-", "_") in TRIED for name in found):
        pytest.skip("what is installed is the newest")
    pins = [f"{name}=={number}" for name, number in found.items()]  # with what they need that is not here yet
    done = pip("install", "--quiet", "--no-deps", "--target", str(folder / "packages"), *pins)
    assert done.returncode == 0, done.stderr
    return folder / "packages"


def run(packages: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": str(packages), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env, timeout=7200, check=False)


def test_the_newest_have_what_we_need(newest: Path) -> None:
    asked = (
        "import json, torch, transformers, trl; from training.algorithms import seam;"
        "print(json.dumps([seam.missing(), torch.__version__, transformers.__version__, trl.__version__]))"
    )
    done = run(newest, "-c", asked)
    assert done.returncode == 0, done.stderr
    missing, torch, transformers, trl = json.loads(done.stdout.splitlines()[-1])
    print(f"torch {torch}, transformers {transformers}, trl {trl}")
    assert missing == [] and torch == version("torch")
    assert (transformers, trl) != (version("transformers"), version("trl")), "the newest were not taken"


@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", TESTS)
def test_our_trainers_run_on_the_newest(newest: Path, name: str) -> None:
    done = run(newest, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/training/algorithms/test_{name}.py")
    assert done.returncode == 0, done.stdout[-6000:]
