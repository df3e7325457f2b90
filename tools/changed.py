# SPDX-License-Identifier: Apache-2.0
"""Prints a ctest name pattern of the tests that the difference to main (on main: to the last commit) reaches."""

import repo

# A change here may reach anything.
EVERYTHING = ("CMake", "cmake/", "test/CMakeLists.txt", "dev", "tools/packages.txt", "tools/requirements.txt",
              "tools/host_")


def changed_files() -> list[str]:
    base = (repo.git("merge-base", "HEAD", "main") or ["HEAD"])[0]
    if base == (repo.git("rev-parse", "HEAD") or [""])[0]:
        base = "HEAD~1"
    changed = repo.git("diff", "--name-only", base) or []
    return changed + (repo.git("ls-files", "-o", "--exclude-standard") or [])


def pattern(changed: list[str]) -> str:
    if any(path.startswith(EVERYTHING) for path in changed):
        return "."
    reached: set[str] = set()
    for path in changed:
        layer = repo.layer_of(path)
        # A test changes nothing but itself.
        reached |= {layer} if path.startswith("test/") and layer else repo.users_of(layer) if layer else set()
    return "^(" + "|".join(sorted(reached)) + ")" if reached else ""


if __name__ == "__main__":
    print(pattern(changed_files()))
