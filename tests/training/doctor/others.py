"""Simulated runs that other doctors ship with their packages: faults that were not made up here, and healthy runs.

The packages are installed by name into a folder of their own and asked for their runs there; nothing of theirs is kept.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from training.data.files.sources import Given
from training.doctor.doctor import Doctor
from training.doctor.reading import examine
from training.imports.read import import_files

PACKAGES = ("rldoctor==0.2.0", "rlprobe==0.1.0")
INSTALL_S = 900
FAULTS: dict[str, set[str]] = {
    "rldoctor/entropy_collapse": {"entropy_fall"},
    "rldoctor/saturated_groups": {"no_spread"},
    "rldoctor/too_hard": {"no_spread"},
    "rldoctor/reward_hacking": {"over_optimisation"},
    "rldoctor/length_hacking": {"length_explosion", "over_optimisation"},
    "rldoctor/truncation": {"truncation"},
    "rldoctor/kl_blowup": {"kl_drift"},
    "rldoctor/clip_saturation": {"clip_share"},
    "rldoctor/grad_spikes": {"gradient_spike"},
    "rldoctor/plateau": {"plateau"},
    "rldoctor/format_domination": {"dominant_part"},
    "rlprobe/kl_blowup": {"kl_drift"},
    "rlprobe/entropy_collapse": {"entropy_fall"},
    "rlprobe/reward_hack_length": {"length_explosion"},
    "rlprobe/format_gaming": {"dominant_part"},
    "rlprobe/clip_saturation": {"clip_share"},
    "rlprobe/degenerate_groups": {"no_spread"},
    "rlprobe/adv_collapse": {"zero_advantages"},
    "rlprobe/value_divergence": {"critic_blind"},
    "rlprobe/grad_pathology": {"gradient_spike"},
    "rlprobe/truncation_starve": {"truncation"},
    "rlprobe/repetition_spiral": {"repeated_text"},
    "rlprobe/reward_std_death": {"no_spread"},
    "rlprobe/throughput_rot": {"slowing"},
    "rlprobe/ref_drift_asymmetry": set(),
}
"""What each of their faults is called here. The last one is a list of KL divergences by position: no table has it."""
_PROGRAM = """
import json, sys
from pathlib import Path
from rl_doctor import simulate
from rlprobe.storage import RunReader
from rlprobe.testing.synth import PATHOLOGIES, generate_run

folder, seeds, lengths = Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])

def write(name, rows):
    lines = ({k: v for k, v in row.items() if isinstance(v, int | float)} for row in rows)
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\\n" for line in lines))

def probed(name, fault, seed, **more):
    run = folder / "recorded" / name
    generate_run(run, fault, seed=seed, **more)
    rows = []
    for record in RunReader(run).steps():
        row = record.model_dump()
        parts = row.pop("reward_components")
        rows.append(row | {f"reward_component.{part}": value for part, value in parts.items()})
    write(f"rlprobe.{name}", rows)

for seed in range(seeds):
    for fault in simulate.SCENARIOS:
        if fault != "healthy":
            write(f"rldoctor.{fault}.{seed}", simulate.simulate(fault, seed=seed)[0])
    for fault in PATHOLOGIES:
        probed(f"{fault}.{seed}", fault, seed)
    for steps in lengths:
        write(f"rldoctor.healthy.{steps}-{seed}", simulate.simulate("healthy", n_steps=steps, seed=seed)[0])
        probed(f"healthy.{steps}-{seed}", None, seed, n_steps=steps)
"""


class Looked(NamedTuple):
    """A run of theirs: ``name`` is ``<package>/<fault>``, ``found`` maps codes to the steps of their first advisory."""

    name: str
    case: str
    found: dict[str, int]

    @property
    def is_right(self) -> bool:
        """A healthy run is left alone; of a fault its own advisory is among those that are given."""
        if self.name.endswith("/healthy"):
            return not self.found
        return bool(FAULTS[self.name] & set(self.found))


def installed(folder: Path, packages: Sequence[str] = PACKAGES) -> Path:
    """The interpreter of a new environment with some packages. Raises ``CalledProcessError`` without an index."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
    subprocess.run(command, check=True, timeout=INSTALL_S, capture_output=True)
    return python


def written(python: Path, folder: Path, seeds: int, lengths: list[int]) -> list[Path]:
    """Their runs as rows of metrics: each fault and healthy runs of so many steps, with so many seeds each."""
    command = [str(python), "-c", _PROGRAM, str(folder), str(seeds), json.dumps(lengths)]
    subprocess.run(command, check=True, timeout=INSTALL_S)
    return sorted(folder.glob("*.jsonl"))


def looked_at(files: list[Path]) -> Iterator[Looked]:
    """Each file imported as a run of another trainer and shown to our doctor."""
    for file in files:
        package, fault, case = file.stem.split(".")
        with tempfile.TemporaryDirectory() as folder:
            import_files([Given(file, file.name)], Path(folder))
            yield Looked(f"{package}/{fault}", case, first_steps(examine([Path(folder)])))


def first_steps(doctor: Doctor) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in doctor.advisories:
        found.setdefault(each.code, each.first)
    return found


def counted(seen: list[Looked]) -> dict[str, Any]:
    """How many of their faults are found and how many healthy runs are left alone, and all that are not."""
    figures: dict[str, Any] = {}
    for package in ("rldoctor", "rlprobe"):
        faults = [each for each in seen if each.name.startswith(package) and not each.name.endswith("/healthy")]
        figures[f"{package}_runs"] = len(faults)
        figures[f"{package}_found"] = sum(each.is_right for each in faults)
        figures[f"{package}_faults_always_found"] = len(
            {each.name for each in faults} - {each.name for each in faults if not each.is_right}
        )
        figures[f"{package}_faults"] = len({each.name for each in faults})
    healthy = [each for each in seen if each.name.endswith("/healthy")]
    figures["healthy"] = len(healthy)
    figures["false"] = [f"{each.name} {each.case}: {', '.join(each.found)}" for each in healthy if not each.is_right]
    wrong = [each for each in seen if not each.is_right and each not in healthy]
    figures["missed"] = [f"{each.name} {each.case}" for each in wrong]
    return figures
