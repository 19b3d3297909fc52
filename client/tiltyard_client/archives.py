"""The tar of a model, unpacked and held against the hashes in it."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterable
from pathlib import Path

from tiltyard_client.connection import Refused
from tiltyard_client.words import gettext as _


def unpack(archive: Path, target: Path) -> list[Path]:
    """The members of the tar as files directly under ``target``, held against its ``SHA256SUMS``.

    Raises ``Refused`` with ``damaged``, and then leaves none of them.
    """
    sent: dict[str, str] = {}
    arrived: dict[str, str] = {}
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                name = Path(member.name).name
                source = tar.extractfile(member)
                if source is None or not name:
                    continue
                if name == "SHA256SUMS":
                    sent = {line[66:]: line[:64] for line in source.read().decode().splitlines()}
                    continue
                digest, path = hashlib.sha256(), target / name
                arrived[name] = ""  # begun: what is cut off goes with the others
                with path.open("wb") as file:
                    while piece := source.read(1 << 20):
                        digest.update(piece)
                        file.write(piece)
                arrived[name] = digest.hexdigest()
    except tarfile.TarError as exc:
        _remove(target / name for name in arrived)
        raise Refused(0, "damaged", _("The download is not whole: {why}").format(why=exc)) from exc
    wrong = sorted(name for name in sent.keys() | arrived.keys() if sent.get(name) != arrived.get(name))
    if wrong or not arrived:
        _remove(target / name for name in arrived)
        sentence = _("These files did not arrive as they were sent: {names}.")
        raise Refused(0, "damaged", sentence.format(names=", ".join(wrong) or _("all")))
    return [target / name for name in arrived]


def _remove(files: Iterable[Path]) -> None:
    """What did not arrive whole must not be taken for a model."""
    for path in files:
        path.unlink(missing_ok=True)
