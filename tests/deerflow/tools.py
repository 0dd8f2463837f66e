"""DeerFlow's tools on a sandbox of ours, each called by the agent. Used by the local and the live suites.

`root` is a directory in the sandbox that is the test's alone.
"""

from __future__ import annotations

from .harness import DeerFlow


def check_bash(deerflow: DeerFlow, root: str) -> None:
    answers = deerflow.turn(
        "tools",
        ("bash", {"command": f"cd {root} && echo one; echo oops >&2; exit 3"}),
        ("bash", {"command": "echo OK"}),
        ("bash", {"command": "true"}),
        ("bash", {"command": "nosuchcommand"}),
        ("bash", {"command": "sleep 60 & echo hi"}),
        ("bash", {"command": "cat"}),
    )
    assert answers[0] == "one\n\nStd Error:\noops\n\nExit Code: 3"
    assert answers[1:3] == ["OK\n", "(no output)"]
    assert "not found" in answers[3]
    assert answers[3].endswith("Exit Code: 127")
    assert answers[4:] == ["hi\n", "(no output)"]


def check_files(deerflow: DeerFlow, root: str) -> None:
    name = f"{root}/sub/né w.txt"
    answers = deerflow.turn(
        "tools",
        ("write_file", {"path": name, "content": "one\ntwo\n"}),
        ("write_file", {"path": name, "content": "three\nfour\n", "append": True}),
        ("read_file", {"path": name}),
        ("read_file", {"path": name, "start_line": 2, "end_line": 3}),
        ("str_replace", {"path": name, "old_str": "two", "new_str": "2"}),
        ("read_file", {"path": name}),
        ("str_replace", {"path": name, "old_str": "absent", "new_str": ""}),
        ("ls", {"path": root}),
    )
    assert answers[:2] == ["OK", "OK"]
    assert answers[2] == "one\ntwo\nthree\nfour\n"
    assert answers[3] == "two\nthree"
    assert answers[4] == "OK"
    assert answers[5] == "one\n2\nthree\nfour\n"
    assert answers[6] == f"Error: String to replace not found in file: {name}"
    assert answers[7] == f"{root}/sub/\n{name}"


def check_search(deerflow: DeerFlow, root: str) -> None:
    answers = deerflow.turn(
        "tools",
        ("write_file", {"path": f"{root}/src/app.py", "content": "import os\nprint('hello')\n"}),
        ("write_file", {"path": f"{root}/src/lib.js", "content": "hello()\n"}),
        ("write_file", {"path": f"{root}/node_modules/m/hello.py", "content": "hello\n"}),
        ("glob", {"path": root, "pattern": "**/*.py"}),
        ("grep", {"path": root, "pattern": r"h\w+o", "glob": "**/*.py"}),
        ("grep", {"path": root, "pattern": "("}),
        ("grep", {"path": root, "pattern": "nowhere to be found"}),
    )
    assert answers[:3] == ["OK"] * 3
    assert f"1. {root}/src/app.py" in answers[3]
    assert "hello.py" not in answers[3]
    assert f"{root}/src/app.py:2: print('hello')" in answers[4]
    assert "lib.js" not in answers[4]
    assert answers[5].startswith("Error: Invalid regex pattern:")
    assert answers[6].startswith("No matches found")


def check_errors(deerflow: DeerFlow, root: str) -> None:
    missing, binary = f"{root}/missing", f"{root}/binary"
    answers = deerflow.turn(
        "tools",
        ("bash", {"command": f"printf '\\377\\000' > {binary}; : > {root}/empty; mkdir {root}/hollow"}),
        ("read_file", {"path": missing}),
        ("read_file", {"path": root}),
        ("read_file", {"path": binary}),
        ("read_file", {"path": f"{root}/empty"}),
        ("str_replace", {"path": missing, "old_str": "a", "new_str": "b"}),
        ("write_file", {"path": root, "content": "x"}),
        ("ls", {"path": missing}),
        ("ls", {"path": f"{root}/hollow"}),
        ("glob", {"path": missing, "pattern": "*"}),
        ("glob", {"path": binary, "pattern": "*"}),
        ("grep", {"path": missing, "pattern": "x"}),
        ("read_file", {"path": f"{root}/../../etc/passwd"}),
    )
    assert answers[1:] == [
        f"Error: File not found: {missing}",
        f"Error: Path is a directory, not a file: {root}",
        answers[3],
        "(empty)",
        f"Error: File not found: {missing}",
        f"Error: Path is a directory, not a file: {root}",
        f"Error: Directory not found: {missing}",
        "(empty)",
        f"Error: Directory not found: {missing}",
        f"Error: Path is not a directory: {binary}",
        f"Error: Directory not found: {missing}",
        f"Error: Permission denied reading file: {root}/../../etc/passwd",
    ]
    assert answers[3].startswith("Error: Unexpected error reading file: UnicodeDecodeError:")
