"""A development container: devcontainer.json beside its Dockerfile."""

from __future__ import annotations

import json

from raceline.stack.request import Solution
from raceline.stack.writers.dockerfile import write as write_dockerfile
from raceline.stack.writers.pins import is_rocm


def write(solution: Solution, language: str) -> dict[str, str]:
    """``.devcontainer/`` with the image of the set, asking for a GPU where the set has one."""
    data: dict[str, object] = {
        "name": "my-project",
        "build": {"dockerfile": "Dockerfile", "context": "."},
        "remoteUser": "app",
        "customizations": {"vscode": {"extensions": ["ms-python.python"]}},
    }
    if solution.cuda:
        data["hostRequirements"] = {"gpu": "optional"}
        data["runArgs"] = ["--gpus", "all"]
    elif is_rocm(solution):
        data["runArgs"] = ["--device=/dev/kfd", "--device=/dev/dri", "--group-add=video"]
    files = write_dockerfile(solution, language)
    return {
        ".devcontainer/devcontainer.json": json.dumps(data, indent=2) + "\n",
        **{f".devcontainer/{name}": text for name, text in files.items()},
    }
