"""`GET /artifacts/<run>/<name>`: files that runs handed over, for download alone, and nothing else of the disk."""

import http.client
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from fledge.models.base import Request
from fledge.models.scripted import Answer, last_text
from fledge.testing import ScriptedModel, use
from tests.gateway.serving import OverHttp, Server, serving
from tests.runtime.desk import said
from tests.statements import proves


async def hands_over(request: Request) -> Answer:
    """Writes two files into its folder of artifacts, then says so."""
    if said(request):
        return "done"
    assert "Hand over" in last_text(request)
    return use("write", path="artifacts/report.html", content="<script>alert(1)</script>")


class Handed:
    """A gateway, a run that has handed over a file, and the folder it lies in."""

    def __init__(self, server: Server, run: str, key: str, folder: Path) -> None:
        self.server, self.run, self.key, self.folder = server, run, key, folder

    def get(self, run: str, name: str, token: str | None = None) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of a request for this file."""
        shown = self.server.token if token is None else token
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=20)
        try:
            connection.request("GET", f"/artifacts/{quote(run)}/{name}", headers={"authorization": f"Bearer {shown}"})
            answer = connection.getresponse()
            return answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def handed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Handed]:
    with serving(tmp_path_factory.mktemp("artifacts") / "state", ScriptedModel(hands_over)) as server:
        ask = OverHttp(server)
        run = ask.call("runs.spawn", task="Hand over", program="tester", workspace="dir")
        assert ask.call("runs.result", run=run["runId"], timeoutMs=30_000)["status"] == "ok"
        told = ask.call("runs.info", target=run["runId"])
        assert [one["name"] for one in told["artifacts"]] == ["report.html"]
        yield Handed(server, run["runId"], run["childSessionKey"], Path(told["workspace"]["folder"]) / "artifacts")


@proves("8.gateway.19", "Artifacts are downloads: token needed, never shown by the browser, no way out of their folder")
def test_a_file_is_a_download_for_whoever_has_the_token(handed: Handed) -> None:
    for run in (handed.run, handed.key):
        status, headers, body = handed.get(run, "report.html")
        assert (status, body) == (200, b"<script>alert(1)</script>")
        assert headers["content-disposition"] == "attachment; filename*=UTF-8''report.html"
        assert headers["content-type"] == "application/octet-stream"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert handed.get(handed.run, "report.html", "wrong" * 10)[0] == 401


def test_a_file_in_a_folder_has_its_last_name(handed: Handed) -> None:
    (handed.folder / "deep").mkdir()
    (handed.folder / "deep" / 'a "b" ü.txt').write_text("deep")
    status, headers, body = handed.get(handed.run, quote('deep/a "b" ü.txt'))
    assert (status, body) == (200, b"deep")
    assert headers["content-disposition"] == "attachment; filename*=UTF-8''a%20%22b%22%20%C3%BC.txt"


@pytest.mark.parametrize(
    "name",
    [
        *("../secret", "%2e%2e/secret", "..%2fsecret", "deep/../../secret", "/etc/passwd", "%2fetc%2fpasswd"),
        *(".", "", "report.html/", "report.html/x", "nothing", "a%00b", "link", "way/secret", "folder", "pipe"),
    ],
)
def test_no_name_leads_out_of_the_folder_or_through_a_link(handed: Handed, name: str) -> None:
    secret = handed.folder.parent / "secret"
    secret.write_text("private")
    if not (handed.folder / "link").is_symlink():
        (handed.folder / "link").symlink_to(secret)
        (handed.folder / "way").symlink_to(handed.folder.parent)
        (handed.folder / "folder").mkdir()
        os.mkfifo(handed.folder / "pipe")
    status, _, body = handed.get(handed.run, name)
    assert status == 404
    assert b"private" not in body


def test_a_folder_of_artifacts_that_became_a_link_is_not_followed(handed: Handed, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("private")
    kept = handed.folder.rename(handed.folder.with_name("kept"))
    handed.folder.symlink_to(tmp_path)
    try:
        status, _, body = handed.get(handed.run, "report.html")
        assert (status, b"private" in body) == (404, False)
    finally:
        handed.folder.unlink()
        kept.rename(handed.folder)


def test_a_run_that_handed_nothing_over_has_no_files(handed: Handed) -> None:
    for run in ("nobody", "agent:main:main", "../state"):
        assert handed.get(run, "gateway.token")[0] == 404
