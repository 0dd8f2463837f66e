"""A gateway in a process of its own, to be killed: `gateway.py PROJECT`.

For each line that it reads, JSON of a thread and the agent's calls, it makes a turn, and answers with a line of JSON:
what the tools answered.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path


def main() -> None:
    project = Path(sys.argv[1])
    os.chdir(project)
    spec = importlib.util.spec_from_file_location("harness", Path(__file__).resolve().parents[1] / "harness.py")
    assert spec is not None
    assert spec.loader is not None
    harness = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(harness)
    deerflow = harness.DeerFlow(project)
    for line in sys.stdin:
        thread, calls = json.loads(line)
        print(json.dumps(deerflow.turn(thread, *map(tuple, calls))), flush=True)


main()
