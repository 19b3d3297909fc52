"""What was read, for people: counts, what became what, and every row that could not be used."""

from __future__ import annotations

from pydantic import BaseModel, Field

from training.imports.base import MAX_REASON_CHARS
from training.words import Sentence

MAX_LISTED = 200
MAX_MAPPED = 500


class Listed(BaseModel):
    """One row that was left out, or of which something was."""

    file: str
    line: int
    reason: str
    told: Sentence | None = Field(default=None, description="The reason, for translation.")


class FileRead(BaseModel):
    """One file: ``rows_in`` are ``rows`` kept and ``bad_rows`` listed."""

    name: str
    kind: str = ""
    tool: str = ""
    bytes: int = 0
    why: str = Field(default="", description="What it was recognised by.")
    rows_in: int = 0
    rows: int = 0
    bad_rows: int = 0
    left_out: dict[str, str] = Field(default_factory=dict, description="Columns without a place, and why.")
    notes: list[str] = Field(default_factory=list)
    told: list[Sentence] = Field(default_factory=list, description="The notes, for translation.")


class ImportReport(BaseModel):
    """The outcome of one import. A file that cannot be read at all rejects all of it."""

    verdict: str = Field(default="rejected", description="ok, bad_rows or rejected")
    message: str = ""
    told: list[Sentence] = Field(default_factory=list, description="The sentences of the message, for translation.")
    tool: str = ""
    files: list[FileRead] = Field(default_factory=list)
    steps: int = 0
    last_step: int = 0
    metrics: int = 0
    points: int = 0
    rollouts: int = 0
    groups: int = 0
    mapped: dict[str, str] = Field(default_factory=dict, description="Their name → ours.")
    bad: list[Listed] = Field(default_factory=list)
    remarks: list[Listed] = Field(default_factory=list)

    def say(self, *sentences: str) -> None:
        """Set the message."""
        self.message, self.told = " ".join(sentences), [Sentence.of(text) for text in sentences]

    @property
    def rows_in(self) -> int:
        """Rows over all files."""
        return sum(file.rows_in for file in self.files)

    @property
    def bad_rows(self) -> int:
        """Rows that were left out."""
        return sum(file.bad_rows for file in self.files)

    def list_bad(self, file: FileRead, line: int, reason: str) -> None:
        """Count a row that cannot be used, and list it while there is room."""
        file.bad_rows += 1
        if len(self.bad) < MAX_LISTED:
            self.bad.append(_listed(file, line, reason))

    def remark(self, file: FileRead, line: int, reason: str) -> None:
        """Note what was left out of a row that is kept."""
        if len(self.remarks) < MAX_LISTED:
            self.remarks.append(_listed(file, line, reason))


def _listed(file: FileRead, line: int, reason: str) -> Listed:
    return Listed(file=file.name, line=line, reason=reason[:MAX_REASON_CHARS], told=Sentence.of(reason))
