"""``python -m webapp.ops.hashes COMPILED NAME``: NAME.hashes of NAME.lock, out of what pip-compile found (`make lock`).

torch is left out: its CPU and its CUDA builds have one version and different files, so it is installed first, by a line
of its own. pip asks for the hashes of everything or of nothing, and its resolver would ask for torch's too; with
``--no-deps`` it does not, and the lock names everything anyway.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WITHOUT = {"torch"}
HEAD = "# The pins of {name}.lock but torch, with the hashes of their files. Made by `make lock`.\n"


def pins(lock: str) -> dict[str, str]:
    """``name -> name==version`` of a lock, without torch."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", lock, re.M)
    return {name: f"{name}=={version}" for name, version in found if name not in WITHOUT}


def hashed(lock: str, compiled: str, name: str) -> str:
    """The pins of the lock with the hashes in ``compiled``; one without a hash is an error."""
    blocks = {block.split()[0]: block.rstrip() for block in re.split(r"\n(?=[A-Za-z0-9])", compiled) if "==" in block}
    wanted = pins(lock).values()
    bare = [pin for pin in wanted if "--hash=" not in blocks.get(pin, "")]
    if bare:
        raise SystemExit(f"These have no hash: {', '.join(bare)}")
    return HEAD.format(name=name) + "\n".join(blocks[pin] for pin in wanted) + "\n"


if __name__ == "__main__":
    compiled, name = sys.argv[1:]
    text = hashed((ROOT / f"{name}.lock").read_text(), Path(compiled).read_text(), name)
    (ROOT / f"{name}.hashes").write_text(text)
