# SPDX-License-Identifier: Apache-2.0
"""The demo's arithmetic: when stock's slower mode may stop, and what the table makes of runs."""

import contextlib
import io
import pathlib
import sys
import types
import unittest
import unittest.mock

import packages

packages.need("tools_demo", "numpy")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import demo
import demo_run
import demo_table

RIVAL = [2.0 + 0.3 * i for i in range(14)]  # seconds per micro-batch of flash attention on: 55.3 in all


def finished(seconds, loss=2.5, tokens=(1, 2, 3)):
    return {"chunk_seconds": seconds, "seconds": sum(seconds), "tokens": 512 * len(seconds), "ggml": "0.26.0",
            "tokens_per_second": 512 * len(seconds) / sum(seconds), "loss": loss, "loss_tokens": 1000,
            "next_tokens": list(tokens), "next_text": "", "free_seconds_per_token": 0.003,
            "seconds_per_logits_row": 0.002}


def stopped(seconds):
    return {key: value for key, value in finished(seconds).items() if key not in ("loss", "next_tokens", "next_text")}


def variants(off):
    stock = demo.Variant("stock", runs=[finished(RIVAL)])
    exact = demo.Variant("exact", plugin=True, runs=[finished([s / 2 for s in RIVAL], 2.51, (1, 2, 9))],
                         report={"density": 1.0, "model_density": 1.0, "isa": "avx512", "version": "0.1.0"})
    return [stock, exact, demo.Variant("stock, fa off", flash="off", runs=[off])]


class HasLost(unittest.TestCase):
    def test_behind_and_falling_back(self):
        self.assertTrue(demo_run.has_lost([2.0 + 0.8 * i for i in range(4)], RIVAL))

    def test_nothing_is_decided_before_four_micro_batches(self):
        self.assertFalse(demo_run.has_lost([9.0, 9.0, 9.0], RIVAL))

    def test_behind_but_catching_up_goes_on(self):
        self.assertFalse(demo_run.has_lost([3.0 + 0.1 * i for i in range(4)], RIVAL))

    def test_ahead_goes_on_even_where_it_would_lose(self):
        self.assertFalse(demo_run.has_lost([1.0, 2.0, 3.0, 3.5], RIVAL))

    def test_without_a_rival_nothing_stops(self):
        self.assertFalse(demo_run.has_lost([9.0] * 8, []))


class Notes(unittest.TestCase):
    def test_off_a_terminal_a_run_is_said_when_it_begins(self):
        said = io.StringIO()

        def run(variant, args, rival=()):
            self.assertTrue(said.getvalue().endswith(f"run 1, {variant.name} ...\n"), said.getvalue())
            variant.runs.append(finished(RIVAL))

        chosen = variants([])[:2]
        with unittest.mock.patch.object(demo, "run_variant", run), contextlib.redirect_stderr(said):
            demo.run_all(chosen, types.SimpleNamespace(repeats=1, full=False))
        self.assertIn("demo: run 1, exact: ", said.getvalue())


class Rows(unittest.TestCase):
    def test_a_stopped_run_is_compared_over_its_own_tokens(self):
        rows, _ = demo_table.rows_of(variants(stopped([4.0] * 4)))
        self.assertEqual(rows[2]["tokens"], 2048)
        self.assertAlmostEqual(rows[2]["speedup"], sum(RIVAL[:4]) / 16)
        self.assertNotIn("added_loss", rows[2])
        self.assertAlmostEqual(rows[1]["speedup"], 2)

    def test_the_faster_mode_is_the_baseline(self):
        rows, free = demo_table.rows_of(variants(finished([s * 0.8 for s in RIVAL], 2.49)))
        self.assertAlmostEqual(rows[0]["speedup"], 0.8)
        self.assertAlmostEqual(rows[1]["speedup"], 1.6)
        self.assertAlmostEqual(rows[2]["added_loss"], -0.01)
        self.assertAlmostEqual(free["speedup"], free["tokens_per_second"] / (7168 / sum(RIVAL) / 0.8))

    def test_a_speed_over_the_limit_is_doubted(self):
        rows, free = demo_table.rows_of(variants(stopped([4.0] * 4)))
        self.assertEqual(demo_table.doubt(rows, free), "")
        self.assertIn("not to be trusted: exact cannot be faster", demo_table.doubt(rows, free | {"speedup": 1.8}))

    def test_tokens_agree_until_the_first_that_differs(self):
        rows, _ = demo_table.rows_of(variants(stopped([4.0] * 4)))
        self.assertEqual([row.get("same_tokens") for row in rows], [3, 2, None])


if __name__ == "__main__":
    unittest.main()
