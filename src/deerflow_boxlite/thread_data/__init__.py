"""A thread's files on the host and in its box, kept alike between turns (`thread_data: copy`), or mounted (`mount`)."""

from .hooks import ThreadData
from .report import Reason, Report

__all__ = ["Reason", "Report", "ThreadData"]
