"""`python -m deerflow_boxlite`."""

from .cli import app

app(prog_name="deerflow-boxlite")
