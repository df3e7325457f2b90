# SPDX-License-Identifier: Apache-2.0
"""Where libggml-routerelay.so lies, and how a keyword of `load` becomes one of its variables."""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import re
import struct
from collections.abc import Callable, Mapping
from typing import Any

from ._hosts import Ggml
from .errors import PluginMissing

FILE = "libggml-routerelay.so"
PACKAGE = pathlib.Path(__file__).resolve().parent
# An installed package has it inside; in a checkout it is what `./dev build` made.
BESIDE = (PACKAGE / FILE, PACKAGE.parents[1] / "build" / "release" / "lib" / FILE)
ELF_HEADER = 64
OPTIONS = ("preset", "options", "min_rows", "min_kv", "threads", "isa", "backend", "report", "trace", "trace_layers",
           "allow_untested")
# What a keyword takes, where not every value has a text that the plug-in could judge; text_of makes paths str first.
KINDS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "plugin": (str, "a path"),
    "preset": (str, "the name of a preset, such as 'balanced'"),
    "options": ((str, Mapping), "'key=value;key=value' or a mapping"),
    "report": ((str, int), "a path, or 1"),
    "trace": (str, "a path")}


def _is_whole(path: pathlib.Path) -> bool:
    """Whether it is a shared object up to its end: one that was cut off kills the process that maps it, by SIGBUS."""
    with path.open("rb") as file:
        head = file.read(ELF_HEADER)
    if len(head) < ELF_HEADER or not head.startswith(b"\x7fELF"):
        return False
    sections, = struct.unpack_from("<Q", head, 40)  # the table of sections is an ELF file's last part
    size, count = struct.unpack_from("<HH", head, 58)
    return bool(sections + size * count <= path.stat().st_size)


def _named(path: str | os.PathLike[str], by: str) -> pathlib.Path:
    found = pathlib.Path(text_of(by, path)).expanduser().resolve()
    if not found.is_file():
        raise PluginMissing(f"{by} is '{path}', which is no file; build it with ./dev build")
    if not _is_whole(found):
        raise PluginMissing(f"{by} is '{path}', which is no shared object, or one cut off; build it with ./dev build")
    return found


def find_plugin(path: str | os.PathLike[str] | None) -> pathlib.Path:
    """The argument, ROUTERELAY_PLUGIN, GGML_BACKEND_PATH where that names us, or a file beside the package."""
    if path is not None:
        return _named(path, "plugin")
    variables = [name for name in ("ROUTERELAY_PLUGIN", "GGML_BACKEND_PATH") if os.environ.get(name)]
    for name in variables:
        if name == "ROUTERELAY_PLUGIN" or "routerelay" in pathlib.Path(os.environ[name]).name:
            return _named(os.environ[name], name)
    for candidate in BESIDE:
        if candidate.is_file():
            return _named(candidate, "the file that was found")
    raise PluginMissing(f"no {FILE}: plugin is None, ROUTERELAY_PLUGIN is not set, and there is none at "
                        f"{' or '.join(map(str, BESIDE))}; build it with ./dev build")


def variables_of(options: Mapping[str, object]) -> dict[str, str]:
    """ROUTERELAY_* for the plug-in, which checks the values: `docs/llama.md` lists them."""
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise TypeError(f"load() has no option {', '.join(unknown)}; legal: {', '.join(OPTIONS)}")
    if options.get("preset") == "":
        raise ValueError("preset is ''; legal: the name of a preset, or None")
    return {f"ROUTERELAY_{name.upper()}": text_of(name, value) for name, value in options.items() if value is not None}


def text_of(name: str, value: object) -> str:
    """How the plug-in reads a keyword's value."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    kinds, legal = KINDS.get(name, (object, "str"))
    if isinstance(value, bytes) or not isinstance(value, kinds):
        raise TypeError(f"{name} is {value!r}; legal: {legal}")
    if isinstance(value, Mapping):
        texts = {key: text_of(f"{name}: {key}", one) for key, one in value.items()}
        for key, text in texts.items():
            if ";" in f"{key}{text}":
                raise ValueError(f"{name}: {key} is {text!r}; legal: no ';', which begins another option")
        text = ";".join(f"{key}={text}" for key, text in texts.items())
    elif isinstance(value, (list, tuple, range)):
        text = ",".join(text_of(name, one) for one in value)
    else:
        text = str(int(value) if isinstance(value, bool) else value)
    if not _can_be_passed(text):
        raise ValueError(f"{name} is {text!r}; legal: no zero byte, and no character outside the system's encoding")
    return text


def _can_be_passed(text: str) -> bool:
    """Whether C can have it, as a variable, a path or an argument."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


class Control:
    """The functions of include/routerelay/plugin.h in a host."""

    def __init__(self, ggml: Ggml, registry: int) -> None:
        def function(name: str, result: type, *arguments: type) -> Callable[..., int]:
            address = ggml.function(registry, name)
            if address is None:
                raise PluginMissing(f"the plug-in offers no {name}: it is older than this package; ./dev build")
            return ctypes.CFUNCTYPE(result, *arguments)(address)

        self._report = function("routerelay_report", ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)
        self._use = function("routerelay_use", ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p,
                             ctypes.c_size_t)

    def report(self) -> dict[str, Any]:
        length = self._report(None, 0)
        while True:  # it may grow in between
            text = ctypes.create_string_buffer(length + 1)
            length = self._report(text, len(text))
            if length == 0:
                raise MemoryError("the plug-in had no memory for its report")
            if length < len(text):
                found: dict[str, Any] = json.loads(text.value)
                return found

    def use(self, preset: object, options: object) -> None:
        texts = text_of("preset", preset), text_of("options", options)
        error = ctypes.create_string_buffer(1024)
        if self._use(*map(os.fsencode, texts), error, len(error)):
            raise ValueError(error.value.decode(errors="replace"))


def in_keywords(line: str, texts: Mapping[str, str]) -> str:
    """A line of the plug-in, which knows variables only, for a caller who wrote keywords (`texts` is made of them)."""
    def keyword(found: re.Match[str]) -> str:
        return f"{found['name'].lower()} is '" if found["variable"] in texts else found[0]

    line = line.replace("ROUTERELAY_ALLOW_UNTESTED=1", "allow_untested=True")  # what a refusal advises
    return re.sub(r"(?:environment: )?(?P<variable>ROUTERELAY_(?P<name>\w+)) is '", keyword, line)
