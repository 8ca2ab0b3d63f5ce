"""Attachments: strict names, strict contents, a code for each refusal, and a receipt."""

import base64
import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fledge.core.attachments import (
    Attachment,
    AttachmentLimits,
    File,
    FileEntry,
    Receipt,
    SpawnFile,
    check_files,
    decode_file,
    file_type,
    images_among,
    numbered,
    read_attachments,
    receipts,
    size_words,
    with_content,
)
from fledge.core.images import MAX_IMAGES
from fledge.errors import BadInput, Refused
from tests import images
from tests.statements import proves

SMALL = AttachmentLimits(max_files=3, max_file_bytes=6, max_total_bytes=10)


def refusal(*given: Attachment, limits: AttachmentLimits = SMALL) -> str:
    with pytest.raises(Refused) as refused:
        read_attachments(given, limits)
    assert refused.value.status == "error"
    return refused.value.reason


def packed(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_texts_and_base64_are_taken_as_they_are() -> None:
    given = [Attachment(" a.txt ", "grün"), Attachment("b", packed(b"\x00\xff"), "base64"), Attachment("c", "")]
    assert read_attachments(given, SMALL) == (File("a.txt", "grün".encode()), File("b", b"\x00\xff"), File("c", b""))


def test_space_in_base64_is_forgiven() -> None:
    assert read_attachments([Attachment("b", "QU JD\nRA =\t=", "base64")], SMALL) == (File("b", b"ABCD"),)


@proves("3.files.2", "50 files, 1 MiB each, 5 MiB in total")
def test_what_is_exactly_at_a_limit_passes() -> None:
    given = [Attachment("a", "x" * 6), Attachment("b", packed(b"y" * 4), "base64"), Attachment("c", "")]
    assert [len(file.data) for file in read_attachments(given, SMALL)] == [6, 4, 0]
    assert read_attachments([Attachment("a", packed(b"z" * 6), "base64")], SMALL) == (File("a", b"z" * 6),)


def test_too_many_files_are_refused_with_their_number_and_the_setting() -> None:
    assert refusal(*[Attachment(f"{n}", "") for n in range(4)]) == (
        "attachments_file_count_exceeded: 4 of 3 files: tools.sessions_spawn.attachments.maxFiles"
    )


@proves("3.files.3", "Names and base64 are strict, each refusal with its code")
@pytest.mark.parametrize(
    "name",
    [
        *("", "  ", ".", "..", ".manifest.json", "a/b", "/a", "a\\b", "a\x00", "a\nb", "a\tb", "a\x7f", "\u202e"),
        *("\ud800", "x" * 256, "ü" * 128),
    ],
)
def test_a_name_that_is_not_plain_is_refused(name: str) -> None:
    assert refusal(Attachment(name, "")).startswith("attachments_invalid_name: ")


@pytest.mark.parametrize("name", ["a", ".hidden", "a b.txt", "ä", "x" * 255, "...", ".manifest.json.txt"])
def test_a_plain_name_is_taken(name: str) -> None:
    assert read_attachments([Attachment(name, "")], SMALL)[0].name == name


def test_a_name_that_is_there_twice_is_refused() -> None:
    assert refusal(Attachment("a", ""), Attachment(" a", "")) == "attachments_duplicate_name: 'a' is there twice"


@proves("3.files.3")
@pytest.mark.parametrize(
    "content", ["", "A", "AB=", "AB=C", "====", "A===", "QUJ$", "QUJDé===", "A" * 25, "\u0661" * 4]
)
def test_what_is_not_base64_is_refused(content: str) -> None:
    words = "attachments_invalid_base64_or_too_large: 'a' must be base64 of at most 6 bytes: "
    assert refusal(Attachment("a", content, "base64")).startswith(words)


def test_text_that_is_not_unicode_is_refused() -> None:
    assert refusal(Attachment("a", "\ud800")).startswith("attachments_invalid_base64_or_too_large: 'a' must be utf8")


@pytest.mark.parametrize("given", [Attachment("a", "x" * 7), Attachment("a", packed(b"x" * 7), "base64")])
def test_a_file_that_is_too_large_is_refused(given: Attachment) -> None:
    assert refusal(given) == (
        "attachments_file_bytes_exceeded: 'a' has 7 of 6 bytes: tools.sessions_spawn.attachments.maxFileBytes"
    )


def test_files_that_are_too_large_together_are_refused() -> None:
    assert refusal(Attachment("a", "x" * 6), Attachment("b", "y" * 5)) == (
        "attachments_total_bytes_exceeded: 11 of 10 bytes: tools.sessions_spawn.attachments.maxTotalBytes"
    )


@proves("3.files.5", "The receipt has sha256 sums")
def test_a_receipt_has_name_size_and_digest() -> None:
    assert receipts([File("a", b"xyz")]) == (Receipt("a", 3, hashlib.sha256(b"xyz").hexdigest()),)


@given(st.text(max_size=40), st.text(max_size=80))
def test_whatever_is_given_is_taken_or_refused_with_a_code(name: str, content: str) -> None:
    for encoding in ("utf8", "base64"):
        try:
            found = [read_attachments([Attachment(name, content, encoding)], SMALL)[0].name]
            reason = ""
        except Refused as refused:
            found, reason = [], refused.reason
        assert found == [name.strip()] or re.match(r"attachments_[a-z0-9_]+: ", reason)


# ---- images ----------------------------------------------------------------------------------------------------------


def test_images_are_found_among_files_by_their_bytes_and_the_first_fit() -> None:
    cat, notes, cut = File("cat", images.png(640, 480)), File("a.png", b"words"), File("cut.png", images.png()[:40])
    assert [entry.words for _, entry in images_among([notes, cat, cut])] == ["[image cat, 640×480 PNG]"]
    many = [File(f"{at}.png", images.png(at + 1)) for at in range(MAX_IMAGES + 2)]
    assert [entry.name for _, entry in images_among(many)] == [f"{at}.png" for at in range(MAX_IMAGES)]
    assert images_among([]) == ()


# ---- files of messages -----------------------------------------------------------------------------------------------


def test_a_file_is_named_with_its_size_in_one_line() -> None:
    entry = FileEntry("report-2.csv", 12_345, "ab" * 32, "text/csv", "report.csv")
    assert entry.words == "[file report-2.csv, 12 KB]"
    assert entry.identity == ("report.csv", "ab" * 32)
    assert FileEntry("a", 1, "ab" * 32, "text/plain").identity == ("a", "ab" * 32)


@pytest.mark.parametrize(
    ("size", "words"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 KB"), (999_499, "999 KB"), (999_500, "1.0 MB"), (5_242_880, "5.2 MB")],
)
def test_a_size_is_told_in_few_signs(size: int, words: str) -> None:
    assert size_words(size) == words


def test_a_name_cannot_leave_the_brackets_of_its_line() -> None:
    assert check_files([File(" a[1].txt ", b"x")], SMALL) == (File("a(1).txt", b"x"),)


@pytest.mark.parametrize("number", [1, 2, 10, 12345])
@pytest.mark.parametrize("name", ["a", "a.txt", ".hidden", "a.tar.gz", "ü" * 127, "x" * 251 + ".csv", "a." + "b" * 200])
def test_a_numbered_name_is_a_plain_name_with_its_ending(name: str, number: int) -> None:
    found = numbered(name, number)
    assert check_files([File(found, b"x")], SMALL) == (File(found, b"x"),)
    assert (found == name) == (number == 1)


def test_the_number_stands_before_the_ending() -> None:
    assert [numbered("a.csv", 2), numbered("a.tar.gz", 3), numbered("README", 2), numbered(".env", 2)] == [
        *("a-2.csv", "a.tar-3.gz", "README-2", ".env-2"),
    ]


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("a.CSV", b"a,b", "text/csv"),
        ("a.pdf", b"%PDF", "application/pdf"),
        ("notes", b"words", "text/plain"),
        ("a.log", "grün".encode(), "text/plain"),
        ("blob", b"\xff", "application/octet-stream"),
        ("blob", b"a\0b", "application/octet-stream"),
    ],
)
def test_a_media_type_is_told_by_the_name_else_by_the_bytes(name: str, data: bytes, kind: str) -> None:
    assert file_type(name, data) == kind


@given(st.text(max_size=40), st.text(max_size=80))
def test_whatever_comes_with_a_message_is_taken_or_refused_by_its_field(name: str, content: str) -> None:
    for encoding in ("utf8", "base64"):
        try:
            found = check_files([decode_file(Attachment(name, content, encoding), SMALL, "attachments[0]")], SMALL)
            outcome = found[0].name
        except BadInput as refused:
            outcome = refused.field
        plain = name.strip().replace("[", "(").replace("]", ")")
        assert outcome in (plain, "attachments[0]", "attachments[0].name", "attachments[0].content")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ([File("a", b"x")] * 4, "attachments: must be at most 3 files (tools.sessions_spawn.attachments.maxFiles)"),
        ([File("a", b"x"), File("a/b", b"x")], "attachments[1].name: must be a plain file name of at most 255 bytes"),
        ([File("a", b"")], "attachments[0].content: must not be empty"),
        ([File("a", b"x" * 7)], "attachments[0]: must have at most 6 bytes (tools.sessions_spawn.attachments"),
        ([File("a", b"x" * 6), File("b", b"x" * 5)], "attachments: must have at most 10 bytes together (tools."),
    ],
)
def test_files_of_a_message_that_break_a_rule_are_refused_by_their_field(files: list[File], words: str) -> None:
    with pytest.raises(BadInput) as refused:
        check_files(files, SMALL)
    assert str(refused.value).startswith(words)


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (Attachment("a", "x" * 100), "attachments[0]: must have at most 6 bytes"),
        (Attachment("a", "A" * 100, "base64"), "attachments[0]: must have at most 6 bytes"),
        (Attachment("a", "A$==", "base64"), "attachments[0].content: must be base64"),
        (Attachment("a", "\ud800"), "attachments[0].content: must be utf8"),
    ],
)
def test_a_content_that_cannot_be_read_is_refused_by_its_field(one: Attachment, words: str) -> None:
    with pytest.raises(BadInput) as refused:
        decode_file(one, SMALL, "attachments[0]")
    assert str(refused.value).startswith(words)


def test_a_content_is_decoded_as_it_says() -> None:
    assert decode_file(Attachment("a", "grün"), SMALL, "x") == File("a", "grün".encode())
    assert decode_file(Attachment("a", packed(b"\xff"), "base64"), SMALL, "x") == File("a", b"\xff")
    assert decode_file(Attachment("a", "", "base64"), SMALL, "x") == File("a", b"")


# ---- files of spawns on the wire -------------------------------------------------------------------------------------


def test_a_file_of_a_spawn_needs_its_content_and_has_no_path() -> None:
    assert with_content(SpawnFile("a", "x", "base64"), "f") == Attachment("a", "x", "base64")
    with pytest.raises(BadInput, match=r"f\.path: may be given by a model alone: give the content"):
        with_content(SpawnFile("a", path="/etc/passwd"), "f")
    with pytest.raises(BadInput, match=r"f\.content: must be given"):
        with_content(SpawnFile("a"), "f")


def test_images_among_files_have_their_bytes() -> None:
    cat, notes = File("cat", images.png(640, 480)), File("a.png", b"words")
    assert [(image.name, image.data) for image, _ in images_among([notes, cat])] == [("cat", cat.data)]
