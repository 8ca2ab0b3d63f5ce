"""Images and files that a program or a person sends: read from disk and stored, so that a commit can name them."""

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fledge.core.attachments import (
    Attachment,
    AttachmentLimits,
    File,
    check_count,
    check_files,
    decode_file,
    images_among,
    too_large,
)
from fledge.core.images import MAX_BYTES, MAX_IMAGES, Image, ImageEntry, read_images
from fledge.core.redact import error_words
from fledge.core.transcript import Carried
from fledge.errors import BadInput, FledgeError, Refused, StoreError
from fledge.plain_file import read_plain
from fledge.store.entry_files import EntryFiles

if TYPE_CHECKING:
    from fledge.runtime.profiles import ConfiguredProfiles

log = logging.getLogger("fledge.api")

GivenImage = Image | Path | str
"""An image with its bytes, or the path of a file."""
GivenFile = Attachment | Path | str
"""A file with its name and content, or the path of one."""
WIRE_BYTES = 64 * 1024 * 1024
"""The largest file that is read to be sent to another process, whose limits are not known here."""


@asynccontextmanager
async def kept(files: EntryFiles, given: Sequence[GivenImage]) -> AsyncIterator[tuple[ImageEntry, ...]]:
    """Store the images; their files are protected until the block ends, so that it can commit them. Raises BadInput for
    a file that is no image or cannot be read, and Refused if an image cannot be stored."""
    if isinstance(given, str | Path | Image):
        raise BadInput("images", "must be a list of images", given)
    if not given:
        yield ()
        return

    images = await asyncio.to_thread(read_files, given)
    with files.holding() as hold:
        try:
            entries = await hold.keep(images)
        except OSError as error:
            raise Refused("error", f"the images could not be kept: {error.strerror or error_words(error)}") from error
        yield entries


@asynccontextmanager
async def carried(
    profiles: "ConfiguredProfiles", session: str, images: Sequence[GivenImage], attachments: Sequence[GivenFile]
) -> AsyncIterator[Carried]:
    """Store the images and files of a message to this session; they are protected until the block ends, so that it can
    commit them. Images among the files are shown with the message, as many as one message can show.

    Raises BadInput for one of `images` that is no image, and for a file that breaks a limit or cannot be read; Refused
    if a file cannot be stored. Nothing is stored then.
    """
    if isinstance(attachments, str | Path | Attachment):
        raise BadInput("attachments", "must be a list of files", attachments)
    if not attachments:
        async with kept(profiles.images, images) as entries:
            yield Carried(entries)
        return

    files = await asyncio.to_thread(read_attached, attachments, profiles.attachment_limits)
    among = [image for image, _ in images_among(files)]
    shown = [*images, *among[: max(0, MAX_IMAGES - len(images))]]
    try:
        with profiles.images.holding() as hold:
            async with kept(profiles.images, shown) as entries:
                try:
                    attached = await hold.attach(session, files)
                except OSError as error:
                    raise Refused(
                        "error", f"the attachments could not be kept: {error.strerror or error_words(error)}"
                    ) from error
                yield Carried(entries, attached)
    except FledgeError:
        await _sweep(profiles)
        raise
    # A repeated message was not stored again, so no row names its files.
    await _sweep(profiles)


async def _sweep(profiles: "ConfiguredProfiles") -> None:
    """Remove files that no commit named."""
    try:
        await profiles.sweep_files()
    except (OSError, StoreError) as error:
        log.warning("files of a message that was not stored could not be removed: %s", error_words(error))


def read_attached(given: Sequence[GivenFile], limits: AttachmentLimits) -> tuple[File, ...]:
    """The files; those that are given as paths are read from disk. Raises BadInput for one that breaks a limit or
    cannot be read."""
    check_count(len(given), limits, "attachments")  # before any of them is read
    files = [
        decode_file(one, limits, f"attachments[{place}]")
        if isinstance(one, Attachment)
        else _read_file(one, limits.max_file_bytes, f"attachments[{place}]")
        for place, one in enumerate(given)
    ]
    return check_files(files, limits, "attachments")


def for_wire(given: Sequence[GivenFile], field: str = "attachments") -> list[Attachment]:
    """The files as they are sent to another process, which checks its own limits. Raises BadInput for one that cannot
    be read or is larger than `WIRE_BYTES`."""
    return [
        one if isinstance(one, Attachment) else _packed(_read_file(one, WIRE_BYTES, f"{field}[{place}]"))
        for place, one in enumerate(given)
    ]


def _packed(file: File) -> Attachment:
    return Attachment(file.name, base64.b64encode(file.data).decode(), "base64")


def _read_file(given: Path | str, most: int, field: str) -> File:
    file = _file_at(given, most, field, "must be the path of a file, or a name and content")
    if len(file.data) > most:
        raise too_large(field, most)
    return file


def _file_at(given: Path | str, most: int, field: str, expected: str) -> File:
    """The file at a path; of a larger one, only its first `most` + 1 bytes. Raises `BadInput` if it cannot be read."""
    if not isinstance(given, str | Path) or not str(given) or "\0" in str(given):
        raise BadInput(field, expected, given)
    path = Path(given).expanduser()
    try:
        return File(path.name, read_plain(path, most + 1))
    except OSError as error:
        raise BadInput(
            field, f"must be a file that can be read ({error.strerror or error_words(error)})", str(path)
        ) from None


def read_files(given: Sequence[GivenImage], field: str = "images") -> list[Image]:
    """The images; those that are given as paths are read from disk. Raises BadInput for a file that is no image or
    cannot be read."""
    images = [_read(one, f"{field}[{place}]") for place, one in enumerate(given)]
    read_images(images, field)
    return images


def _read(given: GivenImage, field: str) -> Image:
    if isinstance(given, Image):
        return given
    file = _file_at(given, MAX_BYTES, field, "must be a fledge.Image or the path of a file")
    return Image(file.data, file.name)
