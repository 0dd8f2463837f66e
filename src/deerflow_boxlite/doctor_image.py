"""Whether the image of the boxes can be had."""

from __future__ import annotations

import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator

from .config import BoxliteConfig
from .doctor_report import Finding, ok, problem
from .errors import ImageError

_DOCKER_HUB = "registry-1.docker.io"
_TIMEOUT = 3.0

_LAYOUT_CURE = "Make a layout with `deerflow-boxlite image build --from debian DIR`, and set image to DIR"


def image_findings(config: BoxliteConfig) -> Iterator[Finding]:
    """Say whether the image is a valid local layout, or its registry answers. Blocks for up to 3 s."""
    from .images import resolve

    try:
        source = resolve(config.image)
    except ImageError as error:
        yield problem("image", str(error).rstrip("."), _LAYOUT_CURE)
        return
    if source.reference is None:
        yield ok("image", f"{source.layout} is an OCI layout with an image for this machine")
        return
    registry = registry_of(source.reference)
    if trouble := unreachable(registry):
        yield problem(
            "image",
            f"image {config.image}: its registry {registry} cannot be reached ({trouble})",
            f"Let this host reach it. {_LAYOUT_CURE}. An image that is in the home already serves without its "
            "registry: --boot shows it",
        )
        return
    yield ok(
        "image", f"the registry {registry} answers; whether it has {config.image} shows at the first boot (--boot)"
    )


def registry_of(reference: str) -> str:
    """Return the registry (host and port) of an OCI reference; Docker Hub where it names none, as all tools have it."""
    first, slash, _ = reference.partition("/")
    named = slash and (first == "localhost" or "." in first or ":" in first)
    if not named or first == "docker.io":
        return _DOCKER_HUB
    return first


def unreachable(registry: str, scheme: str = "https") -> str | None:
    """Return why a registry does not answer, or None when it does. Blocks for up to 3 s.

    Any HTTP answer to the API's root will do (OCI distribution specification, "Determining Support"): mostly it is 401.
    """
    try:
        urllib.request.urlopen(f"{scheme}://{registry}/v2/", timeout=_TIMEOUT).close()
    except urllib.error.HTTPError as error:
        error.close()
    except urllib.error.URLError as error:
        return str(error.reason)
    except (OSError, http.client.HTTPException, ssl.SSLError, ValueError) as error:
        return str(error) or type(error).__name__
    return None
