"""64 threads and 10,000 random operations on a fake home that is slow, and fails, at random."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from pathlib import Path

import pytest

from deerflow_boxlite.engine import Engine
from deerflow_boxlite.errors import BoxBootError, BoxDiedError, CapacityError
from deerflow_boxlite.identity import Identity
from deerflow_boxlite.runtime import BoxGone, RuntimeFailure
from deerflow_boxlite.slots import State
from support.fake_runtime import FakeHome, settings_on

THREADS = 64
OPERATIONS = 10_000
IDENTITIES = 12
REPLICAS = 5

FAULTS = {
    "start": lambda: random.choice([RuntimeFailure("no"), BoxGone("died at boot"), None, None]),
    "open": lambda: BoxGone("died at boot"),
    "stop": lambda: RuntimeFailure("does not stop"),
    "ping": lambda: TimeoutError("no answer"),
    "run": lambda: BoxGone("died"),
}
RATE = {"start": 0.05, "open": 0.02, "stop": 0.05, "ping": 0.1, "run": 0.01}


async def trouble(event: str, _name: str) -> None:
    """A small delay before everything, and now and then a fault."""
    if event in RATE or random.random() < 0.1:
        await asyncio.sleep(random.choice([0, 0, 0.0005, 0.002]))
    if random.random() < RATE.get(event, 0):
        error = FAULTS[event]()
        if error is not None:
            raise error


def work(engine: Engine, count: int, outcomes: Counter[str], lost: list[str]) -> None:
    """Turns of an agent: acquire, some operations, release; the identity's own files are always as it left them."""
    done = 0
    while done < count:
        # First with room for all, so that boxes are reclaimed warm; then with too little.
        crowd = REPLICAS if done < count // 3 else IDENTITIES
        identity = Identity("user", str(random.randrange(crowd)))
        try:
            sandbox_id = engine.acquire(identity)
            done += 1
            for _ in range(random.randrange(6)):
                done += 1
                operate(engine, sandbox_id, lost)
            if random.random() < 0.9:
                engine.release(sandbox_id)
                done += 1
            outcomes["well"] += 1
        except (BoxDiedError, BoxBootError, CapacityError) as error:
            done += 1
            outcomes[type(error).__name__] += 1


def operate(engine: Engine, sandbox_id: str, lost: list[str]) -> None:
    match random.randrange(4):
        case 0:
            engine.operate(sandbox_id, lambda guest: guest.write("/mine", sandbox_id.encode()), uploads=True)  # type: ignore[attr-defined]
        case 1:
            try:
                if engine.operate(sandbox_id, lambda guest: guest.read("/mine")) != sandbox_id.encode():  # type: ignore[attr-defined]
                    lost.append(sandbox_id)
            except FileNotFoundError:
                pass
        case 2:
            assert list(engine.stream(sandbox_id, lambda guest: guest.stream(3))) == [0, 1, 2]  # type: ignore[attr-defined]
        case 3:
            engine.operate(sandbox_id, lambda guest: guest.run("run"))  # type: ignore[attr-defined]


def open_descriptors() -> int:
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0


@pytest.mark.timeout(120)
def test_ten_thousand_operations_from_64_threads(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    descriptors = open_descriptors()
    home = FakeHome()
    home.before = trouble
    engine = Engine(
        tmp_path / "home",
        settings_on(home, replicas=REPLICAS, idle_timeout=0.05, acquire_timeout=5.0),
    )
    outcomes: Counter[str] = Counter()
    lost: list[str] = []
    crashed: list[BaseException] = []

    def thread() -> None:
        try:
            work(engine, OPERATIONS // THREADS, outcomes, lost)
        except BaseException as error:
            crashed.append(error)

    threads = [threading.Thread(target=thread, daemon=True) for _ in range(THREADS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(100)
    assert not any(each.is_alive() for each in threads), "a deadlock"
    assert crashed == []
    assert lost == [], "every identity saw its own files only"
    stats = engine.stats()
    assert home.most_running <= REPLICAS
    assert (stats.in_flight, stats.waiting) == (0, 0)
    assert sum(stats.slots.values()) == IDENTITIES
    # Something of everything happened, or this shows nothing.
    assert outcomes["well"] > 100
    assert outcomes["BoxDiedError"] > 0
    assert stats.counters.evictions > 0
    assert stats.counters.unhealthy > 0
    assert stats.counters.crashes > 0
    assert home.open_guests == stats.running - stats.slots.get(State.BOOTING, 0) - stats.slots.get(State.STOPPING, 0)
    home.before = None
    engine.close()
    assert (home.running, home.open_guests, home.open_runtimes) == ([], 0, 0)
    assert set(threading.enumerate()) <= before
    assert open_descriptors() <= descriptors
