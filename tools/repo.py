# SPDX-License-Identifier: Apache-2.0
"""What the repository is made of: its files, its layers and its stages. One list each for every script in tools/."""

import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent

STAGES = ("summarize", "relay", "route", "attend")
BACKENDS = ("cpu", "cuda")

# Layer -> (folders and files it owns, layers it may include besides itself). Left never includes right.
LAYERS = {
    "api": (("include/routerelay/",), ()),
    "core": (("src/core/",), ("api",)),
    "reference": (("src/reference/",), ("api", "core")),
    "cpu": (("src/cpu/",), ("api", "core")),
    "cuda": (("src/cuda/",), ("api", "core")),
    "trace": (("src/trace/",), ("api", "core")),
    "flow": (("src/flow/",), ("api", "core", "reference", "cpu", "cuda", "trace")),
    "c_api": (("src/c_api.cc", "test/c_api/"), ("api", "core", "flow")),
    "bench": (("bench/",), ("api", "core", "reference", "cpu", "cuda", "trace", "flow")),
    "cli": (("cli/",), ("api", "core", "reference", "cpu", "cuda", "trace", "flow", "bench")),
    "plugins": (("plugins/",), ("api", "core", "trace", "flow")),
    "python": (("python/",), ("api", "core", "trace", "flow")),
    "examples": (("examples/",), ("api",)),
    "tools": (("tools/",), ()),
}


def layer_of(path: str) -> str | None:
    """The layer that owns a file; a test belongs to the layer whose folder it mirrors."""
    for layer, (owned, _) in LAYERS.items():
        if path.startswith(owned):
            return layer
    if path.startswith("test/"):
        folder = path.split("/")[1]
        return folder if folder in LAYERS else None
    return None


def users_of(layer: str) -> set[str]:
    """Every layer that a change of `layer` reaches, itself included."""
    reached = {layer}
    while True:
        more = {name for name, (_, uses) in LAYERS.items() if reached & set(uses)} - reached
        if not more:
            return reached
        reached |= more


def git(*args: str) -> list[str] | None:
    """Lines of a git command; None where there is no git, or no repository."""
    try:
        done = subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.splitlines()


def files() -> list[str]:
    """Tracked files and new ones that git does not ignore, relative to the root; every file of an unpacked archive."""
    listed = git("ls-files", "-co", "--exclude-standard")
    if listed is None:
        listed = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file()]
        listed = [path for path in listed if not path.startswith(("build/", ".git/")) and "__pycache__" not in path]
    return sorted(path for path in set(listed) if (ROOT / path).is_file())
