"""The engine on a fake home: what survives what, and what is left behind (nothing)."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from deerflow_boxlite.engine import Engine
from deerflow_boxlite.errors import (
    BoxBootError,
    BoxDiedError,
    CapacityError,
    ChannelLostError,
    ClosedError,
    HomeInUseError,
    HostError,
    ImageError,
)
from deerflow_boxlite.guest.channel import ChannelBroken
from deerflow_boxlite.identity import Identity, box_name
from deerflow_boxlite.runtime import BadImage, BoxGone, BoxSpec, HomeLocked, RuntimeFailure, Volume
from deerflow_boxlite.settings import NoHooks
from deerflow_boxlite.slots import State
from support.fake_runtime import FakeBox, FakeGuest, FakeHome, Gate, settings_on

Start = Callable[..., Engine]
A, B, C, D = (Identity("user", thread) for thread in "abcd")


@pytest.fixture
def home() -> FakeHome:
    return FakeHome()


@pytest.fixture
def start(home: FakeHome, tmp_path: Path) -> Iterator[Start]:
    """Starts engines on the fake home, closes them, and sees that nothing is left."""
    before = set(threading.enumerate())
    engines = []

    def make(**settings: Any) -> Engine:
        engines.append(Engine(tmp_path / "home", settings_on(home, **settings)))
        return engines[-1]

    yield make
    for gate in home.gates.values():
        gate.open()
    for engine in engines:
        engine.close()
    assert home.running == []
    assert home.open_guests == 0
    assert home.open_runtimes == 0
    assert set(threading.enumerate()) <= before


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as threads:
        yield threads


def write(engine: Engine, sandbox_id: str, text: bytes = b"x", path: str = "/f") -> None:
    engine.operate(sandbox_id, lambda guest: guest.write(path, text), uploads=True)  # type: ignore[attr-defined]


def read(engine: Engine, sandbox_id: str, path: str = "/f") -> bytes:
    return engine.operate(sandbox_id, lambda guest: guest.read(path))  # type: ignore[attr-defined,no-any-return]


def run(engine: Engine, sandbox_id: str, command: str) -> str:
    return engine.operate(sandbox_id, lambda guest: guest.run(command))  # type: ignore[attr-defined,no-any-return]


def running(threads: ThreadPoolExecutor, engine: Engine, sandbox_id: str, gate: Gate, command: str) -> Future[str]:
    """Start a command that takes until its gate is opened."""
    future = threads.submit(run, engine, sandbox_id, command)
    assert gate.reached.wait(20)
    return future


def eventually(condition: Callable[[], bool]) -> None:
    """Wait for what the engine does by itself, for as long as it takes; the test's own timeout ends it otherwise."""
    while not condition():
        time.sleep(0.001)


# Cases 26 and 27: the VM dies, the gateway dies


def test_case_26_the_vm_dies_during_a_command(home: FakeHome, start: Start, pool: ThreadPoolExecutor) -> None:
    engine = start()
    box = engine.acquire(A)
    write(engine, box)
    gate = home.gate("long")
    command = running(pool, engine, box, gate, "long")
    home.kill()
    gate.open()
    with pytest.raises(BoxDiedError, match="files are kept") as caught:
        command.result(20)
    assert isinstance(caught.value, OSError)
    assert box_name(box) in str(caught.value)
    assert home.count("long") == 1, "a command is never run twice"
    assert read(engine, box) == b"x"
    assert home.count("create") == 1
    assert engine.stats().counters.crashes == 1
    assert engine.stats().slots == {State.ACTIVE: 1}


def test_case_26_the_vm_dies_between_commands(home: FakeHome, start: Start) -> None:
    engine = start()
    box = engine.acquire(A)
    write(engine, box)
    home.kill()
    with pytest.raises(BoxDiedError):
        read(engine, box)
    assert read(engine, box) == b"x"


def test_case_26_the_vm_is_seen_to_die_between_commands(home: FakeHome, start: Start) -> None:
    engine = start(replicas=1)
    box = engine.acquire(A)
    write(engine, box)
    home.kill()

    async def seen() -> None:
        home.seen_gone[box_name(box)]()
        home.seen_gone[box_name(box)]()

    engine._loop.run(seen())
    eventually(lambda: engine.stats().slots == {State.STOPPED: 1})
    assert read(engine, box) == b"x", "nothing had been asked of the dead one, so that nobody need be told"
    assert home.count("create") == 1
    assert engine.stats().counters.crashes == 1


def test_case_26_the_vm_dies_while_warm(home: FakeHome, start: Start) -> None:
    engine = start()
    box = engine.acquire(A)
    write(engine, box)
    engine.release(box)
    home.kill()
    assert engine.acquire(A) == box
    assert read(engine, box) == b"x", "the check found it dead, and it was booted again"
    assert home.count("create") == 1
    assert engine.stats().counters.unhealthy == 1


def test_one_crash_under_many_operations_is_one_crash(home: FakeHome, start: Start, pool: ThreadPoolExecutor) -> None:
    engine = start()
    box = engine.acquire(A)
    gates = [home.gate(f"long{number}") for number in range(5)]
    commands = [running(pool, engine, box, gate, f"long{number}") for number, gate in enumerate(gates)]
    home.kill()
    for gate in gates:
        gate.open()
    for command in commands:
        with pytest.raises(BoxDiedError):
            command.result(20)
    run(engine, box, "after")
    assert engine.stats().counters.crashes == 1
    assert home.count("start") == 2
    assert engine.stats().in_flight == 0


def test_case_27_a_new_process_finds_the_box_by_its_name(home: FakeHome, start: Start) -> None:
    name = box_name(A.sandbox_id)
    home.boxes[name] = FakeBox(name, BoxSpec(image="older"), {"/f": b"from before"})
    engine = start(retain_days=0.0, retain_gb=0.0)
    assert read(engine, engine.acquire(A)) == b"from before"
    assert home.count("create") == 0
    assert home.count("list") == 0, "without a scan"


def test_a_vm_that_dies_at_every_boot_is_an_error_and_not_a_loop(home: FakeHome, start: Start) -> None:
    engine = start()
    box = engine.acquire(A)
    write(engine, box)
    home.kill()
    home.fail("start", *[BoxGone("killed")] * 2)
    with pytest.raises(BoxDiedError):
        read(engine, box)
    with pytest.raises(BoxBootError, match="2 times in a row") as caught:
        read(engine, box)
    assert isinstance(caught.value.__cause__, BoxGone)
    assert home.count("start") == 3
    assert read(engine, box) == b"x", "its disk was kept"


def test_a_channel_that_breaks_is_not_the_box(home: FakeHome, start: Start) -> None:
    engine = start()
    box = engine.acquire(A)
    home.fail("run", ChannelBroken("the shell ended", 137))
    with pytest.raises(ChannelLostError, match="the shell ended") as caught:
        run(engine, box, "run")
    assert isinstance(caught.value, OSError)
    assert run(engine, box, "run") == "run done"
    assert engine.stats().counters.crashes == 0


def test_a_channel_that_breaks_in_a_box_that_does_not_answer_is_a_crash(home: FakeHome, start: Start) -> None:
    engine = start()
    box = engine.acquire(A)
    home.fail("run", ChannelBroken("no answer"))
    home.fail("ping", ChannelBroken("no answer"))
    with pytest.raises(BoxDiedError):
        run(engine, box, "run")
    assert run(engine, box, "run") == "run done"
    assert engine.stats().counters.crashes == 1
    assert home.count("start") == 2


def test_a_vm_that_dies_once_at_its_boot_is_booted_again(home: FakeHome, start: Start) -> None:
    engine = start()
    home.fail("open", ExceptionGroup("two channels", [BoxGone("killed"), BoxGone("killed")]))
    assert run(engine, engine.acquire(A), "work") == "work done"
    assert home.count("start") == 2
    assert engine.stats().counters.boot_failures == 0


# Case 28 to 31: who may run


def test_case_28_ten_acquires_at_once(home: FakeHome, start: Start, pool: ThreadPoolExecutor) -> None:
    engine = start(replicas=3)

    def turn(number: int) -> bytes:
        box = engine.acquire(Identity("user", str(number)))
        write(engine, box, str(number).encode())
        text = read(engine, box)
        engine.release(box)
        return text

    assert sorted(pool.map(turn, range(10))) == [str(number).encode() for number in range(10)]
    assert home.most_running <= 3
    assert len(home.boxes) == 10


def test_case_28_those_that_find_no_place_are_told_which_setting(home: FakeHome, start: Start) -> None:
    engine = start(replicas=1, acquire_timeout=0.01)
    engine.acquire(A)
    with pytest.raises(CapacityError, match="`replicas`"):
        engine.acquire(B)
    assert list(home.boxes) == [box_name(A.sandbox_id)]


def test_an_operation_that_has_to_boot_waits_its_turn_too(start: Start) -> None:
    engine = start(replicas=1, acquire_timeout=0.01)
    first = engine.acquire(A)
    write(engine, first)
    second = engine.acquire(B)
    run(engine, second, "work")
    with pytest.raises(CapacityError):
        read(engine, first)
    engine.release(second)
    assert read(engine, first) == b"x"


def test_case_29_two_acquires_of_one_thread(home: FakeHome, start: Start, pool: ThreadPoolExecutor) -> None:
    engine = start()
    gate = home.gate("start")
    acquires = [pool.submit(engine.acquire, A) for _ in range(2)]
    assert gate.reached.wait(20)
    gate.open()
    assert {acquire.result(20) for acquire in acquires} == {A.sandbox_id}
    assert home.count("start") == 1


def test_case_29_an_acquire_while_the_box_is_being_stopped(
    home: FakeHome, start: Start, pool: ThreadPoolExecutor
) -> None:
    engine = start(replicas=1)
    first = engine.acquire(A)
    write(engine, first)
    engine.release(first)
    stopping = home.gate("stop")
    other = pool.submit(engine.acquire, B)
    assert stopping.reached.wait(20)
    again = pool.submit(engine.acquire, A)
    eventually(lambda: engine.stats().waiting == 2)
    stopping.open()
    engine.release(other.result(20))
    assert read(engine, again.result(20)) == b"x"
    assert home.most_running == 1


def test_case_30_a_release_does_not_disturb_the_parents_command(
    home: FakeHome, start: Start, pool: ThreadPoolExecutor
) -> None:
    engine = start(replicas=1)
    box = engine.acquire(A)
    gate = home.gate("long")
    command = running(pool, engine, box, gate, "long")
    assert engine.acquire(A) == box
    engine.release(box)
    assert run(engine, box, "short") == "short done"
    other = pool.submit(engine.acquire, B)
    eventually(lambda: engine.stats().waiting == 1)
    assert home.count("stop") == 0
    gate.open()
    assert command.result(20) == "long done"
    engine.release(other.result(20))
    assert run(engine, box, "later") == "later done"


def test_case_31_uploads_that_never_release(home: FakeHome, start: Start) -> None:
    engine = start(replicas=3)
    for number in range(3):
        write(engine, engine.acquire(Identity("uploader", str(number))))
    assert run(engine, engine.acquire(A), "turn") == "turn done"
    assert engine.stats().counters.evictions == 1
    assert home.most_running == 3


def test_case_31_a_box_that_nobody_uses_is_stopped_and_boots_for_its_handle(home: FakeHome, start: Start) -> None:
    engine = start(idle_timeout=0.02)
    box = engine.acquire(A)
    write(engine, box)
    eventually(lambda: engine.stats().slots == {State.STOPPED: 1})
    assert home.running == []
    assert read(engine, box) == b"x"
    assert engine.stats().counters.idle_stops == 1


def test_without_an_idle_timeout_there_is_no_timer(start: Start) -> None:
    engine = start(idle_timeout=0.0)
    box = engine.acquire(A)
    write(engine, box)
    assert engine._crew._timer is None
    engine.release(box)
    assert engine._crew._timer is None


# Cases 33 and 35: what cannot be


def test_case_33_a_home_that_another_runtime_took_meanwhile(home: FakeHome, start: Start) -> None:
    engine = start()
    home.open_runtimes = 1
    with pytest.raises(HomeInUseError, match="`home_dir`") as caught:
        engine.acquire(A)
    assert isinstance(caught.value.__cause__, HomeLocked)
    home.open_runtimes = 0
    assert engine.acquire(A)


@pytest.mark.parametrize(
    ("event", "fault", "error", "words"),
    [
        ("create", BadImage("no such image"), ImageError, "no such image.*image=fake"),
        ("create", RuntimeFailure("no space left on device"), BoxBootError, "no space left.*image=fake"),
        ("start", RuntimeFailure("memory_mib is too small"), BoxBootError, "too small.*image=fake"),
        ("find", RuntimeFailure("database is broken"), BoxBootError, "database is broken"),
        ("open", ImageError("the image has no sh"), ImageError, "no sh"),
        ("open", BoxBootError("no"), BoxBootError, "no"),
        ("open", OSError(28, "No space left on device"), BoxBootError, "No space left"),
        ("open", ValueError("a bug"), ValueError, "a bug"),
    ],
)
def test_case_35_no_half_made_box_stays(
    home: FakeHome, start: Start, event: str, fault: Exception, error: type[Exception], words: str
) -> None:
    engine = start()
    home.fail(event, fault)
    with pytest.raises(error, match=words) as caught:
        engine.acquire(A)
    assert fault in (caught.value, caught.value.__cause__)
    assert home.boxes == {}
    assert engine.acquire(A), "and the next one may go well"
    assert engine.stats().counters.boot_failures == 1


def test_case_35_a_failed_boot_keeps_the_disk_that_was_there(home: FakeHome, start: Start) -> None:
    engine = start(replicas=1)
    box = engine.acquire(A)
    write(engine, box)
    engine.release(box)
    engine.release(engine.acquire(B))
    for event in ("start", "open"):
        home.fail(event, RuntimeFailure("no"))
        with pytest.raises(BoxBootError):
            engine.acquire(A)
        assert box_name(box) not in home.running
    assert read(engine, box) == b"x"


def test_case_35_the_error_stays_when_undoing_fails_too(home: FakeHome, start: Start) -> None:
    engine = start()
    home.fail("start", RuntimeFailure("the first error"))
    home.fail("remove", RuntimeFailure("the second error"))
    with pytest.raises(BoxBootError, match="the first error"):
        engine.acquire(A)


def test_case_35_a_host_that_cannot_boot_is_told_at_once(home: FakeHome, start: Start) -> None:
    def check() -> None:
        raise HostError("no /dev/kvm")

    engine = start(check_host=check)
    with pytest.raises(HostError, match="no /dev/kvm"):
        engine.acquire(A)
    assert home.events == []


def test_case_35_a_boot_that_takes_too_long(home: FakeHome, start: Start) -> None:
    engine = start(boot_timeout=0.01)
    home.gate("start")
    with pytest.raises(BoxBootError, match="`boot_timeout`"):
        engine.acquire(A)
    assert home.boxes == {}


def test_case_35_a_box_that_is_still_being_made_at_the_deadline_is_removed_when_it_is(
    home: FakeHome, start: Start
) -> None:
    made: list[str] = []

    async def slowly(event: str, name: str) -> None:
        if event == "create":
            await asyncio.sleep(0.05)  # On the same clock as the deadline, and after it.
            made.append(name)

    home.before = slowly
    engine = start(boot_timeout=0.01)
    with pytest.raises(BoxBootError, match="`boot_timeout`"):
        engine.acquire(A)
    assert made == [box_name(A.sandbox_id)]
    assert home.boxes == {}
    assert home.events[-2:] == [("create", box_name(A.sandbox_id)), ("remove", box_name(A.sandbox_id))]


def test_case_35_a_home_that_cannot_be_opened(start: Start) -> None:
    def open_runtime(_path: Path) -> Any:
        raise RuntimeFailure("no space left on device")

    with pytest.raises(BoxBootError, match=r"`home_dir`.*no space"):
        start(open_runtime=open_runtime).acquire(A)


def test_without_boxlite_acquire_says_so(home: FakeHome, start: Start) -> None:
    def open_runtime(_path: Path) -> Any:
        raise ImportError('pip install "deerflow-boxlite[boxlite]"')

    with pytest.raises(ImportError, match="deerflow-boxlite"):
        start(open_runtime=open_runtime).acquire(A)


# Cases 34 and 36: loops and cancelling


def test_case_34_acquire_async_does_not_block_the_callers_loop(home: FakeHome, start: Start) -> None:
    engine = start()
    gate = home.gate("start")

    async def caller() -> str:
        acquire = asyncio.create_task(engine.acquire_async(A))
        assert await asyncio.to_thread(gate.reached.wait, 20), "this loop turns while the box boots"
        gate.open()
        return await acquire

    assert asyncio.run(caller()) == A.sandbox_id


def test_case_36_acquire_is_cancelled_in_mid_boot_and_tried_again(home: FakeHome, start: Start) -> None:
    engine = start(replicas=1)
    gate = home.gate("start")

    async def caller() -> None:
        acquire = asyncio.create_task(engine.acquire_async(A))
        assert await asyncio.to_thread(gate.reached.wait, 20)
        acquire.cancel()
        with pytest.raises(asyncio.CancelledError):
            await acquire
        again = asyncio.create_task(engine.acquire_async(A))
        await asyncio.sleep(0.001)
        gate.open()
        assert await again == A.sandbox_id

    asyncio.run(caller())
    assert home.count("start") == 1
    assert len(home.boxes) == 1
    assert engine.stats().slots == {State.ACTIVE: 1}


def test_case_36_a_cancelled_acquire_leaves_a_warm_box_that_can_make_room(home: FakeHome, start: Start) -> None:
    engine = start(replicas=1)
    gate = home.gate("start")

    async def caller() -> None:
        acquire = asyncio.create_task(engine.acquire_async(A))
        assert await asyncio.to_thread(gate.reached.wait, 20)
        acquire.cancel()
        await asyncio.gather(acquire, return_exceptions=True)

    asyncio.run(caller())
    eventually(lambda: engine.stats().waiting == 0)
    gate.open()
    eventually(lambda: engine.stats().slots == {State.WARM: 1})
    assert engine.acquire(B) == B.sandbox_id


# Persistence


def test_an_evicted_box_keeps_its_files(home: FakeHome, start: Start) -> None:
    engine = start(replicas=1)
    for identity in (A, B, C):
        box = engine.acquire(identity)
        write(engine, box, identity.thread_id.encode())
        engine.release(box)
    for identity in (A, B, C):
        box = engine.acquire(identity)
        assert read(engine, box) == identity.thread_id.encode()
        engine.release(box)
    assert home.count("create") == 3
    assert home.count("remove") == 0


def test_without_persist_a_stopped_box_is_deleted(home: FakeHome, start: Start) -> None:
    engine = start(replicas=1, persist=False)
    box = engine.acquire(A)
    write(engine, box)
    engine.release(box)
    engine.release(engine.acquire(B))
    assert list(home.boxes) == [box_name(B.sandbox_id)]
    with pytest.raises(FileNotFoundError):
        read(engine, box)
    engine.close()
    assert home.boxes == {}


def test_old_boxes_are_removed_when_a_box_stops_but_never_one_in_use(
    home: FakeHome, start: Start, tmp_path: Path
) -> None:
    engine = start(replicas=2, retain_days=0.0, retain_gb=1e-9)
    first, second = engine.acquire(A), engine.acquire(B)
    for box in (first, second):
        home.boxes[box_name(box)].size = 10
        run(engine, box, "work")
    engine.release(first)
    third = engine.acquire(C)
    eventually(lambda: box_name(first) not in home.boxes)
    assert set(home.running) == {box_name(second), box_name(third)}
    assert not list((tmp_path / "home").rglob(box_name(first)))


def test_a_box_that_is_acquired_while_it_is_removed_is_made_anew(
    home: FakeHome, start: Start, pool: ThreadPoolExecutor
) -> None:
    name = box_name(A.sandbox_id)
    home.boxes[name] = FakeBox(name, BoxSpec(image="fake"), {"/f": b"old"}, size=10)
    engine = start(retain_days=0.0, retain_gb=1e-9)
    removing = home.gate("remove")
    engine.acquire(B)
    assert removing.reached.wait(20)
    acquire = pool.submit(engine.acquire, A)
    eventually(lambda: engine.stats().slots.get(State.BOOTING) == 1)
    removing.open()
    run(engine, acquire.result(20), "work")
    assert home.boxes[name].files == {}


def test_a_box_made_from_other_settings_keeps_its_disk_and_it_is_said(
    home: FakeHome, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    first = start(fingerprint="image=old")
    box = first.acquire(A)
    write(first, box)
    first.close()
    second = start(fingerprint="image=new")
    assert read(second, second.acquire(A)) == b"x"
    assert "image=old" in caplog.text
    assert "image=new" in caplog.text


# Hooks


class Hooks(NoHooks):
    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Any]] = []
        self.gate = Gate()
        self.gate.open()
        self.errors: dict[str, Exception] = {}

    async def on_boot(self, guest: Any, identity: Identity, fresh: bool) -> None:
        assert isinstance(guest, FakeGuest)
        self.calls.append(("boot", identity.thread_id, fresh))
        await self._go("boot")

    async def on_acquire(self, guest: Any, identity: Identity) -> None:
        self.calls.append(("acquire", identity.thread_id, await guest.run("hook")))

    def volumes(self, identity: Identity) -> tuple[Volume, ...]:
        return (Volume(Path("/host") / identity.thread_id, "/guest"),)

    async def on_release(self, guest: Any, identity: Identity) -> None:
        self.calls.append(("release", identity.thread_id, await guest.run("hook")))
        await self._go("release")

    async def _go(self, what: str) -> None:
        await self.gate.passing()
        if what in self.errors:
            raise self.errors[what]


def test_hooks_see_every_boot_and_release(home: FakeHome, start: Start) -> None:
    hooks = Hooks()
    engine = start(hooks=hooks)
    box = engine.acquire(A)
    engine.release(box)
    home.kill()
    engine.acquire(A)
    assert hooks.calls == [
        ("boot", "a", True),
        ("acquire", "a", "hook done"),
        ("release", "a", "hook done"),
        ("boot", "a", False),
        ("acquire", "a", "hook done"),
    ]
    assert home.boxes[box_name(box)].spec.volumes == (Volume(Path("/host/a"), "/guest"),)


def test_an_acquire_cancelled_in_its_hook_gives_back_what_it_took_and_no_more(home: FakeHome, start: Start) -> None:
    engine = start(hooks=Hooks())

    async def cancelled() -> None:
        gate = home.gates["hook"] = Gate()
        acquire = asyncio.create_task(engine.acquire_async(A))
        assert await asyncio.to_thread(gate.reached.wait, 20)
        acquire.cancel()
        await asyncio.gather(acquire, return_exceptions=True)
        gate.open()

    asyncio.run(cancelled())
    eventually(lambda: engine.stats().slots == {State.WARM: 1})
    engine.acquire(A)
    asyncio.run(cancelled())
    eventually(lambda: engine.stats().in_flight == 0)
    assert engine.stats().slots == {State.ACTIVE: 1}, "the other one still holds it"


def test_a_boot_whose_hook_fails_is_undone(home: FakeHome, start: Start) -> None:
    hooks = Hooks()
    hooks.errors["boot"] = PermissionError("no")
    engine = start(hooks=hooks)
    with pytest.raises(PermissionError):
        engine.acquire(A)
    assert home.boxes == {}
    assert home.open_guests == 0


def test_a_release_hook_is_in_flight_and_its_error_is_told(
    home: FakeHome, start: Start, pool: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    hooks = Hooks()
    engine = start(replicas=1, hooks=hooks)
    box = engine.acquire(A)
    hooks.gate = Gate()
    hooks.errors["release"] = ValueError("the hook's own trouble")
    release = pool.submit(engine.release, box)
    assert hooks.gate.reached.wait(20)
    assert engine.stats().slots == {State.WARM: 1}
    assert engine.acquire(A) == box, "the next turn does not wait for it"
    engine.reset()
    other = pool.submit(engine.acquire, B)
    eventually(lambda: engine.stats().waiting == 1)
    assert home.count("stop") == 0
    hooks.gate.open()
    release.result(20)
    assert "the hook's own trouble" in caplog.text
    assert other.result(20) == B.sandbox_id


# Case 37: the end


def test_case_37_shutdown_with_a_command_running(home: FakeHome, start: Start, pool: ThreadPoolExecutor) -> None:
    engine = start()
    box = engine.acquire(A)
    write(engine, box)
    command = running(pool, engine, box, home.gate("long"), "long")
    engine.close(2.0)
    with pytest.raises(ClosedError):
        command.result(20)
    assert home.running == []
    assert home.boxes[box_name(box)].files == {"/f": b"x"}
    engine.close()
    for call in (lambda: engine.acquire(A), lambda: read(engine, box), lambda: engine.release(box)):
        with pytest.raises(ClosedError):
            call()


def test_case_37_shutdown_while_a_box_boots_and_others_wait(
    home: FakeHome, start: Start, pool: ThreadPoolExecutor
) -> None:
    engine = start(replicas=1)
    gate = home.gate("start")
    acquires = [pool.submit(engine.acquire, identity) for identity in (A, B)]
    assert gate.reached.wait(20)
    eventually(lambda: engine.stats().waiting == 2)
    engine.close(2.0)
    for acquire in acquires:
        with pytest.raises(ClosedError):
            acquire.result(20)
    assert home.boxes == {}


def test_case_37_shutdown_is_bounded_by_boxes_that_do_not_stop(home: FakeHome, start: Start) -> None:
    engine = start()
    engine.acquire(A)
    home.gate("stop")
    engine.close(0.5)
    assert home.running == []
    assert home.open_runtimes == 0


# Streams


def test_a_stream_is_one_operation(home: FakeHome, start: Start) -> None:
    engine = start()
    box = engine.acquire(A)
    pieces = engine.stream(box, lambda guest: guest.stream(200))  # type: ignore[attr-defined]
    assert next(pieces) == 0
    assert engine.stats().in_flight == 1
    assert list(pieces) == list(range(1, 200))
    assert engine.stats().in_flight == 0


def test_a_stream_that_is_closed_early_ends_its_operation(start: Start) -> None:
    engine = start()
    box = engine.acquire(A)
    pieces = engine.stream(box, lambda guest: guest.stream(10**9))  # type: ignore[attr-defined]
    assert next(pieces) == 0
    pieces.close()  # type: ignore[attr-defined]
    eventually(lambda: engine.stats().in_flight == 0)


def test_a_stream_tells_that_its_box_died(home: FakeHome, start: Start) -> None:
    engine = start()
    box = engine.acquire(A)
    gate = home.gate("piece")
    pieces = engine.stream(box, lambda guest: guest.stream(3))  # type: ignore[attr-defined]
    threading.Thread(target=lambda: (gate.reached.wait(20), home.kill(), gate.open())).start()
    with pytest.raises(BoxDiedError):
        list(pieces)


# Logs and counts


def test_every_transition_is_logged_without_what_is_secret(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    engine = start()
    box = engine.acquire(Identity("secret user", "secret thread"))
    write(engine, box, b"secret content", "/secret path")
    run(engine, box, "secret command")
    engine.release(box)
    engine.close()
    events = [(record.event, record.box) for record in caplog.records if hasattr(record, "event")]  # type: ignore[attr-defined]
    assert [event for event, name in events if name == box_name(box)] == [
        "box.booting",
        "box.warm",
        "box.active",
        "box.warm",
        "box.stopping",
        "box.stopped",
    ]
    everything = caplog.text + "".join(str(vars(record)) for record in caplog.records)
    assert "secret" not in everything
    assert box in everything


def test_stats_count_and_time(start: Start) -> None:
    engine = start(replicas=2)
    box = engine.acquire(A)
    engine.release(box)
    engine.acquire(A)
    stats = engine.stats()
    assert (stats.replicas, stats.running, stats.in_flight, stats.waiting) == (2, 1, 0, 0)
    assert (stats.counters.boots, stats.counters.warm_hits) == (1, 1)
    assert (stats.boot_seconds.count, stats.acquire_seconds.count) == (1, 2)
    assert 0 < stats.boot_seconds.mean <= stats.boot_seconds.longest
