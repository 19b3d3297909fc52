"""Do we still match published code? ``python -m benchmarks.parity --upstream FOLDER --data FOLDER``.

``--only NAME`` runs one comparison.

``--upstream`` holds working copies of published repositories, each under its own name; none is needed for the others:

- ``WebShop``: princeton-nlp/WebShop at 64fa2a5c
- ``AWorld-RL``: inclusionAI/AWorld-RL at 4aeef7bc (EnvTuning)
- ``StableToolBench``: THUNLP-MT/StableToolBench at aa4ed9f4
- ``AgentGym``: WooooDyy/AgentGym at 3ef9235d
- ``demo``: huangweiding/demo at af43dc26
- ``Search-R1`` and ``Search-R1-4ca2ab8b``: Stanleytowne/Search-R1 at 6f4b3cc3 and at 4ca2ab8b
- ``libs``: ``pip install --target libs --no-deps thefuzz slowapi limits deprecated wrapt tenacity``

``--data`` holds the data sets in the folders that the tests read. Upstream's code is imported and run as it is: nothing
of it is part of this project. Prints one JSON object; what cannot be measured is named as skipped with the reason and
is no pass. Exit code 1 where something differs or fails, 3 where nothing differs and something was skipped.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.__main__ import machine
from benchmarks.parity import agentgym, bfcl, envtuning, helloagents, rewards, toolbench, webshop
from benchmarks.parity.upstream import Skipped
from envs.bfcl.package import PackageMissing

DIFFERS, INCOMPLETE = 1, 3
MESSAGES, PASSES = 1_500_000, 3


def main() -> int:
    """Measure the named systems, or all."""
    options = _parser().parse_args()
    if options.upstream is not None:
        sys.path.append(str(options.upstream / "libs"))
    upstream, data = options.upstream, options.data
    systems: dict[str, Callable[[], dict[str, Any]]] = {
        "bfcl": partial(bfcl.measure, data),
        "envtuning": partial(envtuning.measure, upstream, options.messages, options.passes),
        "webshop": partial(webshop.measure, upstream, data),
        "toolbench": partial(toolbench.measure, upstream, data),
        "helloagents": partial(helloagents.measure, data),
        "agentgym": partial(agentgym.measure, upstream, data),
        "rewards": partial(rewards.measure, upstream, data),
    }
    found = {name: _measured(systems[name]) for name in options.names or systems}
    print(json.dumps({"machine": machine(), "parity": found}, ensure_ascii=False, indent=1))
    if _any(found, "differing") or _any(found, "failed"):
        return DIFFERS
    return INCOMPLETE if _any(found, "skipped") else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parity", description=__doc__.splitlines()[0])
    parser.add_argument("--upstream", type=Path, help="folder with working copies of the published repositories")
    parser.add_argument("--data", type=Path, help="folder with the data sets")
    parser.add_argument("--messages", type=int, default=MESSAGES, help="random messages for EnvTuning's parser")
    parser.add_argument("--passes", type=int, default=PASSES, help="random episodes of each BFCL entry")
    names = ("bfcl", "envtuning", "webshop", "toolbench", "agentgym", "helloagents", "rewards")
    parser.add_argument("--only", action="append", choices=names, dest="names", help="one system; may be repeated")
    return parser


def _measured(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    began = time.process_time()
    try:
        return {**measure(), "cpu_s": round(time.process_time() - began, 1)}
    except (Skipped, PackageMissing) as reason:
        return {"skipped": str(reason)}
    except Exception as error:  # what the others found is not lost with it
        return {"failed": f"{type(error).__name__}: {error}"}


def _any(value: Any, key: str) -> bool:
    """Whether the key has a value anywhere."""
    if not isinstance(value, dict):
        return False
    return bool(value.get(key)) or any(_any(item, key) for item in value.values())


if __name__ == "__main__":
    raise SystemExit(main())
