"""Counting what is uploaded, file by file.

``webapp.people.body_limit`` refuses a body before it is read; this says the same to WSGI servers and tests, and counts
files rather than bodies.
"""

from __future__ import annotations

from django.core.files.uploadedfile import UploadedFile
from django.core.files.uploadhandler import FileUploadHandler, StopUpload
from django.http import HttpRequest

OVERHEAD_BYTES = 64 * 1024  # boundaries and the other fields of the form


class CountingUploadHandler(FileUploadHandler):
    """Counts what arrives over all files; goes first in the list and passes the bytes on.

    The request is cut off at the chunk that crosses the limit; ``request.upload_too_large`` says so to the view.
    """

    def __init__(self, request: HttpRequest, limit: int) -> None:
        super().__init__(request)
        self.limit = limit
        self.count = 0

    def receive_data_chunk(self, raw_data: bytes, start: int) -> bytes:
        """Count and pass on."""
        self.count += len(raw_data)
        if self.count > self.limit:
            self.request.upload_too_large = True  # type: ignore[union-attr]
            raise StopUpload(connection_reset=True)
        return raw_data

    def file_complete(self, file_size: int) -> UploadedFile | None:
        """Leave the making of the file to the next handler."""
        return None
