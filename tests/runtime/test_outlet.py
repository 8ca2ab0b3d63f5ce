"""What goes out of the outbox, and the channels that the settings name."""

import asyncio
import re
from pathlib import Path

import msgspec
import pytest

from fledge.config import check, parse
from fledge.core.route import ChannelMessage
from fledge.errors import BadInput, NotArrived
from fledge.runtime.outlet import Outlet, channels_of
from fledge.runtime.profiles import ConfiguredProfiles, rules_of
from fledge.store.base import OutboxPost
from tests.channels.receiver import SECRET, Receiver
from tests.test_config_keys import refusal


class Wall:
    """A channel that remembers, and may refuse."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.closed = False

    async def send(self, message: ChannelMessage) -> None:
        if message.text == "no":
            raise OSError("the wall is full")
        self.seen.append(message.text)

    async def close(self) -> None:
        self.closed = True


def post(text: str = "hi", channel: str = "wall") -> OutboxPost:
    message = ChannelMessage(id="m", channel=channel, to="u", about="reply", session_key="s", text=text, posted_at=0.0)
    return OutboxPost("m", "message", None, msgspec.json.encode(message).decode(), 0, 0.0, channel)


def test_a_message_goes_to_its_channel_and_what_that_raises_is_passed_on() -> None:
    async def main() -> None:
        wall = Wall()
        outlet = Outlet({"wall": wall})
        await outlet.call(post())
        with pytest.raises(OSError, match="the wall is full"):
            await outlet.call(post("no"))
        with pytest.raises(NotArrived, match=r"^no channel door is configured$"):
            await outlet.call(post(channel="door"))
        await outlet.close()
        assert (wall.seen, wall.closed) == (["hi"], True)

    asyncio.run(main())


def test_words_for_a_terminal_where_nobody_sits_stay_in_the_transcript() -> None:
    asyncio.run(Outlet({}).call(post(channel="terminal")))


def test_what_nobody_can_send_is_not_lost_in_silence() -> None:
    with pytest.raises(NotArrived, match=r"^nothing can send smoke$"):
        asyncio.run(Outlet({}).call(OutboxPost("x", "smoke", None, "{}", 0, 0.0)))


# ---- from settings ---------------------------------------------------------------------------------------------------

CHANNEL = {"kind": "webhook", "url": "https://example.org/in", "secretEnv": "OPS_SECRET"}


def test_a_configured_channel_posts_signed_messages_with_the_secret_from_the_environment_or_a_private_file(
    tmp_path: Path,
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET + "\n")
    secret.chmod(0o600)

    async def main() -> None:
        async with Receiver() as receiver:
            named = {
                "one": {**CHANNEL, "url": receiver.url},
                "two": {"kind": "webhook", "url": receiver.url, "secretFile": str(secret)},
            }
            outlet = Outlet(channels_of(check({"channels": named}).config, {"OPS_SECRET": SECRET}))
            for name in named:
                await outlet.call(post(channel=name))
            await outlet.close()
            assert (receiver.ids, receiver.complaints) == (["m", "m"], [])

    asyncio.run(main())


def test_a_secret_that_is_missing_weak_or_open_to_others_is_refused_by_its_setting_and_not_shown(
    tmp_path: Path,
) -> None:
    config = check({"channels": {"ops": CHANNEL}}).config
    assert refusal(channels_of, config, {}) == "channels.ops.secretEnv: the variable OPS_SECRET is not set"
    assert refusal(channels_of, config, {"OPS_SECRET": "short"}) == "secret: must have at least 16 bytes"
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o644)
    in_file = {"kind": "webhook", "url": "https://example.org/in", "secretFile": str(secret)}
    said = refusal(channels_of, check({"channels": {"ops": in_file}}).config, {})
    assert said == f"channels.ops.secretFile: must be readable by its owner only: chmod 600 {secret} (got '644')"


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"channels": {"Ops": CHANNEL}}, "channels.Ops: must be 1 to 64 lower-case letters, digits, '-' or '_'"),
        ({"channels": {"terminal": CHANNEL}}, "channels.terminal: is built in and needs no settings"),
        ({"channels": {"ops": {**CHANNEL, "secretFile": "x"}}}, "channels.ops: must have a secretEnv or a secretFile"),
        ({"channels": {"ops": {"kind": "webhook", "url": "https://x.org"}}}, "channels.ops: must have a secretEnv or"),
        (
            {"channels": {"ops": {"url": "https://x.org", "secretEnv": "S"}}},
            'channels.ops.kind: is required: "webhook"',
        ),
        (
            {"channels": {"ops": {**CHANNEL, "url": "http://example.org/in"}}},
            "channels.ops.url: must be an address that",
        ),
        ({"channels": {"ops": {**CHANNEL, "url": "ftp://example.org"}}}, "channels.ops.url: must be an address that"),
        ({"channels": {"ops": {**CHANNEL, "url": "https://"}}}, "channels.ops.url: must be an address that"),
        ({"channels": {"ops": {**CHANNEL, "url": "https://[::1"}}}, "channels.ops.url: must be an address that"),
        ({"channels": {"ops": {**CHANNEL, "url": "https://a b/"}}}, "channels.ops.url: must be an address that"),
        (
            {"channels": {"ops": {**CHANNEL, "timeoutSeconds": 0}}},
            "channels.ops.timeoutSeconds: must be a number above 0",
        ),
        ({"channels": {"ops": {**CHANNEL, "tiemout": 1}}}, "channels.ops.tiemout: unknown key"),
        ({"hooks": {"audit": {"url": "https://x.org"}}}, "hooks.audit: must have a secretEnv or a secretFile"),
        (
            {"hooks": {"audit": {"url": "https://x.org", "secretEnv": "S", "on": ["subagent_spwaned"]}}},
            "hooks.audit.on.0: must be one of subagent_spawning, subagent_spawned, subagent_delivery_target",
        ),
    ],
)
def test_bad_settings_of_channels_and_hooks_are_refused_by_name(document: object, said: str) -> None:
    assert refusal(check, document).startswith(said)


def test_an_address_with_a_password_is_refused_and_not_shown() -> None:
    said = refusal(check, {"channels": {"ops": {**CHANNEL, "url": "https://ann:hunter2@example.org/in"}}})
    assert said.startswith("channels.ops.url: must be")
    assert "hunter2" not in said


def test_channels_and_hooks_of_openclaw_are_read_over_with_a_warning_and_ours_apply() -> None:
    loaded = check({"channels": {"telegram": {"botToken": "x"}, "ops": CHANNEL}, "hooks": {"enabled": True}})
    assert list(loaded.config.channels) == ["ops"]
    assert loaded.warnings == (
        "channels.telegram: ignored, a key of OpenClaw that fledge does not use",
        "hooks.enabled: ignored, a key of OpenClaw that fledge does not use",
    )


def test_the_settings_in_the_documentation_are_right() -> None:
    page = (Path(__file__).parents[2] / "docs" / "channels.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```json5\n(.*?)```", page, re.DOTALL)
    config = parse(example).config
    assert (list(config.channels), list(config.hooks)) == (["ops"], ["audit"])


def test_announce_settings_reach_the_commits() -> None:
    rules = rules_of(
        check({"announce": {"deliver": "send", "maxRetries": 5}, "undelivered": {"retentionDays": 2}}).config
    )
    assert (rules.deliver, rules.max_retries, rules.undelivered_s) == ("send", 5, 2 * 86400.0)


def test_no_command_sees_the_secret_of_a_webhook_whatever_it_is_called(tmp_path: Path) -> None:
    config = check({"channels": {"ops": {**CHANNEL, "secretEnv": "HARMLESS"}}}).config
    env = {"HOME": str(tmp_path), "HARMLESS": SECRET, "PATH": "/bin"}
    profiles = ConfiguredProfiles(config, workspace=tmp_path, state=tmp_path / "state", env=env)
    assert "HARMLESS" not in profiles._env
    assert profiles._env["PATH"] == "/bin"


def test_a_channel_without_its_secret_keeps_the_program_from_starting(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="OPS_SECRET is not set"):
        ConfiguredProfiles(
            check({"channels": {"ops": CHANNEL}}).config,
            workspace=tmp_path,
            state=tmp_path / "state",
            env={"HOME": "/x"},
        )
