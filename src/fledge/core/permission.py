"""Permissions: rules, made by a person, by which a command runs without a question.

A rule is about one *simple command*: plain words between single spaces, nothing that a shell would expand, join or
redirect. It covers exactly the command that the person was shown. Only programs that read, and the tests of a project,
have rules that leave the paths at the end free: their words, options included, must still be those that were shown.
Which program a name finds, and what a file holds, is not known here.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from fledge.core.run import Instant
from fledge.core.value import Value

MOST_CHARS: Final = 1000
MOST_WORDS: Final = 32
"""A longer command asks, whatever it says: a person does not read all of it."""

_SIMPLE: Final = re.compile(r"[A-Za-z0-9_./:,@%+=-]+(?: [A-Za-z0-9_./:,@%+=-]+)*")
"""No character here means anything to a shell behind the first word. Quotes and `\\` are left out too: words that need
them are rare, and a text that looks like one command and is another is made of them."""
_PROGRAM: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.+-]*")
"""A name that is looked up in PATH: no assignment, and no path to a file that an agent can write."""
_FILE: Final = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.,-]*(?:/[A-Za-z0-9_.,-]*)+(?:::[A-Za-z0-9_]+)*")
"""A relative path; behind it, what test runners name in a file (`tests/test_x.py::test_y`)."""
_FIXED: Final = re.compile(r"[^@+].*")
"""A word that may stand before free paths: `@file` and `+name` are options of some programs."""
_NUMBER: Final = re.compile(r"-[0-9]+")

ANY: Final = "any option"
_DIFF: Final = "-p --patch --stat --shortstat --numstat --name-only --name-status --no-color --word-diff -w --"
_LOG: Final = (
    f"{_DIFF} --oneline --graph --all --decorate --follow --reverse --first-parent --merges --no-merges -n --no-patch"
    " --abbrev-commit --since= --until= --author= --grep= --format= --pretty= --date="
)
FREE_PATHS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("ls", "cat", "head", "tail", "wc", "stat", "du", "cmp", "diff", "grep"), ANY),
    **dict.fromkeys(("nl", "md5sum", "sha1sum", "sha256sum"), ANY),
    "rg": "-n -i -l -c -w -s -S -F -v -o -A -B -C --hidden --files --count --line-number --ignore-case --fixed-strings"
    " --files-with-matches --word-regexp --no-heading",
    "git status": "-s -b -sb --short --branch --long --porcelain --ignored -u -uno -uall --",
    "git log": _LOG,
    "git show": _LOG,
    "git diff": f"{_DIFF} --cached --staged --merge-base --check --quiet --exit-code",
    "git blame": "-w -C -M -e -s -l -L --date= --",
    "pytest": "-q -qq -v -vv -vvv -x -s -l -k -m -n -ra -rA -rf --lf --ff --sw --last-failed --failed-first --exitfirst"
    " --stepwise --tb= --maxfail= --durations= --no-header --collect-only --co",
    "ruff check": "-q --quiet --no-fix --diff --statistics --select --select= --ignore= --output-format= --no-cache",
    "ruff format --check": "-q --quiet --diff --no-cache",
    "mypy": "-p -m --strict --pretty --show-error-codes --ignore-missing-imports --no-incremental --no-error-summary",
    **dict.fromkeys(
        ("cargo test", "cargo check"),
        "-q --quiet -v --all --workspace --lib --bins --tests --all-targets --all-features --release --locked --offline"
        " --no-run --no-fail-fast -p",
    ),
    "go test": "-v -race -short -failfast -run -run= -count= -timeout= -cover",
    "go vet": "",
    **dict.fromkeys(("npm test", "pnpm test", "yarn test"), "-s --silent --"),
}
"""Beginnings of commands whose rules leave the paths at the end free, with the options that may stand before those
(`=`: with a value). They only read, or run the project's own tests. None of these options takes a path that is written
to or run; with any other option, the rule is the whole command."""


class Offer(Value, omit_defaults=True):
    """The rule that an *always* would make of a question, as the person is shown it."""

    words: tuple[str, ...]
    """The words of the command, without the paths at its end if those are free."""
    folder: str
    """Where the command runs, by its real path."""
    agent: str
    children: bool = False
    """Subagents that run as this agent are covered, too."""
    paths: bool = True
    """Relative paths may follow the words."""

    @property
    def shown(self) -> str:
        """The commands that it covers; `…` stands for paths in the folder."""
        return shown(self.words, self.paths)


class Permission(Value, kw_only=True):
    """A rule made by a person: some commands of an agent run in a folder without asking.

    >>> await fl.permissions()
    []
    """

    id: str
    words: tuple[str, ...]
    """The words of the allowed command."""
    folder: str
    """The folder in which the rule applies, as a real path."""
    agent: str
    children: bool = False
    """True if the rule also covers subagents of this agent."""
    made_at: Instant
    made_by: str
    paths: bool = True
    """Any paths inside the folder may follow the words; if False, the words are the whole command."""
    counts: bool = True
    """False if fledge makes no such rule any more: it has no effect."""

    @property
    def shown(self) -> str:
        """The commands that it covers; `…` stands for paths in the folder."""
        return shown(self.words, self.paths)


class Asker(Value):
    """The session's agent and folder, which rules are compared with."""

    folder: str
    agent: str
    is_child: bool


def words_of(command: str) -> tuple[str, ...]:
    """The words of a simple command, as a shell would read them; none if it is anything else."""
    if len(command) > MOST_CHARS or _SIMPLE.fullmatch(command) is None:
        return ()
    words = tuple(command.split(" "))
    return words if len(words) <= MOST_WORDS and _PROGRAM.fullmatch(words[0]) is not None else ()


def shown(words: tuple[str, ...], paths: bool) -> str:
    """Commands with these words as a person reads them; `…` stands for any paths in the folder."""
    return " ".join(words) + (" …" if paths else "")


def leaves_paths_free(words: tuple[str, ...], own: Collection[str] = ()) -> bool:
    """True if a rule with these words covers any paths behind them. `own`: commands that the settings add."""
    if words and " ".join(words) in own:
        return True
    for count in range(min(len(words), 3), 0, -1):
        options = FREE_PATHS.get(" ".join(words[:count]))
        if options is not None:
            return all(_is_harmless(word, options) for word in words[count:])
    return False


def rule_words(command: str, own: Collection[str] = ()) -> tuple[tuple[str, ...], bool]:
    """The words of the rule for this command, none if it can have none; and whether paths may follow them."""
    words = words_of(command)
    count = len(words)
    while count > 1 and _is_file(words[count - 1]):
        count -= 1
    return (words[:count], True) if leaves_paths_free(words[:count], own) else (words, False)


def offer(command: str, asker: Asker, own: Collection[str] = ()) -> Offer | None:
    """The rule that an *always* to this command would make; None if none can be made."""
    words, paths = rule_words(command, own)
    if not words or not asker.folder.isprintable():  # no screen can show where such a rule holds
        return None
    return Offer(words, asker.folder, asker.agent, asker.is_child, paths)


def covering(rules: Iterable[Permission], asker: Asker, command: str, own: Collection[str] = ()) -> Permission | None:
    """The first rule that lets this asker run the command without a question; None: a person is asked."""
    covered = {rule_words(command, own), (words_of(command), False)}
    rules = (rule for rule in rules if rule.words and (rule.words, rule.paths) in covered)
    return next((rule for rule in rules if counts(rule, own) and _is_for(rule, asker)), None)


def counts(rule: Offer | Permission, own: Collection[str] = ()) -> bool:
    """True of a rule that is made today: free paths follow only words that allow it."""
    return not rule.paths or leaves_paths_free(rule.words, own)


def permission(offer: Offer, at: Instant, by: str) -> Permission:
    """The rule that was offered. Its id is a digest of what it grants, so the same rule is never stored twice."""
    return Permission(
        id=_rule_id(offer),
        words=offer.words,
        folder=offer.folder,
        agent=offer.agent,
        children=offer.children,
        made_at=at,
        made_by=by,
        paths=offer.paths,
    )


def is_sound(rule: Permission) -> bool:
    """True of a rule as `permission` makes one; False of what only looks like one."""
    is_simple = rule.words != () and words_of(" ".join(rule.words)) == rule.words
    return is_simple and rule.folder.isprintable() and _rule_id(rule) == rule.id


def _rule_id(rule: Offer | Permission) -> str:
    # No word begins with "=". Ids of rules with free paths are older than rules without.
    exact = () if rule.paths else ("=",)
    parts = (rule.folder, rule.agent, str(rule.children), *exact, *rule.words)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def _is_for(rule: Permission, asker: Asker) -> bool:
    return (rule.folder, rule.agent) == (asker.folder, asker.agent) and (rule.children or not asker.is_child)


def _is_file(word: str) -> bool:
    return _FILE.fullmatch(word) is not None and ".." not in word.partition("::")[0].split("/")


def _is_harmless(word: str, options: str) -> bool:
    """True of a word that may stand before free paths."""
    if not word.startswith("-"):
        return _FIXED.fullmatch(word) is not None
    name, equals, _ = word.partition("=")
    return options == ANY or f"{name}{equals}" in options.split() or _NUMBER.fullmatch(word) is not None
