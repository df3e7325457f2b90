# SPDX-License-Identifier: Apache-2.0
"""Checks what no compiler checks: layers, folders, headers, words, docs and formatting. Prints path:line: what."""

import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

import lint_docs
import repo

CODE = (".cc", ".h", ".hpp", ".c", ".def", ".cu", ".cuh")
SCRIPTS = (".py", ".sh")
MAX_COLUMNS = 120  # clang-format keeps code to 110 and leaves comments alone
MAX_LINES = 600  # beyond it two rooms would be clearer
FORMATTED = (".cc", ".h", ".hpp", ".c", ".cu", ".cuh")
CLANG_FORMAT = "clang-format-14"  # Debian 12's: one version, or every machine formats differently
CLANG_TIDY = "clang-tidy-14"

# The words are cut in two so that this file does not hold what it looks for.
FORBIDDEN = (
    (re.compile(r"(?<![\w.$}])/(?:" + "work|root|farm|home|tmp" + r")/\w"), "a path of one machine"),
    (re.compile(r"\b(?:" + "TO" + "DO|FIX" + "ME|X" + "XX|HA" + "CK" + r")\b"), "an unfinished mark"),
    (re.compile("deb" + r"\.debian\.org|py" + r"pi\.org|python" + r"hosted\.org"), "the name of a registry host"),
)
# The library answers with a Status; only the command line and the plug-ins' log speak.
SILENT = re.compile(r"std::(?:abort|exit|terminate|cout|cerr|clog)\b|\b(?:f?printf|puts)\(|::(?:abort|exit)\(")
ASSERTIONS = "src/core/assert.cc"  # a broken invariant of ours, in builds that check them, is the one exception
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')

Problem = tuple[str, int, str]


def lines_of(path: str) -> list[str]:
    return (repo.ROOT / path).read_text(encoding="utf-8").splitlines()


def check_layers(files: list[str]) -> Iterator[Problem]:
    """An include stays inside its layer or goes to one on its left; headers of others' engines stay with plug-ins."""
    for path in files:
        layer = repo.layer_of(path)
        if not path.endswith(CODE) or layer is None:
            continue
        # Tests compare against the reference, whatever layer they are for.
        allowed = {layer, *repo.LAYERS[layer][1]} | ({"reference"} if path.startswith("test/") else set())
        for number, line in enumerate(lines_of(path), 1):
            found = INCLUDE.match(line)
            if not found:
                continue
            header = found[2]
            if re.match(r"ggml|llama", header) and layer != "plugins":
                yield path, number, f"{header}: only plugins/ know another engine"
            if re.match(r"cuda|cute/|cutlass/", header) and layer != "cuda" and not path.startswith("bench/cuda/"):
                yield path, number, f"{header}: only src/cuda/ and its benchmark see CUDA headers"
            target = layer_of_header(header) if found[1] == '"' else None
            if target is not None and target not in allowed:
                legal = ", ".join(sorted(allowed))
                yield path, number, f"{layer} includes {target} ({header}); it may include {legal}"


def layer_of_header(header: str) -> str | None:
    for prefix in ("src/", "include/", ""):
        if (layer := repo.layer_of(prefix + header)) is not None:
            return layer
    return None


def check_stages(files: list[str]) -> Iterator[Problem]:
    """A stage's word is its file in reference/, its folder in every back end, its page in docs/ and its tests."""
    known = set(files)
    isas = {"scalar", *re.findall(r"set\(RR_FLAGS_(\w+)", (repo.ROOT / "cmake/isa.cmake").read_text())}
    for stage in repo.STAGES:
        wanted = [f"src/reference/{stage}.cc", f"docs/stage/{stage}.md"]
        for backend in repo.BACKENDS:
            folder = f"src/{backend}/{stage}"
            here = f"{folder}/" if backend == "cuda" else f"src/{backend}/"  # CUDA has the stages that it has so far
            if any(path.startswith(here) for path in files):
                door = f"{folder}/plan.h" if backend == "cuda" else f"{folder}/{stage}.h"
                wanted += [door, f"{folder}/launch.cc", f"test/{backend}/{stage}_test.cc"]
        for path in wanted:
            if path not in known:
                yield path, 1, f"missing: the stage '{stage}' shows the same names everywhere"
    for path in files:
        if not (found := re.match(rf"src/(?:{'|'.join(repo.BACKENDS)})/(\w+)/([\w.]+)$", path)):
            continue
        folder, name = found.groups()
        if folder not in (*repo.STAGES, "isa"):
            yield path, 1, f"'{folder}' is no stage: {', '.join(repo.STAGES)}, or isa"
        kernel = re.match(r"kernel_(\w+)\.cc$", name)
        if kernel and kernel[1] not in isas:
            yield path, 1, f"'{kernel[1]}' is no instruction set of cmake/isa.cmake: {', '.join(sorted(isas))}"


def check_headers(files: list[str]) -> Iterator[Problem]:
    """A file opens with its licence line and one sentence; a .cc may leave that to the header it includes first."""
    for path in files:
        lines = lines_of(path) if path.endswith(CODE + SCRIPTS) or path == "dev" else []
        if not lines:
            continue
        lines = lines[1:] if lines[0].startswith("#!") else lines
        comment = "//" if path.endswith(CODE) else "#"
        if lines[0] != f"{comment} SPDX-License-Identifier: Apache-2.0":
            yield path, 1, f"opens without '{comment} SPDX-License-Identifier: Apache-2.0'"
        elif len(lines) > 1 and path.endswith(".cc") and re.match(r'#include "', lines[1]):
            continue
        elif len(lines) < 2 or not re.match(r'(?://|#|""") ?\S+ \S+ \S+', lines[1]):
            yield path, 2, "the line after the licence says in one sentence what the file is"


def check_text(files: list[str]) -> Iterator[Problem]:
    """Words that must not be committed, lines and files that are too long, and a library that speaks."""
    for path in files:
        if path == "LICENSE" or path.endswith((".png", ".safetensors", ".gguf")):
            continue
        is_code = path.endswith(CODE + SCRIPTS) or path == "dev"
        lines = lines_of(path)
        if is_code and len(lines) > MAX_LINES:
            yield path, len(lines), f"{len(lines)} lines; {MAX_LINES} are the most that read well"
        for number, line in enumerate(lines, 1):
            if is_code and len(line) > MAX_COLUMNS:
                yield path, number, f"{len(line)} columns, more than {MAX_COLUMNS}"
            if line != line.rstrip():
                yield path, number, "ends in white space"
            for pattern, what in FORBIDDEN:
                if pattern.search(line):
                    yield path, number, f"holds {what}"
            if path.startswith(("src/", "include/")) and path != ASSERTIONS and SILENT.search(line.split("//")[0]):
                yield path, number, "the library never prints, aborts or exits: return a Status"


def check_format(files: list[str]) -> Iterator[Problem]:
    paths = [path for path in files if path.endswith(FORMATTED)]
    if shutil.which(CLANG_FORMAT) is None:
        yield "tools/packages.txt", 1, f"{CLANG_FORMAT} is not installed: ./dev setup"
        return
    done = subprocess.run([CLANG_FORMAT, "--dry-run", *paths], cwd=repo.ROOT, capture_output=True, text=True)
    if done.returncode != 0 and not done.stderr:
        yield ".clang-format", 1, f"{CLANG_FORMAT} failed with {done.returncode}"
    seen = set()
    for path, number in re.findall(r"^(\S+?):(\d+):\d+: warning: code should be", done.stderr, re.MULTILINE):
        if path not in seen:
            seen.add(path)
            yield path, int(number), "not formatted: ./dev format"


def check_tidy(files: list[str]) -> Iterator[Problem]:
    """clang-tidy over every source that the dev preset builds."""
    if not (repo.ROOT / "build/dev/compile_commands.json").exists():
        yield "CMakePresets.json", 1, "clang-tidy needs build/dev: ./dev build dev"
        return
    folders = ("src/", "bench/", "cli/", "plugins/")
    sources = [path for path in files if path.startswith(folders) and path.endswith(".cc")]

    def tidy(path: str) -> str:
        command = [CLANG_TIDY, "-p", "build/dev", "--quiet", path]
        return subprocess.run(command, cwd=repo.ROOT, capture_output=True, text=True).stdout

    seen = set()  # a header is read again with every source that includes it
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for text in pool.map(tidy, sources):
            for found in re.findall(r"^(\S+?):(\d+):\d+: (?:warning|error): (.*)$", text, re.MULTILINE):
                if found not in seen:
                    seen.add(found)
                    yield found[0].removeprefix(f"{repo.ROOT}/"), int(found[1]), found[2]


CHECKS = (check_layers, check_stages, check_headers, check_text, lint_docs.check_docs, check_format)


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev lint", description=__doc__)
    parser.add_argument("--tidy", action="store_true", help="clang-tidy as well (minutes)")
    args = parser.parse_args()
    files = repo.files()
    problems = [problem for check in CHECKS for problem in check(files)]
    if args.tidy:
        problems += check_tidy(files)
    for path, number, what in problems:
        print(f"{path}:{number}: {what}")
    print(f"lint: {len(files)} files, {len(problems) or 'no'} problem{'' if len(problems) == 1 else 's'}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
