# SPDX-License-Identifier: Apache-2.0
"""RouteRelay for Python: `routerelay.llama` loads the plug-in into a llama.cpp that runs inside Python."""
