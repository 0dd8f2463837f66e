"""The path that DeerFlow's documentation names: `sandbox.use: deerflow.community.boxlite:BoxliteProvider`."""

from deerflow_boxlite.box import BoxliteBox
from deerflow_boxlite.provider import BoxliteProvider

__all__ = ["BoxliteBox", "BoxliteProvider"]
