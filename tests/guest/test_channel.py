"""A channel in real shells: dash, bash and busybox."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deerflow_boxlite.errors import ImageError
from deerflow_boxlite.guest import Guest
from deerflow_boxlite.guest.channel import Channel, ChannelBroken, Shell
from deerflow_boxlite.guest.leases import Leases
from deerflow_boxlite.runtime import BoxGone, NoSuchProgram
from support.guests import SHELLS, Bench, settings_for, with_guest
from support.local_runtime import LocalBox, LocalRuntime

pytestmark = pytest.mark.parametrize("shell", SHELLS)

LIBRARY = r"""
echo_words() { reply "$#"; for dfb_x in "$@"; do part "$dfb_x"; done; }
last_words() { reply bye; dfb_send; printf 'half'; exit 7; }
stray() { printf 'stray %s' "$1" >&4; reply ok; }
garbage() { printf '%sE\n' "$dfb_nonce"; }
slow() { sleep 5; reply late; }
whoami_() { reply "$$"; }
"""


def with_channel(
    root: Path,
    shell: str,
    test: Callable[[Channel, LocalBox], Awaitable[None]],
    prepare: Callable[[LocalBox], None] | None = None,
    *options: str,
) -> None:
    async def run() -> None:
        runtime = LocalRuntime(root / "runtime", shell, shared=True)
        try:
            async with asyncio.timeout(60):
                box = await runtime.box()
                if prepare is not None:
                    prepare(box)
                channel = await Channel.open(box, Shell(("sh", *options), LIBRARY, {}), timeout=30)
                await test(channel, box)
                await channel.close()
        finally:
            await runtime.close()

    asyncio.run(run())


def test_words_arrive_byte_for_byte(tmp_path: Path, shell: str) -> None:
    """Every byte but NUL, in and out, as far as it is UTF-8."""

    async def test(channel: Channel, box: LocalBox) -> None:
        @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
        @given(st.lists(st.binary(max_size=200).map(lambda raw: raw.replace(b"\0", b"")), max_size=4))
        def check(words: list[bytes]) -> None:
            found.append(words)

        found: list[list[bytes]] = [[bytes(range(1, 256)) * 3], [b"", b"\n", b"'\"$x`\\"]]
        check()
        for words in found:
            reply = await channel.request(["echo_words", *words])
            assert reply.words == (str(len(words)),)
            assert reply.parts == tuple(word.decode("utf-8", "replace") for word in words)

    with_channel(tmp_path, shell, test)


def test_one_round_trip_per_request(tmp_path: Path, shell: str) -> None:
    async def test(channel: Channel, box: LocalBox) -> None:
        before = len(box.runtime.calls)
        for _ in range(3):
            await channel.request(["dfb_ping"])
        assert [call[0] for call in box.runtime.calls[before:]] == ["write"] * 3

    with_channel(tmp_path, shell, test)


def test_what_a_stranger_prints_before_a_reply_is_skipped(tmp_path: Path, shell: str) -> None:
    async def test(channel: Channel, box: LocalBox) -> None:
        assert (await channel.request(["stray", "text"])).words == ("ok",)
        assert (await channel.request(["dfb_ping"])).words == ("pong",)

    with_channel(tmp_path, shell, test)


def test_a_reply_out_of_order_breaks_the_channel(tmp_path: Path, shell: str) -> None:
    async def test(channel: Channel, box: LocalBox) -> None:
        with pytest.raises(ChannelBroken, match="unexpected mark"):
            await channel.request(["garbage"])
        assert not channel.alive
        with pytest.raises(ChannelBroken):
            await channel.request(["dfb_ping"])

    with_channel(tmp_path, shell, test)


def test_the_end_of_the_shell_is_told_with_its_exit_code(tmp_path: Path, shell: str) -> None:
    async def test(channel: Channel, box: LocalBox) -> None:
        with pytest.raises(ChannelBroken) as caught:
            await channel.request(["last_words"])
        assert caught.value.exit_code == 7

    with_channel(tmp_path, shell, test)


def test_a_shell_killed_while_idle_is_known_to_be_dead(tmp_path: Path, shell: str) -> None:
    async def test(channel: Channel, box: LocalBox) -> None:
        pid = int((await channel.request(["whoami_"])).words[0])
        os.kill(pid, signal.SIGKILL)
        while channel.alive:
            await asyncio.sleep(0.01)
        with pytest.raises(ChannelBroken) as caught:
            await channel.request(["dfb_ping"])
        assert caught.value.exit_code == -signal.SIGKILL

    with_channel(tmp_path, shell, test)


def test_no_reply_in_time_breaks_the_channel(tmp_path: Path, shell: str) -> None:
    async def test(channel: Channel, box: LocalBox) -> None:
        with pytest.raises(ChannelBroken, match=r"within 0\.05 s"):
            await channel.request(["slow"], timeout=0.05)
        assert not channel.alive

    with_channel(tmp_path, shell, test)


def test_case_26_a_box_that_dies_is_told_apart_from_a_shell_that_ends(tmp_path: Path, shell: str) -> None:
    async def test(channel: Channel, box: LocalBox) -> None:
        asking = asyncio.create_task(channel.request(["slow"]))
        await asyncio.sleep(0.05)
        box.die()
        with pytest.raises(BoxGone):
            await asking
        assert not channel.alive

    with_channel(tmp_path, shell, test)


def test_a_profile_that_reads_and_prints_does_no_harm(tmp_path: Path, shell: str) -> None:
    def prepare(box: LocalBox) -> None:
        text = "read dfb_nothing; cat; echo noise; echo noise >&2; set -u; IFS=:; alias cat=false; PROFILE=read\n"
        (box.home / ".profile").write_text(text)

    async def test(channel: Channel, box: LocalBox) -> None:
        assert (await channel.request(["echo_words", "a b"])).parts == ("a b",)

    with_channel(tmp_path, shell, test, prepare, "-l")


def test_nothing_is_left_when_a_shell_does_not_open(tmp_path: Path, shell: str) -> None:
    async def run() -> None:
        runtime = LocalRuntime(tmp_path / "runtime", shell, shared=True)
        box = await runtime.box()
        try:
            with pytest.raises(ChannelBroken) as caught:
                await Channel.open(box, Shell(("nosuchshell",), "", {}), timeout=30)
            assert caught.value.exit_code == 127
            with pytest.raises(ChannelBroken, match="within"):
                await Channel.open(box, Shell(("sh", "-c", "exec sleep 1000"), "", {}), timeout=0.2)
            while box.processes():
                await asyncio.sleep(0.01)
        finally:
            await runtime.close()

    asyncio.run(run())


def test_an_image_without_sh_is_refused_with_its_name(tmp_path: Path, shell: str) -> None:
    async def run() -> None:
        runtime = LocalRuntime(tmp_path / "runtime", shell, without=("sh",))
        box = await runtime.box()
        with pytest.raises(ImageError, match=r"test-image has no /bin/sh") as caught:
            await Guest.open(box, settings_for(runtime, tmp_path))
        assert isinstance(caught.value.__cause__, NoSuchProgram)

    asyncio.run(run())


def test_a_failure_on_the_way_leaves_nothing_open(tmp_path: Path, shell: str) -> None:
    async def run() -> None:
        runtime = LocalRuntime(tmp_path / "runtime", shell, shared=True)
        box = await runtime.box()
        (tmp_path / "mnt").write_text("in the way")
        try:
            with pytest.raises(Exception, match="its directories could not be made"):
                await Guest.open(box, settings_for(runtime, tmp_path))
            while box.processes():
                await asyncio.sleep(0.01)
        finally:
            await runtime.close()

    asyncio.run(run())


def test_opening_takes_two_programs_and_a_ping_needs_one_round_trip(tmp_path: Path, shell: str) -> None:
    async def test(bench: Bench) -> None:
        assert bench.calls().count("exec") == 2
        assert len(bench.calls()) == 6
        assert bench.state.is_dir()
        assert (tmp_path / "mnt/workspace").is_dir()
        # The shell of the first command opens by itself.
        assert (await bench.guest.run("true")).exit_code == 0
        assert bench.calls().count("exec") == 3
        before = len(bench.calls())
        await bench.guest.ping(10)
        await bench.guest.call(("dfb_ping",), 10)
        assert bench.calls(before) == ["write", "write"]

    with_guest(tmp_path, shell, test)


def test_channels_are_opened_up_to_the_bound_and_then_waited_for(tmp_path: Path, shell: str) -> None:
    async def run() -> None:
        runtime = LocalRuntime(tmp_path / "runtime", shell, shared=True)
        box = await runtime.box()
        leases = Leases(lambda: Channel.open(box, Shell(("sh",), LIBRARY, {}), timeout=30), 2)

        async def use() -> str:
            async with leases.lease() as channel:
                return (await channel.request(["whoami_"])).words[0]

        try:
            pids = await asyncio.gather(*(use() for _ in range(6)))
            assert len(set(pids)) == 2
            assert runtime.count("exec") == 2
            os.kill(int(await use()), signal.SIGKILL)
            await asyncio.sleep(0.1)
            assert await use() in pids
            await leases.close()
            while box.processes():
                await asyncio.sleep(0.01)
        finally:
            await runtime.close()

    asyncio.run(run())
