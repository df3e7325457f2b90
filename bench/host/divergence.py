# SPDX-License-Identifier: Apache-2.0
"""How far do a preset's next-token distributions lie from stock's? Kullback-Leibler divergence over a real text.

One process per preset holds three contexts of one model: stock with flash attention on, stock with it off, and one made
after the plug-in was loaded. They read the same chunks of text by micro-batches, and after every token the distribution
of the two others is compared with that of stock with flash attention on. Stock's own distance between its two modes is
the yardstick: activations are quantised, so two right ways to compute attention end apart.
"""

import argparse
import json
import os
import pathlib

import numpy as np

import beside  # first: it puts tools/ on the path
import demo_llama
import demo_run
import models
import results

CHUNK = demo_run.UBATCH


# --- In the child: one preset.


def log_softmax(logits):
    """[n_vocab] f32 -> [n_vocab] f64 natural logarithms."""
    row = logits.astype(np.float64)
    row -= row.max()
    return row - np.log(np.exp(row).sum())


class Distances:
    """Of one context from stock with flash attention on, token by token, in nats."""

    def __init__(self):
        self.kl, self.same_top, self.added_loss = [], 0, 0.0

    def add(self, base, other, target):
        self.kl.append(float((np.exp(base) * (base - other)).sum()))
        self.same_top += int(base.argmax() == other.argmax())
        self.added_loss += base[target] - other[target]

    def summary(self):
        n = len(self.kl)
        return {"tokens": n, "mean_kl": float(np.mean(self.kl)), "max_kl": float(np.max(self.kl)),
                "same_top": self.same_top / n, "added_loss": self.added_loss / n}


def child(args):
    preset = os.environ["ROUTERELAY_PRESET"]
    host = demo_llama.Host(library=args.library)
    model = host.load_model(args.file)
    make = lambda flash: model.context(args.tokens + CHUNK, args.threads, flash, CHUNK, cache=args.cache)
    sessions = {"stock": make(demo_llama.FLASH_ON)}
    if args.cache == "f16":  # flash attention is the only one over other caches
        sessions["stock_flash_off"] = make(demo_llama.FLASH_OFF)
    if not host.load_plugin(args.plugin):
        raise demo_llama.HostError(f"llama.cpp did not take {args.plugin}")
    sessions[preset] = make(demo_llama.FLASH_ON)
    text = demo_run.prompt_tokens(model, args.chunks * args.tokens + 1)
    distances = {name: Distances() for name in sessions if name != "stock"}
    for first in range(0, args.chunks * args.tokens, args.tokens):
        for session in sessions.values():
            session.clear()
        for begin in range(first, first + args.tokens, CHUNK):
            tokens = text[begin:min(begin + CHUNK, first + args.tokens)]
            for session in sessions.values():
                session.decode(tokens, begin - first, range(len(tokens)))
            for i in range(len(tokens)):
                base = log_softmax(np.asarray(sessions["stock"].logits(i)))
                for name, found in distances.items():
                    found.add(base, log_softmax(np.asarray(sessions[name].logits(i))), text[begin + i + 1])
    print(json.dumps({name: found.summary() for name, found in distances.items()}))
    for session in sessions.values():
        session.close()


# --- In the parent.


def run(args):
    records, rows, report = [], [], {}
    options = ["--file", str(models.fetch(args.model)), "--cache", args.cache, "--tokens", str(args.tokens),
               "--chunks", str(args.chunks)] + (["--library", str(args.library)] if args.library else [])
    units = {"mean_kl": "nats", "max_kl": "nats", "same_top": "share", "added_loss": "nats/token"}
    for preset in args.presets:
        (line,), report = beside.run_child(__file__, preset, args, *options)
        for other, found in line.items():
            params = {"model": args.model, "cache": args.cache, "preset": other, "beside": preset,
                      "tokens": found["tokens"]}
            records += [results.record(name, found[name], unit, **params) for name, unit in units.items()]
            rows.append([other, str(found["tokens"]), f"{found['mean_kl']:.6f}", f"{found['max_kl']:.4f}",
                         f"{100 * found['same_top']:.1f} %", f"{found['added_loss']:+.4f}"])
    where = results.machine(args.threads, report["isa"], report["host"]["ggml"])
    if args.json:
        results.print_json("bench divergence", report["version"], where, records)
    else:
        results.print_plain(f"{args.model}, {args.cache} cache, {args.chunks} x {args.tokens} tokens, llama.cpp with "
                            f"ggml {where['ggml']}, {where['isa']} on {where['cpu']}; distance from stock with flash "
                            "attention on",
                            ["against stock", "tokens", "mean KL", "max KL", "same top", "added loss"], rows)


def parse_args():
    parser = beside.parser_of(__file__, __doc__)
    parser.add_argument("--presets", type=lambda text: text.split(","), default=["exact"])
    parser.add_argument("--model", choices=list(models.MODELS), default="smollm2")
    parser.add_argument("--cache", choices=list(demo_llama.CACHE_TYPES), default="f16")
    parser.add_argument("--tokens", type=int, default=4096, help="of a chunk")
    parser.add_argument("--chunks", type=int, default=2)
    parser.add_argument("--library", type=pathlib.Path, help="libllama.so of another build than the wheel's")
    parser.add_argument("--file", type=pathlib.Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if min(args.tokens, args.chunks, args.threads) < 1:
        parser.error("--tokens, --chunks and --threads are at least 1")
    return args


if __name__ == "__main__":
    beside.main(__file__, parse_args(), child, run)
