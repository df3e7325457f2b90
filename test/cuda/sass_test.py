# SPDX-License-Identifier: Apache-2.0
"""What ptxas made of the kernels for sm_90: no register spilled, and every warp known to run as one.

Both cost a tenth of the speed and no test of results would tell: a loop whose end ptxas cannot see to be the same in
all lanes puts a check before each shuffle behind it, and takes addresses from uniform registers to vector ones.
Arguments: cuobjdump, then objects.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

SPILLS = {"256"}  # head_dims whose loader may: there are no registers left
FORBIDDEN = {r"\bWARPSYNC\b": "a warp that may have split", r"\b(LDL|STL)\b": "a spilled register"}


def faults_of(sass):
    """(kernel, what) for every forbidden instruction of sm_90 kernels, each once; and the kernels seen."""
    faults, seen = set(), set()
    for kernel, body in re.findall(r"Function : (\w*attend_sm90\w*)(.*?)(?=Function :|\Z)", sass, re.S):
        seen.add(kernel)
        head_dim = re.search(r"ELi(\d+)E", kernel)[1]
        for pattern, what in FORBIDDEN.items():
            if re.search(pattern, body) and not (head_dim in SPILLS and "spilled" in what):
                faults.add((kernel, what))
    return faults, seen


def main(cuobjdump, objects):
    # cuobjdump has nvdisasm read for it, and asks PATH where that is.
    env = os.environ | {"PATH": f"{Path(cuobjdump).parent}{os.pathsep}{os.environ['PATH']}"}
    faults, seen = set(), set()
    for name in objects:
        dump = subprocess.run([cuobjdump, "--dump-sass", name], capture_output=True, text=True, check=True, env=env)
        more, kernels = faults_of(dump.stdout)
        faults, seen = faults | more, seen | kernels
    for kernel, what in sorted(faults):
        print(f"{kernel}: {what}")
    print(f"{len(seen)} kernels, {len(faults)} faults")
    return 1 if faults or not seen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
