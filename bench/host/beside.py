# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks beside stock share: a child per preset, since the plug-in reads its variables once a process."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import demo_llama  # noqa: E402
import environment  # noqa: E402

DEFAULT_PLUGIN = ROOT / "build" / "release" / "lib" / "libggml-routerelay.so"
KEPT = ("ROUTERELAY_ISA", "ROUTERELAY_MIN_KV", "ROUTERELAY_MIN_ROWS", "ROUTERELAY_OPTIONS")  # of the caller's variables


def parser_of(script, doc):
    """A parser with what every one of them takes."""
    parser = argparse.ArgumentParser(prog=f"./dev bench {pathlib.Path(script).stem}", description=doc,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all cores")
    parser.add_argument("--plugin", type=pathlib.Path, default=DEFAULT_PLUGIN, help="libggml-routerelay.so to load")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser


def command_of(script, args, *options):
    """Runs the script as a child."""
    return [sys.executable, script, "--child", "--plugin", str(args.plugin), "--threads", str(args.threads), *options]


def environment_of(preset, report, **variables):
    """The caller's environment with a preset's variables and no others of ours than KEPT."""
    return environment.clean(*KEPT, **variables) | {"ROUTERELAY_PRESET": preset, "ROUTERELAY_REPORT": str(report)}


def run_child(script, preset, args, *options, **variables):
    """The JSON lines that the script printed as the child of one preset, and the plug-in's report."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        done = subprocess.run(command_of(script, args, *options), env=environment_of(preset, report, **variables),
                              capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"bench {pathlib.Path(script).stem}: {preset} failed\n{done.stderr.strip()}")
        return [json.loads(line) for line in done.stdout.splitlines()], json.loads(report.read_text())


def main(script, args, child, run):
    try:
        (child if args.child else run)(args)
    except demo_llama.HostError as error:
        sys.exit(f"bench {pathlib.Path(script).stem}: {error}")
