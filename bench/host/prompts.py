# SPDX-License-Identifier: Apache-2.0
"""Is the plug-in ever slower than stock llama.cpp? Short prompts and decoding of a real model, in turns.

One process holds four contexts of one model: stock with flash attention on, off, and on again, and one made after the
plug-in was loaded. They take the same prompt in turns, and then decode token by token in turns, so that whatever else
the machine does hits all four; how far the two equal ones lie apart is chance, such as where their memory lies. Per
prompt length: tokens per second of the fastest run of each, and the speed-up of a preset over the better of stock's
modes, from the fastest runs and from the lower quartiles. `--cpu` counts the seconds of all threads together, with the
host's threads asleep between parts of a graph: on a busy machine that tells more.
"""

import argparse
import json
import os
import pathlib
import time

import beside  # first: it puts tools/ on the path
import demo_llama
import demo_run
import models
import results

STOCK = ("stock", "stock_flash_off")
AGAIN = "stock_again"  # what stock is once more: the measurement's own error


def stock_modes(cache):
    """llama.cpp refuses quantised values without flash attention."""
    return STOCK[:1] if cache == "q8_0" else STOCK


def timed_decode(clock, session, tokens, position, wanted=()):
    start = clock()
    session.decode(tokens, position, wanted)
    return clock() - start


def take_prompt(clock, session, tokens):
    session.clear()
    step = demo_run.UBATCH
    return sum(timed_decode(clock, session, tokens[begin:begin + step], begin)
               for begin in range(0, len(tokens), step))


def quantile(values, share):
    return sorted(values)[int(share * (len(values) - 1))]


def summary(seconds, preset, tokens):
    """What the runs of a preset and of stock's two modes say."""
    def over(share):
        stock = (quantile(seconds[name], share) for name in STOCK if name in seconds)
        return min(stock) / quantile(seconds[preset], share)
    return {"tokens_per_second": {name: tokens / min(runs) for name, runs in seconds.items()},
            "speedup": over(0), "quartile_speedup": over(0.25), "runs": len(seconds[preset])}


def in_turns(sessions, runs, run):
    """`run(session, i)` for every session, `runs` times, each time beginning with another one."""
    names = list(sessions)
    seconds = {name: [] for name in names}
    for i in range(runs):
        for k in range(len(names)):
            name = names[(i + k) % len(names)]
            seconds[name].append(run(sessions[name], i))
    return seconds


def child(args):
    """One preset, in a process of its own: the plug-in reads its variables once."""
    preset = os.environ["ROUTERELAY_PRESET"]
    host = demo_llama.Host(library=args.library)
    model = host.load_model(args.file)
    longest = max(args.prompts) + args.decode
    tokens = demo_run.prompt_tokens(model, longest)
    make = lambda flash: model.context(longest, args.threads, flash, demo_run.UBATCH, cache=args.cache)
    flash = dict(zip(STOCK, (demo_llama.FLASH_ON, demo_llama.FLASH_OFF)))
    sessions = {name: make(flash[name]) for name in stock_modes(args.cache)} | {AGAIN: make(demo_llama.FLASH_ON)}
    if not host.load_plugin(args.plugin):
        raise demo_llama.HostError(f"llama.cpp did not take {args.plugin}")
    sessions[preset] = make(demo_llama.FLASH_ON)  # contexts take the devices that exist when they are made
    for session in sessions.values():
        session.decode(tokens[:demo_run.WARM_UP_TOKENS], 0)
    clock = time.process_time if args.cpu else time.perf_counter
    for n in args.prompts:
        once = max(in_turns(sessions, 1, lambda session, _: take_prompt(clock, session, tokens[:n])).values())[0]
        runs = max(3, round(args.seconds / (len(sessions) * once)))
        seconds = in_turns(sessions, runs, lambda session, _: take_prompt(clock, session, tokens[:n]))
        print(json.dumps({"what": "prompt", "tokens": n, **summary(seconds, preset, n)}), flush=True)
        seconds = in_turns(sessions, args.decode, lambda session, i: timed_decode(
            clock, session, tokens[n + i:n + i + 1], n + i, (0,)))
        print(json.dumps({"what": "decode", "tokens": n, **summary(seconds, preset, 1)}), flush=True)
    for session in sessions.values():
        session.close()


def run_preset(preset, args):
    options = ["--file", str(models.fetch(args.model)), "--decode", str(args.decode), "--seconds", str(args.seconds),
               "--cache", args.cache, "--prompts", ",".join(map(str, args.prompts))] + ["--cpu"] * args.cpu
    options += ["--library", str(args.library)] if args.library else []
    passive = {"OMP_WAIT_POLICY": "passive"} if args.cpu else {}  # spinning is no work
    return beside.run_child(__file__, preset, args, *options, **passive)


def records_of(preset, row, **shared):
    shared = {"what": row["what"], "tokens": row["tokens"], **shared}
    out = [results.record("tokens_per_second", value, "tokens/s", preset=name, beside=preset, **shared)
           for name, value in row["tokens_per_second"].items()]
    return out + [results.record(name, row[name], "x", preset=preset, runs=row["runs"], **shared)
                  for name in ("speedup", "quartile_speedup")]


def cells_of(preset, row):
    found = row["tokens_per_second"]
    speeds = [f"{found[name]:.1f}" if name in found else "refused" for name in (*STOCK, AGAIN, preset)]
    what = f"{row['tokens']} tokens" if row["what"] == "prompt" else f"decode after {row['tokens']}"
    return [preset, what, *speeds, f"{row['speedup']:.3f}", f"{row['quartile_speedup']:.3f}", str(row["runs"])]


def run(args):
    records, rows, report = [], [], {}
    for preset in args.presets:
        found, report = run_preset(preset, args)
        for row in found:
            records += records_of(preset, row, clock="cpu" if args.cpu else "wall", model=args.model,
                                  cache=args.cache)
            rows.append(cells_of(preset, row))
    where = results.machine(args.threads, report["isa"], report["host"]["ggml"])
    if args.json:
        results.print_json("bench prompts", report["version"], where, records)
    else:
        unit = "second of CPU time" if args.cpu else "second"
        results.print_plain(f"{args.model}, {args.cache} cache, llama.cpp with ggml {where['ggml']}, "
                            f"{args.threads} threads, {where['isa']} on {where['cpu']}; tokens per {unit}",
                            ["preset", "what", "fa on", "fa off", "fa on again", "plug-in", "speed-up", "quartile",
                             "runs"], rows)


def parse_args():
    parser = beside.parser_of(__file__, __doc__)
    parser.add_argument("--presets", type=lambda text: text.split(","), default=["exact", "balanced"])
    parser.add_argument("--prompts", type=lambda text: [int(n) for n in text.split(",")],
                        default=[128, 512, 1024, 2048], help="lengths; default: 128,512,1024,2048")
    parser.add_argument("--decode", type=int, default=64, help="tokens decoded after each length")
    parser.add_argument("--model", choices=list(models.MODELS), default="smollm2")
    parser.add_argument("--cache", choices=demo_llama.CACHE_TYPES, default="f16", help="type of keys and values")
    parser.add_argument("--seconds", type=float, default=30, help="about so long per preset and length")
    parser.add_argument("--cpu", action="store_true", help="CPU seconds of all threads instead of the wall clock's")
    parser.add_argument("--library", type=pathlib.Path, help="libllama.so of another build than the wheel's")
    parser.add_argument("--file", type=pathlib.Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if min(args.prompts) < 1 or args.decode < 1 or args.threads < 1:
        parser.error("--prompts, --decode and --threads are at least 1")
    return args


if __name__ == "__main__":
    beside.main(__file__, parse_args(), child, run)
