"""Reading settings from text and files.

`load` reads the files that exist, in order, then single settings. This file does not know which files a program looks
for, nor whether a project's file is trusted.
"""

from collections.abc import Sequence
from pathlib import Path

from fledge.config.check import Loaded, SettingsDocument, check, sized
from fledge.config.layers import merge, with_settings
from fledge.config.text import MAX_CHARS, decoded, utf8
from fledge.confine import Confined, IsFolder, NoSuchFile
from fledge.errors import BadInput
from fledge.plain_file import read_plain

MAX_BYTES = 4 * MAX_CHARS


def parse(text: str, source: str = "fledge.json5") -> Loaded:
    """The settings in this JSON5 text, with warnings for keys that are ignored or renamed.

    Refused: text that is no JSON5 (naming source, line and column), and a document that `check` refuses.
    """
    return check(parse_document(text, source), source)


def parse_document(text: str, source: str = "fledge.json5") -> SettingsDocument:
    """The object in this JSON5 text, its keys not yet checked: one layer for `merge`."""
    return sized(decoded(text, source), source)


def read(path: Path, in_workspace: bool = False) -> SettingsDocument | None:
    """The object in this file, its keys not yet checked; None if there is no such file.

    Refused: a file that `contents` or `document_of` refuses.
    """
    raw = contents(path, in_workspace)
    return None if raw is None else document_of(raw, path)


def contents(path: Path, in_workspace: bool) -> bytes | None:
    """The bytes of this file, at most `MAX_BYTES` + 1; None if there is no such file.

    Refused: a file that cannot be read or is not regular. `in_workspace`: also a link that leads out of the file's
    folder is refused, and a folder counts as no file.
    """
    try:
        if not in_workspace:
            return read_plain(path, MAX_BYTES + 1)
        with Confined(path.parent) as folder:
            return folder.read(path.name, MAX_BYTES + 1)[0]
    except (FileNotFoundError, NoSuchFile, IsFolder):
        return None
    except OSError as error:
        raise BadInput(str(path), "must be a readable file", error.strerror) from None
    except BadInput as error:
        raise BadInput(str(path), f"must be a readable file of its folder ({error.expected})") from None


def document_of(raw: bytes, path: Path) -> SettingsDocument:
    """The object in these bytes of a file. Refused: too many bytes, no UTF-8, text that `parse_document` refuses."""
    if len(raw) > MAX_BYTES:
        raise BadInput(str(path), f"must be at most {MAX_CHARS} characters")
    return parse_document(utf8(raw, path), str(path))


def load(paths: Sequence[Path], settings: Sequence[str] = ()) -> Loaded:
    """The settings of the files that exist, later ones winning, then of the single settings."""
    documents = [document for path in paths if (document := read(path)) is not None]
    return with_settings(merge(*documents), settings)
