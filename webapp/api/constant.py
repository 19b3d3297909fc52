"""Answers that stay the same until the next release: built and compressed once, and not sent again to clients that have
them."""

from __future__ import annotations

import gzip
import hashlib
from typing import NamedTuple

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.cache import get_conditional_response, patch_vary_headers


class Constant(NamedTuple):
    """A body, the same compressed, and its hash."""

    body: bytes
    packed: bytes
    hash: str
    content_type: str


def constant(body: bytes, content_type: str) -> Constant:
    """The body in its stored form."""
    return Constant(body, gzip.compress(body, mtime=0), hashlib.sha256(body).hexdigest()[:32], content_type)


def constant_answer(request: HttpRequest, made: Constant, *, cache_control: str) -> HttpResponseBase:
    """The body with its strong ETag, compressed for clients that accept that; 304 for clients that have it."""
    packs = "gzip" in request.headers.get("Accept-Encoding", "")
    etag = f'"{made.hash}{"-gzip" if packs else ""}"'  # compressed it is another body, and a strong tag must differ
    response = HttpResponse(made.packed if packs else made.body, content_type=made.content_type)
    response["ETag"], response["Cache-Control"] = etag, cache_control
    if packs:
        response["Content-Encoding"] = "gzip"
    patch_vary_headers(response, ["Accept-Encoding"])
    found = get_conditional_response(request, etag=etag, response=response)
    return response if found is None else found
