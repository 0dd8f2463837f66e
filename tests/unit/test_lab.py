"""The lab's code, as far as it can be tested without starting an emulated host."""

from __future__ import annotations

import fcntl
import io
import lzma
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.append(str(CHECKOUT))

from lab import call, cli, host, initramfs, parts, watch  # noqa: E402

from deerflow_boxlite import debs  # noqa: E402
from deerflow_boxlite.debs import DebsError  # noqa: E402

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the lab is for Linux machines without KVM")

MODULES_DEP = """\
kernel/arch/x86/kvm/kvm.ko: kernel/virt/lib/irqbypass.ko
kernel/arch/x86/kvm/kvm-amd.ko: kernel/drivers/crypto/ccp/ccp.ko kernel/arch/x86/kvm/kvm.ko kernel/virt/lib/irqbypass.ko
kernel/virt/lib/irqbypass.ko:
kernel/drivers/crypto/ccp/ccp.ko:
kernel/fs/ext4/ext4.ko.xz: kernel/fs/jbd2/jbd2.ko.xz
kernel/fs/jbd2/jbd2.ko.xz:
"""


class TestInitramfs:
    def test_modules_come_after_what_they_need(self) -> None:
        order = initramfs.load_order(MODULES_DEP, ["kvm_amd", "ext4"])
        assert [initramfs.module_name(path) for path in order] == [
            "ccp",
            "irqbypass",
            "kvm",
            "kvm_amd",
            "jbd2",
            "ext4",
        ]

    def test_each_module_comes_once_by_either_spelling(self) -> None:
        order = initramfs.load_order(MODULES_DEP, ["kvm", "kvm-amd", "kvm_amd"])
        assert len(order) == len(set(order)) == 4

    def test_an_unknown_module_is_skipped(self) -> None:
        assert initramfs.load_order(MODULES_DEP, ["builtin_one"]) == []

    def test_cpio_holds_what_it_was_given(self) -> None:
        entries = [
            initramfs.directory("dev"),
            initramfs.Entry("dev/console", stat.S_IFCHR | 0o600, device=(5, 1)),
            initramfs.executable("init", b"#!/bin/sh\n"),
        ]
        read = list(_members(initramfs.cpio(entries)))
        assert [entry.name for entry in read] == ["dev", "dev/console", "init", "TRAILER!!!"]
        assert read[:3] == entries

    def test_build_lists_files_with_parameters_and_unpacks_them(self, tmp_path: Path) -> None:
        (tmp_path / "modules.dep").write_text(MODULES_DEP)
        for line in MODULES_DEP.splitlines():
            path = tmp_path / line.partition(":")[0]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(lzma.compress(b"module") if path.suffix == ".xz" else b"module")
        (tmp_path / "busybox").write_bytes(b"busybox")
        image = initramfs.build(tmp_path, tmp_path / "busybox", {"init": b"script"})
        files = {entry.name: entry.data for entry in _members(image)}
        order = files["modules/order"].decode().splitlines()
        assert "/modules/kvm.ko min_timer_period_us=5000" in order
        assert "/modules/irqbypass.ko" in order
        assert files["modules/ext4.ko"] == files["modules/kvm.ko"] == b"module"
        assert files["init"] == b"script"


def _members(archive: bytes) -> list[initramfs.Entry]:
    """Read a newc archive, by its specification."""
    stream = io.BytesIO(archive)
    members = []
    while header := stream.read(110):
        assert header[:6] == b"070701"
        fields = [int(header[6 + 8 * i : 14 + 8 * i], 16) for i in range(13)]
        name = stream.read(fields[11])
        stream.seek(-stream.tell() % 4, os.SEEK_CUR)
        data = stream.read(fields[6])
        stream.seek(-stream.tell() % 4, os.SEEK_CUR)
        members.append(initramfs.Entry(name.rstrip(b"\0").decode(), fields[1], data, (fields[9], fields[10])))
    return members


class TestParts:
    def test_the_kernel_inside_a_bzimage(self) -> None:
        packed = lzma.compress(b"\x7fELF and so on")
        image = bytearray(512 * 3 + 100)
        image[0x1F1] = 2
        struct.pack_into("<II", image, 0x248, 100, len(packed) + 4)
        assert parts.plain_kernel(bytes(image) + packed + b"size") == b"\x7fELF and so on"

    def test_a_kernel_packed_otherwise_stays(self) -> None:
        image = bytes(4096)
        assert parts.plain_kernel(image) == image

    def test_the_cache_follows_xdg(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", "/some/cache")
        assert parts.cache_directory() == Path("/some/cache/deerflow-boxlite/lab")
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setenv("HOME", "/home/me")
        assert parts.cache_directory() == Path("/home/me/.cache/deerflow-boxlite/lab")

    def test_a_failed_download_leaves_nothing_that_looks_complete(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(_packages: object, into: Path, **_options: object) -> list[Path]:
            into.mkdir(parents=True)
            (into / "half.deb").touch()
            raise DebsError("no network")

        monkeypatch.setattr(debs, "fetch", fail)
        (tmp_path / "partial-killed").mkdir()
        with pytest.raises(DebsError):
            parts.prepare(tmp_path, print)
        assert [path.name for path in tmp_path.iterdir()] == ["lock"]


class TestCall:
    def test_the_environment_is_the_callers_but_for_a_few(self) -> None:
        variables = call.environment({"PATH": "/bin", "DISPLAY": ":0", "TMPDIR": "/var/tmp", "x.y": "1"})
        assert variables == {"PATH": "/bin", "x.y": "1", "TMPDIR": "/lab/tmp", "LAB_OUT": "/lab/out"}

    @pytest.mark.skipif(not Path("/usr/bin/setsid").exists(), reason="a program of Linux distributions")
    def test_the_script_passes_everything_on_exactly(self, tmp_path: Path) -> None:
        directory = tmp_path / "it's a \n directory"
        directory.mkdir()
        strange = "a 'b' \"c\" $HOME `id`\n\\ \udcff"
        variables = {"PATH": os.environ["PATH"], "STRANGE": strange, "not.a-name": "1"}
        show = "import os, sys; print(ascii([os.getcwd(), sys.argv[1:], dict(os.environ)]))"
        command = [sys.executable, "-I", "-c", show, strange, "", "--", "A=B"]
        script = tmp_path / "script"
        script.write_bytes(call.script(command, str(directory), variables, (64, 128)))
        done = subprocess.run(["sh", str(script)], capture_output=True, text=True, check=True)
        cwd, arguments, seen = eval(done.stdout)
        assert (cwd, arguments) == (str(directory), command[4:])
        assert {name: seen.get(name) for name in variables} == variables

    @pytest.mark.skipif(not Path("/usr/bin/setsid").exists(), reason="a program of Linux distributions")
    @pytest.mark.parametrize(
        ("command", "status"), [(["no-such-program"], 127), (["/etc/passwd"], 126), (["sh", "-c", "exit 9"], 9)]
    )
    def test_the_scripts_exit_status(self, tmp_path: Path, command: list[str], status: int) -> None:
        script = tmp_path / "script"
        script.write_bytes(call.script(command, "/", {"PATH": "/usr/bin:/bin"}, (64, 128)))
        assert subprocess.run(["sh", str(script)], capture_output=True, check=False).returncode == status


class TestOutput:
    MARK = b"\0lab:abc:"

    def test_what_is_no_mark_comes_out_at_once(self) -> None:
        output = call.Output(self.MARK)
        assert output.feed(b"hello\n") == b"hello\n"
        assert output.feed(b"\0\0lab:x\n") == b"\0\0lab:x\n"

    @pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
    def test_the_mark_is_found_however_it_is_cut(self, size: int) -> None:
        output = call.Output(self.MARK)
        text = b"one\0two\0lab:\0lab:ab"
        stream = text + self.MARK + b"137\n"
        printed = b"".join(output.feed(stream[i : i + size]) for i in range(0, len(stream), size))
        assert (printed, output.status) == (text, 137)

    def test_no_status_before_its_end(self) -> None:
        output = call.Output(self.MARK)
        assert output.feed(b"x" + self.MARK + b"12") == b"x"
        assert output.status is None
        output.feed(b"7\nignored")
        assert output.status == 127

    def test_what_was_held_back_comes_out_if_there_is_no_end(self) -> None:
        output = call.Output(self.MARK)
        assert output.feed(b"x\0lab") == b"x"
        assert output.rest() == b"\0lab"

    def test_each_run_has_its_own_mark(self) -> None:
        assert call.new_mark() != call.new_mark()


class TestWatchdog:
    def test_the_first_sign_of_life_has_more_time(self) -> None:
        dog = watch.Watchdog(started=100.0)
        dog.check(100.0 + watch.BOOT_LIMIT)
        with pytest.raises(watch.HostLost, match="did not start"):
            dog.check(100.1 + watch.BOOT_LIMIT)

    def test_silence_after_it_is_a_lock_up(self) -> None:
        dog = watch.Watchdog(started=0.0)
        dog.beat(500.0)
        dog.check(500.0 + watch.SILENCE_LIMIT)
        with pytest.raises(watch.HostLost, match="locked up"):
            dog.check(500.1 + watch.SILENCE_LIMIT)

    def test_trouble_on_the_console(self) -> None:
        lines = [
            "watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [python3:7]",
            "INFO: task python3:7 blocked for more than 120 seconds.",
            "Kernel panic - not syncing: sysrq triggered crash",
            "pit: kvm: requested 4000231 ns i8254 timer period limited to 5000000 ns",
        ]
        assert watch.trouble(lines) == lines[:3]


class FakeHost:
    """A host whose qemu is a child that sleeps, and whose ports a thread of the test writes to."""

    def __init__(self, script: Callable[[socket.socket, socket.socket], None]) -> None:
        output, self._output = socket.socketpair()
        pulse, self._pulse = socket.socketpair()
        self.process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"])
        self.host = host.Host(self.process, output, pulse)
        self._thread = threading.Thread(target=self._play, args=(script,))
        self._thread.start()

    def _play(self, script: Callable[[socket.socket, socket.socket], None]) -> None:
        with self._output, self._pulse:
            script(self._output, self._pulse)

    def close(self) -> None:
        self._thread.join()
        self.process.wait()
        self.host.output.close()
        self.host.pulse.close()


class TestFollow:
    def test_output_and_status(self) -> None:
        def script(output: socket.socket, pulse: socket.socket) -> None:
            pulse.send(b"\n")
            output.send(b"hello ")
            output.send(b"world\n" + b"MARK" + b"3\n")

        fake = FakeHost(script)
        printed: list[bytes] = []
        assert watch.follow(fake.host, b"MARK", printed.append) == 3
        assert b"".join(printed) == b"hello world\n"
        fake.close()

    def test_a_host_that_ends_is_lost_and_its_output_is_not(self) -> None:
        fake = FakeHost(lambda output, pulse: output.sendall(b"so far\nMA"))
        printed: list[bytes] = []
        with pytest.raises(watch.HostLost, match=r"ended by itself \(qemu's exit code: 7\)"):
            watch.follow(fake.host, b"MARK", printed.append)
        assert b"".join(printed) == b"so far\nMA"
        fake.close()

    def test_a_host_that_falls_silent_is_lost(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(watch, "SILENCE_LIMIT", 0.2)
        done = threading.Event()

        def script(output: socket.socket, pulse: socket.socket) -> None:
            pulse.send(b"\n")
            done.wait(20)

        fake = FakeHost(script)
        with pytest.raises(watch.HostLost, match="locked up"):
            watch.follow(fake.host, b"MARK", lambda data: None)
        done.set()
        fake.close()


class TestHost:
    def test_a_run_directory_lives_as_long_as_its_run(self, tmp_path: Path) -> None:
        with host.run_directory(tmp_path) as first:
            with host.run_directory(tmp_path) as second:
                assert first != second
                assert first.is_dir()
            assert not second.exists()
        assert not first.exists()

    def test_directories_of_killed_runs_are_removed(self, tmp_path: Path) -> None:
        dead, alive, killed_early = (tmp_path / "runs" / name for name in ("dead", "alive", "killed_early"))
        for directory in (dead, alive, killed_early):
            directory.mkdir(parents=True)
        (dead / "lock").touch()
        with (alive / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with host.run_directory(tmp_path):
                assert (dead.exists(), alive.exists(), killed_early.exists()) == (False, True, False)

    def test_qemus_options(self, tmp_path: Path) -> None:
        software = parts.Parts(root=tmp_path, kernel=tmp_path / "kernel", initramfs=tmp_path / "initramfs")
        options = host.qemu_options(software, tmp_path / "a,b", Path("/out"), 2048, output=7, pulse=8)
        assert options[options.index("-m") + 1] == "2048"
        assert "local,id=root,path=/,security_model=none,multidevs=remap,readonly=on" in options
        assert "local,id=out,path=/out,security_model=none,multidevs=remap" in options
        assert f"file={tmp_path}/a,,b/scratch,format=raw,if=virtio,cache=unsafe,discard=unmap" in options
        assert "socket,id=output,fd=7" in options

    def test_memory_leaves_some_to_this_machine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        sizes = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 2**20}
        monkeypatch.setattr(os, "sysconf", sizes.__getitem__)
        assert host.default_memory() == 3072
        sizes["SC_PHYS_PAGES"] = 2**23
        assert host.default_memory() == 8192


class TestCommandLine:
    def test_the_commands_own_options_are_left_alone(self) -> None:
        options = cli.parse(["--timeout", "5", "--out", "o", "--", "ls", "--out", "-l", "--"])
        assert options.command == ["ls", "--out", "-l", "--"]
        assert (options.timeout, options.out) == (5.0, Path("o"))

    @pytest.mark.parametrize(
        "arguments",
        [
            [],
            ["--"],
            ["--timeout", "0", "--", "x"],
            ["--timeout", "nan", "--", "x"],
            ["--timeout", "x", "--", "x"],
            ["--memory", "1", "--", "x"],
            ["--unknown", "--", "x"],
        ],
    )
    def test_bad_arguments(self, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as exit:
            cli.main(arguments)
        assert exit.value.code == 2
        assert "usage: lab/run" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("error", "status", "message"),
        [
            (watch.HostLost("locked up"), 125, "lab: locked up\n"),
            (DebsError("no apt"), 125, "lab: no apt\n"),
            (OSError(28, "No space left"), 125, "lab: [Errno 28] No space left\n"),
            (BrokenPipeError(), 141, ""),
        ],
    )
    def test_how_failures_end(
        self,
        error: Exception,
        status: int,
        message: str,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setattr(cli, "_raise_on_signals", lambda timeout: None)
        monkeypatch.setattr(parts, "prepare", _raiser(error))
        assert cli.main(["--", "true"]) == status
        assert capsys.readouterr().err == message

    @pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
    def test_signals_end_it(self, number: int, status: int, tmp_path: Path) -> None:
        assert self._wait_for_lock(tmp_path, [], number) == (status, "")

    def test_the_time_limit_ends_it_wherever_it_is(self, tmp_path: Path) -> None:
        status, said = self._wait_for_lock(tmp_path, ["--timeout", "0.5"], None)
        assert (status, said) == (124, "lab: the time limit of 0.5 s was reached\n")

    def _wait_for_lock(self, cache: Path, options: list[str], number: int | None) -> tuple[int, str]:
        """Run lab/run while the cache's lock is held, send it a signal, and return its status and what it said."""
        directory = cache / "deerflow-boxlite" / "lab"
        directory.mkdir(parents=True)
        with (directory / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            process = subprocess.Popen(
                [sys.executable, str(CHECKOUT / "lab" / "run"), *options, "--", "true"],
                env={**os.environ, "XDG_CACHE_HOME": str(cache)},
                stderr=subprocess.PIPE,
                text=True,
            )
            assert process.stderr is not None
            assert "waiting for another lab/run" in process.stderr.readline()
            if number is not None:
                process.send_signal(number)
            _, said = process.communicate(timeout=20)
        return process.returncode, said


def _raiser(error: Exception) -> Callable[..., Any]:
    def fail(*_arguments: object) -> None:
        raise error

    return fail
