"""What the settings say about a box, in the runtime's terms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .images import resolve
from .runtime import BoxHandle, BoxSpec, Network, SecretRule, Volume

if TYPE_CHECKING:
    from .config import BoxliteConfig
    from .guest import Guest


def box_spec(config: BoxliteConfig, extra: tuple[Volume, ...] = ()) -> BoxSpec:
    """What to make a box from, with `extra` volumes after those of the settings. Blocks for a few small reads.

    Raises `ImageError` for an image that is malformed, or no OCI layout.
    """
    from .guest import INIT

    source = resolve(config.image)
    network = config.network
    return BoxSpec(
        image=source.reference,
        layout=source.layout,
        cpus=config.cpus,
        memory_mib=config.memory_mib,
        disk_size_gb=config.disk_size_gb,
        command=INIT,
        volumes=tuple(Volume(m.host_path, m.container_path, m.read_only) for m in config.mounts) + extra,
        network=Network(network.mode == "enabled", network.allow) if network is not None else None,
        secrets=tuple(SecretRule(s.name, s.value.get_secret_value(), s.hosts) for s in config.secrets),
    )


def fingerprint(config: BoxliteConfig) -> str:
    """The settings that are fixed when a box is made, readable. Two boxes with the same ones are alike."""
    return f"image={config.image} memory_mib={config.memory_mib} cpus={config.cpus} disk_size_gb={config.disk_size_gb}"


async def open_guest(handle: BoxHandle, config: BoxliteConfig) -> Guest:
    """Make a box that was just booted ready for use, and open its channels."""
    from .guest import Guest, GuestSettings

    return await Guest.open(handle, GuestSettings.of(config))
