"""DeerFlow's tools and middlewares, as its agent runs them, around a model that says what the test wants."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from deerflow.agents.middlewares.thread_data_middleware import ThreadDataMiddleware
from deerflow.agents.middlewares.uploads_middleware import UploadsMiddleware
from deerflow.agents.thread_state import ThreadState
from deerflow.client import DeerFlowClient
from deerflow.config import app_config, paths
from deerflow.sandbox import get_sandbox_provider, sandbox_provider
from deerflow.sandbox.middleware import SandboxMiddleware
from deerflow.sandbox.tools import (
    bash_tool,
    glob_tool,
    grep_tool,
    ls_tool,
    read_file_tool,
    str_replace_tool,
    write_file_tool,
)
from deerflow.skills.storage import reset_skill_storage
from deerflow.tools.builtins import present_file_tool, view_image_tool
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

TOOLS = [
    bash_tool,
    glob_tool,
    grep_tool,
    ls_tool,
    read_file_tool,
    str_replace_tool,
    write_file_tool,
    present_file_tool,
    view_image_tool,
]

Call = tuple[str, dict[str, Any]]
"""A tool's name, and its arguments but for `description`, which is made up."""

_PLAIN = {"present_files", "view_image"}


class Model(FakeMessagesListChatModel):
    """Answers what it was made with, whatever it is asked and offered."""

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self


class DeerFlow:
    """A DeerFlow of one test: its project directory with `config.yaml`, and threads that have turns."""

    def __init__(
        self, project: Path, sandbox: dict[str, Any] | None = None, *, lazy: bool = True, **sections: Any
    ) -> None:
        """`sandbox` and more sections make its `config.yaml`; with None it has one."""
        self.project = project
        self.lazy = lazy
        self._saver = InMemorySaver()
        if sandbox is not None:
            config = {"config_version": 99, "models": [], "sandbox": sandbox, **sections}
            (project / "config.yaml").write_text(yaml.safe_dump(config))
        self.forget()

    def forget(self) -> None:
        """Be a process that has just started, as far as DeerFlow's singletons go."""
        app_config.reset_app_config()
        reset_skill_storage()
        paths._paths = None
        sandbox_provider._default_sandbox_provider = None

    def turn(self, thread: str, *calls: Call) -> list[str]:
        """One turn of a thread in which the agent makes these calls; what its tools answered."""
        messages = [_asking(number, call) for number, call in enumerate(calls)]
        agent = create_agent(
            Model(responses=[*messages, AIMessage("done")]),
            TOOLS,
            middleware=[
                ThreadDataMiddleware(lazy_init=self.lazy),
                UploadsMiddleware(),
                SandboxMiddleware(lazy_init=self.lazy),
            ],
            state_schema=ThreadState,
            checkpointer=self._saver,
        )
        config: Any = {"configurable": {"thread_id": thread}, "recursion_limit": 200}
        seen = len(agent.get_state(config).values.get("messages", []))
        context: Any = {"thread_id": thread, "run_id": "run"}
        state = agent.invoke({"messages": [HumanMessage("go on")]}, config, context=context)
        return [str(message.content) for message in state["messages"][seen:] if isinstance(message, ToolMessage)]

    def upload(self, thread: str, *files: Path) -> None:
        """As DeerFlow's embedded client does: to the host alone."""
        DeerFlowClient.upload_files(None, thread, list(files))  # type: ignore[arg-type]

    def upload_by_route(self, thread: str, name: str, content: bytes) -> None:
        """As the gateway's upload route does for a provider that does not mount: to the host, then into the sandbox."""
        from deerflow.uploads.manager import ensure_uploads_dir, upload_virtual_path, write_upload_file_no_symlink

        write_upload_file_no_symlink(ensure_uploads_dir(thread), name, content)
        provider = get_sandbox_provider()
        sandbox = provider.get(provider.acquire(thread))
        assert sandbox is not None
        sandbox.update_file(upload_virtual_path(name), content)

    def artifact(self, thread: str, path: str) -> bytes:
        """As the artifact route serves it."""
        content, _ = DeerFlowClient.get_artifact(None, thread, path)  # type: ignore[arg-type]
        return content


def _asking(number: int, call: Call) -> AIMessage:
    name, arguments = call
    described = {} if name in _PLAIN else {"description": "as the test wants"}
    return AIMessage("", tool_calls=[{"name": name, "args": described | arguments, "id": f"call-{number}"}])


def skill(project: Path, name: str, text: str) -> Path:
    """Write a public skill of the project."""
    path = project / "skills" / "public" / name / "SKILL.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(f"---\nname: {name}\ndescription: for a test\n---\n{text}\n"))
    return path


def running(deerflow: DeerFlow) -> Iterator[DeerFlow]:
    """Have it for a test, and shut it down."""
    yield deerflow
    sandbox_provider.shutdown_sandbox_provider()
    deerflow.forget()
