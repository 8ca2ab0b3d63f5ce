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
    NO_RULES,
    NO_RULES_FOR,
    Asker,
    Offer,
    Permission,
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


def rule(words: str, asker: Asker = HERE, children: bool = False) -> Permission:
    """The rule of these words."""
    return permission(Offer(tuple(words.split()), asker.folder, asker.agent, children), 1.0, "me")


@proves("8.permissions.1", "A rule is for one simple command: its words up to the files at its end")
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("make test", "make test"),
        ("make", "make"),
        ("make -j4 test", "make -j4 test"),
        ("make test SHELL=x", "make test SHELL=x"),
        ("git status", "git status"),
        ("git log --oneline -5 src/a.py", "git log --oneline -5"),
        ("git -C sub status", "git -C sub status"),
        ("pytest tests/a.py", "pytest"),
        ("pytest -q tests/a.py::test_one tests/b.py::Two::test_three", "pytest -q"),
        ("pytest -q tests/a.py -x", "pytest -q tests/a.py -x"),
        ("go test ./...", "go test"),
        ("cat README.md", "cat README.md"),
        ("cat /etc/passwd", "cat /etc/passwd"),
        ("cat src/../../x", "cat src/../../x"),
        ("cat ../x", "cat ../x"),
        ("cat @x/y", "cat @x/y"),
        ("cat -/y", "cat -/y"),
        ("cat a=b/c", "cat a=b/c"),
        ("cat https://x.org/y", "cat https://x.org/y"),
        ("cat host:x/y", "cat host:x/y"),
        ("npm run build", "npm run build"),
    ],
)
def test_a_rule_has_the_words_of_a_command_up_to_the_files_at_its_end(command: str, words: str) -> None:
    assert rule_words(command) == tuple(words.split())
    assert covering([rule(words)], HERE, command) == rule(words)


SHELL = [
    *("make test; rm x", "make test;rm", "make;rm", "make test & rm x", "make test && rm x"),
    *("make test || rm x", "make test | sh", "make test |& sh", "make $(rm x)", "make `rm x`", "make $x"),
    *("make ${x}", "make $'x'", "make test > x", "make test >x", "make test 2>&1", "make test < x"),
    *("make <<x", "make <(rm x)", "make >(rm x)", "X=1 make test", "PATH=. make test"),
    *("PATH=.:$PATH make test", "make=1", "make+=1", "a[0]=1 make test", "make test\nrm x", "make test\n"),
    *("\nmake test", "make test\r", "make\ttest", "make test\x00", "\x00make test", "make\u00a0test"),
    *("make\u2003test", "make\u3000test", "make test\u2028rm", "make\u200btest", "m\u0430ke test"),
    *(" make test", "make test ", "make  test", "", " ", "-make", "--", "-- make test", "%1", "1make"),
    *("_make", "[ x", "time make test", "exec make test", "command make test", "eval make test"),
    *("env make test", "sudo make test", "source x", "builtin x", "nohup make", "coproc make", "if make"),
    *("function make", "while make", "bash -c x", "sh x/y", "BASH x", "bash5.2 x", "bash.exe -c x"),
    *("python -c x", "python3.11 -c x", "Python3 x/y", "git bisect run x/y", "npm exec x", "uv run x"),
    *("go run x/y", "curl x.org/y", "pip3 install x/y", "ssh x y"),
]


@proves("8.permissions.2", "No text with anything a shell would expand, join, quote or redirect is covered by a rule")
@proves("8.permissions.3", "Programs that run others, or whose harm is in their arguments, have no rules")
@pytest.mark.parametrize("command", SHELL)
def test_no_rule_is_made_of_anything_else_and_none_covers_it(command: str) -> None:
    assert rule_words(command) == ()
    assert offer(command, HERE) is None
    every = [rule("make"), rule("make test"), *(replace(rule("make"), words=tuple(command.split(" "))),)]
    assert covering(every, HERE, command) is None


@pytest.mark.parametrize("reason", NO_RULES)
def test_a_program_on_the_list_has_no_rules_under_any_of_its_names(reason: str) -> None:
    for name in NO_RULES[reason].split():
        for program in (name, name.upper(), f"{name}3", f"{name}-3.11", f"{name}.exe"):
            assert [rule_words(f"{program}{more}") for more in ("", " x", " -x", " x/y")] == [()] * 4


@pytest.mark.parametrize("program", NO_RULES_FOR)
def test_a_subcommand_on_the_list_has_no_rules_wherever_it_stands(program: str) -> None:
    for name in NO_RULES_FOR[program].split():
        assert rule_words(f"{program} {name}") == ()
        assert rule_words(f"{program} -x {name} y/z") == ()
    assert rule_words(f"{program} -x other") == (program, "-x", "other")


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_command_beyond_the_limits_has_no_rules(count: int) -> None:
    assert bool(rule_words("make " + "x" * (MOST_CHARS - 6 + count))) == (count < 2)
    assert bool(rule_words("make" + " x" * (MOST_WORDS - 2 + count))) == (count < 2)


def test_hostile_commands_of_any_size_are_judged_at_once() -> None:
    for text in (
        "make " + "a/" * 400,
        "make " + "../" * 300,
        "make" + " a/b" * 240,
        "x" * 10_000_000,
        "a " * 5_000_000,
    ):
        assert len(rule_words(text)) <= 1 or text.endswith("../")


@proves("8.permissions.4", "A rule holds in one folder and for one agent, and for its subagents only if ticked")
@pytest.mark.parametrize(
    ("made", "asker", "covers"),
    [
        (rule("make test"), HERE, True),
        (rule("make test"), CHILD, False),
        (rule("make test", children=True), CHILD, True),
        (rule("make test", children=True), HERE, True),
        (rule("make test"), replace(HERE, folder="/home/me/project/sub"), False),
        (rule("make test"), replace(HERE, folder="/home/me"), False),
        (rule("make test"), replace(HERE, agent="scout"), False),
        (rule("make"), HERE, False),
        (rule("make test x"), HERE, False),
    ],
)
def test_a_rule_covers_its_own_words_folder_and_agent(made: Permission, asker: Asker, covers: bool) -> None:
    assert covering([rule("ls"), made], asker, "make test") == (made if covers else None)


def test_the_rule_of_a_subagents_question_covers_subagents() -> None:
    offered = offer("make test", CHILD)
    assert offered == Offer(("make", "test"), HERE.folder, "main", children=True)
    assert offer("make test", HERE) == replace(offered, children=False)
    assert covering([permission(offered, 1.0, "me")], CHILD, "make test") is not None


@pytest.mark.parametrize("folder", ["/home/me/\udcff", "/home/me\nof you", "/home/\u202eme"])
def test_a_folder_that_cannot_be_shown_has_no_rules(folder: str) -> None:
    assert offer("make test", replace(HERE, folder=folder)) is None


def test_the_same_rule_has_the_same_id_and_any_other_another() -> None:
    made = rule("make test")
    assert permission(Offer(made.words, made.folder, made.agent), 2.0, "you").id == made.id
    others = [
        rule("make"),
        rule("make test x"),
        rule("make test", replace(HERE, agent="scout")),
        rule("make test", replace(HERE, folder="/x")),
        rule("make test", children=True),
    ]
    assert len({made.id, *(one.id for one in others)}) == 6


@pytest.mark.parametrize(
    "change",
    [
        {"words": ("make",)},
        {"words": ("make", "test; rm x")},
        {"words": ("bash",)},
        {"words": ()},
        {"folder": "/"},
        {"folder": "/\udcff"},
        {"agent": "scout"},
        {"children": True},
        {"id": "0" * 12},
    ],
)
def test_a_rule_that_was_changed_is_no_rule(change: dict[str, object]) -> None:
    assert is_sound(rule("make test"))
    assert not is_sound(replace(rule("make test"), **change))


# ---- any text --------------------------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        *("make", "test", " ", "  ", "\n", "\t", "\x00", ";", "&", "|", "$(", ")", "`", "'", '"', "\\", ">", "<"),
        *("<<E", "*", "?", "[", "{a,b}", "~", "#", "!", "=", "PATH=.", "./", "/", "..", "--", "-x", "\u00a0", "é"),
        *("%", "x/y", "\u3000"),
    ]
)
TEXTS = st.one_of(st.text(), st.lists(PIECES).map("".join), st.lists(PIECES).map(lambda more: f"make {''.join(more)}"))
PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:,@%+=- ")


@given(TEXTS)
def test_whatever_a_rule_covers_is_made_of_plain_words(text: str) -> None:
    words = rule_words(text)
    if words:
        assert set(text) <= PLAIN
        assert text == " ".join(text.split())
        assert tuple(text.split())[: len(words)] == words
        assert all("/" in word and word[0] not in "/-" for word in text.split()[len(words) :])
        assert is_sound(rule(" ".join(words)))


@given(TEXTS, TEXTS)
def test_nothing_can_be_added_to_a_covered_command_but_files(before: str, more: str) -> None:
    made = rule("make test")
    for text in (before + "make test", "make test" + more, before + "make test" + more, f"make {more} test"):
        if covering([made], HERE, text) is not None:
            assert text.startswith("make test")
            assert all("/" in word for word in text.removeprefix("make test").split())


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
