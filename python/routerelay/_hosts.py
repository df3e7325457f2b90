# SPDX-License-Identifier: Apache-2.0
"""The Python packages that carry a llama.cpp: which is meant, its ggml functions by ctypes, and what it has loaded."""

from __future__ import annotations

import ctypes
import gc
import importlib
import importlib.metadata
import importlib.util
import os
import pathlib
import sys
from collections.abc import Iterable

from .errors import HostMissing

# Module -> the name that pip knows.
PACKAGES = {"llama_cpp": "llama-cpp-python", "xllamacpp": "xllamacpp"}
GPU_TYPES = (1, 2)  # ggml_backend_dev_type: a card of its own, and one on the CPU's memory


def package_file(package: str, pattern: str) -> pathlib.Path:
    """A file of an installed package, without importing it: some packages need others that nobody installed."""
    folders = _folders(package)
    if folders is None:
        raise HostMissing(f"package {package} is not installed")
    found = [file for folder in folders for file in sorted(pathlib.Path(folder).glob(pattern))]
    if not found:
        raise HostMissing(f"package {package} has no file {pattern}")
    return found[0]


def _folders(package: str) -> Iterable[str] | None:
    """Where its files lie; None: it is not installed."""
    module = sys.modules.get(package)
    if module is not None:  # find_spec raises where a module has no __spec__, such as one made by hand
        return getattr(module, "__path__", ())
    spec = importlib.util.find_spec(package)
    return None if spec is None else spec.submodule_search_locations or ()


def choose(host: str | None) -> str:
    """The module meant: the one named, else the one imported, else the one installed."""
    legal = f"legal: {', '.join(PACKAGES)}"
    if host is not None:
        if not isinstance(host, str):
            raise TypeError(f"host is {host!r}; {legal}")
        module = {package: module for module, package in PACKAGES.items()}.get(host, host)
        if module not in PACKAGES:
            raise ValueError(f"host is '{host}'; {legal}")
        if _folders(module) is None:
            raise HostMissing(f"host is '{host}', which is not installed: pip install {PACKAGES[module]}")
        return module
    imported = [module for module in PACKAGES if sys.modules.get(module) is not None]
    installed = [module for module in PACKAGES if _folders(module) is not None]
    for candidates in (imported, installed):
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            which = " or ".join(f'load("{module}")' for module in candidates)
            raise HostMissing(f"host is None, and there are {' and '.join(candidates)}; say which: {which}")
    raise HostMissing(f"no llama.cpp for Python is installed; {legal} "
                      f"(pip install {' or '.join(PACKAGES.values())})")


class Ggml:
    """The ggml functions of one host. Both hosts keep their symbols to themselves, so each has a door of its own.

    `lib`: a llama.cpp that is no package, under any name.
    """

    def __init__(self, module: str, lib: ctypes.CDLL | None = None) -> None:
        self.module = module
        self.lib = lib or self._open(module)
        try:
            self.lib.ggml_version.restype = ctypes.c_char_p
            self.lib.ggml_backend_load.restype = ctypes.c_void_p
            self.lib.ggml_backend_load.argtypes = [ctypes.c_char_p]
            self.lib.ggml_backend_dev_count.restype = ctypes.c_size_t
            self.lib.ggml_backend_dev_get.restype = ctypes.c_void_p
            self.lib.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
            self.lib.ggml_backend_dev_type.argtypes = [ctypes.c_void_p]
            self.lib.ggml_backend_reg_get_proc_address.restype = ctypes.c_void_p
            self.lib.ggml_backend_reg_get_proc_address.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
        except AttributeError as error:
            raise HostMissing(f"{self.package} exports no ggml functions: {error}") from None

    @staticmethod
    def _open(module: str) -> ctypes.CDLL:
        if module == "xllamacpp":
            return ctypes.CDLL(str(package_file(module, "xllamacpp*.so")))
        try:
            # Through libllama, and by a door of our own: what we declare is not written into the host's. Wheels hold
            # copies where links were, so that the package's own handle of libggml may be a second ggml, whose registry
            # no model ever asks.
            return ctypes.CDLL(importlib.import_module("llama_cpp.llama_cpp")._lib._name)
        except (ImportError, AttributeError) as error:
            raise HostMissing(f"this llama-cpp-python has no llama_cpp.llama_cpp._lib ({error}); 0.3.36 has") from error

    @property
    def package(self) -> str:
        """Name and version, as pip knows them."""
        name = PACKAGES.get(self.module, self.module)
        try:
            return f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            return name

    @property
    def version(self) -> str:
        version: bytes = self.lib.ggml_version()
        return version.decode()

    def load(self, path: pathlib.Path) -> int | None:
        """The back end's registry entry; None: the host or the back end refused."""
        registry: int | None = self.lib.ggml_backend_load(os.fsencode(path))
        return registry

    def function(self, registry: int, name: str) -> int | None:
        """The address of what a loaded back end offers under a name."""
        address: int | None = self.lib.ggml_backend_reg_get_proc_address(registry, name.encode())
        return address

    def has_gpu(self) -> bool:
        devices = (self.lib.ggml_backend_dev_get(i) for i in range(self.lib.ggml_backend_dev_count()))
        return any(self.lib.ggml_backend_dev_type(device) in GPU_TYPES for device in devices)


def loaded_model() -> str | None:
    """What shows that a model is loaded in this process, or None. A model read without mmap, by C calls, shows not."""
    llama = getattr(sys.modules.get("llama_cpp"), "Llama", None)
    if llama is not None and any(issubclass(type(thing), llama) for thing in gc.get_objects()):
        return "a llama_cpp.Llama exists"
    try:
        maps = pathlib.Path("/proc/self/maps").read_text(errors="replace")
    except OSError:
        return None
    for line in maps.splitlines():
        if line.endswith(".gguf"):
            return f"{line.split(None, 5)[5]} is mapped"
    return None
