"""Commands on real boxes, on both images: cases 1 to 11 but the fourth."""

from __future__ import annotations

import json
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from deerflow_boxlite import BoxliteBox, CommandResult

pytestmark = pytest.mark.timeout(600)


def only(stdout: str = "", stderr: str = "", exit_code: int = 0) -> CommandResult:
    return CommandResult(exit_code, stdout, stderr)


def running(box: BoxliteBox, text: str) -> int:
    """How many processes have `text` in their command line. Told by the shell alone: a `ps` would see itself."""
    found = box.run(
        'n=0; for f in /proc/[0-9]*/cmdline; do l=; { l=$(tr "\\0" " " <"$f"); } 2>/dev/null;'
        ' case $l in "$WANTED"*) n=$((n + 1)) ;; esac; done; echo $n',
        env={"WANTED": text},
    )
    return int(found.stdout)


def unique() -> str:
    """A number of seconds that no other test sleeps."""
    return str(1_000_000 + uuid.uuid4().int % 1_000_000)


def test_case_01_a_background_child_is_left_alone(box: BoxliteBox) -> None:
    seconds = unique()
    assert box.run(f"sleep {seconds} & echo hi") == only("hi\n")
    assert box.run("(for n in 1 2 3; do sleep 0.2; echo noise; done) & echo hi").stdout.startswith("hi\n")
    for _ in range(3):
        assert box.run("sleep 0.3; echo mine") == only("mine\n")
    assert running(box, f"sleep {seconds}") == 1


@pytest.mark.parametrize(
    "command",
    [
        'sh -c "sleep {s}; true"',
        "trap '' TERM; sleep {s}; sleep {s}",
        "sleep {s} | cat | cat",
        "(setsid sleep {s} &); sleep {s}",
        "setsid sh -c 'sleep {s} & sleep {s}' & sleep {s}",
    ],
)
def test_case_02_a_deadline_is_final(box: BoxliteBox, command: str) -> None:
    seconds = unique()
    result = box.run("echo begun; " + command.format(s=seconds), timeout=2)
    assert (result.exit_code, result.stdout, result.timed_out) == (137, "begun\n", True)
    assert result.stderr == "Command timed out after 2 seconds; it was killed with all it had started\n"
    assert running(box, f"sleep {seconds}") == 0
    assert box.execute_command("echo usable") == "usable\n"


def test_case_02_a_python_that_forks(box: BoxliteBox, image_name: str) -> None:
    if image_name == "busybox":
        pytest.skip("the image has no python3")
    seconds = unique()
    forking = (
        "import os\nfor n in range(2): os.fork()\nif os.fork() == 0: os.setsid()\n"
        f"os.execvp('sleep', ['sleep', '{seconds}'])"
    )
    assert box.run('python3 -c "$CODE"', env={"CODE": forking}, timeout=5).timed_out
    assert running(box, f"sleep {seconds}") == 0


def test_case_03_standard_input_is_at_its_end(box: BoxliteBox, image_name: str) -> None:
    assert box.run("cat; read x; echo $?") == only("1\n")
    if image_name != "busybox":
        assert "EOFError" in box.run("python3 -c 'input()'").stderr


def test_case_05_a_long_command(box: BoxliteBox, folder: str) -> None:
    text = "".join(f"line {n} é '\"$x`\\\n" for n in range(11_000))
    assert box.run(f"cat >{folder}/copy <<'END'\n{text}END\nwc -c <{folder}/copy").stdout.strip() == str(
        len(text.encode())
    )


def test_case_06_output_is_exact(box: BoxliteBox, folder: str) -> None:
    assert box.run(r"printf '\377\000abc'").stdout == "\N{REPLACEMENT CHARACTER}\0abc"
    assert box.run(r"printf '10%%\r20%%\r'").stdout == "10%\r20%\r"
    chinese = json.dumps({"text": "汉字" * 22_000}, ensure_ascii=False)
    box.write_file(f"{folder}/chinese", chinese)
    assert box.run(f"cat {folder}/chinese; cat {folder}/chinese >&2") == only(chinese, chinese)
    five = box.run("head -c 5000000 /dev/zero | tr '\\0' x")
    assert five.truncated
    assert five.stdout.startswith("x" * 500_000)
    assert five.stdout.endswith("x" * 500_000)
    assert " of 5000000 bytes cut here" in five.stdout


def test_a_stream_opened_again_by_name_loses_nothing(box: BoxliteBox) -> None:
    result = box.run(
        "echo 1 >&2; echo 2 >/dev/stderr; echo 3 >&2; echo 1; echo 2 >/dev/stdout; echo 3 | tee /dev/stderr"
    )
    assert result == only("1\n2\n3\n", "1\n2\n3\n3\n")


def test_case_07_and_08_exit_codes_are_told(box: BoxliteBox) -> None:
    assert box.execute_command("echo OK") == "OK\n"
    assert box.run("echo out; exit 3") == only("out\n", exit_code=3)
    assert box.run("nosuchcommand").exit_code == 127
    assert box.run("echo out; echo err >&2; kill -9 $$") == only("out\n", "err\n", 137)
    assert box.run("echo out; kill -TERM $$; sleep 5") == only("out\n", exit_code=143)
    assert box.execute_command("exit 3") == "\nExit Code: 3"


def test_every_process_killed(box: BoxliteBox) -> None:
    """`kill -9 -1` takes all shells with it, and the box serves on."""
    assert box.run("echo out; kill -9 -1; sleep 5").exit_code == 137
    assert box.execute_command("echo usable") == "usable\n"


def test_case_09_env_is_verbatim(box: BoxliteBox) -> None:
    value = 'it\'s "a"\n$HOME `id` \\ \t é ~'
    assert box.run('printf %s "$X"', env={"X": value}).stdout == value
    assert box.run('echo "<$X>"') == only("<>\n")
    assert box.run('printf %s "$BIG" | wc -c', env={"BIG": "é'" * 70_000}).stdout.strip() == "210000"
    for name in ("BAD KEY", "A=B"):
        with pytest.raises(ValueError, match="environment variable"):
            box.run("echo no", env={name: "x"})


def test_case_10_eight_at_once_one_of_them_timing_out(box: BoxliteBox) -> None:
    def one(n: int) -> CommandResult:
        if n == 3:
            return box.run("echo 3; sleep 99", timeout=3)
        return box.run(f"echo {n}; sleep 1; echo {n} >&2", timeout=60)

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(one, range(8)))
    for n, result in enumerate(results):
        if n == 3:
            assert (result.stdout, result.timed_out) == ("3\n", True)
        else:
            assert result == only(f"{n}\n", f"{n}\n")


def test_case_11_out_of_memory(box: BoxliteBox, image_name: str) -> None:
    shell = box.execute_command("echo $$")
    if image_name == "busybox":
        # tail keeps a line in memory until its end.
        result = box.run("tail -n 1 /dev/zero", timeout=300)
    else:
        result = box.run("python3 -c \"x='x'*10**10\"", timeout=300)
    assert result.exit_code != 0
    assert not result.timed_out
    # Nothing of ours was killed instead.
    assert box.execute_command("echo $$") == shell


def test_streaming(box: BoxliteBox) -> None:
    found = {"stdout": "", "stderr": "", "exit": ""}
    for name, text in box.stream("echo a; echo b >&2; sleep 0.2; printf c; exit 4"):
        found[name] += text
    assert found == {"stdout": "a\nc", "stderr": "b\n", "exit": "4"}


def test_a_stream_closed_early_kills_the_command(box: BoxliteBox) -> None:
    seconds = unique()
    pieces = box.stream(f"echo begun; sleep {seconds}")
    assert next(pieces) == ("stdout", "begun\n")
    pieces.close()  # type: ignore[attr-defined]
    for _ in range(50):
        if running(box, f"sleep {seconds}") == 0:
            break
    assert running(box, f"sleep {seconds}") == 0


def test_process_1_is_ours_and_short(box: BoxliteBox) -> None:
    result = box.run("tr '\\0' ' ' </proc/1/cmdline")
    assert result.stdout.startswith("/bin/sh -c trap")
    # Nor do our shells fill the screen of who looks at processes.
    assert max(map(len, box.run("cat /proc/[0-9]*/cmdline | tr '\\0' '\\n'").stdout.splitlines())) < 600
