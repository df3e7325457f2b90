# SPDX-License-Identifier: Apache-2.0
"""What librouterelay.so exports is what symbols.txt lists; what it needs at run time is the C and C++ libraries."""

import pathlib
import re
import subprocess
import sys

ALLOWED_LIBRARIES = re.compile(r"lib(c|m|stdc\+\+|gcc_s|pthread|asan|ubsan|tsan)\.so|ld-linux")


def main(library: str) -> int:
    symbols = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    # "address T name@@VERSION"; the absolute symbol is the version itself.
    exported = sorted(re.findall(r"^\w+ [^A ] (\w+)", symbols, re.MULTILINE))
    golden = (pathlib.Path(__file__).parent / "symbols.txt").read_text().split()
    for name in sorted(set(exported) ^ set(golden)):
        print(f"{name}: {'exported, not in symbols.txt' if name in exported else 'in symbols.txt, not exported'}")
    dynamic = subprocess.run(["objdump", "-p", library], capture_output=True, text=True, check=True).stdout
    foreign = [name for name in re.findall(r"NEEDED\s+(\S+)", dynamic) if not ALLOWED_LIBRARIES.match(name)]
    for name in foreign:
        print(f"{name}: needed at run time")
    return 1 if exported != golden or foreign else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
