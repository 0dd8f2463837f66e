"""What all suites need."""

from __future__ import annotations

import signal

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Take signals as they are by default, and so in the programs that tests start.

    Under `nohup`, and in the background of a shell, some are ignored from the start (POSIX, 2.11), and tests of what
    signals do would find that nothing happens.
    """
    for number, handler in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
