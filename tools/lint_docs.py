# SPDX-License-Identifier: Apache-2.0
"""Checks that the docs tell the truth about the tree: paths, links, commands, options and the quoted example."""

import re
from collections.abc import Iterator

import repo

QUOTED_EXAMPLE = "examples/attend.cc"  # README shows it word for word
REASONS = "plugins/ggml/reason.h"      # the plug-in's, which its page lists
REASONS_PAGE = "docs/llama.md"
Problem = tuple[str, int, str]

CODE_SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")
# A path of this repository: it starts with something that stands at the top.
PATH = re.compile(r"^\.?[\w.-]+(?:/[\w.*{},<>-]+)*/?$")
DEV = re.compile(r"\./dev ([a-z]\w*)((?: +[\w./=-]+)*)")
ROUTERELAY = re.compile(r"(?<![\w/-])routerelay ([a-z]\w*)((?: +[\w./=-]+)*)")
OPTION = re.compile(r"--[a-z][\w-]*")


def text_of(*paths: str) -> str:
    return "\n".join((repo.ROOT / path).read_text(encoding="utf-8") for path in paths)


def top_names(files: list[str]) -> set[str]:
    return {path.split("/")[0] for path in files}


def exists(path: str, files: list[str]) -> bool:
    """A file, a folder, or a pattern with * or <word> or {a,b} that matches something."""
    path = path.rstrip("/")
    if not re.search(r"[*<{]", path):
        return path in files or any(known.startswith(path + "/") for known in files)
    parts = re.split(r"(\*|<[^>]*>|\{[^}]*\})", path)
    regex = "".join(
        "[^/]*" if part == "*" or part.startswith("<")
        else "(?:" + "|".join(map(re.escape, part[1:-1].split(","))) + ")" if part.startswith("{")
        else re.escape(part)
        for part in parts
    )
    return any(re.match(rf"{regex}(?:/|$)", known) for known in files)


def check_paths(path: str, number: int, line: str, files: list[str]) -> Iterator[Problem]:
    tops = top_names(files)
    for span in CODE_SPAN.findall(line):
        for word in span.split():
            if "/" in word and PATH.match(word) and word.split("/")[0] in tops and not exists(word, files):
                yield path, number, f"names {word}, which does not exist"
    folder = path.rpartition("/")[0]
    for target in LINK.findall(line):
        if "://" in target:
            continue
        parts: list[str] = folder.split("/") if folder else []
        for piece in target.split("/"):
            parts = parts[:-1] if piece == ".." else parts if piece == "." else [*parts, piece]
        if not exists("/".join(parts), files):
            yield path, number, f"links to {target}, which does not exist"


class Commands:
    """What ./dev and routerelay understand, read off their sources."""

    def __init__(self, files: list[str]):
        dev = text_of("dev")
        self.dev = set(re.findall(r"^command_(\w+)\(\)", dev, re.MULTILINE))
        self.dev_options = set(OPTION.findall(dev))
        cli = text_of(*[path for path in files if re.match(r"cli/\w+\.(?:cc|h)$", path)])
        self.cli = set(re.findall(r'add_subcommand\(\s*"(\w+)"', cli))
        self.cli_options = set(OPTION.findall(cli)) | {"--help", "--version"}

    def check(self, path: str, number: int, line: str) -> Iterator[Problem]:
        for command, rest in DEV.findall(line):
            if command not in self.dev:
                yield path, number, f"names './dev {command}'; ./dev has {', '.join(sorted(self.dev))}"
            elif command == "run":
                yield from self.check_cli(path, number, *(rest.split(maxsplit=1) + ["", ""])[:2])
            elif command not in ("bench", "demo", "trace"):  # those hand their options on
                for option in OPTION.findall(rest):
                    if option not in self.dev_options:
                        yield path, number, f"names './dev {command} {option}', which ./dev does not know"
        for command, rest in ROUTERELAY.findall(line):
            yield from self.check_cli(path, number, command, rest)

    def check_cli(self, path: str, number: int, command: str, rest: str) -> Iterator[Problem]:
        if not self.cli or not re.match(r"[a-z]", command):
            return
        if command not in self.cli:
            yield path, number, f"names 'routerelay {command}'; it has {', '.join(sorted(self.cli))}"
        for option in OPTION.findall(rest):
            if option not in self.cli_options:
                yield path, number, f"names 'routerelay {command} {option}', which no command has"


def check_example(files: list[str]) -> Iterator[Problem]:
    """The README's C++ block is the example that the tests build and run, its licence line left out."""
    if QUOTED_EXAMPLE not in files:
        yield "README.md", 1, f"{QUOTED_EXAMPLE} is missing"
        return
    example = text_of(QUOTED_EXAMPLE).partition("\n")[2].strip()
    blocks = [block.strip() for block in re.findall(r"```cpp\n(.*?)```", text_of("README.md"), re.DOTALL)]
    if example not in blocks:
        yield "README.md", 1, f"its C++ block differs from {QUOTED_EXAMPLE}"


def check_reasons(files: list[str]) -> Iterator[Problem]:
    """The table of reasons has those of the plug-in's report, all but "none"."""
    if REASONS not in files:
        return
    names = set(re.findall(r'"(\w+)"', text_of(REASONS).partition("kReasonNames = {")[2].partition("}")[0])) - {"none"}
    table = text_of(REASONS_PAGE).partition("| reason |")[2].partition("\n\n")[0]
    listed = {name for row in table.splitlines() for name in CODE_SPAN.findall(row.split("|")[1] if "|" in row else "")}
    for name in sorted(names ^ listed):
        where = f"{REASONS} has no such reason" if name in listed else "the table of reasons lacks it"
        yield REASONS_PAGE, 1, f"{name}: {where}"


def check_docs(files: list[str]) -> Iterator[Problem]:
    """Every page: the paths and links in it exist, the commands are understood."""
    pages = [path for path in files if path.endswith(".md")]
    for wanted in ("README.md", "AGENTS.md", "CHANGELOG.md"):
        if wanted not in pages:
            yield wanted, 1, "missing"
    commands = Commands(files)
    for path in pages:
        fenced = False
        for number, line in enumerate((repo.ROOT / path).read_text(encoding="utf-8").splitlines(), 1):
            fenced ^= line.startswith("```")
            if not fenced:
                yield from check_paths(path, number, line, files)
            # Prose may say "routerelay" for the program; a command stands in code.
            for code in [line] if fenced else CODE_SPAN.findall(line):
                yield from commands.check(path, number, code)
    if "README.md" in pages:
        yield from check_example(files)
    yield from check_reasons(files)
