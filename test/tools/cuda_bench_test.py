# SPDX-License-Identifier: Apache-2.0
"""The CUDA attend benchmark without a GPU: its cases, arithmetic and order; where PyTorch is, its routes and check."""

import ast
import contextlib
import dataclasses
import importlib.util
import io
import json
import pathlib
import re
import subprocess
import sys
import unittest
import unittest.mock

import packages

HAS_TORCH = importlib.util.find_spec("torch") is not None
if not HAS_TORCH:
    packages.need("tools_cuda_bench", "rich")  # where PyTorch is, its own Python stays
ROOT = pathlib.Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench" / "cuda"
sys.path[:0] = [str(BENCH), str(ROOT / "tools")]
import attend
import cases
import report
import timing

SMALL = cases.Case("small", lengths=(1000,), q_heads=4, kv_heads=2, head_dim=32, density=0.5)


def run(*options):
    return subprocess.run([sys.executable, str(BENCH / "attend.py"), *options], capture_output=True, text=True)


def reading(engine, ms, case=SMALL, **rest):
    return report.Reading(engine, case, flops=1_000_000_000, density=0.5, ms=ms, **rest)


class Cases(unittest.TestCase):
    def test_what_is_compared_with_exists_and_stands_alone(self):
        for case in cases.TABLE:
            self.assertEqual(case.q_heads % case.kv_heads, 0)
            self.assertFalse(case.density and case.top, case.name)
            if case.beside:
                self.assertFalse(cases.BY_NAME[case.beside].beside, case.name)
            for name, _ in case.bars:
                self.assertIn(name, (*attend.PEERS, "beside"), case.name)
        self.assertEqual(len(cases.BY_NAME), len(cases.TABLE))

    def test_the_command_line_times_the_same_cases(self):
        text = (BENCH / "cases.cc").read_text()
        words = {name: f"({value.replace(', ', ',')},)".replace("_", "")
                 for name, value in re.findall(r"(k\w+) = \{([^}]*)\}", text)} | {"DType::kE4M3": '"e4m3"'}
        found = []
        for row in re.findall(r"\{(\.name = [^}]*)\}", text):
            fields = dict(re.findall(r"\.(\w+) = ([^,]+)", row))
            fields |= {name: value.capitalize() for name, value in fields.items() if value in ("true", "false")}
            found.append(cases.Case(**{name: ast.literal_eval(words.get(value, value))
                                       for name, value in fields.items()}))
        bars = {"beside": "", "bars": (), "bar_tflops": 0.0, "bar_extra_gb": 0.0}
        wanted = [dataclasses.replace(case, **bars) for case in cases.TABLE]
        self.assertEqual(found, wanted)

    def test_by_default_a_case_that_another_brings_along_is_not_run_twice(self):
        names = [case.name for case in cases.select(None)]
        for brought in ("even-rows-32k", "ragged"):
            self.assertNotIn(brought, names)
        for with_bars_of_its_own in ("dense-32k", "128x64-32k-10"):
            self.assertIn(with_bars_of_its_own, names)
        self.assertNotIn("128x128-1m-5", names)
        self.assertEqual(cases.select(["128x128-1m-5"]), [cases.BY_NAME["128x128-1m-5"]])
        self.assertEqual(cases.select(["ragged"]), [cases.BY_NAME["ragged"]])

    def test_visited_blocks_count_whole_and_dense_counts_what_it_sees(self):
        dense = cases.BY_NAME["dense-8k"]
        self.assertEqual(cases.visited_flops(dense, 0), 4 * 128 * 32 * 8192 * 8193 // 2)
        self.assertEqual(cases.visited_flops(SMALL, 10), 4 * 32 * 10 * 128 * 128)
        video = cases.BY_NAME["64x64-109632-top64"]
        self.assertEqual(video.visible_pairs, 109632 ** 2)
        self.assertEqual(cases.BY_NAME["ragged"].n_rows, 8 + 24 + 40 + 79 + 128 + 188 + 313 + 512)

    def test_a_full_list_is_a_little_over_dense(self):
        full = cases.BY_NAME["128x128-32k-full"]
        blocks = 32 * sum(range(1, 257))
        self.assertAlmostEqual(cases.density_of(full, blocks), 257 * 128 / 32769, places=9)


class Report(unittest.TestCase):
    def test_the_rate_is_of_all_series_and_the_spread_between_them(self):
        r = reading("a", (1.0, 3.0))
        self.assertAlmostEqual(r.tflops, 0.5)
        self.assertAlmostEqual(r.spread, 1.0)

    def test_ratios_are_of_rates_and_the_best_dense_is_found(self):
        beside = dataclasses.replace(SMALL, name="beside")
        ours = reading("routerelay", (1.0,), ours=True)
        found = report.ratios(ours, [ours, reading("fa4", (2.0,)), reading("fa3", (4.0,), dense=True),
                                     reading("cudnn", (5.0,), dense=True),
                                     reading("routerelay", (0.5,), case=beside, ours=True)])
        self.assertEqual(found, {"fa4": 2.0, "fa3": 4.0, "cudnn": 5.0, "best dense": 4.0, "best dense, in time": 4.0,
                                 "beside": 0.5})

    def test_bars_are_met_missed_or_not_run(self):
        case = dataclasses.replace(SMALL, bar_tflops=2, beside="even", bars=(("fa4", 1.0), ("fa3", 0.95),
                                                                             ("beside", 0.85)))
        ours = reading("routerelay", (1.0,), case=case, ours=True)
        texts = [report.verdict_text(v) for v in report.verdicts(ours, {"fa4": 1.2, "beside": 0.8})]
        self.assertEqual(texts, ["TFLOP/s 1, bar 2: MISSED", "over fa4 1.200, bar 1: met", "over fa3 0.95: not run",
                                 "over even 0.800, bar 0.85: MISSED"])

    def test_memory_is_judged_in_gigabytes(self):
        case = dataclasses.replace(SMALL, bar_extra_gb=1.0)
        texts = [report.verdict_text(*report.verdicts(reading("routerelay", (1.0,), case=case, extra_bytes=n), {}))
                 for n in (230_000_000, 1_000_000_000)]
        self.assertEqual(texts, ["extra GB 0.230, bar 1: met", "extra GB 1.000, bar 1: MISSED"])

    def test_the_table_is_of_this_case_first_and_says_what_is_dense(self):
        beside = dataclasses.replace(SMALL, name="beside")
        rows = report.rows_of(SMALL, [reading("routerelay", (1.0,), case=beside, ours=True),
                                      reading("routerelay", (2.0, 2.02), ours=True),
                                      reading("fa3", (4.0,), dense=True), reading("flex", ())])
        self.assertEqual([row[0] for row in rows], ["routerelay", "fa3", "flex", "routerelay"])
        self.assertEqual([row[4] for row in rows], ["1.000", "1.990", "", "0.498"])
        self.assertEqual([row[-1] for row in rows], ["", "dense", "", "beside"])
        self.assertEqual(rows[0][3], "1.0%")
        self.assertEqual(rows[2][1:4], ["", "", ""])

    def test_records_hold_every_series_and_what_it_was_of(self):
        records = report.records_of(SMALL, [reading("routerelay", (1.0, 2.0), ours=True), reading("fa4", (4.0,))])
        rates = [r for r in records if r["name"] == "tflops"]
        self.assertEqual([(r["params"]["engine"], r["params"]["run"], r["value"]) for r in rates],
                         [("routerelay", 0, 1.0), ("routerelay", 1, 0.5), ("fa4", 0, 0.25)])
        self.assertEqual(rates[0]["params"] | {"run": 0, "ms": 1.0}, {
            "engine": "routerelay", "case": "small", "block": "128x128", "keys": 1000, "density": 0.5, "heads": 4,
            "kv_heads": 2, "heads_per_list": 1, "head_dim": 32, "kv_dtype": "bf16", "page": 0, "causal": True,
            "run": 0, "ms": 1.0})
        self.assertEqual([r["params"]["over"] for r in records if r["name"] == "ratio"], ["fa4"])
        json.dumps(records, allow_nan=False)
        json.dumps(report.records_of(SMALL, [reading("routerelay", (), ours=True)]), allow_nan=False)

    def test_the_table_is_printed_with_or_without_rich(self):
        rows = report.rows_of(SMALL, [reading("routerelay", (1.0,), ours=True)])
        for absent in ({}, {"rich.console": None}):
            with unittest.mock.patch.dict(sys.modules, absent), contextlib.redirect_stdout(io.StringIO()) as text:
                report.print_table("a title", rows, ["a verdict"])
            for word in ("a title", "routerelay", "TFLOP/s", "a verdict"):
                self.assertIn(word, text.getvalue())


class Timing(unittest.TestCase):
    def test_short_calls_are_many_in_a_span_and_the_budget_bounds_the_rounds(self):
        calls, rounds = timing.plan([0.1, 5.0, 200.0], [2, 2, 1], rounds=9, budget_ms=5000)
        self.assertEqual(calls, [(20, 3000), (4, 60), (1, 2)])
        self.assertEqual(rounds, 3)  # of 2 x 302 + 2 x 320 + 600 ms: 1.8 s
        self.assertEqual(timing.plan([200.0] * 3, [2] * 3, rounds=9, budget_ms=15000)[1], 4)
        self.assertEqual(timing.plan([900.0] * 3, [2] * 3, rounds=9, budget_ms=1000)[1], timing.MIN_ROUNDS)

    def test_all_take_turns_and_every_other_round_runs_backwards(self):
        seen = []

        def span(call, calls, led_in_by=0):
            seen.append((call, calls, led_in_by))
            return 100.0 if call == "a" else 10.0

        entries = [timing.Entry("a", [[], []]), timing.Entry("b", [[]])]
        rounds = timing.time_in_turns(entries, rounds=2, seconds=100, span=span)
        self.assertEqual(rounds, 2)
        self.assertEqual(seen, [("a", 1, 0), ("b", 1, 0),  # how long each takes
                                ("a", 1, 3), ("b", 2, 30), ("a", 1, 3), ("a", 1, 3), ("b", 2, 30), ("a", 1, 3)])
        self.assertEqual([entry.series for entry in entries], [[[100.0, 100.0], [100.0, 100.0]], [[10.0, 10.0]]])
        self.assertEqual(timing.medians([[1.0, 9.0, 2.0], [3.0]]), [2.0, 3.0])


class Options(unittest.TestCase):
    def test_the_cases_are_listed_without_a_gpu(self):
        done = run("--list")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("128x128-32k-5\n", done.stdout)

    def test_what_is_not_legal_is_said(self):
        for options, words in ((("--case", "dense-7k"), "legal: 128x128-32k-5"), (("--peers", "fa9"), "legal: fa4"),
                               (("--rounds", "0"), "at least 1"),
                               (("--library", "a.so", "--library", "b.so"), "NAME= of their own")):
            done = run(*options)
            self.assertEqual(done.returncode, 2)
            self.assertIn(words, done.stderr)

    def test_a_library_may_have_a_name(self):
        self.assertEqual(attend.library("new=a/b.so"), ("new", pathlib.Path("a/b.so")))
        self.assertEqual(attend.library("a/b.so"), ("routerelay", pathlib.Path("a/b.so")))

    def test_without_a_gpu_it_says_what_is_missing(self):
        if HAS_TORCH:
            import torch
            if torch.cuda.is_available():
                self.skipTest("there is a GPU")
        done = run("--case", "dense-8k")
        self.assertEqual(done.returncode, 1)
        self.assertIn("PyTorch", done.stderr)


@unittest.skipUnless(HAS_TORCH, "PyTorch is not installed")
class Routes(unittest.TestCase):
    def lists(self, case):
        import route
        made = route.make_route(case, "cpu")
        self.assertEqual(made.row_offsets.numel(), case.q_heads * case.n_rows + 1)
        self.assertEqual(int(made.row_offsets[-1]), made.total)
        return made, [[made.blocks(head, row).tolist() for row in range(case.n_rows)] for head in range(case.q_heads)]

    def test_lists_ascend_with_the_sink_and_the_rows_own_blocks(self):
        case = dataclasses.replace(SMALL, k_block=64, density=0.4, lengths=(1000, 64, 300))
        made, heads = self.lists(case)
        for rows in heads:
            self.assertEqual(rows, [sorted(set(row)) for row in rows])
            begin = 0
            for length in case.lengths:
                for r, row in enumerate(rows[begin:begin + case.rows_of(length)]):
                    end = min(length, (r + 1) * 128)
                    visible = -(-end // 64)
                    self.assertLessEqual({0, *range(2 * r, visible)}, set(row))
                    self.assertLess(max(row), visible)
                    forced = visible - 2 * r + (r > 0)
                    self.assertEqual(len(row), min(visible, max(forced, round(0.4 * visible))))
                begin += case.rows_of(length)
        self.assertNotEqual(heads[0], heads[1])
        self.assertEqual(made.own_begin.tolist(), [*range(0, 16, 2), 0, 0, 2, 4])

    def test_a_full_list_holds_every_visible_block(self):
        _, heads = self.lists(dataclasses.replace(SMALL, density=1.0))
        self.assertEqual(heads, [[list(range(r + 1)) for r in range(8)]] * 4)

    def test_without_a_causal_mask_every_row_picks_as_many(self):
        _, heads = self.lists(cases.Case("video", 64, 64, lengths=(640,), q_heads=1, kv_heads=1, top=4, causal=False))
        self.assertEqual([len(row) for row in heads[0]], [4] * 10)
        self.assertGreater(max(map(max, heads[0][:4])), 4)

    def test_one_row_is_longer(self):
        _, heads = self.lists(cases.Case("long", lengths=(2560,), q_heads=2, kv_heads=1, top=2, longest=9))
        self.assertEqual([len(row) for row in heads[0]], [1] + [2] * 19)
        self.assertEqual([len(row) for row in heads[1]], [1] + [2] * 18 + [18])

    def test_the_peers_forms_hold_the_same_blocks(self):
        import route
        made, heads = self.lists(dataclasses.replace(SMALL, k_block=64))
        counts, blocks = route.padded(made)
        (own_counts, own), (full_counts, full) = route.split_at_own(made)
        for head, rows in enumerate(heads):
            for r, row in enumerate(rows):
                self.assertEqual(blocks[head, r, :counts[head, r]].tolist(), row)
                self.assertEqual(own[head, r, :own_counts[head, r]].tolist(), [b for b in row if b >= 2 * r])
                self.assertEqual(full[head, r, :full_counts[head, r]].tolist(), [b for b in row if b < 2 * r])


@unittest.skipUnless(HAS_TORCH, "PyTorch is not installed")
class Check(unittest.TestCase):
    """The check accepts attention in bf16 and refuses what is nearly attention."""

    def checked(self, case, spoil=lambda out, problem: out, dense=False):
        import contestant
        import problem as problems
        import reference
        import torch
        problem = problems.Problem(case, "cpu")
        out = torch.empty_like(problem.q)

        def plain():
            for head in range(case.q_heads):
                for row in range(case.n_rows):
                    tokens, values, _ = reference.attend_row(problem, head, row, case.causal, dense or case.is_dense,
                                                             plain_bf16=True)
                    out[tokens, head] = values.bfloat16()
            return spoil(out, problem)

        return reference.check(problem, contestant.Contestant(plain, dense=case.is_dense, token_causal=case.causal,
                                                              out=out))

    def test_it_accepts_what_rounds(self):
        for case in (SMALL, dataclasses.replace(SMALL, density=0), dataclasses.replace(SMALL, lengths=(300, 64, 700)),
                     dataclasses.replace(SMALL, lengths=(640,), causal=False)):
            self.assertLess(self.checked(case), 1e-3)

    def test_it_refuses_a_missing_block_an_unwritten_row_and_a_wrong_head(self):
        import reference

        def unwritten(out, problem):
            out[7, 1, 3] = float("nan")
            return out

        def swapped(out, problem):
            return out.flip(1)

        for spoil in (unwritten, swapped):
            with self.assertRaises(reference.CheckFailed):
                self.checked(SMALL, spoil)
        with self.assertRaisesRegex(reference.CheckFailed, "allowed"):
            self.checked(dataclasses.replace(SMALL, density=0.2), dense=True)

    def test_dense_attention_agrees_with_pytorchs(self):
        import problem as problems
        import reference
        import torch
        case = dataclasses.replace(SMALL, density=0, lengths=(200,))
        problem = problems.Problem(case, "cpu")
        q, k, v = (x[:, 0].float() for x in (problem.q, problem.k, problem.v))
        seen = torch.ones(200, 200).tril().bool()
        wanted = torch.softmax((q @ k.T * problem.scale).masked_fill(~seen, -torch.inf), 1) @ v
        for row in range(2):
            tokens, out, _ = reference.attend_row(problem, 0, row, True, True)
            self.assertLess(float((out - wanted[tokens]).abs().max()), 1e-5)

    def test_pages_hold_the_sequences(self):
        import problem as problems
        import torch
        case = dataclasses.replace(SMALL, lengths=(100, 33), page=16)
        problem = problems.Problem(case, "cpu")
        k, _, table = problem.pages
        self.assertTrue(torch.equal(k[table[1].long()].flatten(0, 1)[:33], problem.k[100:]))
        self.assertTrue(bool(k[table[1, 2].long(), 1:].isnan().all()))


if __name__ == "__main__":
    unittest.main(verbosity=2)
