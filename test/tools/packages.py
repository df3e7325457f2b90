# SPDX-License-Identifier: Apache-2.0
"""For tests that need Python packages or hosts: goes on in build/venv where they are, or skips and says so."""

import importlib.util
import os
import pathlib
import sys

VENV_PYTHON = pathlib.Path(__file__).resolve().parents[2] / "build" / "venv" / "bin" / "python"
SKIPPED = 77  # SKIP_RETURN_CODE of such tests


def skip(test, why):
    print(f"SKIP {test}: {why}")
    sys.exit(SKIPPED)


def need_host(test, host):
    """A host of tools/host_list.py; what is built takes time to run too, and is run when it is asked for."""
    if host.build and not os.environ.get("ROUTERELAY_TEST_HOSTS"):
        skip(test, f"{host.name} is run by ./dev test --hosts")
    if not host.is_ready:
        skip(test, f"{host.name} is not there; ./dev hosts {host.name} {'builds' if host.build else 'fetches'} it")


def need(test, *names):
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if not missing:
        return
    if VENV_PYTHON.exists() and pathlib.Path(sys.prefix) != VENV_PYTHON.parents[1]:
        os.execv(VENV_PYTHON, [str(VENV_PYTHON)] + sys.argv)
    skip(test, f"not installed: {', '.join(missing)}; ./dev setup installs them")
