# SPDX-License-Identifier: Apache-2.0
"""For tests that need Python packages: goes on in build/venv where they are there, or skips and says so."""

import importlib.util
import os
import pathlib
import sys

VENV_PYTHON = pathlib.Path(__file__).resolve().parents[2] / "build" / "venv" / "bin" / "python"
SKIPPED = 77  # SKIP_RETURN_CODE of such tests


def skip(test, why):
    print(f"SKIP {test}: {why}")
    sys.exit(SKIPPED)


def need(test, *names):
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if not missing:
        return
    if VENV_PYTHON.exists() and pathlib.Path(sys.prefix) != VENV_PYTHON.parents[1]:
        os.execv(VENV_PYTHON, [str(VENV_PYTHON)] + sys.argv)
    skip(test, f"not installed: {', '.join(missing)}; ./dev setup installs them")
