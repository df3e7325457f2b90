# SPDX-License-Identifier: Apache-2.0
"""The shared object exports the two symbols that ggml looks for and needs neither ggml nor a C++ runtime."""

import re
import subprocess
import sys


def main():
    path = sys.argv[1]
    symbols = subprocess.run(["nm", "-D", "--defined-only", path], check=True, capture_output=True, text=True).stdout
    exported = sorted(line.split()[-1] for line in symbols.splitlines())
    assert exported == ["ggml_backend_init", "ggml_backend_score"], exported
    dynamic = subprocess.run(["readelf", "-d", path], check=True, capture_output=True, text=True).stdout
    needed = re.findall(r"NEEDED.*\[(.*)\]", dynamic)
    assert not [n for n in needed if re.match(r"lib(ggml|llama|stdc\+\+|gcc)", n)], needed


if __name__ == "__main__":
    main()
