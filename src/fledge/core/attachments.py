"""Files attached to a spawn or to a message: their names and contents, checked strictly by one set of limits.

A spawn's files have a receipt, and every refusal starts with a code that programs can tell apart. A message's files are
entries of the transcript (`FileEntry`), named in its text as `[file report.csv, 12 KB]`; refusals name the field. This
file does not know where files are put.
"""

import binascii
import hashlib
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Final, Literal

from msgspec import Meta

from fledge.core.images import Image, ImageEntry, read_image, sent
from fledge.core.value import Value
from fledge.errors import BadInput, Refused

SETTING: Final = "tools.sessions_spawn.attachments"
MANIFEST: Final = ".manifest.json"
NAME_BYTES: Final = 255
ENDING_BYTES: Final = 16
"""A longer text after the last dot of a name is not an ending."""
PLAIN: Final = f"a plain file name of at most {NAME_BYTES} bytes"

_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_BRACKETS: Final = str.maketrans("[]", "()")
_TYPES: Final = {
    "css": "text/css",
    "csv": "text/csv",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "gif": "image/gif",
    "gz": "application/gzip",
    "htm": "text/html",
    "html": "text/html",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "js": "text/javascript",
    "json": "application/json",
    "md": "text/markdown",
    "mp3": "audio/mpeg",
    "mp4": "video/mp4",
    "pdf": "application/pdf",
    "png": "image/png",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "svg": "image/svg+xml",
    "tsv": "text/tab-separated-values",
    "txt": "text/plain",
    "wav": "audio/wav",
    "webp": "image/webp",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "xml": "application/xml",
    "yaml": "application/yaml",
    "yml": "application/yaml",
    "zip": "application/zip",
}
"""Media types by the end of a name. A table of our own: the standard library's depends on the machine."""


class Attachment(Value, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """A file for a message or a subagent; `content` is its text, or its bytes in base64.

    >>> notes = fledge.Attachment("notes.txt", "Bees sleep at night.")
    >>> main = fl.session("main")
    >>> reply = await main.send("What do my notes say?", attachments=[notes])
    >>> (await main.history())[0].attachments[0].name
    'notes.txt'
    """

    name: Annotated[str, Meta(description="a plain file name")]
    content: str
    encoding: Literal["utf8", "base64"] = "utf8"


class SpawnFile(Value, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """A file of a spawn as it stands on the wire: its content or, in a model's call, its path."""

    name: Annotated[str, Meta(description="a plain file name")]
    content: str | None = None
    encoding: Literal["utf8", "base64"] = "utf8"
    path: Annotated[str, Meta(description="instead of content: the path of a file that came with a message")] = ""


class File(Value):
    """A file that was checked."""

    name: str
    data: bytes


class Receipt(Value, omit_defaults=True):
    """The answer about a file that was taken."""

    name: str
    bytes: int
    sha256: str


class AttachmentLimits(Value):
    """How many, how large, how large together."""

    max_files: int = 50
    max_file_bytes: int = 1024 * 1024
    max_total_bytes: int = 5 * 1024 * 1024


class FileEntry(Receipt, omit_defaults=True):
    """A file that came with a message, as a transcript holds it, by its name in the folder of the conversation."""

    type: str
    """Its media type, by its name; else by whether it is text."""
    given: str = ""
    """The name that it came with, where another file had that name already."""

    @property
    def words(self) -> str:
        """How it is named in the text of its entry."""
        return f"[file {self.name}, {size_words(self.bytes)}]"

    @property
    def identity(self) -> tuple[str, str]:
        """The name that the file came with, and its bytes: a message repeated with the same ones is the same
        message."""
        return self.given or self.name, self.sha256


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


def with_content(given: SpawnFile, field: str) -> Attachment:
    """A file of a spawn with its content. BadInput: it has none; it has a path, which only a model's call may have."""
    if given.path:
        raise BadInput(f"{field}.path", "may be given by a model alone: give the content", given.path)
    if given.content is None:
        raise BadInput(f"{field}.content", "must be given")
    return Attachment(given.name, given.content, given.encoding)


def receipts(files: Sequence[File]) -> tuple[Receipt, ...]:
    """Name, size and digest of each."""
    return tuple(Receipt(file.name, len(file.data), hashlib.sha256(file.data).hexdigest()) for file in files)


def images_among(files: Sequence[File]) -> tuple[tuple[Image, ImageEntry], ...]:
    """The images among the files, as many as one message takes, each with its entry: models that take images see them
    at once. A file that only looks like one is a file like any other."""
    found: list[tuple[Image, ImageEntry]] = []
    for file in files:
        image = Image(file.data, file.name)
        with suppress(BadInput):
            found.append((image, read_image(image)))
    return tuple(found[: sent([entry for _, entry in found[::-1]])])


# ---- files of messages -----------------------------------------------------------------------------------------------


def decode_file(given: Attachment, limits: AttachmentLimits, field: str) -> File:
    """A file of a message as its bytes. BadInput: bytes that are not what `encoding` says, or too many."""
    most = limits.max_file_bytes
    if len(given.content) > _most_chars(most):
        raise too_large(field, most)
    data = _content(given, most)
    if data is None and given.content:
        raise BadInput(f"{field}.content", f"must be {given.encoding}", given.content)
    return File(given.name, data or b"")


def check_count(count: int, limits: AttachmentLimits, field: str) -> None:
    """BadInput: too many files for one message."""
    if count > limits.max_files:
        raise BadInput(field, f"must be at most {limits.max_files} files ({SETTING}.maxFiles)", count)


def check_files(files: Sequence[File], limits: AttachmentLimits, field: str = "attachments") -> tuple[File, ...]:
    """The files of a message, under names that can stand in a line of text. BadInput: too many, a name that is not
    plain, an empty file, too large alone or together."""
    check_count(len(files), limits, field)
    checked: list[File] = []
    for place, file in enumerate(files):
        name = plain_name(file.name)
        if name is None:
            raise BadInput(f"{field}[{place}].name", f"must be {PLAIN}", file.name)
        if not file.data:
            raise BadInput(f"{field}[{place}].content", "must not be empty", name)
        if len(file.data) > limits.max_file_bytes:
            raise too_large(f"{field}[{place}]", limits.max_file_bytes)
        checked.append(File(name.translate(_BRACKETS), file.data))
    total = sum(len(file.data) for file in checked)
    if total > limits.max_total_bytes:
        raise BadInput(
            field, f"must have at most {limits.max_total_bytes} bytes together ({SETTING}.maxTotalBytes)", total
        )
    return tuple(checked)


def numbered(name: str, number: int) -> str:
    """The name with a number before its ending, at most as long as a name may be; the first is the name itself."""
    if number == 1:
        return name
    stem, _, ending = name.rpartition(".")
    has_ending = bool(stem) and len(ending.encode()) <= ENDING_BYTES
    tail = f"-{number}.{ending}" if has_ending else f"-{number}"
    room = NAME_BYTES - len(tail.encode())
    return (stem if has_ending else name).encode()[:room].decode(errors="ignore") + tail


def file_type(name: str, data: bytes) -> str:
    """The media type of a file: by the end of its name, else plain text if it is UTF-8 without NUL."""
    known = _TYPES.get(name.rpartition(".")[2].lower())
    if known is not None:
        return known
    return "application/octet-stream" if text_of(data) is None else "text/plain"


def text_of(data: bytes) -> str | None:
    """The bytes as text; None if they are binary."""
    try:
        return None if b"\0" in data else data.decode()
    except UnicodeDecodeError:
        return None


def size_words(size: int) -> str:
    """A size in few signs: 640 B, 12 KB, 1.4 MB."""
    if size < 1000:
        return f"{size} B"
    return f"{round(size / 1000)} KB" if size < 999_500 else f"{size / 1e6:.1f} MB"


def too_large(field: str, most: int) -> BadInput:
    """The refusal of a file that has more bytes."""
    return BadInput(field, f"must have at most {most} bytes ({SETTING}.maxFileBytes)")


# ---- names and contents ----------------------------------------------------------------------------------------------


def plain_name(given: str) -> str | None:
    """The name without space around it; None if it is no plain file name."""
    name = given.strip()
    is_plain = name.isprintable() and not set(name) & set("/\\") and name not in ("", ".", "..", MANIFEST)
    return name if is_plain and len(name.encode("utf-8", "replace")) <= NAME_BYTES else None


def _name(given: str) -> str:
    name = plain_name(given)
    if name is None:
        raise _refused("invalid_name", f"{given[:80]!r} must be {PLAIN}")
    return name


def _data(given: Attachment, name: str, most: int) -> bytes:
    data = _content(given, most)
    if data is None:
        words = f"{name!r} must be {given.encoding} of at most {most} bytes: {SETTING}.maxFileBytes"
        raise _refused("invalid_base64_or_too_large", words)
    if len(data) > most:
        raise _refused("file_bytes_exceeded", f"{name!r} has {len(data)} of {most} bytes: {SETTING}.maxFileBytes")
    return data


def _content(given: Attachment, most: int) -> bytes | None:
    """The bytes of a file; None if its content is not what `encoding` says, or base64 that is far too long."""
    if given.encoding == "utf8":
        try:
            return given.content.encode()
        except UnicodeEncodeError:
            return None
    if len(given.content) > _most_chars(most):
        return None
    packed = "".join(given.content.split())
    if len(packed) % 4 or not _BASE64.fullmatch(packed):
        return None
    return binascii.a2b_base64(packed)


def _most_chars(most: int) -> int:
    """Contents are bounded before they are decoded: twice what the largest file would take."""
    return 2 * (4 * (most // 3 + 1))


def _refused(code: str, words: str) -> Refused:
    return Refused("error", f"attachments_{code}: {words}")
