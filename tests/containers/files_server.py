"""A small S3 server with files on a disk, in an image of its own: it takes the place of that of the service `files`
where no registry can be reached. ``python files_server.py FOLDER``; keys from the variables that versitygw takes.

What Tiltyard asks of a store, and no more: objects whole or in ranges, in parts, only where there is none, listed by
prefix, deleted. Each request's signature is checked. It needs nothing but Python itself.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import shutil
import sys
import uuid
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

PORT = 9000
AUTH = re.compile(r"AWS4-HMAC-SHA256 Credential=([^/]+)/([^,]+), ?SignedHeaders=([^,]+), ?Signature=(\w+)")


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    root = Path()

    def log_message(self, *args: object) -> None:
        """No line for each request."""

    # --- What is asked ---
    def _asked(self) -> tuple[Path, dict[str, str], bytes] | None:
        """The file, the query and the body; ``None`` where it was answered already."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        if parts.path == "/health":
            return self._answer(200)
        if not self._is_signed(parts.path, parts.query):
            return self._answer(403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>")
        place = (self.root / unquote(parts.path).strip("/")).resolve()
        if self.root not in place.parents:
            return self._answer(400)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        return place, query, body

    def _is_signed(self, path: str, query: str) -> bool:
        match = AUTH.fullmatch(self.headers.get("Authorization", ""))
        if match is None or match[1] != os.environ["ROOT_ACCESS_KEY_ID"]:
            return False
        names = match[3].split(";")
        headers = "".join(f"{name}:{' '.join(self.headers[name].split())}\n" for name in names)
        payload = self.headers["x-amz-content-sha256"]
        words = [word for word in query.replace("+", "%20").split("&") if word]
        pairs = "&".join(sorted(word if "=" in word else f"{word}=" for word in words))
        request = "\n".join((self.command, path, pairs, headers, match[3], payload))
        digest = hashlib.sha256(request.encode()).hexdigest()
        key = f"AWS4{os.environ['ROOT_SECRET_ACCESS_KEY']}".encode()
        for word in match[2].split("/"):
            key = _hmac(key, word)
        text = f"AWS4-HMAC-SHA256\n{self.headers['x-amz-date']}\n{match[2]}\n{digest}"
        return hmac.compare_digest(_hmac(key, text).hex(), match[4])

    def _answer(self, code: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(code)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    # --- Objects ---
    def do_PUT(self) -> None:
        """An object, or a part of one."""
        if (asked := self._asked()) is None:
            return
        place, query, body = asked
        if "uploadId" in query:
            place = self._upload(query) / query["partNumber"].zfill(6)
        elif self.headers.get("If-None-Match") == "*" and place.exists():
            return self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
        self._write(place, body)
        self._answer(200, ETag=f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"')

    def do_POST(self) -> None:
        """Begin or end an object of several parts, or delete several objects."""
        if (asked := self._asked()) is None:
            return
        place, query, body = asked
        if "delete" in query:
            names = re.findall(r"<Key>(.*?)</Key>", body.decode())
            for name in names:
                (place / unescape(name)).unlink(missing_ok=True)
            gone = "".join(f"<Deleted><Key>{name}</Key></Deleted>" for name in names)
            return self._answer(200, f"<DeleteResult>{gone}</DeleteResult>".encode())
        if "uploads" in query:
            upload = {"uploadId": uuid.uuid4().hex}
            self._upload(upload).mkdir(parents=True)
            named = f"<UploadId>{upload['uploadId']}</UploadId>"
            return self._answer(200, f"<InitiateMultipartUploadResult>{named}</InitiateMultipartUploadResult>".encode())
        folder = self._upload(query)
        self._write(place, b"".join(part.read_bytes() for part in sorted(folder.iterdir())))
        shutil.rmtree(folder)
        self._answer(200, b'<CompleteMultipartUploadResult><ETag>"parts"</ETag></CompleteMultipartUploadResult>')

    def do_GET(self) -> None:
        """An object, a range of it, or a list."""
        if (asked := self._asked()) is None:
            return
        place, query, _body = asked
        if "list-type" in query:
            return self._list(place, query.get("prefix", ""))
        if not place.is_file():
            return self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        data = place.read_bytes()
        stat = place.stat()
        known = {"ETag": f'"{stat.st_mtime_ns}"', "Last_Modified": formatdate(stat.st_mtime, usegmt=True)}
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if match is None:
            return self._answer(200, data, **known)
        start, end = int(match[1]), min(int(match[2] or len(data)), len(data) - 1)
        known["Content_Range"] = f"bytes {start}-{end}/{len(data)}"
        self._answer(206, data[start : end + 1], **known)

    do_HEAD = do_GET

    def do_DELETE(self) -> None:
        """An object."""
        if (asked := self._asked()) is not None:
            asked[0].unlink(missing_ok=True)
            self._answer(204)

    def _list(self, bucket: Path, prefix: str) -> None:
        names = sorted(path.relative_to(bucket).as_posix() for path in bucket.rglob("*") if path.is_file())
        rows = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{(bucket / name).stat().st_size}</Size>"
            '<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>"x"</ETag></Contents>'
            for name in names
            if name.startswith(prefix)
        )
        self._answer(200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>".encode())

    def _upload(self, query: dict[str, str]) -> Path:
        return self.root / ".uploads" / uuid.UUID(query["uploadId"]).hex

    def _write(self, place: Path, body: bytes) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        fresh = place.parent / f".{uuid.uuid4().hex}"
        fresh.write_bytes(body)
        fresh.replace(place)


if __name__ == "__main__":
    Handler.root = Path(sys.argv[-1]).resolve()
    ThreadingHTTPServer(("0.0.0.0", PORT), Handler).serve_forever()
