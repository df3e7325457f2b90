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
import subprocess
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import demo_llama  # noqa: E402
import demo_run  # noqa: E402
import models  # noqa: E402
import results  # noqa: E402

DEFAULT_PLUGIN = ROOT / "build" / "release" / "lib" / "libggml-routerelay.so"
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
    records, rows = [], []
    for preset in args.presets:
        command = [sys.executable, __file__, "--child", "--plugin", str(args.plugin), "--threads", str(args.threads),
                   "--file", str(models.fetch(args.model)), "--cache", args.cache, "--tokens", str(args.tokens),
                   "--chunks", str(args.chunks)] + (["--library", str(args.library)] if args.library else [])
        environment = os.environ | {"ROUTERELAY_PRESET": preset}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"bench divergence: {preset} failed")
        for other, found in json.loads(done.stdout.splitlines()[-1]).items():
            params = {"model": args.model, "cache": args.cache, "preset": other, "beside": preset,
                      "tokens": found["tokens"]}
            units = {"mean_kl": "nats", "max_kl": "nats", "same_top": "share", "added_loss": "nats/token"}
            records += [results.record(name, found[name], unit, **params) for name, unit in units.items()]
            rows.append([other, str(found["tokens"]), f"{found['mean_kl']:.6f}", f"{found['max_kl']:.4f}",
                         f"{100 * found['same_top']:.1f} %", f"{found['added_loss']:+.4f}"])
    where = {"cpu": results.cpu_name(), "cores": os.cpu_count(), "threads": args.threads}
    if args.json:
        results.print_json("bench divergence", "", where, records)
    else:
        results.print_plain(f"{args.model}, {args.cache} cache, {args.chunks} chunks of {args.tokens} tokens on "
                            f"{where['cpu']}; distance from stock with flash attention on",
                            ["against stock", "tokens", "mean KL", "max KL", "same top", "added loss"], rows)


def parse_args():
    parser = argparse.ArgumentParser(prog="./dev bench divergence", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", type=lambda text: text.split(","), default=["exact"])
    parser.add_argument("--model", choices=list(models.MODELS), default="smollm2")
    parser.add_argument("--cache", choices=list(demo_llama.CACHE_TYPES), default="f16")
    parser.add_argument("--tokens", type=int, default=4096, help="of a chunk")
    parser.add_argument("--chunks", type=int, default=2)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all cores")
    parser.add_argument("--plugin", type=pathlib.Path, default=DEFAULT_PLUGIN, help="libggml-routerelay.so to load")
    parser.add_argument("--library", type=pathlib.Path, help="libllama.so of another build than the wheel's")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--file", type=pathlib.Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if min(args.tokens, args.chunks, args.threads) < 1:
        parser.error("--tokens, --chunks and --threads are at least 1")
    return args


if __name__ == "__main__":
    arguments = parse_args()
    try:
        (child if arguments.child else run)(arguments)
    except demo_llama.HostError as error:
        sys.exit(f"bench divergence: {error}")
