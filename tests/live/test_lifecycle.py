"""What survives what, on real VMs. After each test no VM and no temporary file is left that was not there before."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deerflow_boxlite import (
    BoxBootError,
    BoxDiedError,
    BoxError,
    BoxliteBox,
    BoxliteProvider,
    CapacityError,
    ClosedError,
    HomeInUseError,
    HostError,
    ImageError,
    images,
)
from deerflow_boxlite.slots import State

from .conftest import config_for, kill_all, shims, vms_of

Make = Callable[..., BoxliteProvider]
KillVms = Callable[[], None]

SOAK_TURNS = int(os.environ.get("SOAK_TURNS", "12"))
SOAK_KILL_EVERY = int(os.environ.get("SOAK_KILL_EVERY", "5"))
"""`make soak` asks for more."""

WAIT = 120
"""Seconds after which a test gives up; nothing is measured with it."""


@pytest.fixture(scope="module")
def layout() -> Path:
    """The smaller image alone: what a VM's life is like does not hang on what is in its disk, but for the time."""
    return images.cached("busybox")


@pytest.fixture(scope="module")
def own_home(layout: Path) -> Iterator[Path]:
    """A home that no other module's provider has."""
    with tempfile.TemporaryDirectory(prefix="home-lifecycle-") as folder:
        yield Path(folder)


@pytest.fixture
def make(layout: Path, own_home: Path) -> Iterator[Make]:
    """Makes providers, and sees to what is left of them."""
    processes, temporary, threads = set(shims()), temporary_files(), set(threading.enumerate())
    made: list[BoxliteProvider] = []

    def build(**settings: Any) -> BoxliteProvider:
        made.append(BoxliteProvider(config=config_for(layout, own_home, **({"memory_mib": 256} | settings))))
        return made[-1]

    yield build
    for provider in made:
        provider.shutdown()
    eventually(lambda: set(shims()) <= processes)
    eventually(lambda: set(threading.enumerate()) <= threads)
    assert temporary_files() <= temporary
    assert list((own_home / "tmp").iterdir()) == []


@pytest.fixture
def kill_vms(own_home: Path) -> KillVms:
    return lambda: kill_all(vms_of(own_home))


def vms() -> set[int]:
    """The processes that have a virtual machine open, by KVM's name for it; a box may have others beside it."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # It has ended, or is somebody else's.
            if any(str(link.readlink()) == "anon_inode:kvm-vm" for link in (process / "fd").iterdir()):
                found.add(int(process.name))
    return found


def temporary_files() -> set[str]:
    return {path.name for path in Path(tempfile.gettempdir()).iterdir() if not path.name.startswith("pytest-of-")}


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.05)


def acquired(provider: BoxliteProvider, thread: str, user: str = "user") -> BoxliteBox:
    box = provider.get(provider.acquire(thread, user_id=user))
    assert box is not None
    return box


def started(threads: ThreadPoolExecutor, box: BoxliteBox, command: str) -> Future[Any]:
    """Start a command, and return when it runs in the box."""
    future = threads.submit(box.run, f"touch /tmp/started; {command}")
    eventually(lambda: box.run("test -e /tmp/started").exit_code == 0)
    box.run("rm -f /tmp/started")
    return future


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as pool:
        yield pool


# Deaths


def test_case_26_the_vm_is_killed_during_a_command(make: Make, kill_vms: KillVms, threads: ThreadPoolExecutor) -> None:
    box = acquired(make(), "thread-26")
    box.write_file("/mnt/user-data/workspace/f", "kept")
    command = started(threads, box, "sleep 100; echo survived")
    kill_vms()
    with pytest.raises(BoxDiedError, match="files are kept"):
        command.result(WAIT)
    assert box.read_file("/mnt/user-data/workspace/f") == "kept"
    assert box.execute_command("echo OK") == "OK\n"


def test_case_26_the_vm_is_killed_between_commands(make: Make, kill_vms: KillVms) -> None:
    provider = make()
    box = acquired(provider, "thread-26")
    box.write_file("/mnt/user-data/workspace/f", "kept")
    kill_vms()
    eventually(lambda: provider.stats().counters.crashes == 1)
    assert box.read_file("/mnt/user-data/workspace/f") == "kept"
    provider.release(box.id)
    kill_vms()
    assert acquired(provider, "thread-26").read_file("/mnt/user-data/workspace/f") == "kept"


GATEWAY = """
import sys, threading
from pathlib import Path
from deerflow_boxlite import BoxliteConfig, BoxliteProvider
provider = BoxliteProvider(config=BoxliteConfig(
    image=sys.argv[1], home_dir=Path(sys.argv[2]), memory_mib=256, idle_timeout=0))
box = provider.get(provider.acquire("thread", user_id=sys.argv[3]))
box.write_file("/mnt/user-data/workspace/f", "kept")
print("ready", flush=True)
exec(sys.argv[4])
"""


@contextmanager
def gateway(layout: Path, home: Path, user: str, then: str) -> Iterator[subprocess.Popen[str]]:
    """A process with a box that runs, which then does as told."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(
        [sys.executable, "-c", GATEWAY, str(layout), str(home), user, then],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=env,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("then", ["signal.pause()", "box.run('sleep 1000')"])
def test_case_27_the_gateway_is_killed(make: Make, layout: Path, own_home: Path, then: str) -> None:
    before, vms_before = set(shims()), vms()
    with gateway(layout, own_home, "user-27", f"import signal; {then}") as process:
        assert len(vms() - vms_before) == 1
        process.send_signal(signal.SIGKILL)
    eventually(lambda: set(shims()) <= before)
    box = acquired(make(), "thread", "user-27")
    assert box.read_file("/mnt/user-data/workspace/f") == "kept"


# Who may run


def test_case_28_ten_acquires_at_once(make: Make, threads: ThreadPoolExecutor) -> None:
    provider = make(replicas=3, acquire_timeout=600)
    before, most, over = vms(), 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not over.wait(0.2):
            most = max(most, len(vms() - before))

    def turn(number: int) -> str:
        box = acquired(provider, f"thread-28-{number}")
        box.write_file("/mnt/user-data/workspace/f", str(number))
        text = box.read_file("/mnt/user-data/workspace/f")
        provider.release(box.id)
        return text

    watcher = threads.submit(watch)
    try:
        assert list(threads.map(turn, range(10))) == [str(number) for number in range(10)]
    finally:
        over.set()
        watcher.result(WAIT)
    assert 0 < most <= 3
    assert provider.stats().counters.evictions == 7


def test_case_28_there_is_no_place(make: Make) -> None:
    provider = make(replicas=1, acquire_timeout=0.5)
    acquired(provider, "thread-28-0").run("true")
    with pytest.raises(CapacityError, match="`replicas`"):
        provider.acquire("thread-28-1", user_id="user")


def test_case_29_one_thread_acquired_twice_and_while_it_stops(make: Make, threads: ThreadPoolExecutor) -> None:
    provider = make(replicas=1, acquire_timeout=600)
    first, second = threads.map(lambda _: acquired(provider, "thread-29"), range(2))
    assert first.id == second.id
    assert provider.stats().counters.boots == 1
    first.write_file("/mnt/user-data/workspace/f", "kept")
    provider.release(first.id)
    other = threads.submit(acquired, provider, "thread-29-other")
    eventually(lambda: provider.stats().counters.evictions == 1)
    again = threads.submit(acquired, provider, "thread-29")
    provider.release(other.result(WAIT).id)
    assert again.result(WAIT).read_file("/mnt/user-data/workspace/f") == "kept"


def test_case_30_a_release_during_the_parents_command(make: Make, threads: ThreadPoolExecutor) -> None:
    provider = make(replicas=1, acquire_timeout=600)
    box = acquired(provider, "thread-30")
    command = started(threads, box, "sleep 3; echo undisturbed")
    provider.release(provider.acquire("thread-30", user_id="user"))
    other = threads.submit(acquired, provider, "thread-30-other")
    assert box.execute_command("echo OK") == "OK\n"
    assert command.result(WAIT).stdout == "undisturbed\n"
    provider.release(other.result(WAIT).id)
    assert box.execute_command("echo OK") == "OK\n"


def test_case_31_uploads_that_never_release(make: Make) -> None:
    provider = make(replicas=3)
    before = vms()
    for number in range(3):
        acquired(provider, "thread-31", f"user-{number}").update_file("/mnt/user-data/uploads/f", b"%d" % number)
    turn = acquired(provider, "thread-31", "user-3")
    assert turn.execute_command("echo OK") == "OK\n"
    assert len(vms() - before) == 3
    for number in range(3):
        box = acquired(provider, "thread-31", f"user-{number}")
        assert box.read_file("/mnt/user-data/uploads/f") == str(number)
        provider.release(box.id)


def test_case_31_a_box_that_nobody_uses_is_stopped(make: Make) -> None:
    before = set(shims())
    provider = make(idle_timeout=1)
    box = acquired(provider, "thread-31-idle")
    box.update_file("/mnt/user-data/uploads/f", b"kept")
    eventually(lambda: provider.stats().running == 0)
    eventually(lambda: set(shims()) <= before)
    assert box.read_file("/mnt/user-data/uploads/f") == "kept"


def test_case_32_users_do_not_share_boxes(make: Make) -> None:
    provider = make()
    first, second = acquired(provider, "c", "a:b"), acquired(provider, "b:c", "a")
    assert first.id != second.id
    first.write_file("/mnt/user-data/workspace/f", "first")
    with pytest.raises(FileNotFoundError):
        second.read_file("/mnt/user-data/workspace/f")


# What cannot be


def test_case_33_a_second_process_opens_the_home(make: Make, layout: Path, own_home: Path) -> None:
    with gateway(layout, own_home, "user-33", "sys.stdin.read()") as process:
        with pytest.raises(HomeInUseError, match="`home_dir`") as caught:
            make()
        assert f"process {process.pid} (" in str(caught.value)
        assert str(own_home) in str(caught.value)
    assert acquired(make(), "thread", "user-33").read_file("/mnt/user-data/workspace/f") == "kept"


def test_case_34_in_a_running_loop_and_from_eight_threads(make: Make) -> None:
    async def serve() -> None:
        provider = make()
        turns = 0

        async def turning() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0.01)

        other = asyncio.create_task(turning())
        sandbox_id = await provider.acquire_async("thread-34", user_id="user")
        assert turns > 3, "this loop went on while the box booted"
        box = provider.get(sandbox_id)
        assert box is not None
        answers = await asyncio.gather(*(asyncio.to_thread(box.execute_command, f"echo {n}") for n in range(8)))
        assert answers == [f"{n}\n" for n in range(8)]
        assert box.execute_command("echo here") == "here\n"
        other.cancel()

    asyncio.run(serve())


def boxes_in(home: Path) -> list[str]:
    return [path.name for path in (home / "boxes").iterdir()]


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"image": "/nonexistent/layout"}, ImageError, "/nonexistent/layout"),
        ({"image": "localhost:9/none:latest"}, (ImageError, BoxBootError), "localhost:9/none:latest"),
        ({"boot_timeout": 0.01}, BoxBootError, "`boot_timeout`"),
    ],
)
def test_case_35_a_box_that_cannot_be(
    make: Make, own_home: Path, settings: dict[str, Any], error: type[BoxError], words: str
) -> None:
    with make() as provider:
        acquired(provider, "thread-35-before")
    boxes = set(boxes_in(own_home))
    with pytest.raises(error, match=words):
        make(**settings).acquire("thread-35", user_id="user")
    assert set(boxes_in(own_home)) == boxes


def test_case_35_the_disk_of_the_host_is_full(layout: Path) -> None:
    disk = Path("/lab/tmp")
    if not disk.is_dir():
        pytest.skip("fills a whole disk: only in the emulated host, which has one to spare")
    with (
        tempfile.TemporaryDirectory(prefix="home-full-", dir=disk) as home,
        tempfile.TemporaryFile(dir=disk) as filler,
        BoxliteProvider(config=config_for(layout, Path(home))) as provider,
    ):
        os.posix_fallocate(filler.fileno(), 0, shutil.disk_usage(disk).free - 3_000_000)
        with pytest.raises((BoxBootError, ImageError), match=r"(?i)space") as caught:
            provider.acquire("thread")
        assert str(layout) in str(caught.value)
        filler.truncate(0)
        assert acquired(provider, "thread").execute_command("echo OK") == "OK\n"


def test_case_35_no_dev_kvm(layout: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("hiding a device needs root")
    program = (
        "import sys; from pathlib import Path; from deerflow_boxlite import *\n"
        "provider = BoxliteProvider(config=BoxliteConfig(image=sys.argv[1], home_dir=Path(sys.argv[2])))\n"
        "try: provider.acquire('thread')\n"
        "except HostError as error: print(error)\n"
    )
    script = 'mount --bind /dev/null /dev/kvm && exec "$@"'
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    words = ["unshare", "-m", "sh", "-c", script, "sh", sys.executable, "-c", program, str(layout), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=env, timeout=WAIT)
    assert "/dev/kvm" in done.stdout, HostError


# Cancelling, and the end


def test_case_36_acquire_is_cancelled_in_mid_boot_and_tried_again(make: Make) -> None:
    provider = make()
    before = vms()

    async def serve() -> str:
        acquire = asyncio.create_task(provider.acquire_async("thread-36", user_id="user"))
        await asyncio.to_thread(eventually, lambda: provider.stats().slots == {State.BOOTING: 1})
        acquire.cancel()
        with pytest.raises(asyncio.CancelledError):
            await acquire
        return await provider.acquire_async("thread-36", user_id="user")

    box = provider.get(asyncio.run(serve()))
    assert box is not None
    assert box.execute_command("echo OK") == "OK\n"
    assert len(vms() - before) == 1
    assert provider.stats().counters.boots == 1


def test_case_37_shutdown_twice_and_with_a_command_running(make: Make, threads: ThreadPoolExecutor) -> None:
    before = set(shims())
    provider = make()
    box = acquired(provider, "thread-37")
    box.write_file("/mnt/user-data/workspace/f", "kept")
    command = started(threads, box, "sleep 1000")
    provider.shutdown()
    eventually(lambda: set(shims()) <= before)
    with pytest.raises(ClosedError):
        command.result(WAIT)
    provider.shutdown()
    with pytest.raises(ClosedError):
        box.run("true")
    assert acquired(make(), "thread-37").read_file("/mnt/user-data/workspace/f") == "kept"


@pytest.mark.parametrize(
    "then",
    [
        "pass",
        "raise SystemExit(0)",
        "threading.Thread(target=box.run, args=('sleep 1000',), daemon=True).start(); import time; time.sleep(1)",
    ],
)
def test_case_37_the_program_ends(make: Make, layout: Path, own_home: Path, then: str) -> None:
    before = set(shims())
    with gateway(layout, own_home, "user-37", then) as process:
        assert process.wait(WAIT) == 0
    eventually(lambda: set(shims()) <= before)
    assert acquired(make(), "thread", "user-37").read_file("/mnt/user-data/workspace/f") == "kept"


# All of it, for a while


def test_soak(make: Make, kill_vms: KillVms) -> None:
    """Turns over 6 identities with 2 places, the VMs killed now and then: everyone's files are right at the end."""
    provider = make(replicas=2)
    expected: dict[str, str] = {}
    for turn in range(SOAK_TURNS):
        thread = f"thread-soak-{turn * 5 % 6 if turn % 3 else turn % 6}"
        box = acquired(provider, thread)
        path = "/mnt/user-data/workspace/log"
        box.write_file(path, f"turn {turn}\n", append=True)
        expected[thread] = expected.get(thread, "") + f"turn {turn}\n"
        if turn % SOAK_KILL_EVERY == SOAK_KILL_EVERY - 1:
            kill_vms()
            # Depending on whether it was seen already.
            with contextlib.suppress(BoxDiedError):
                box.read_file(path)
        assert box.execute_command(f"cat {path}") == expected[thread]
        provider.release(box.id)
    assert len(expected) == 6
    for thread, text in expected.items():
        box = acquired(provider, thread)
        assert box.read_file("/mnt/user-data/workspace/log") == text
        provider.release(box.id)
    counters = provider.stats().counters
    assert counters.crashes >= SOAK_TURNS // SOAK_KILL_EVERY
    assert counters.evictions >= SOAK_TURNS // 5
    assert counters.boot_failures == 0
