"""The rules by which commands run without a question, kept in the user's folder, where no tool can write.

Each rule is a private file of its own, named by its id: it is written whole or not at all, two processes that keep
rules at the same time lose none, and a broken file does not affect other rules. `core.permission` defines what a rule
means.
"""

import os
from collections.abc import Collection
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from fledge.confine import FOLDER_FLAGS, read_plain
from fledge.core.keys import is_called
from fledge.core.permission import Permission, counts, is_sound
from fledge.core.redact import error_words
from fledge.errors import BadInput, NotFound, Refused
from fledge.plain_file import kept_open, write_private

FOLDER: Final = "permissions"
MOST_RULES: Final = 500
"""At most this many are read, each time a command would ask for approval."""
MOST_BYTES: Final = 64 * 1024
_ENDING: Final = ".json"
_rule = msgspec.json.Decoder(Permission).decode


class PermissionRules(Struct, frozen=True):
    """The rules in the user's folder, and the errors of files that do not count."""

    rules: tuple[Permission, ...] = ()
    """The oldest first. Those that fledge would not make today are marked: they have no effect."""
    broken: tuple[BadInput, ...] = ()
    """The errors of files that do not count."""


def read_rules(user: Path, own: Collection[str] = ()) -> PermissionRules:
    """The rules that count. A file that is no rule, is a link, or could have been written by another user does not.
    `own`: commands for which the settings allow any paths."""
    found: list[Permission] = []
    broken: list[BadInput] = []
    place = user / FOLDER
    try:
        with kept_open(place, FOLDER_FLAGS) as folder:
            _must_be_own(os.fstat(folder))
            names = sorted(name for name in os.listdir(folder) if name.endswith(_ENDING) and not name.startswith("."))
            for name in names[:MOST_RULES]:
                try:
                    rule = _read(folder, name)
                    found.append(replace(rule, counts=counts(rule, own)))
                except (OSError, ValueError) as error:
                    broken.append(BadInput(str(place / name), f"{error_words(error)}; it does not count: remove it"))
            if len(names) > MOST_RULES:
                broken.append(
                    BadInput(str(place), f"must hold at most {MOST_RULES} rules: more do not count", len(names))
                )
    except FileNotFoundError:
        return PermissionRules()
    except (OSError, ValueError) as error:
        return PermissionRules((), (BadInput(str(place), f"{error_words(error)}; no rule in it counts"),))
    return PermissionRules(tuple(sorted(found, key=lambda rule: (rule.made_at, rule.id))), tuple(broken))


def sound_rules(user: Path, own: Collection[str] = ()) -> tuple[Permission, ...]:
    """The rules. Refused: a folder with a file that is no rule."""
    held = read_rules(user, own)
    if held.broken:
        raise held.broken[0]
    return held.rules


def keep(user: Path, rule: Permission) -> bool:
    """Keep a rule; False if it was there already. Refused: the folder has a file that is no rule, or too many rules."""
    held = sound_rules(user)
    if rule.id in {one.id for one in held}:
        return False
    if len(held) >= MOST_RULES:
        raise Refused("forbidden", f"there are {MOST_RULES} rules already: revoke some (fledge permissions)")
    try:
        write_private(_path(user, rule), msgspec.json.encode(rule).decode())
    except OSError as error:
        raise Refused(
            "error", f"the rule cannot be kept in {user / FOLDER}: {error.strerror or error_words(error)}"
        ) from None
    return True


def revoke(user: Path, word: str, own: Collection[str] = ()) -> Permission:
    """Remove the rule whose id begins with this word. NotFound: no rule matches, or several do."""
    found = [rule for rule in read_rules(user, own).rules if is_called(rule.id, word)]
    if len(found) != 1:
        why = f"{len(found)} rules are" if found else "no rule is"
        raise NotFound(f"{why} named {word[:80]!r}: `fledge permissions` lists them")
    forget(user, found[0])
    return found[0]


def forget(user: Path, rule: Permission) -> None:
    """Remove a rule that was kept. BadInput: its file cannot be removed."""
    path = _path(user, rule)
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise BadInput(str(path), "must be a file that can be removed", error.strerror) from None


def _path(user: Path, rule: Permission) -> Path:
    return user / FOLDER / f"{rule.id}{_ENDING}"


def _read(folder: int, name: str) -> Permission:
    """The rule in a file. ValueError: the file holds no rule that counts."""
    held = read_plain(folder, name, MOST_BYTES)
    if held is None:
        raise ValueError("must be a regular file, not a link")
    raw, status = held
    _must_be_own(status)
    try:
        rule = _rule(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"must be a rule in JSON ({error_words(error)})") from None
    if name != f"{rule.id}{_ENDING}" or not is_sound(rule):
        raise ValueError("must be a rule as fledge wrote it")
    return rule


def _must_be_own(status: os.stat_result) -> None:
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise ValueError("must belong to you, and no other user may have write access")
