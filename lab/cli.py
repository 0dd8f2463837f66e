"""The command line of lab/run."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from deerflow_boxlite.debs import DebsError
from lab import call, host, parts, watch

EXIT_TIMEOUT = 124
EXIT_LAB_FAILED = 125

_EPILOG = """\
COMMAND runs as root in the caller's directory, with the caller's environment and this machine's files. What it
writes is gone at the end, except in the directory $LAB_OUT, which is --out. Its standard input is empty; its standard
output and error both come out as standard output.

exit status:
  the command's own (128+n if signal n ended it), or
  2    the arguments are wrong
  124  the time limit of --timeout was reached
  125  the lab failed: its software could not be had, or the emulated host did not start, ended or locked up
  128+n  lab/run got signal n
"""


# Not Exceptions: no "except Exception" on the way may take them for an error of its own.
class _TimeUp(BaseException):
    pass


class _Signalled(BaseException):
    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the parsed arguments; ends the process with status 2 if they are wrong."""
    parser = argparse.ArgumentParser(
        prog="lab/run",
        usage="%(prog)s [--timeout S] [--out DIR] [--memory MIB] -- COMMAND...",
        description="Run COMMAND in an emulated KVM host, which has /dev/kvm even where this machine has none.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--timeout", type=_seconds, metavar="S", help="end the whole run after S seconds")
    parser.add_argument("--out", type=Path, metavar="DIR", help="directory that $LAB_OUT is (made if missing)")
    parser.add_argument(
        "--memory",
        type=_mebibytes,
        metavar="MIB",
        default=host.default_memory(),
        help="memory of the emulated host (default: %(default)s), taken as it is used",
    )
    parser.add_argument("command", nargs="+", metavar="COMMAND", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _seconds(text: str) -> float:
    value = float(text)
    # The upper bound is what an interval timer surely takes.
    if not 0 < value < 1e8:
        raise argparse.ArgumentTypeError("must be more than 0")
    return value


def _mebibytes(text: str) -> int:
    value = int(text)
    if value < 512:
        raise argparse.ArgumentTypeError("must be at least 512")
    return value


def main(arguments: Sequence[str]) -> int:
    """Run lab/run with `arguments` and return its exit status."""
    options = parse(arguments)
    _raise_on_signals(options.timeout)
    try:
        return _run(options)
    except _TimeUp:
        _say(f"the time limit of {options.timeout:g} s was reached")
        return EXIT_TIMEOUT
    except _Signalled as signalled:
        return 128 + signalled.number
    except BrokenPipeError:
        return 128 + signal.SIGPIPE
    except (parts.PartsError, DebsError, watch.HostLost, OSError) as error:
        _say(str(error))
        return EXIT_LAB_FAILED


def _run(options: argparse.Namespace) -> int:
    cache = parts.cache_directory()
    software = parts.prepare(cache, _say)
    with host.run_directory(cache) as directory:
        out = options.out.absolute() if options.out else directory / "out"
        out.mkdir(parents=True, exist_ok=True)
        mark = call.new_mark()
        variables = call.environment(os.environ)
        script = call.script(options.command, str(Path.cwd()), variables, call.open_file_limits())
        call.write(directory / "call", script, mark)
        host.make_scratch(software, directory / "scratch")
        try:
            with host.started(software, directory, out, options.memory) as running:
                status = watch.follow(running, mark, _print)
        except watch.HostLost:
            # That its EPYC is not quite one is no news, and takes a dozen lines.
            _show("qemu", [line for line in _lines(directory / "qemu") if "TCG doesn't support" not in line])
            _show("the emulated host's console", _lines(directory / "console")[-40:])
            raise
        except _TimeUp:
            _show_trouble(directory)
            raise
        _show_trouble(directory)
        return status


def _show_trouble(directory: Path) -> None:
    _show("the emulated host's kernel", watch.trouble(_lines(directory / "console"))[:10])


def _show(origin: str, lines: Sequence[str]) -> None:
    if lines:
        _say(f"{origin} says:")
    for line in lines:
        _say(f"  {line}")


def _lines(file: Path) -> list[str]:
    # The console has the terminal's line ends.
    return [line.rstrip() for line in file.read_text(errors="replace").splitlines()] if file.exists() else []


def _print(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(sys.stdout.fileno(), view) :]


def _say(message: str) -> None:
    print(f"lab: {message}", file=sys.stderr, flush=True)


def _raise_on_signals(timeout: float | None) -> None:
    """Turn signals and the time limit into exceptions, so that one way of cleaning up serves all ends."""

    def stop(number: int, _frame: object) -> None:
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
            signal.signal(each, signal.SIG_IGN)
        if number == signal.SIGALRM:
            raise _TimeUp
        raise _Signalled(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, stop)
    if timeout is not None:
        signal.setitimer(signal.ITIMER_REAL, timeout)
