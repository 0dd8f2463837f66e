"""The main job on a real box, step by step with its times: what `make demo` shows."""

from __future__ import annotations

import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from deerflow_boxlite import BoxliteBox, BoxliteConfig, BoxliteProvider, images
from deerflow_boxlite.doctor import check_host

console = Console(highlight=False, soft_wrap=True)


def registry_answers() -> bool:
    """Whether Docker Hub, where the default image comes from, can be reached from here."""
    try:
        urllib.request.urlopen("https://registry-1.docker.io/v2/", timeout=5)
    except urllib.error.HTTPError:
        return True  # 401: it wants a token, which BoxLite gets.
    except OSError:
        return False
    return True


def image() -> str:
    """The default image where its registry answers, else one built here."""
    if registry_answers():
        return str(BoxliteConfig.model_fields["image"].default)
    return str(images.cached("debian", log=lambda line: console.print(f"  [dim]{line}[/dim]")))


@contextmanager
def step(what: str) -> Iterator[None]:
    """Print what is done and how long it took."""
    console.print(f"[bold]{what}[/bold] ...")
    start = time.perf_counter()
    yield
    console.print(f"  [green]done in {time.perf_counter() - start:.2f} s[/green]")


def take(provider: BoxliteProvider, thread: str, user: str) -> BoxliteBox:
    """Acquire the box of a user's thread."""
    found = provider.get(provider.acquire(thread, user_id=user))
    assert isinstance(found, BoxliteBox)
    return found


def files(box: BoxliteBox) -> None:
    """Every file operation once."""
    base = "/mnt/user-data/workspace"
    with step("Write, read, list, glob, grep, download"):
        box.write_file(f"{base}/src/app.py", "import os\n\nprint('TODO: greet')\n")
        console.print(f"  read_file:     {box.read_file(f'{base}/src/app.py', start_line=1, end_line=1)!r}")
        console.print(f"  list_dir:      {box.list_dir(base)}")
        console.print(f"  glob **/*.py:  {box.glob(base, '**/*.py')[0]}")
        console.print(f"  grep TODO:     {box.grep(base, 'TODO')[0]}")
        box.update_file("/mnt/user-data/outputs/all-bytes.bin", bytes(range(256)))
        console.print(f"  download_file: {len(box.download_file('/mnt/user-data/outputs/all-bytes.bin'))} bytes")


def tour(config: BoxliteConfig) -> None:
    """From a cold start to a second gateway that finds everything again."""
    with BoxliteProvider(config=config) as provider:
        with step("Cold acquire (makes a box of the image, boots its VM)"):
            box = take(provider, "thread-1", "alice")
        with step("A command with an environment variable"):
            console.print(f"  {box.execute_command('echo Hello, $NAME; uname -sr', env={'NAME': 'agent'}).strip()}")
        files(box)
        with step("Release, and reclaim it warm"):
            provider.release(box.id)
            box = take(provider, "thread-1", "alice")
        with step("Another user's box, which sees nothing of it"):
            other = take(provider, "thread-1", "bob")
            console.print(f"  alice: {box.list_dir('/mnt/user-data/workspace')}")
            console.print(f"  bob:   {other.list_dir('/mnt/user-data/workspace')}")
            assert other.list_dir("/mnt/user-data/workspace") == []
        with step("Stop every box"):
            provider.shutdown()
    with BoxliteProvider(config=config) as provider:
        with step("Acquire again: the same disk boots"):
            box = take(provider, "thread-1", "alice")
        console.print(f"  still there: {box.read_file('/mnt/user-data/workspace/src/app.py')!r}")


def main() -> None:
    """Prepare (`--prepare`, before a lab is started) or run the demonstration."""
    if "--prepare" in sys.argv:
        console.print(f"Image: {image()}")
        return
    with tempfile.TemporaryDirectory(prefix="boxlite-demo-") as home:
        config = BoxliteConfig(image=image(), home_dir=Path(home))
        check_host(config)
        console.print(f"Image: {config.image}\n")
        tour(config)
    console.print("\n[bold green]All of it worked.[/bold green]")


if __name__ == "__main__":
    main()
