# SPDX-License-Identifier: Apache-2.0
"""Prompts deep in a context: tokens per second of a micro-batch after `depth` others, stock and with the plug-in.

One process per preset holds two contexts of one model with the same cache: stock's, and one made after the plug-in was
loaded. They take the same tokens in turns, so that whatever else the machine does hits both. Up to --both tokens of
depth stock's mode without flash attention runs too, and stock is the better of the two. `attention_removed` is the
share of stock's attention that is gone: time per token at this depth less time at depth 0, of both.
"""

import argparse
import json
import os
import pathlib
import tempfile
import time

import beside  # first: it puts tools/ on the path
import demo_llama
import demo_run
import models
import results

# --- In the child: one preset.


class Contexts:
    """Stock's and the plug-in's context of one model and cache, at the same depth."""

    def __init__(self, args, preset):
        self.host = demo_llama.Host(library=args.library)  # kept: llama.cpp calls its log function back
        self.model = self.host.load_model(args.model)
        self.room = max(args.depths) + args.ubatch
        self.tokens = demo_run.prompt_tokens(self.model, self.room)
        self.args = args
        self.by_name = {"stock": self._context(demo_llama.FLASH_ON)}
        if args.cache == "f16" and args.both > 0:  # flash attention is the only one over other caches
            self.by_name["stock_flash_off"] = self._context(demo_llama.FLASH_OFF)
        if not self.host.load_plugin(args.plugin):
            raise demo_llama.HostError(f"llama.cpp did not take {args.plugin}")
        self.by_name[preset] = self._context(demo_llama.FLASH_ON)  # contexts take the devices of their birth
        for session in self.by_name.values():
            session.decode(self.tokens[:demo_run.WARM_UP_TOKENS], 0)

    def _context(self, flash):
        return self.model.context(self.room, self.args.threads, flash, self.args.ubatch, cache=self.args.cache)

    def bring_to(self, depth, preset, states):
        """Every context that runs at this depth holds the same first tokens: the plug-in's exact cache, or its own."""
        state = states / f"{depth}.state"
        self.clear()
        names = self.at(depth)
        own = [name for name in names if name == "stock_flash_off" or (name == preset and not state.exists())]
        for name in own:
            for begin in range(0, depth, self.args.ubatch):
                self.by_name[name].decode(self.tokens[begin:min(begin + self.args.ubatch, depth)], begin)
        if depth > 0:
            if preset in own:
                self.by_name[preset].save(state)
            for name in names:
                if name not in own:
                    self.by_name[name].load(state)
        return names

    def at(self, depth):
        return [name for name in self.by_name if name != "stock_flash_off" or depth <= self.args.both]

    def clear(self):
        for session in self.by_name.values():
            session.clear()

    def seconds(self, name, depth):
        session = self.by_name[name]
        session.forget_from(depth)
        start = time.perf_counter()
        n = self.args.ubatch
        session.decode(self.tokens[depth:depth + n], depth, (n - 1,))
        return time.perf_counter() - start


def child(args):
    preset = os.environ["ROUTERELAY_PRESET"]
    contexts = Contexts(args, preset)
    for depth in args.depths:
        names = contexts.bring_to(depth, preset, args.states)
        seconds = {name: [] for name in names}
        for run in range(args.runs + 1):  # the first warms up
            for k in range(len(names)):
                name = names[(run + k) % len(names)]
                taken = contexts.seconds(name, depth)
                if run > 0:
                    seconds[name].append(taken)
        print(json.dumps({"depth": depth, "seconds": seconds}), flush=True)


# --- In the parent.


def run_preset(preset, model, cache, args, states):
    options = ["--model", str(model), "--cache", cache, "--depths", ",".join(map(str, args.depths)),
               "--runs", str(args.runs), "--ubatch", str(args.ubatch), "--both",
               str(args.both if preset == args.presets[0] else 0),
               "--states", str(states)] + (["--library", str(args.library)] if args.library else [])
    return beside.run_child(__file__, preset, args, *options)


def records_of(preset, rows, ubatch, **shared):
    """Of one preset: speeds, speed-up over the better of stock's modes, and the share of attention that is gone."""
    best = {row["depth"]: {name: min(runs) for name, runs in row["seconds"].items()} for row in rows}
    stock = {depth: min(t for name, t in times.items() if name != preset) for depth, times in best.items()}
    out = []
    for depth, times in best.items():
        params = {**shared, "ubatch": ubatch, "depth": depth}
        out += [results.record("tokens_per_second", ubatch / t, "tokens/s", preset=name, beside=preset, **params)
                for name, t in times.items()]
        out.append(results.record("speedup", stock[depth] / times[preset], "x", preset=preset, **params))
        if 0 in stock and depth > 0 and stock[depth] > stock[0]:
            removed = (stock[depth] - times[preset]) / (stock[depth] - stock[0])
            out += [results.record("attention_removed", removed, "share", preset=preset, **params),
                    results.record("free_limit", stock[depth] / stock[0], "x", preset=preset, **params)]
    return out


def print_table(args, where, records):
    rows = []
    keys = list(dict.fromkeys((r["params"]["model"], r["params"]["cache"], r["params"].get("beside"),
                               r["params"]["depth"]) for r in records if "beside" in r["params"]))
    for model, cache, preset, depth in keys:
        def value(name, of):
            found = [r["value"] for r in records if r["name"] == name and r["params"]["model"] == model
                     and r["params"]["cache"] == cache and r["params"]["depth"] == depth
                     and r["params"]["preset"] == of and r["params"].get("beside", preset) == preset]
            return found[0] if found else None
        cells = [value("tokens_per_second", of) for of in ("stock", "stock_flash_off", preset)]
        cells += [value(name, preset) for name in ("speedup", "attention_removed", "free_limit")]
        rows.append([f"{model} {cache}", preset, str(depth)] + ["" if c is None else f"{c:.2f}" for c in cells])
    title = (f"{args.ubatch} tokens after `depth` others, llama.cpp with ggml {where['ggml']}, {args.threads} threads, "
             f"{where['isa']} on {where['cpu']}; tokens per second, fastest of {args.runs}")
    results.print_plain(title, ["model, cache", "preset", "depth", "fa on", "fa off", "plug-in", "speed-up",
                                "removed", "limit"], rows)


def run(args):
    records, report = [], {}
    for name in args.models:
        for cache in args.caches:
            with tempfile.TemporaryDirectory() as states:
                for preset in args.presets:
                    rows, report = run_preset(preset, models.fetch(name), cache, args, states)
                    records += records_of(preset, rows, args.ubatch, model=name, cache=cache)
    where = results.machine(args.threads, report["isa"], report["host"]["ggml"])
    if args.json:
        results.print_json("bench llama", report["version"], where, records)
    else:
        print_table(args, where, records)


def parse_args():
    def listed(kind):
        return lambda text: [kind(item) for item in text.split(",")]
    parser = beside.parser_of(__file__, __doc__)
    parser.add_argument("--models", type=listed(str), default=["smollm2"], help=f"of {', '.join(models.MODELS)}")
    parser.add_argument("--caches", type=listed(str), default=["f16"],
                        help=f"of {', '.join(demo_llama.CACHE_TYPES)}; default: f16")
    parser.add_argument("--depths", type=listed(int), default=[0, 4096, 7000], help="default: 0,4096,7000")
    parser.add_argument("--ubatch", type=int, default=demo_run.UBATCH,
                        help="tokens in a micro-batch, llama.cpp's -ub; default: 512")
    parser.add_argument("--presets", type=listed(str), default=["exact", "balanced"])
    parser.add_argument("--runs", type=int, default=3, help="of each, in turns; the fastest counts")
    parser.add_argument("--both", type=int, default=4096, help="deepest with flash attention off too; default: 4096")
    parser.add_argument("--library", type=pathlib.Path, help="libllama.so of another build than the wheel's")
    for hidden, kind in (("--model", pathlib.Path), ("--cache", str), ("--states", pathlib.Path)):
        parser.add_argument(hidden, type=kind, help=argparse.SUPPRESS)
    args = parser.parse_args()
    for given, legal in ((args.models, models.MODELS), (args.caches, demo_llama.CACHE_TYPES)):
        if unknown := [item for item in given if item not in legal]:
            parser.error(f"{unknown[0]} is unknown; legal: {', '.join(legal)}")
    if min(args.depths) < 0 or min(args.runs, args.threads, args.ubatch) < 1:
        parser.error("--depths are at least 0, --runs, --threads and --ubatch at least 1")
    return args


if __name__ == "__main__":
    beside.main(__file__, parse_args(), child, run)
