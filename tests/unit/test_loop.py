from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading

import pytest

from deerflow_boxlite.errors import ClosedError
from deerflow_boxlite.loop import Loop


@pytest.fixture
def loop():
    made = Loop("test loop")
    yield made
    assert made.stop()


async def answer(value: object = 42) -> object:
    return value


async def for_ever(started: threading.Event, ended: threading.Event) -> None:
    started.set()
    try:
        await asyncio.Event().wait()
    finally:
        ended.set()


def test_it_runs_on_a_thread_of_its_own(loop: Loop) -> None:
    async def where() -> threading.Thread:
        return threading.current_thread()

    assert loop.run(answer()) == 42
    thread = loop.run(where())
    assert thread is not threading.current_thread()
    assert thread.daemon


def test_it_raises_what_the_coroutine_raises(loop: Loop) -> None:
    async def fail() -> None:
        raise FileNotFoundError("/x")

    with pytest.raises(FileNotFoundError, match="/x"):
        loop.run(fail())


def test_case_34_it_works_inside_a_running_loop_and_does_not_block_it(loop: Loop) -> None:
    async def elsewhere() -> object:
        go = threading.Event()

        async def slow() -> str:
            await asyncio.to_thread(go.wait)
            return "done"

        waiting = asyncio.wrap_future(loop.submit(slow()))
        await asyncio.sleep(0)  # This loop goes on while the other waits.
        assert not waiting.done()
        go.set()
        return [await waiting, loop.run(answer())]

    assert asyncio.run(elsewhere()) == ["done", 42]


def test_eight_threads_at_once(loop: Loop) -> None:
    together = threading.Barrier(8)
    results: list[object] = []

    def use(number: int) -> None:
        together.wait()
        results.append(loop.run(answer(number)))

    threads = [threading.Thread(target=use, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(results) == list(range(8))


def test_its_own_thread_is_told_instead_of_waiting_for_ever(loop: Loop) -> None:
    async def inner() -> None:
        loop.run(answer())

    with pytest.raises(RuntimeError, match="cannot wait for itself"):
        loop.run(inner())


def test_a_timeout_cancels_the_coroutine(loop: Loop) -> None:
    started, ended = threading.Event(), threading.Event()
    with pytest.raises(TimeoutError):
        loop.run(for_ever(started, ended), timeout=0.01)
    assert ended.wait(20) or not started.is_set()


def test_an_interrupted_caller_cancels_the_coroutine(loop: Loop) -> None:
    started, ended = threading.Event(), threading.Event()

    def interrupt() -> None:
        started.wait(20)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        loop.run(for_ever(started, ended))
    assert ended.wait(20)


def test_stop_cancels_what_runs_and_tells_its_callers() -> None:
    loop = Loop("test loop")
    started, ended = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def use() -> None:
        try:
            loop.run(for_ever(started, ended))
        except ClosedError as error:
            errors.append(error)

    caller = threading.Thread(target=use)
    caller.start()
    started.wait(20)
    assert loop.stop()
    assert loop.stop(), "twice is once"
    caller.join(20)
    assert ended.is_set()
    assert len(errors) == 1
    with pytest.raises(ClosedError):
        loop.run(answer())


def test_a_loop_that_was_stopped_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    loop = Loop("test loop")
    loop.run(asyncio.to_thread(int))
    assert loop.stop()
    assert set(threading.enumerate()) == before


@pytest.mark.parametrize("ending", ["", "raise SystemExit(3)", "loop.stop()", "atexit.register(loop.stop)"])
def test_case_37_a_program_ends_whether_it_stopped_its_loop_or_not(ending: str) -> None:
    program = f"""
import asyncio, atexit
from deerflow_boxlite.loop import Loop
loop = Loop("test loop")
async def answer():
    await asyncio.sleep(0)
    return 42
atexit.register(lambda: print("atexit", loop.run(answer()) if loop._open else "stopped"))
print(loop.run(answer()))
{ending}
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=env())
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["42", "atexit stopped" if "stop" in ending else "atexit 42"]
    assert done.returncode == (3 if "SystemExit" in ending else 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_is_told_instead_of_waiting_for_ever() -> None:
    program = """
import os, warnings
warnings.simplefilter("ignore")
from deerflow_boxlite.errors import ClosedError
from deerflow_boxlite.loop import Loop
loop = Loop("test loop")
async def answer():
    return 42
if (pid := os.fork()) == 0:
    try:
        loop.run(answer())
    except ClosedError as error:
        print(error, flush=True)
    loop.stop()
    os._exit(0)
os.waitpid(pid, 0)
print(loop.run(answer()))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=env())
    assert "before this process was forked" in done.stdout
    assert done.stdout.endswith("42\n")


def env() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
