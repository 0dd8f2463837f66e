"""Leases of channels, without channels."""

from __future__ import annotations

import asyncio

import pytest

from deerflow_boxlite.guest.leases import Leases


class Opened:
    """What a lease is of, without a box."""

    alive = True
    closed = False

    async def close(self) -> None:
        self.closed = True


def test_a_channel_opened_in_the_background_is_taken_over_once() -> None:
    async def run() -> None:
        opened: list[Opened] = []
        go = asyncio.Event()

        async def open_one() -> Opened:
            opened.append(Opened())
            found = opened[-1]
            await go.wait()
            return found

        leases = Leases(open_one, 2)
        leases.prepare()

        async def use() -> Opened:
            async with leases.lease() as channel:
                return channel

        first = asyncio.create_task(use())
        await asyncio.sleep(0)
        go.set()
        assert await first is opened[0]
        assert await use() is opened[0]
        assert len(opened) == 1

    asyncio.run(run())


def test_a_channel_that_did_not_open_in_the_background_is_opened_anew() -> None:
    async def run() -> None:
        tries = iter((RuntimeError("once"), None))

        async def open_one() -> Opened:
            if error := next(tries):
                raise error
            return Opened()

        leases = Leases(open_one, 2)
        leases.prepare()
        async with leases.lease() as channel:
            assert channel.alive

    asyncio.run(run())


@pytest.mark.parametrize("already_open", [True, False])
def test_leases_that_are_closed_leave_no_channel_that_was_opening(already_open: bool) -> None:
    async def run() -> None:
        found, cancelled = Opened(), False

        async def open_one() -> Opened:
            nonlocal cancelled
            try:
                await asyncio.sleep(0 if already_open else 3600)
            except asyncio.CancelledError:
                cancelled = True
                raise
            return found

        leases = Leases(open_one, 2)
        leases.prepare()
        for _ in range(3):
            await asyncio.sleep(0)
        await leases.close()
        assert (found.closed, cancelled) == (already_open, not already_open)

    asyncio.run(run())
