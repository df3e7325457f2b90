# SPDX-License-Identifier: Apache-2.0
"""The environment of a child process, without what the caller's shell has set for the plug-in or for ggml."""

import os

# Where things are kept and what is tested: they steer neither.
PLACES = ("ROUTERELAY_CACHE", "ROUTERELAY_TEST_HOSTS")


def clean(*kept, **variables):
    """Ours without ROUTERELAY_* and GGML_*, but with the names `kept` where they are set, and with `variables`."""
    return {name: value for name, value in os.environ.items()
            if name in kept + PLACES or not name.startswith(("ROUTERELAY_", "GGML_"))} | variables
