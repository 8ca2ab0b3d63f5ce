"""Which commands a rule can be made of, which words it has, and which commands it covers."""

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fledge.core.permission import (
    MOST_CHARS,
    MOST_WORDS,
    Asker,
    Offer,
    Permission,
    counts,
    covering,
    is_sound,
    offer,
    permission,
    rule_words,
    words_of,
)
from tests.statements import proves

HERE = Asker("/home/me/project", "main", is_child=False)
CHILD = Asker("/home/me/project", "main", is_child=True)


def rule(words: str, asker: Asker = HERE, children: bool = False, paths: bool = True) -> Permission:
    """The rule of these words, with any paths behind them."""
    return permission(Offer(tuple(words.split()), asker.folder, asker.agent, children, paths), 1.0, "me")


def exact(words: str, asker: Asker = HERE, children: bool = False) -> Permission:
    """The rule of this command alone."""
    return rule(words, asker, children, paths=False)


@proves("8.permissions.1", "A rule is for one simple command: the whole of it, byte for byte")
@pytest.mark.parametrize(
    "command",
    [
        *("make", "make test", "make -j4 test", "make test SHELL=x", "make build/x", "git checkout -- src/tmp.py"),
        *("git -C sub status", "git -c x=y log src/a.py", "pytest -p x tests/a.py", "npm run build", "rm -r build/x"),
        *("bash x/y.sh", "python3.11 x/y.py", "ruff format src/a.py", "ruff src/a.py", "cargo +x test a/b"),
        *("LS x/y", "ls2 x/y", "git.exe log x/y"),
    ],
)
def test_a_rule_is_the_whole_command(command: str) -> None:
    made = exact(command)
    assert rule_words(command) == (made.words, False)
    assert covering([made], HERE, command) == made
    for other in (f"{command} x/y", f"{command} -x", f"{command} x", command.replace("/", "/x/"), f"{command}x"):
        assert other == command or covering([made], HERE, other) is None


@proves("8.permissions.10", "Rules of programs that read, and of a project's tests, hold for any paths at their end")
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("cat docs/a.md", "cat"),
        ("cat README.md", "cat README.md"),
        ("cat /etc/passwd", "cat /etc/passwd"),
        ("cat src/../../x", "cat src/../../x"),
        ("cat ../x", "cat ../x"),
        ("cat https://x.org/y", "cat https://x.org/y"),
        ("cat host:x/y src/a", "cat host:x/y"),
        ("grep -rn word src/a src/b", "grep -rn word"),
        ("git status", "git status"),
        ("git log --oneline -5 src/a.py", "git log --oneline -5"),
        ("git diff HEAD -- src/a.py", "git diff HEAD --"),
        ("git show --format=%H", "git show --format=%H"),
        ("pytest tests/a.py", "pytest"),
        ("pytest -q tests/a.py::test_one tests/b.py::Two::test_three", "pytest -q"),
        ("pytest -x --tb=short -k name tests/a.py", "pytest -x --tb=short -k name"),
        ("ruff check src/a.py", "ruff check"),
        ("ruff format --check src/a.py", "ruff format --check"),
        ("mypy --strict src/a.py", "mypy --strict"),
        ("go test ./...", "go test"),
        ("cargo test --release", "cargo test --release"),
        ("npm test -- src/a.test.js", "npm test --"),
    ],
)
def test_a_reader_and_a_test_have_rules_for_any_paths_at_the_end(command: str, words: str) -> None:
    made = rule(words)
    assert rule_words(command) == (made.words, True)
    for covered in (command, words, f"{words} a/b.py", f"{words} a/b ./c"):
        assert covering([made], HERE, covered) == made
    for other in (
        f"{words} --output=x/y",
        f"{words} -x",
        f"{words} /x/y",
        f"{words} ../x",
        f"{words} @x/y",
        f"x{words}",
    ):
        assert covering([made], HERE, other) is None


DANGEROUS = [
    *("git log --output=x/y", "git log --output", "git diff --ext-diff", "git diff --output=x", "git show --textconv"),
    *("git log --ext-diff", "git diff --no-index", "git -c core.pager=x log", "git -C x log", "git --git-dir=x log"),
    *("git blame --contents", "git --exec-path=x status", "git -p log", "git log -O", "git stash show", "git checkout"),
    *("git checkout --", "git restore", "git clean -fdx", "git branch -D", "git diff-files", "git archive"),
    *("pytest -p", "pytest -c", "pytest -o", "pytest --basetemp=x", "pytest --basetemp", "pytest --rootdir"),
    *("pytest --junitxml=x", "pytest --junitxml", "pytest --log-file", "pytest --pdb", "pytest --pdbcls=x:y"),
    *("pytest --confcutdir", "pytest --import-mode=x", "pytest @x", "pytest --debug", "pytest --cov-report=html:x"),
    *("rg --pre", "rg --pre=x", "rg --hostname-bin", "rg -z", "rg --search-zip", "rg --hyperlink-format=x"),
    *("ruff check --fix", "ruff check --config", "ruff format", "ruff clean", "ruff check --add-noqa", "ruff server"),
    *("ruff check --output-file", "ruff check --unsafe-fixes", "mypy --config-file", "mypy --python-executable"),
    *("mypy --install-types", "mypy --html-report", "mypy --junit-xml", "mypy @x", "mypy --cache-dir"),
    *("cargo test --config", "cargo test --manifest-path", "cargo test --target-dir", "cargo check --config=x"),
    *("cargo +nightly test", "cargo run", "cargo install", "cargo clean", "cargo fix", "cargo publish"),
    *("go test -exec", "go test -toolexec", "go test -o", "go test -overlay", "go vet -vettool", "go run", "go build"),
    *("go test -c", "go test -coverprofile", "go test -outputdir", "npm test --prefix", "npm test --script-shell"),
    *("npm test --node-options=x", "npm test -C", "npm run", "npm publish", "yarn test --cwd", "pnpm test -C"),
]
"""Options and subcommands that make a program of the list write, run or destroy."""


@pytest.mark.parametrize("command", DANGEROUS)
def test_an_option_that_makes_a_reader_dangerous_is_in_no_rule_with_free_paths(command: str) -> None:
    for more in ("", " x/y", " x/y a/b"):
        assert rule_words(command + more) == (words_of(command + more), False)
        assert covering([rule(command)], HERE, command + more) is None


HARMFUL = set(
    """
    sh bash rbash dash ash zsh fish ksh mksh csh tcsh nu pwsh powershell cmd wsl busybox toybox env sudo sudoedit
    doas su pkexec runuser setpriv chroot unshare nsenter bwrap firejail proot fakeroot systemd-run systemd-nspawn
    machinectl docker podman nerdctl buildah lxc lxc-attach kubectl oc vagrant nohup setsid nice renice ionice chrt
    taskset numactl timeout time stdbuf unbuffer script expect watch watchexec entr xargs parallel find fd fdfind
    flock strace ltrace perf gdb lldb valgrind rr prlimit cpulimit dbus-run-session at batch cron crontab ssh mosh
    tmux screen dtach xvfb-run direnv npx pnpx bunx uvx pipx hyperfine open xdg-open start-stop-daemon python
    pythonw ipython pypy node nodejs deno bun tsx ts-node perl raku ruby irb php lua luajit rscript r julia java
    jshell groovy scala kotlin tclsh wish osascript guile racket sbcl clisp emacs emacsclient vi vim view nvim ex ed
    awk gawk mawk nawk sed gsed bc dc m4 sqlite psql mysql mongosh redis-cli ghci erl elixir iex swift eval exec
    source command builtin coproc trap alias unalias export declare typeset local readonly set unset shopt enable
    hash bind complete cd pushd popd read mapfile readarray printf let wait fg bg jobs disown exit return logout if
    then elif else fi case esac for while until do done select function in rm rmdir unlink shred wipe srm mv cp ln
    dd tee install truncate fallocate mkfs mount umount chmod chown chgrp chattr setfacl kill pkill killall skill
    shutdown reboot halt poweroff tar bsdtar unzip cpio rename patch curl wget aria2c http https xh nc ncat netcat
    socat telnet ftp sftp scp rsync rclone mail sendmail gh glab aws gcloud az terraform ansible pip pipenv conda
    mamba apt apt-get aptitude dnf yum pacman apk brew snap flatpak gem cpan nix nix-shell nix-env helm make just
    ninja cmake gradle gradlew mvn ant rake bazel tox nox gulp grunt bundle composer poetry pdm hatch rye uv yarn
    pnpm npm cargo go dotnet rustup nvm mise asdf git hg svn jj fossil file sort uniq less more man split csplit xxd
    cpp gcc clang ld ar strip objcopy patchelf tree rsnapshot borg restic dropdb createdb pg_dump mysqldump sqlite3
    systemctl service journalctl loginctl useradd userdel passwd visudo iptables nft ip ifconfig fdisk parted
    swapoff losetup cryptsetup modprobe insmod rmmod sysctl dmesg crictl ctr skopeo qemu-img virsh eslint prettier
    black isort jest vitest tsc
    """.split()  # noqa: SIM905 (a table of words)
)
"""Programs that run others, write, destroy, or reach other machines."""


@proves("8.permissions.3", "Programs that run others or destroy have rules for the whole command only")
@pytest.mark.parametrize("program", sorted(HARMFUL))
def test_a_program_that_runs_others_or_destroys_has_a_rule_for_the_whole_command_alone(program: str) -> None:
    assert len(HARMFUL) > 300
    for more in ("", " x/y", " -x x/y", " x x/y a/b", " -- x/y"):
        command = f"{program}{more}"
        made = offer(command, HERE)
        if words_of(command):
            assert made == Offer(tuple(command.split(" ")), HERE.folder, HERE.agent, paths=False)
            assert covering([permission(made, 1.0, "me")], HERE, f"{command} c/d") is None
        else:
            assert made is None


@proves("8.permissions.11", "A setting adds commands whose rules hold for any paths")
def test_the_settings_add_commands_word_for_word() -> None:
    own = ("just test", "vitest run --silent", "git -C sub log")
    for command in own:
        made = rule(command)
        assert rule_words(f"{command} a/b", own) == (made.words, True)
        assert covering([made], HERE, f"{command} a/b c/d", own) == made
        assert covering([made], HERE, f"{command} a/b") is None  # without the setting
        for other in (f"{command} -x a/b", f"{command} x a/b", f"{command} ../b", command.rpartition(" ")[0]):
            assert covering([made], HERE, other, own) is None
    assert covering([exact("just test a/b")], HERE, "just test a/b", own) == exact("just test a/b")
    assert rule_words("", ("",)) == ((), False)
    assert offer("", HERE, ("",)) is None


@proves("8.permissions.12", "A rule of an earlier fledge that would not be made today has no effect, and is named")
def test_a_rule_with_free_paths_that_would_not_be_made_today_does_not_count() -> None:
    old = rule("git checkout --")
    assert is_sound(old)
    assert not counts(old)
    assert covering([old], HERE, "git checkout -- thesis/") is None
    assert covering([old], HERE, "git checkout --") is None
    assert counts(rule("pytest -q"))
    assert counts(exact("git checkout -- src/tmp.py"))


SHELL = [
    *("make test; rm x", "make test;rm", "make;rm", "make test & rm x", "make test && rm x"),
    *("make test || rm x", "make test | sh", "make test |& sh", "make $(rm x)", "make `rm x`", "make $x"),
    *("make ${x}", "make $'x'", "make test > x", "make test >x", "make test 2>&1", "make test < x"),
    *("make <<x", "make <(rm x)", "make >(rm x)", "X=1 make test", "PATH=. make test"),
    *("PATH=.:$PATH make test", "make=1", "make+=1", "a[0]=1 make test", "make test\nrm x", "make test\n"),
    *("\nmake test", "make test\r", "make\ttest", "make test\x00", "\x00make test", "make\u00a0test"),
    *("make\u2003test", "make\u3000test", "make test\u2028rm", "make\u200btest", "m\u0430ke test"),
    *(" make test", "make test ", "make  test", "", " ", "-make", "--", "-- make test", "%1", "1make"),
    *("_make", "[ x", "bash -c 'x'", "./make test", "/usr/bin/make test"),
]


@proves("8.permissions.2", "No text with anything a shell would expand, join, quote or redirect is covered by a rule")
@pytest.mark.parametrize("command", SHELL)
def test_no_rule_is_made_of_anything_else_and_none_covers_it(command: str) -> None:
    assert rule_words(command) == ((), False)
    assert offer(command, HERE) is None
    every = [rule("make"), exact("make test"), replace(exact("make"), words=tuple(command.split(" ")))]
    assert covering(every, HERE, command) is None


def test_a_rule_is_shown_with_a_sign_for_free_paths() -> None:
    offers = [offer(command, HERE) for command in ("pytest -q tests/a.py", "make test")]
    assert [one.shown for one in offers if one is not None] == ["pytest -q …", "make test"]
    assert [rule("pytest -q").shown, exact("make test").shown] == ["pytest -q …", "make test"]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_command_beyond_the_limits_has_no_rules(count: int) -> None:
    assert bool(words_of("make " + "x" * (MOST_CHARS - 6 + count))) == (count < 2)
    assert bool(words_of("make" + " x" * (MOST_WORDS - 2 + count))) == (count < 2)


def test_hostile_commands_of_any_size_are_judged_at_once() -> None:
    for text in ("cat " + "a/" * 400, "cat " + "../" * 300, "cat" + " a/b" * 240, "x" * 10_000_000, "a " * 5_000_000):
        assert len(rule_words(text)[0]) <= 1 or text.endswith("../")


@proves("8.permissions.4", "A rule holds in one folder and for one agent, and for its subagents only if ticked")
@pytest.mark.parametrize(
    ("made", "asker", "covers"),
    [
        (exact("make test"), HERE, True),
        (exact("make test"), CHILD, False),
        (exact("make test", children=True), CHILD, True),
        (exact("make test", children=True), HERE, True),
        (exact("make test"), replace(HERE, folder="/home/me/project/sub"), False),
        (exact("make test"), replace(HERE, folder="/home/me"), False),
        (exact("make test"), replace(HERE, agent="scout"), False),
        (exact("make"), HERE, False),
        (exact("make test x"), HERE, False),
    ],
)
def test_a_rule_covers_its_own_words_folder_and_agent(made: Permission, asker: Asker, covers: bool) -> None:
    assert covering([rule("ls"), made], asker, "make test") == (made if covers else None)


def test_the_rule_of_a_subagents_question_covers_subagents() -> None:
    offered = offer("make test", CHILD)
    assert offered == Offer(("make", "test"), HERE.folder, "main", children=True, paths=False)
    assert offer("make test", HERE) == replace(offered, children=False)
    assert covering([permission(offered, 1.0, "me")], CHILD, "make test") is not None


@pytest.mark.parametrize("folder", ["/home/me/\udcff", "/home/me\nof you", "/home/\u202eme"])
def test_a_folder_that_cannot_be_shown_has_no_rules(folder: str) -> None:
    assert offer("make test", replace(HERE, folder=folder)) is None


def test_the_same_rule_has_the_same_id_and_any_other_another() -> None:
    made = rule("make test")
    assert permission(Offer(made.words, made.folder, made.agent), 2.0, "you").id == made.id
    others = [
        exact("make test"),
        rule("make"),
        rule("make test x"),
        rule("make test", replace(HERE, agent="scout")),
        rule("make test", replace(HERE, folder="/x")),
        rule("make test", children=True),
    ]
    assert len({made.id, *(one.id for one in others)}) == 7


@pytest.mark.parametrize(
    "change",
    [
        {"words": ("make",)},
        {"words": ("make", "test; rm x")},
        {"paths": True},
        {"words": ()},
        {"folder": "/"},
        {"folder": "/\udcff"},
        {"agent": "scout"},
        {"children": True},
        {"id": "0" * 12},
    ],
)
def test_a_rule_that_was_changed_is_no_rule(change: dict[str, object]) -> None:
    assert is_sound(exact("make test"))
    assert not is_sound(replace(exact("make test"), **change))


# ---- any text --------------------------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        *("make", "test", " ", "  ", "\n", "\t", "\x00", ";", "&", "|", "$(", ")", "`", "'", '"', "\\", ">", "<"),
        *("<<E", "*", "?", "[", "{a,b}", "~", "#", "!", "=", "PATH=.", "./", "/", "..", "--", "-x", "\u00a0", "é"),
        *("%", "x/y", "\u3000"),
    ]
)
TEXTS = st.one_of(st.text(), st.lists(PIECES).map("".join), st.lists(PIECES).map(lambda more: f"cat {''.join(more)}"))
PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:,@%+=- ")


@given(TEXTS)
def test_whatever_a_rule_covers_is_made_of_plain_words(text: str) -> None:
    words, paths = rule_words(text)
    if words:
        assert set(text) <= PLAIN
        assert text == " ".join(text.split())
        assert tuple(text.split())[: len(words)] == words
        assert all("/" in word and word[0] not in "/-" for word in text.split()[len(words) :])
        assert paths or tuple(text.split()) == words
        assert is_sound(rule(" ".join(words), paths=paths))


@given(TEXTS, TEXTS)
def test_nothing_can_be_added_to_a_covered_command_but_files_to_a_reader(before: str, more: str) -> None:
    reader, other = rule("cat test"), exact("make test")
    for text in (before + "cat test", "cat test" + more, before + "cat test" + more, f"cat {more} test"):
        if covering([reader], HERE, text) is not None:
            assert text.startswith("cat test")
            assert all("/" in word for word in text.removeprefix("cat test").split())
    for text in (before + "make test", "make test" + more, before + "make test" + more, f"make {more} test"):
        assert covering([other], HERE, text) is None or text == "make test"


def test_a_shell_reads_the_same_words() -> None:
    """Bash itself, given every character of a simple command in every place, sees the words that are compared."""
    bash = shutil.which("bash")
    assert bash is not None
    shapes = [f"make {a}{b} x{a} {b}/y" for a in sorted(PLAIN - {" "}) for b in "_./:,@%+=-z0~"]
    commands = [one for one in shapes if words_of(one)]
    assert len(commands) > 600
    script = "\n".join(f"printf '%s\\0' {one}; echo" for one in commands)
    told = subprocess.run([bash, "-c", script], capture_output=True, check=True, text=True, cwd="/").stdout
    assert [tuple(line.split("\0")[:-1]) for line in told.splitlines()] == [words_of(one) for one in commands]
