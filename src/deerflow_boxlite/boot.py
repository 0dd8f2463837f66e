"""Booting, checking and stopping one box: all the I/O that the pool's work asks for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from .errors import BoxBootError, BoxError, HomeInUseError, ImageError
from .guest.channel import ChannelBroken
from .identity import box_name
from .loop import finish
from .marks import Marks
from .runtime import BadImage, BoxGone, BoxHandle, BoxSpec, HomeLocked, Runtime, RuntimeFault

if TYPE_CHECKING:
    from .guest import Guest

logger = logging.getLogger(__name__)

BOOT_ATTEMPTS = 2
"""How often a boot is tried when its VM dies on the way. A VM that dies each time is an error, not a loop."""

HALT_TIMEOUT = 30.0
"""Seconds for stopping or undoing one box."""

CLOSE_TIMEOUT = 3.0
"""Seconds for closing a guest's channels: they go with the VM anyway."""

PING_TIMEOUT = 5.0
"""Seconds within which a box has to answer a health check."""


class GuestLike(Protocol):
    """What is asked of a guest here. `Guest` has it; so have the fakes of the tests."""

    async def ping(self, timeout: float) -> None:
        """Return when the guest has answered exactly right; raise otherwise."""

    async def close(self) -> None:
        """Let go of the channels."""


@dataclass(frozen=True, eq=False)
class RunningBox:
    """A box that runs. BoxLite stops a box whose last handle is dropped, so this is kept for as long as it runs."""

    handle: BoxHandle
    guest: Guest


@dataclass(frozen=True)
class Recipe:
    """How boxes are made and opened: the settings in the runtime's terms.

    `spec` and `open_guest` are functions, so that what they need is looked at when a box is needed and not before.
    """

    spec: Callable[[], BoxSpec]
    open_guest: Callable[[BoxHandle], Awaitable[Guest]]
    fingerprint: str
    boot_timeout: float
    """Seconds."""
    persist: bool


OnBoot = Callable[["Guest", bool], Awaitable[None]]
"""Called with the guest, and whether its disk is new, before anyone else uses the box."""


async def boot(runtime: Runtime, marks: Marks, sandbox_id: str, recipe: Recipe, on_boot: OnBoot) -> RunningBox:
    """Boot a sandbox's box from the disk it has, or make it when it has none.

    A failure half-way leaves nothing that runs; a box made just now is removed, a disk that was there before is kept.
    Raises `BoxBootError`, `ImageError`, `HomeInUseError`, or what the guest or a hook raised; the runtime's own error
    is its cause. Cancelling undoes likewise.
    """
    name = box_name(sandbox_id)
    attempt = 1
    while True:
        try:
            return await _boot_once(runtime, marks, name, recipe, on_boot)
        except (BoxGone, ChannelBroken) as error:
            if attempt == BOOT_ATTEMPTS:
                raise BoxBootError(
                    f"the box {name} died while booting, {attempt} times in a row ({error}; settings: "
                    f"{recipe.fingerprint}); see BoxLite's logs in its home, and deerflow-boxlite doctor --boot"
                ) from error
            logger.warning("box %s: died while booting, trying again: %s", name, error, extra=_extra("boot.died", name))
            attempt += 1


async def _boot_once(runtime: Runtime, marks: Marks, name: str, recipe: Recipe, on_boot: OnBoot) -> RunningBox:
    with _told(name, recipe):
        handle = await runtime.find(name)
    fresh = handle is None
    making: asyncio.Future[BoxHandle] | None = None
    try:
        with _told(name, recipe):
            async with asyncio.timeout(recipe.boot_timeout):
                if handle is None:
                    # Not to be cut short: what is to be removed after a failure has to be there in whole.
                    making = asyncio.ensure_future(runtime.create(name, recipe.spec()))
                    handle = await asyncio.shield(making)
                    marks.made(name, recipe.fingerprint)
                await handle.start()
                guest = await _opened(recipe, handle)
        try:
            await on_boot(guest, fresh)
            _note(marks, name, recipe)
        except BaseException:
            await _close_guest(guest, name)
            raise
    except BaseException:
        await finish(_undo(runtime, marks, name, handle, making))
        raise
    return RunningBox(handle, guest)


async def _opened(recipe: Recipe, handle: BoxHandle) -> Guest:
    try:
        return await recipe.open_guest(handle)
    except ExceptionGroup as group:
        # Several channels are opened at once, and what fails one fails the others: one of them tells it all.
        raise group.exceptions[0] from group


@contextmanager
def _told(name: str, recipe: Recipe) -> Iterator[None]:
    """Turn what the runtime raises into the package's errors, with the settings that matter. `BoxGone` passes."""
    made_from = f"settings: {recipe.fingerprint}"
    try:
        yield
    except (BoxGone, BoxError):
        raise
    except HomeLocked as error:
        raise HomeInUseError(str(error)) from error
    except BadImage as error:
        raise ImageError(f"the image of the box {name} cannot be had: {error} ({made_from})") from error
    except TimeoutError as error:
        raise BoxBootError(
            f"the box {name} did not boot within {recipe.boot_timeout:g} s. If this host is slow, or the image large, "
            "raise `boot_timeout` in the sandbox settings"
        ) from error
    except (RuntimeFault, OSError) as error:
        raise BoxBootError(f"the box {name} could not be booted: {error} ({made_from})") from error


async def _undo(
    runtime: Runtime, marks: Marks, name: str, handle: BoxHandle | None, making: asyncio.Future[BoxHandle] | None
) -> None:
    """Leave nothing half-made. What fails here is logged: the error that led here is the one to raise."""
    try:
        async with asyncio.timeout(HALT_TIMEOUT):
            if making is not None:
                await asyncio.wait([making])
                if not making.cancelled():
                    making.exception()  # Known already, unless the wait for it was given up.
                await runtime.remove(name)
                marks.forget(name)
            elif handle is not None:
                await handle.stop()
    except (RuntimeFault, OSError) as error:
        logger.error("box %s: a failed boot could not be undone: %s", name, error, extra=_extra("boot.undo", name))


async def halt(runtime: Runtime, marks: Marks, sandbox_id: str, box: RunningBox | None, *, persist: bool) -> None:
    """Stop a box, whatever runs in it; without `persist` delete it too. Blocks no longer than some `HALT_TIMEOUT`.

    Never raises: what cannot be stopped is logged, and its handle dropped, which makes BoxLite end it.
    """
    name = box_name(sandbox_id)
    if box is not None:
        await _close_guest(box.guest, name)
    try:
        async with asyncio.timeout(HALT_TIMEOUT):
            if box is not None:
                await _stop(box.handle)
            if persist:
                marks.used(name)
            else:
                await runtime.remove(name)
                marks.forget(name)
    except (RuntimeFault, OSError) as error:
        logger.error("box %s: could not be stopped: %r", name, error, extra=_extra("stop.failed", name))


async def _stop(handle: BoxHandle) -> None:
    try:
        await handle.stop()
    except BoxGone as error:
        # It has stopped by itself, which is what was wanted.
        logger.debug("box %s: was gone before it was stopped: %s", handle.name, error)


async def answers(guest: GuestLike, name: str) -> bool:
    """Whether a box passes its health check: one round trip over a channel, within `PING_TIMEOUT`."""
    try:
        async with asyncio.timeout(PING_TIMEOUT + 1):
            await guest.ping(PING_TIMEOUT)
    except (RuntimeFault, ChannelBroken, BoxError, OSError) as error:
        logger.warning("box %s: does not answer: %r", name, error, extra=_extra("check.failed", name))
        return False
    return True


async def _close_guest(guest: GuestLike, name: str) -> None:
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT):
            await guest.close()
    except (RuntimeFault, ChannelBroken, BoxError, OSError) as error:
        logger.warning("box %s: its channels did not close: %r", name, error, extra=_extra("close.failed", name))


def _note(marks: Marks, name: str, recipe: Recipe) -> None:
    """Note the use of a box, and say so when it was made from other settings: those cannot be changed later."""
    made_from = marks.fingerprint(name)
    if made_from is not None and made_from != recipe.fingerprint:
        logger.warning(
            "box %s: keeps the disk it has, made from other settings (%s) than those of now (%s)",
            name,
            made_from,
            recipe.fingerprint,
            extra=_extra("boot.other_settings", name),
        )
    marks.used(name)


def _extra(event: str, name: str) -> dict[str, str]:
    return {"event": event, "box": name}
