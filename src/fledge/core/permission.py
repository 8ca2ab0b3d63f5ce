"""Permissions: rules, made by a person, by which a command runs without a question.

A rule is about one *simple command*: plain words between single spaces, nothing that a shell would expand, join or
redirect. It has the words that the person was shown, and only the files that follow them may be others. Programs that
run what their arguments name, or whose harm is in those arguments, have no rules. Which program a name finds, and what
a file holds, is not known here.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
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
_VERSION: Final = re.compile(r"[0-9.-]+$")

NO_RULES: Final[Mapping[str, str]] = {
    "runs a program that its arguments name": """
        sh bash rbash dash ash zsh fish ksh mksh csh tcsh nu pwsh powershell cmd wsl busybox toybox
        env sudo sudoedit doas su pkexec runuser setpriv chroot unshare nsenter bwrap firejail proot fakeroot
        systemd-run systemd-nspawn machinectl docker podman nerdctl buildah lxc lxc-attach kubectl oc vagrant
        nohup setsid nice renice ionice chrt taskset numactl timeout time stdbuf unbuffer script expect watch watchexec
        entr xargs parallel find fd fdfind flock strace ltrace perf gdb lldb valgrind rr prlimit cpulimit
        dbus-run-session at batch cron crontab ssh mosh tmux screen dtach xvfb-run direnv npx pnpx bunx uvx pipx
        hyperfine open xdg-open start-stop-daemon
    """,
    "runs a program that is written in its arguments, or in a file that they name": """
        python pythonw ipython pypy node nodejs deno bun tsx ts-node perl raku ruby irb php lua luajit rscript r julia
        java jshell groovy scala kotlin tclsh wish osascript guile racket sbcl clisp emacs emacsclient vi vim view nvim
        ex ed awk gawk mawk nawk sed gsed bc dc m4 sqlite psql mysql mongosh redis-cli ghci erl elixir iex swift
    """,
    "changes the shell itself, or is a word of its language": """
        eval exec source command builtin coproc trap alias unalias export declare typeset local readonly set unset shopt
        enable hash bind complete cd pushd popd read mapfile readarray printf let wait fg bg jobs disown exit return
        logout if then elif else fi case esac for while until do done select function in
    """,
    "has its harm in the files and numbers that follow": """
        rm rmdir unlink shred wipe srm mv cp ln dd tee install truncate fallocate mkfs mount umount chmod chown chgrp
        chattr setfacl kill pkill killall skill shutdown reboot halt poweroff tar bsdtar unzip cpio rename patch
    """,
    "reaches other machines, or installs what comes from there": """
        curl wget aria2c http https xh nc ncat netcat socat telnet ftp sftp scp rsync rclone mail sendmail gh glab aws
        gcloud az terraform ansible pip pipenv conda mamba apt apt-get aptitude dnf yum pacman apk brew snap flatpak gem
        cpan nix nix-shell nix-env helm
    """,
}
"""Programs that have no rules, by the reason."""
NO_RULES_FOR: Final[Mapping[str, str]] = {
    "git": "bisect clone config difftool fetch filter-branch mergetool pull push remote submodule update-index",
    "npm": "add ci create exec explore i init install it x",
    "pnpm": "add create dlx exec i install",
    "yarn": "add create dlx exec install",
    "uv": "add pip run sync tool",
    "poetry": "add install run shell",
    "pdm": "add install run",
    "hatch": "run shell",
    "rye": "add run sync",
    "bundle": "add exec install",
    "composer": "exec global install require",
    "go": "env generate get install run tool",
    "cargo": "add install run",
    "dotnet": "add exec run tool",
    "mvn": "exec:exec exec:java",
    "rustup": "run",
    "nvm": "exec run",
    "mise": "exec run x",
    "asdf": "exec",
}
"""Subcommands of other programs that do one of these things, or change what the program runs."""


class Offer(Value, omit_defaults=True):
    """The rule that an *always* would make of a question, as the person is shown it."""

    words: tuple[str, ...]
    """How a command must begin."""
    folder: str
    """Where the command runs, by its real path."""
    agent: str
    children: bool = False
    """Subagents that run as this agent are covered, too."""


class Permission(Value, kw_only=True):
    """A rule made by a person: some commands of an agent run in a folder without asking.

    >>> await fl.permissions()
    []
    """

    id: str
    words: tuple[str, ...]
    """The beginning of the allowed commands; only paths inside the folder may follow."""
    folder: str
    """The folder in which the rule applies, as a real path."""
    agent: str
    children: bool = False
    """True if the rule also covers subagents of this agent."""
    made_at: Instant
    made_by: str


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


def rule_words(command: str) -> tuple[str, ...]:
    """The words of the rule that covers this command; none if no rule may.

    They are its words up to the files at its end: options and subcommands are among them, so a rule grants no other.
    """
    words = words_of(command)
    if not words or has_no_rules(words):
        return ()
    count = len(words)
    while count > 1 and _is_file(words[count - 1]):
        count -= 1
    return words[:count]


def has_no_rules(words: tuple[str, ...]) -> bool:
    """True of a program, or a subcommand of it, of which no rule is made."""
    name = _family(words[0])
    return name in _NEVER or not _NEVER_FOR.get(name, frozenset()).isdisjoint(words[1:])


def offer(command: str, asker: Asker) -> Offer | None:
    """The rule that an *always* to this command would make; None if none can be made."""
    words = rule_words(command)
    if not words or not asker.folder.isprintable():  # no screen can show where such a rule holds
        return None
    return Offer(words, asker.folder, asker.agent, asker.is_child)


def covering(rules: Iterable[Permission], asker: Asker, command: str) -> Permission | None:
    """The first rule that lets this asker run the command without a question; None: a person is asked."""
    words = rule_words(command)
    if not words:
        return None
    return next((rule for rule in rules if rule.words == words and _is_for(rule, asker)), None)


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
    )


def is_sound(rule: Permission) -> bool:
    """True of a rule as `permission` makes one; False of what only looks like one."""
    is_offered = rule_words(" ".join(rule.words)) == rule.words and rule.folder.isprintable()
    return is_offered and _rule_id(rule) == rule.id


def _rule_id(rule: Offer | Permission) -> str:
    parts = (rule.folder, rule.agent, str(rule.children), *rule.words)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def _is_for(rule: Permission, asker: Asker) -> bool:
    return (rule.folder, rule.agent) == (asker.folder, asker.agent) and (rule.children or not asker.is_child)


def _is_file(word: str) -> bool:
    return _FILE.fullmatch(word) is not None and ".." not in word.partition("::")[0].split("/")


def _family(program: str) -> str:
    """The name of a program without its version, letter case aside: `Python3.11` is python."""
    name = program.casefold().removesuffix(".exe")
    return _VERSION.sub("", name)


_NEVER: Final = frozenset(_family(name) for names in NO_RULES.values() for name in names.split())
_NEVER_FOR: Final = {program: frozenset(names.split()) for program, names in NO_RULES_FOR.items()}
