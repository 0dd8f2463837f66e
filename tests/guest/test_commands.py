"""Commands in real shells, on local processes: what they print, how they end, what they leave."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deerflow_boxlite.guest.result import CommandResult
from deerflow_boxlite.runtime import BoxGone
from support.guests import SHELLS, Bench, with_guest
from support.local_runtime import LocalBox

pytestmark = pytest.mark.parametrize("shell", SHELLS)


def only(stdout: str = "", stderr: str = "", exit_code: int = 0) -> CommandResult:
    return CommandResult(exit_code, stdout, stderr)


def test_case_07_a_command_is_one_round_trip(tmp_path: Path, shell: str) -> None:
    """No SDK call but one write to the open channel, for a command with little output."""

    async def test(bench: Bench) -> None:
        await bench.guest.run("true")
        before = len(bench.calls())
        assert await bench.guest.run("echo OK") == only("OK\n")
        assert await bench.guest.run("true") == only()
        assert await bench.guest.run("printf '%4000s' x >&2") == only(stderr="x".rjust(4000))
        assert bench.calls(before) == ["write"] * 3

    with_guest(tmp_path, shell, test)


def test_a_long_output_takes_one_copy_more(tmp_path: Path, shell: str) -> None:
    async def test(bench: Bench) -> None:
        await bench.guest.run("true")
        before = len(bench.calls())
        assert await bench.guest.run("printf '%9000s' x; echo err >&2") == only("x".rjust(9000), "err\n")
        assert bench.calls(before) == ["write", "copy_out"]

    with_guest(tmp_path, shell, test)


def test_case_01_a_background_child_is_left_alone(tmp_path: Path, shell: str) -> None:
    """It lives on, is never blocked or killed by what it prints, and what it prints is nobody's output."""

    async def test(bench: Bench) -> None:
        done = tmp_path / "done"
        noise = (
            f"(sleep 0.2; for n in 1 2 3; do echo late; echo late >&2; done; echo $? >{done}; exec sleep 61) & echo hi"
        )
        assert await bench.guest.run(noise) == only("hi\n")
        assert await bench.guest.run("sleep 62 & echo hi") == only("hi\n")
        assert await bench.guest.run(f"until [ -s {done} ]; do sleep 0.05; done; echo mine") == only("mine\n")
        assert done.read_text() == "0\n"
        assert await bench.guest.run('wait; jobs; echo "<$!>"') == only("<>\n")
        assert len(bench.running("sleep 61")) == 1
        assert len(bench.running("sleep 62")) == 1

    with_guest(tmp_path, shell, test)


def test_case_01_a_background_child_that_prints_on_and_on(tmp_path: Path, shell: str) -> None:
    async def test(bench: Bench) -> None:
        result = await bench.guest.run("(while :; do echo noise; sleep 0.01; done) & printf '%9000s\\n' x; echo hi")
        assert result.stdout.replace("noise\n", "") == "x".rjust(9000) + "\nhi\n"
        for _ in range(3):
            assert await bench.guest.run("sleep 0.05; echo clean") == only("clean\n")

    with_guest(tmp_path, shell, test)


def test_case_03_standard_input_is_at_its_end(tmp_path: Path, shell: str) -> None:
    async def test(bench: Bench) -> None:
        assert await bench.guest.run("cat") == only()
        assert await bench.guest.run("read x; echo $?") == only("1\n")
        for number in range(3, 10):
            assert (await bench.guest.run(f"(: <&{number}) 2>/dev/null && echo open")).stdout == "", number
        if shell != "busybox":
            result = await bench.guest.run("python3 -c 'input()'")
            assert result.exit_code == 1
            assert "EOFError" in result.stderr

    with_guest(tmp_path, shell, test)


def test_case_11_a_command_is_ended_before_its_shell_when_memory_runs_out(tmp_path: Path, shell: str) -> None:
    async def test(bench: Bench) -> None:
        result = await bench.guest.run("cat /proc/self/oom_score_adj /proc/$$/oom_score_adj")
        command, channel = map(int, result.stdout.split())
        assert command == 500
        assert channel == int(Path("/proc/self/oom_score_adj").read_text())

    with_guest(tmp_path, shell, test)


@pytest.mark.parametrize("command", ["/dev/stderr", "/dev/stdout", "/proc/self/fd/1", "/dev/fd/2"])
def test_a_stream_opened_again_by_name_loses_nothing(tmp_path: Path, shell: str, command: str) -> None:
    async def test(bench: Bench) -> None:
        result = await bench.guest.run(
            f"echo 1; echo 1 >&2; echo 2 >{command}; echo 3; echo 3 >&2; echo 4 | tee {command}"
        )
        both = [line for stream in (result.stdout, result.stderr) for line in stream.splitlines()]
        assert sorted(both) == ["1", "1", "2", "3", "3", "4", "4"]

    with_guest(tmp_path, shell, test)


def test_case_06_output_is_exact(tmp_path: Path, shell: str) -> None:
    async def test(bench: Bench) -> None:
        assert (await bench.guest.run(r"printf '\377\000abc'")).stdout == "\N{REPLACEMENT CHARACTER}\0abc"
        assert (await bench.guest.run(r"printf '10%%\r20%%\r'")).stdout == "10%\r20%\r"
        assert (await bench.guest.run(r"printf '\n\n'; printf '\n' >&2")) == only("\n\n", "\n")
        assert (await bench.guest.run("printf '%s' 'a\\'")).stdout == "a\\"
        chinese = json.dumps({"text": "汉字" * 22_000}, ensure_ascii=False)
        (tmp_path / "chinese").write_text(chinese)
        assert (await bench.guest.run(f"cat {tmp_path}/chinese")).stdout == chinese
        five = await bench.guest.run("head -c 5000000 /dev/zero | tr '\\0' x")
        assert five == only("x" * 5_000_000)

    with_guest(tmp_path, shell, test, max_output_bytes=6_000_000)


def test_case_06_the_cut_is_announced(tmp_path: Path, shell: str) -> None:
    async def test(bench: Bench) -> None:
        (tmp_path / "text").write_text("é" * 50_000)
        before = len(bench.calls())
        result = await bench.guest.run(f"cat {tmp_path}/text; echo end; echo err >&2")
        assert bench.calls(before + 4) == ["copy_out"]
        assert result.truncated
        assert result.stderr == "err\n"
        # An odd half falls into the middle of a character, on both sides of the cut.
        head, told, tail = result.stdout.split("\n", 2)
        assert head == "é" * 2500
        assert told == "[... 90004 of 100004 bytes cut here (max_output_bytes) ...]"
        assert tail == "é" * 2498 + "end\n"

    with_guest(tmp_path, shell, test, max_output_bytes=10_001)


@pytest.mark.parametrize("how", ["file", "variable"])
def test_any_bytes_on_both_streams(tmp_path: Path, shell: str, how: str) -> None:
    """Property: whatever is printed comes back, on its own stream, at every size around the limits."""

    async def test(bench: Bench) -> None:
        for out, err in samples:
            (tmp_path / "out").write_bytes(out)
            (tmp_path / "err").write_bytes(err)
            result = await bench.guest.run(f"cat {tmp_path}/out; cat {tmp_path}/err >&2")
            assert result.stdout == out.decode("utf-8", "replace")
            assert result.stderr == err.decode("utf-8", "replace")

    sizes = (4060, 4061, 4062, 4063, 4095, 4096, 4097, 4130, 65535, 65536, 65537, 200_000)
    if how == "variable":
        samples = [(b"x" * size, b"\n" * size) for size in sizes]
    else:
        samples = []

        @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
        @given(st.binary(max_size=300), st.binary(max_size=300))
        def collect(out: bytes, err: bytes) -> None:
            samples.append((out, err))

        collect()
        samples.append((bytes(range(256)) * 10, bytes(range(255, -1, -1))))
    with_guest(tmp_path, shell, test)


def test_case_08_exit_codes_are_told(tmp_path: Path, shell: str) -> None:
    async def test(bench: Bench) -> None:
        assert await bench.guest.run("echo out; exit 3") == only("out\n", exit_code=3)
        unknown = await bench.guest.run("nosuchcommand")
        assert unknown.exit_code == 127
        assert "nosuchcommand" in unknown.stderr
        assert (await bench.guest.run("/dev/null")).exit_code == 126
        assert (await bench.guest.run("sh -c 'kill -9 $$'; exit $?")).exit_code == 137
        assert await bench.guest.run("false | true") == only()
        assert await bench.guest.run("set -e; false; echo no") == only(exit_code=1)
        assert await bench.guest.run("trap 'echo bye' EXIT; exit 4") == only("bye\n", exit_code=4)
        assert await bench.guest.run("exec false") == only(exit_code=1)
        assert await bench.guest.run("exec >/dev/null; echo lost") == only()
        assert await bench.guest.run("") == only()
        assert await bench.guest.run("# nothing") == only()

    with_guest(tmp_path, shell, test)


def test_case_08_a_command_that_kills_its_shell(tmp_path: Path, shell: str) -> None:
    async def test(bench: Bench) -> None:
        for what, code in (("-9 $$", 137), ("-TERM $$", 143), ("0", 143), ("-HUP $$", 129)):
            result = await bench.guest.run(f"echo out; echo err >&2; kill {what}; sleep 1")
            assert result == only("out\n", "err\n", code), what
        assert await bench.guest.run("echo after") == only("after\n")
        # Nothing stays of the shells that are no more.
        assert len([path for path in bench.state.iterdir() if path.is_dir()]) == 1

    with_guest(tmp_path, shell, test)


def test_a_command_that_is_no_shell_text(tmp_path: Path, shell: str) -> None:
    async def test(bench: Bench) -> None:
        for command in ("echo 'a", "(", "if", "echo )", "}", "echo $((1", "case x in", "f() {", "echo `"):
            result = await bench.guest.run(command)
            assert (result.exit_code, result.stdout) == (2 if shell != "bash" else result.exit_code, ""), command
            assert result.exit_code != 0, command
            assert result.stderr, command
            assert await bench.guest.run("echo after") == only("after\n"), command
        assert (await bench.guest.run("cat <<E\nx")).stdout.rstrip() == "x"
        assert bench.calls().count("exec") == 3

    with_guest(tmp_path, shell, test)


def test_errors_name_the_line_and_the_shell(tmp_path: Path, shell: str) -> None:
    async def test(bench: Bench) -> None:
        stderr = (await bench.guest.run("true\ntrue\nnosuchcommand")).stderr
        assert stderr.startswith(("bash: line 3: ", "sh: 3: ", "sh: eval: line 2: ")), stderr

    with_guest(tmp_path, shell, test)


def test_a_command_is_not_inside_a_function_of_ours(tmp_path: Path, shell: str) -> None:
    async def test(bench: Bench) -> None:
        assert await bench.guest.run("set -- a b; shift; echo $# $1; f() { local x=1; echo $x; }; f") == only(
            "1 b\n1\n"
        )
        assert await bench.guest.run('echo $# "$*"') == only("0 \n")
        assert await bench.guest.run("cd /; x=1; umask 077") == only()
        assert await bench.guest.run('echo "<$x>"; umask') == only("<>\n0022\n")

    with_guest(tmp_path, shell, test)


def test_nothing_a_command_can_print_is_the_protocol(tmp_path: Path, shell: str) -> None:
    async def test(bench: Bench) -> None:
        for command in ("set", "env", "export -p", "cat /proc/self/environ", "alias; trap; jobs"):
            result = await bench.guest.run(command)
            assert result.exit_code == 0
            assert not re.search(r"dfb_\w+=.?[0-9a-f]{32}", result.stdout)
            assert not re.search(r"dfb_call '?[0-9a-f]{32}", result.stdout)
        assert await bench.guest.run("printf '%s' 0123456789abcdef0123456789abcdefE") == only(
            "0123456789abcdef0123456789abcdefE"
        )

    with_guest(tmp_path, shell, test)


def test_case_05_a_long_command(tmp_path: Path, shell: str) -> None:
    async def test(bench: Bench) -> None:
        text = "".join(f"line {n} é '\"$x`\\\n" for n in range(11_000))
        assert len(text) > 200_000
        result = await bench.guest.run(f"cat >{tmp_path}/copy <<'END'\n{text}END\necho done")
        assert result == only("done\n")
        assert (tmp_path / "copy").read_text() == text

    with_guest(tmp_path, shell, test)


def test_case_09_env_is_verbatim_and_gone_afterwards(tmp_path: Path, shell: str) -> None:
    async def test(bench: Bench) -> None:
        value = 'it\'s "a"\n$HOME `id` \\ \t é ~ \udcff'
        result = await bench.guest.run(
            'printf %s "$X" >"$F"; sh -c "echo \\$LEVEL"', env={"X": value, "F": f"{tmp_path}/f", "LEVEL": "call"}
        )
        assert result == only("call\n")
        assert (tmp_path / "f").read_bytes() == value.encode("utf-8", "surrogateescape")
        assert await bench.guest.run('sh -c "echo \\$LEVEL"; echo "<$X>"') == only("settings\n<>\n")
        for name in ("BAD KEY", "A=B", "", "1"):
            before = len(bench.calls())
            with pytest.raises(ValueError, match="environment variable"):
                await bench.guest.run("echo no", env={name: "x"})
            assert bench.calls(before) == []

    with_guest(tmp_path, shell, test, environment={"LEVEL": "settings"})


def test_case_09_a_value_of_200_kb(tmp_path: Path, shell: str) -> None:
    """Linux passes no variable of more than 128 KiB to a program: the shell has it, and programs start."""

    async def test(bench: Bench) -> None:
        big = "é'" * 70_000
        result = await bench.guest.run('printf %s "$BIG" | wc -c; printf %s "$BIG"', env={"BIG": big})
        assert result.stdout.split("\n", 1) == ["210000", big]
        exported = await bench.guest.run('sh -c "echo \\${#BIG}"', env={"BIG": "x" * 100_000})
        assert exported == only("100000\n")

    with_guest(tmp_path, shell, test)


def test_an_environment_of_200_kb(tmp_path: Path, shell: str) -> None:
    async def test(bench: Bench) -> None:
        assert await bench.guest.run('sh -c "echo \\$SMALL"; echo ${#BIG}') == only("small\n200000\n")

    with_guest(tmp_path, shell, test, environment={"SMALL": "small", "BIG": "x" * 200_000})


def test_env_is_in_no_argument_list(tmp_path: Path, shell: str) -> None:
    async def test(bench: Bench) -> None:
        result = await bench.guest.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '", env={"TOKEN": "sesame" + "street"})
        assert "sesame" + "street" not in result.stdout
        assert not any("sesame" in word for call in bench.runtime.calls for word in call)

    with_guest(tmp_path, shell, test)


def test_nul_and_bad_timeouts_are_refused(tmp_path: Path, shell: str) -> None:
    async def test(bench: Bench) -> None:
        with pytest.raises(ValueError, match="NUL"):
            await bench.guest.run("echo \0")
        with pytest.raises(ValueError, match="timeout"):
            await bench.guest.run("echo", timeout=-1)
        with pytest.raises(ValueError, match="timeout"):
            bench.guest.stream("echo", timeout=float("nan"))

    with_guest(tmp_path, shell, test)


def test_case_10_eight_at_once_one_of_them_timing_out(tmp_path: Path, shell: str) -> None:
    async def test(bench: Bench) -> None:
        def command(n: int) -> str:
            return f"echo {n}; sleep 0.1; echo {n} >&2" if n != 3 else "echo 3; sleep 99"

        results = await asyncio.gather(*(bench.guest.run(command(n), timeout=2 if n == 3 else 50) for n in range(8)))
        for n, result in enumerate(results):
            assert result.stdout == f"{n}\n"
            if n == 3:
                assert (result.exit_code, result.timed_out) == (137, True)
            else:
                assert result == only(f"{n}\n", f"{n}\n")
        await bench.gone("sleep 99")

    with_guest(tmp_path, shell, test)


def test_more_commands_than_shells_wait_their_turn(tmp_path: Path, shell: str) -> None:
    async def test(bench: Bench) -> None:
        results = await asyncio.gather(*(bench.guest.run(f"echo {n}") for n in range(20)))
        assert results == [only(f"{n}\n") for n in range(20)]
        assert bench.calls().count("exec") == 2 + 8

    with_guest(tmp_path, shell, test)


def test_case_26_the_box_dies_under_a_command(tmp_path: Path, shell: str) -> None:
    async def test(bench: Bench) -> None:
        running = asyncio.create_task(bench.guest.run("echo begun; sleep 77"))
        while not bench.running("sleep 77"):
            await asyncio.sleep(0.01)
        bench.box.die()
        with pytest.raises(BoxGone):
            await running
        with pytest.raises(BoxGone):
            await bench.guest.run("true")

    with_guest(tmp_path, shell, test)


def test_a_command_that_removes_the_directory_its_output_is_in(tmp_path: Path, shell: str) -> None:
    async def test(bench: Bench) -> None:
        removing = f"echo small; rm -rf {bench.state}"
        assert await bench.guest.run(removing) == only("small\n")
        assert await bench.guest.run(f"printf '%9000s' x; rm -rf {bench.state}") == only("x".rjust(9000))
        assert await bench.guest.run("printf '%9000s' x") == only("x".rjust(9000))
        assert await bench.guest.run(f"echo a; rm -rf {bench.state}; kill -9 $$") == only(
            stderr="deerflow-boxlite: the output was lost: the command removed the directory it is collected in\n",
            exit_code=137,
        )
        assert await bench.guest.run("echo after") == only("after\n")

    with_guest(tmp_path, shell, test)


def test_a_profile_is_read_once_and_environment_is_over_it(tmp_path: Path, shell: str) -> None:
    def prepare(box: LocalBox) -> None:
        (box.home / ".profile").write_text(
            "GREETING=profile SEEN=$LEVEL LEVEL=profile; export GREETING SEEN LEVEL\n"
            f"echo read >>{tmp_path}/reads; hello() {{ echo hello $1; }}\n"
            "alias cat=false tail=false head=false mkfifo=false; grep() { echo mine; }; set -u\n"
        )

    async def test(bench: Bench) -> None:
        assert await bench.guest.run("echo $GREETING $SEEN $LEVEL; hello you; grep") == only(
            "profile settings settings\nhello you\nmine\n"
        )
        assert (await bench.guest.run("printf '%9000s' x; echo $nosuchvariable; echo no")).stdout == "x".rjust(9000)
        assert (tmp_path / "reads").read_text() == "read\n"

    with_guest(tmp_path, shell, test, prepare=prepare, environment={"LEVEL": "settings"})


@pytest.mark.parametrize("text", ["exit 5\n", "exec true\n", "kill -9 $$\n"])
def test_a_profile_that_ends_the_shell_is_left_out_and_told(tmp_path: Path, shell: str, text: str) -> None:
    def prepare(box: LocalBox) -> None:
        (box.home / ".profile").write_text(text)

    async def test(bench: Bench) -> None:
        result = await bench.guest.run("echo still here")
        assert (result.exit_code, result.stdout) == (0, "still here\n")
        assert result.stderr.startswith("deerflow-boxlite: the profile of the login shell was left out")

    with_guest(tmp_path, shell, test, prepare=prepare)
