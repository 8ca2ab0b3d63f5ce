"""Files handed to a child at its spawn: their names and contents, checked strictly, and the receipt for them.

Every refusal starts with a code that programs can tell apart. This file does not know where files are put.
"""

import binascii
import hashlib
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from fledge.core.images import Image, ImageEntry, read_image, sent
from fledge.errors import BadInput, Refused

SETTING: Final = "tools.sessions_spawn.attachments"
MANIFEST: Final = ".manifest.json"
NAME_BYTES: Final = 255

_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}")


class Attachment(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """A file as it stands on the wire."""

    name: Annotated[str, Meta(description="a plain file name")]
    content: str
    encoding: Literal["utf8", "base64"] = "utf8"


class File(Struct, frozen=True, gc=False):
    """A file that was checked."""

    name: str
    data: bytes


class Receipt(Struct, frozen=True, gc=False, omit_defaults=True):
    """What is told of a file that was taken."""

    name: str
    bytes: int
    sha256: str


class AttachmentLimits(Struct, frozen=True, gc=False):
    """How many, how large, how large together."""

    max_files: int = 50
    max_file_bytes: int = 1024 * 1024
    max_total_bytes: int = 5 * 1024 * 1024


def read_attachments(given: Sequence[Attachment], limits: AttachmentLimits) -> tuple[File, ...]:
    """The files. Refused, with a code: too many, a bad or repeated name, bad content, too large alone or together."""
    if len(given) > limits.max_files:
        count = f"{len(given)} of {limits.max_files}"
        raise _refused("file_count_exceeded", f"{count} files: {SETTING}.maxFiles")
    files: dict[str, File] = {}
    total = 0
    for one in given:
        name = _name(one.name)
        if name in files:
            raise _refused("duplicate_name", f"{name!r} is there twice")
        data = _data(one, name, limits.max_file_bytes)
        total += len(data)
        if total > limits.max_total_bytes:
            raise _refused(
                "total_bytes_exceeded", f"{total} of {limits.max_total_bytes} bytes: {SETTING}.maxTotalBytes"
            )
        files[name] = File(name, data)
    return tuple(files.values())


def receipts(files: Sequence[File]) -> tuple[Receipt, ...]:
    """Name, size and digest of each."""
    return tuple(Receipt(file.name, len(file.data), hashlib.sha256(file.data).hexdigest()) for file in files)


def images_among(files: Sequence[File]) -> tuple[ImageEntry, ...]:
    """The images among the files, as many as one message takes: models that take images see them at once. A file that
    only looks like one is a file like any other."""
    found: list[ImageEntry] = []
    for file in files:
        with suppress(BadInput):
            found.append(read_image(Image(file.data, file.name)))
    return tuple(found[: sent(found[::-1])])


def _name(given: str) -> str:
    name = given.strip()
    plain = name.isprintable() and not set(name) & set("/\\") and name not in ("", ".", "..", MANIFEST)
    if not plain or len(name.encode("utf-8", "replace")) > NAME_BYTES:
        words = f"{given[:80]!r} must be a plain file name of at most {NAME_BYTES} bytes"
        raise _refused("invalid_name", words)
    return name


def _data(given: Attachment, name: str, most: int) -> bytes:
    data = _encoded(given.content) if given.encoding == "utf8" else _decoded(given.content, most)
    if data is None:
        words = f"{name!r} must be {given.encoding} of at most {most} bytes: {SETTING}.maxFileBytes"
        raise _refused("invalid_base64_or_too_large", words)
    if len(data) > most:
        raise _refused("file_bytes_exceeded", f"{name!r} has {len(data)} of {most} bytes: {SETTING}.maxFileBytes")
    return data


def _encoded(content: str) -> bytes | None:
    try:
        return content.encode()
    except UnicodeEncodeError:
        return None


def _decoded(content: str, most: int) -> bytes | None:
    # Bounded before it is decoded: twice what the largest file would take.
    if len(content) > 2 * (4 * (most // 3 + 1)):
        return None
    packed = "".join(content.split())
    if len(packed) % 4 or not _BASE64.fullmatch(packed):
        return None
    return binascii.a2b_base64(packed)


def _refused(code: str, words: str) -> Refused:
    return Refused("error", f"attachments_{code}: {words}")
