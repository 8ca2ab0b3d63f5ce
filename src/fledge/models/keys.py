"""Keys: where one comes from, how it is hidden, and how it is removed from texts.

A key is read from the environment (`NAME`) or from a file that only its owner can read (`NAME_FILE` holds the path).
Nothing here shows a key, neither `repr` nor an error. This file does not know which service a key opens.
"""

import os
from typing import NoReturn

from fledge.core.redact import redacted
from fledge.egress import Environment
from fledge.errors import BadInput
from fledge.plain_file import open_plain

HIDDEN = "[key]"
_MOST_BYTES = 16 * 1024


class SecretKey:
    """A secret whose text only `reveal` returns."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The secret, for the one header it is meant for."""
        return self._text

    def __repr__(self) -> str:
        return f"Key({HIDDEN})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key is never stored")


def bearer(key: SecretKey | None) -> dict[str, str]:
    """The header that carries this key at most services; none without a key."""
    return {} if key is None else {"Authorization": f"Bearer {key.reveal()}"}


def read_key(name: str, env: Environment) -> SecretKey | None:
    """The key from the variable `name`, or from the file that `name`_FILE points to; None where neither is set.

    Refused: a file that other users can read, an empty file, and a key that no header could carry.
    """
    text, path = (env.get(variable, "").strip() for variable in (name, f"{name}_FILE"))
    if text:
        return _checked(name, text)
    return key_in_file(f"{name}_FILE", path) if path else None


def key_in_file(field: str, path: str) -> SecretKey:
    """The key that this file holds. Refused: a file that other users can read, or one that holds no key."""
    try:
        descriptor = open_plain(os.path.expanduser(path))
    except OSError as error:
        raise BadInput(field, f"must be a readable file: {error.strerror}", path) from None
    with open(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if mode & 0o077:
            raise BadInput(field, f"must be readable by its owner only: chmod 600 {path}", f"{mode & 0o777:o}")
        text = file.read(_MOST_BYTES).decode("utf-8", "replace").strip()
    if not text:
        raise BadInput(field, "the file is empty", path)
    return _checked(field, text)


def _checked(field: str, text: str) -> SecretKey:
    if not text.isascii() or not text.isprintable() or " " in text:
        raise BadInput(field, "must hold a key of printable ASCII without blanks")
    return SecretKey(text)


def without_keys(text: str, key: SecretKey | None) -> str:
    """The text without this key, and without anything that looks like one."""
    if key is not None and len(key.reveal()) >= 4:
        text = text.replace(key.reveal(), HIDDEN)
    return redacted(text, HIDDEN)
