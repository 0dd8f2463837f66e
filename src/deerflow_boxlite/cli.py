"""The command `deerflow-boxlite`. What it needs is imported by the command that needs it: its help costs nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from .config import BoxliteConfig

app = typer.Typer(
    help="Micro-VM sandboxes for DeerFlow agents.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
image_app = typer.Typer(help="Make and look at local images.", no_args_is_help=True)
app.add_typer(image_app, name="image")

ImageOption = Annotated[
    str | None, typer.Option("--image", help="OCI reference or local OCI layout, in place of the setting image.")
]


@app.command()
def doctor(
    boot: Annotated[bool, typer.Option("--boot", help="Prove it: boot a box, and delete it.")] = False,
    image: ImageOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Examine whether a box can run here, and say what to do where it cannot. Exit status 0 only when it can."""
    from .cli_output import print_json, print_report
    from .doctor import check

    with _clean_errors():
        report = check(_config(image), boot=boot)
    if as_json:
        print_json(report.as_dict())
    else:
        print_report(report)
    raise typer.Exit(0 if report.ok else 1)


@app.command()
def config(
    image: ImageOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print them as JSON.")] = False,
) -> None:
    """Print the settings in effect. Secrets, and the values of environment variables, are not shown."""
    from .cli_output import masked, print_json, print_yaml

    with _clean_errors():
        settings = masked(_config(image))
    (print_json if as_json else print_yaml)(settings)


@app.command()
def run(
    command: Annotated[list[str], typer.Argument(help="The command, after `--`. One word is a shell command line.")],
    image: ImageOption = None,
    thread: Annotated[
        str | None, typer.Option("--thread", help="Thread whose box it runs in; without one, in a new box.")
    ] = None,
    user: Annotated[str | None, typer.Option("--user", help="User whose thread it is.")] = None,
) -> None:
    """Run a command in a box: its output comes as it is printed, and its exit status is this one's."""
    import shlex

    from .provider import BoxliteProvider

    line = command[0] if len(command) == 1 else shlex.join(command)
    with _clean_errors():
        provider = BoxliteProvider(config=_config(image))
        try:
            sandbox_id = provider.acquire(thread, user_id=user)
            try:
                box = provider.get(sandbox_id)
                if box is None:
                    raise RuntimeError(f"the provider does not know box {sandbox_id}, which it gave")
                status = _stream(box.stream(line))
            finally:
                provider.release(sandbox_id)
        finally:
            provider.shutdown()
        if thread is None:
            # Nobody can come back to a box without a thread.
            from .boxes import remove_boxes

            remove_boxes(_config(image).home_dir, [sandbox_id])
    raise typer.Exit(status)


def _stream(pieces: Iterator[tuple[str, Any]]) -> int:
    """Print a command's output as it comes, and return its exit status as a shell tells it."""
    for kind, piece in pieces:
        if kind == "exit":
            code = int(piece)
            return code if code >= 0 else 128 - code
        stream = sys.stdout if kind == "stdout" else sys.stderr
        stream.write(piece)
        stream.flush()
    raise RuntimeError("the command's output ended without its exit status")


@app.command("ls")
def list_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print them as JSON.")] = False,
) -> None:
    """List the boxes in the home: id, state, size on the disk, last use."""
    from dataclasses import asdict

    from .boxes import list_boxes
    from .cli_output import print_boxes, print_json

    with _clean_errors():
        settings = _config(None)
        boxes = list_boxes(settings.home_dir)
    if as_json:
        print_json([asdict(box) for box in boxes])
    else:
        print_boxes(boxes, settings.home_dir)


@app.command("rm")
def remove_command(
    ids: Annotated[list[str] | None, typer.Argument(help="Ids of boxes, as `ls` shows them.")] = None,
    thread: Annotated[str | None, typer.Option("--thread", help="The box of this thread.")] = None,
    user: Annotated[str | None, typer.Option("--user", help="User whose thread it is.")] = None,
) -> None:
    """Delete boxes, with the files in them."""
    from .boxes import remove_boxes
    from .identity import Identity
    from .provider import current_user

    wanted = list(ids or [])
    if thread is not None:
        wanted.append(Identity(user or current_user(), thread).sandbox_id)
    if not wanted:
        raise typer.BadParameter("give ids, or --thread")
    with _clean_errors():
        home = _config(None).home_dir
        removed = remove_boxes(home, wanted)
    for sandbox_id in removed:
        typer.echo(f"removed {sandbox_id}")
    missing = [sandbox_id for sandbox_id in wanted if sandbox_id not in removed]
    for sandbox_id in missing:
        _complain(f"there is no box {sandbox_id} in {home}")
    raise typer.Exit(1 if missing else 0)


@image_app.command("build")
def image_build(
    into: Annotated[Path, typer.Argument(metavar="DIR", help="Where the layout goes.")],
    base: Annotated[str, typer.Option("--from", help="What it is made from: busybox or debian.")],
) -> None:
    """Make an OCI layout of a small image from Debian's packages, with no registry."""
    from .images import build

    if base not in ("busybox", "debian"):
        raise typer.BadParameter(f"{base!r} is neither busybox nor debian", param_hint="--from")
    with _clean_errors():
        layout = build(base, into, log=lambda line: typer.echo(line, err=True))  # type: ignore[arg-type]
    typer.echo(str(layout))


@image_app.command("show")
def image_show(
    layout: Annotated[Path, typer.Argument(metavar="DIR", help="An OCI layout.")],
) -> None:
    """Print what the image in a layout says about its processes."""
    from dataclasses import asdict

    from .cli_output import print_json
    from .images import image_config

    with _clean_errors():
        shown = asdict(image_config(layout.expanduser().absolute()))
    print_json(shown)


def _config(image: str | None) -> BoxliteConfig:
    from .config_source import load_config

    return load_config(image=image)


@contextmanager
def _clean_errors() -> Iterator[None]:
    """Tell what can go wrong in one message and exit with status 1; a defect of ours keeps its traceback."""
    from .contract import SandboxError
    from .debs import DebsError
    from .errors import ConfigError
    from .runtime import RuntimeFault

    try:
        yield
    except (SandboxError, ConfigError, RuntimeFault, DebsError, OSError, ImportError) as error:
        _complain(str(error))
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _complain(message: str) -> None:
    typer.echo(f"deerflow-boxlite: {message}", err=True)
