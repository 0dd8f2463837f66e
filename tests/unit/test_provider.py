"""The provider as DeerFlow uses it, on a fake home."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deerflow_boxlite import provider as provider_module
from deerflow_boxlite import registry, spec
from deerflow_boxlite.box import BoxliteBox
from deerflow_boxlite.config import BoxliteConfig
from deerflow_boxlite.contract import SandboxProvider
from deerflow_boxlite.errors import ClosedError, HomeInUseError
from deerflow_boxlite.identity import Identity
from deerflow_boxlite.provider import BoxliteProvider
from deerflow_boxlite.runtime import BoxHandle, BoxSpec
from deerflow_boxlite.settings import NoHooks
from deerflow_boxlite.slots import State
from support.fake_runtime import FakeGuest, FakeHome

Make = Callable[..., BoxliteProvider]


@pytest.fixture
def home() -> FakeHome:
    return FakeHome()


@pytest.fixture
def make(home: FakeHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    async def open_guest(handle: BoxHandle, _config: BoxliteConfig) -> FakeGuest:
        return await FakeGuest.open(handle)

    monkeypatch.setattr(spec, "open_guest", open_guest)
    monkeypatch.setattr(spec, "box_spec", lambda _config: BoxSpec(image="fake"))

    def made(**settings: Any) -> BoxliteProvider:
        settings = {"home_dir": tmp_path / "home", "idle_timeout": 0} | settings
        return BoxliteProvider(config=BoxliteConfig(**settings), runtime_factory=home.open_runtime, hooks=NoHooks())

    before = set(threading.enumerate())
    yield made
    registry.close_all()
    assert home.running == []
    assert home.open_guests == 0
    assert home.open_runtimes == 0
    assert set(threading.enumerate()) <= before


def test_a_turn_as_deerflow_runs_it(make: Make, home: FakeHome) -> None:
    provider = make()
    assert isinstance(provider, SandboxProvider)
    sandbox_id = provider.acquire("thread", user_id="user")
    assert sandbox_id == Identity("user", "thread").sandbox_id
    box = provider.get(sandbox_id)
    assert isinstance(box, BoxliteBox)
    assert box.id == sandbox_id
    provider.release(sandbox_id)
    assert provider.get(sandbox_id) is None, "DeerFlow acquires anew then, and the host's changes come in"
    assert provider.acquire("thread", user_id="user") == sandbox_id
    assert provider.get(sandbox_id) is not None
    assert home.count("start") == 1


def test_the_older_contract_passes_no_user(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = make()
    assert provider.acquire("thread") == Identity("default", "thread").sandbox_id
    monkeypatch.setattr(provider_module, "current_user", lambda: "alice")
    assert provider.acquire("thread") == Identity("alice", "thread").sandbox_id


def test_no_thread_is_a_box_for_this_call_alone(make: Make) -> None:
    provider = make()
    assert provider.acquire(None) != provider.acquire(None)


def test_case_32_users_do_not_share_boxes(make: Make, home: FakeHome) -> None:
    provider = make()
    first = provider.acquire("c", user_id="a:b")
    second = provider.acquire("b:c", user_id="a")
    assert first != second
    assert len(home.running) == 2


def test_ids_that_are_not_known(make: Make) -> None:
    provider = make()
    assert provider.get("nobody") is None
    provider.release("nobody")
    provider.release(provider.acquire("thread"))
    provider.release(Identity("default", "thread").sandbox_id)


def test_case_34_get_does_not_need_the_loop(make: Make) -> None:
    provider = make()
    sandbox_id = provider.acquire("thread")
    blocked, go = threading.Event(), threading.Event()

    async def block() -> None:
        blocked.set()
        go.wait()

    provider._engine._loop.submit(block())
    assert blocked.wait(20)
    assert provider.get(sandbox_id) is not None
    assert provider.stats().slots == {State.ACTIVE: 1}
    go.set()


def test_case_34_built_inside_a_running_loop_and_used_from_eight_threads(make: Make, home: FakeHome) -> None:
    async def gateway() -> set[str]:
        provider = make()
        ids = await asyncio.gather(*(asyncio.to_thread(provider.acquire, "thread") for _ in range(8)))
        assert provider.acquire("thread") == ids[0], "a synchronous tool in this very loop"
        return set(ids) | {await provider.acquire_async("thread")}

    assert len(asyncio.run(gateway())) == 1
    assert home.count("start") == 1


def test_attributes_of_the_contract(make: Make) -> None:
    assert make().uses_thread_data_mounts is False
    assert make(thread_data="mount").uses_thread_data_mounts is True
    assert BoxliteProvider.needs_upload_permission_adjustment is False


def test_case_37_shutdown_twice(make: Make, home: FakeHome) -> None:
    provider = make()
    sandbox_id = provider.acquire("thread")
    provider.shutdown()
    provider.shutdown()
    assert home.running == []
    assert home.open_runtimes == 0
    with pytest.raises(ClosedError):
        provider.acquire("thread")
    box = provider.get(sandbox_id)
    assert box is not None
    with pytest.raises(ClosedError):
        box.read_file("/x")


def test_a_new_provider_after_a_shutdown_finds_the_disks(make: Make, home: FakeHome) -> None:
    with make() as first:
        first.acquire("thread")
    with make() as second:
        second.acquire("thread")
        assert home.count("create") == 1
    assert home.running == []


def test_the_loser_of_a_construction_race_leaves_the_winners_boxes(make: Make, home: FakeHome) -> None:
    winner, loser = make(), make()
    sandbox_id = winner.acquire("thread")
    loser.shutdown()
    assert len(home.running) == 1
    assert winner.get(sandbox_id) is not None
    assert winner.acquire("thread") == sandbox_id
    winner.shutdown()
    assert home.running == []


def test_providers_built_at_once_share_one_engine(make: Make) -> None:
    together = threading.Barrier(8)
    providers: list[BoxliteProvider] = []

    def build() -> None:
        together.wait()
        providers.append(make())

    threads = [threading.Thread(target=build) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len({id(provider._engine) for provider in providers}) == 1


def test_reset_hands_the_boxes_on(make: Make, home: FakeHome) -> None:
    old = make(replicas=1)
    sandbox_id = old.acquire("thread")
    old.reset()
    assert old.stats().slots == {State.WARM: 1}
    new = make(replicas=2)
    assert new.acquire("thread") == sandbox_id
    assert home.count("start") == 1
    assert new.stats().replicas == 2
    old.shutdown()
    assert len(home.running) == 1, "they are the new one's by now"
    new.shutdown()
    assert home.running == []


def test_a_provider_that_was_reset_can_be_used_again_or_shut_down(make: Make, home: FakeHome) -> None:
    provider = make()
    provider.acquire("thread")
    provider.reset()
    provider.reset()
    provider.acquire("thread")
    assert home.count("start") == 1
    other = make()
    other.shutdown()
    assert len(home.running) == 1
    provider.reset()
    provider.shutdown()
    assert home.running == []


def test_a_provider_that_was_dropped_counts_no_more(make: Make, home: FakeHome) -> None:
    dropped = make()
    dropped.acquire("thread")
    del dropped
    gc.collect()
    make().shutdown()
    assert home.running == []


def test_a_home_by_another_name_is_the_same_home(make: Make, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "home")
    assert make()._engine is make(home_dir=tmp_path / "link")._engine


def test_two_homes_have_two_engines(make: Make, tmp_path: Path) -> None:
    assert make()._engine is not make(home_dir=tmp_path / "another")._engine


def program(text: str, home: Path) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.Popen(
        [sys.executable, "-c", text, str(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )


SETUP = """
import asyncio, sys, threading
from pathlib import Path
from deerflow_boxlite import spec
from deerflow_boxlite.config import BoxliteConfig
from deerflow_boxlite.provider import BoxliteProvider
from deerflow_boxlite.runtime import BoxSpec
from deerflow_boxlite.settings import NoHooks
from support.fake_runtime import FakeGuest, FakeHome, FakeRuntime

async def open_guest(handle, config):
    return await FakeGuest.open(handle)

spec.open_guest = open_guest
spec.box_spec = lambda config: BoxSpec(image="fake")
home = FakeHome()
close = FakeRuntime.close

async def told(self, timeout):
    print("stopped before the runtime closed:", home.running == [], flush=True)
    await close(self, timeout)

FakeRuntime.close = told
provider = BoxliteProvider(
    config=BoxliteConfig(home_dir=Path(sys.argv[1])), runtime_factory=home.open_runtime, hooks=NoHooks())
sandbox_id = provider.acquire("thread")
print("acquired", flush=True)
"""


def test_case_37_the_end_of_the_program_stops_everything(tmp_path: Path) -> None:
    command = 'provider._engine.operate(sandbox_id, lambda guest: guest.run("long"))'
    setup = f"""{SETUP}
gate = home.gate("long")
def forgotten():
    try:
        {command}
    except BaseException as error:
        print(type(error).__name__, flush=True)
threading.Thread(target=forgotten, daemon=True).start()
gate.reached.wait(20)
"""
    with program(setup, tmp_path) as process:
        output, errors = process.communicate(timeout=60)
    assert output.splitlines()[:2] == ["acquired", "stopped before the runtime closed: True"]
    assert errors == ""
    assert process.returncode == 0


def test_case_33_the_constructor_of_a_second_process_is_told(tmp_path: Path, make: Make) -> None:
    with program(SETUP + "sys.stdin.read()", tmp_path / "home") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "acquired\n"
        with pytest.raises(HomeInUseError, match=rf"process {process.pid} .*`home_dir`") as caught:
            make()
        assert str(tmp_path / "home") in str(caught.value)
        process.kill()
        process.communicate()
    assert make().acquire("thread")


def test_boxlite_is_not_imported_before_a_box_is_needed(tmp_path: Path) -> None:
    text = """
import sys
from pathlib import Path
from deerflow_boxlite import BoxliteConfig, BoxliteProvider
with BoxliteProvider(config=BoxliteConfig(home_dir=Path(sys.argv[1]))):
    print("boxlite" in sys.modules)
"""
    with program(text, tmp_path) as process:
        output, errors = process.communicate(timeout=60)
    assert (output, errors) == ("False\n", "")
