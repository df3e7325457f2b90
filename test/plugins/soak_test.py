# SPDX-License-Identifier: Apache-2.0
"""Random shapes and masks in a real ggml: the plug-in against the host's CPU back end, for a number of seconds.

The time goes round the instruction sets of the machine, exact, and once round with a sparse preset, whose masked and
short calls are exact too. `./dev soak` runs half an hour of it, the test a few seconds. A call that differs is printed
with the options that run it alone.
"""

import argparse
import collections
import json
import math
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tools"), str(HERE.parent / "tools")]
import environment  # noqa: E402
import host_list  # noqa: E402
import packages  # noqa: E402

ISAS = ("avx2", "avx512", "avx512bf16", "amx")  # scalar stays with test_cpu: no host runs it
SPARSE = "balanced"
LONGEST_TURN = 60  # seconds, so that a run that is stopped early has seen every instruction set


class Failure(Exception):
    """A turn that went wrong, in words."""


class Soak:
    def __init__(self, args, folder):
        self.args, self.folder = args, pathlib.Path(folder)
        self.host = host_list.find(args.host)
        self.libraries = next(self.host.folder.glob("libggml/lib*/libggml.so.0")).parent
        self.program = self.folder / "soak"
        includes = [self.host.folder / "libggml" / "include", *(ROOT / name for name in ("src", "include", "test")),
                    HERE / "soak"]
        subprocess.run([args.compiler, "-std=c++20", "-O2", *(f"-I{path}" for path in includes),
                        str(HERE / "soak" / "main.cc"), "-o", str(self.program), f"-L{self.libraries}",
                        "-l:libggml.so.0", "-l:libggml-base.so.0", "-l:libggml-cpu.so.0"], check=True)

    def start(self, isa, preset, seed, seconds, *options):
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        variables = environment.clean(LD_LIBRARY_PATH=str(self.libraries), GGML_BACKEND_PATH=self.args.plugin,
                                      ROUTERELAY_ISA=isa, ROUTERELAY_PRESET=preset, ROUTERELAY_REPORT=str(report),
                                      ROUTERELAY_MIN_ROWS="1", ROUTERELAY_MIN_KV="0")
        command = [str(self.program), isa, str(seed), str(seconds), *options]
        if preset != "exact":
            command.append("--sparse")
        done = subprocess.run(command, env=variables, capture_output=True, text=True)
        said = dict(line.split(" ", 1) for line in done.stdout.splitlines())
        return done, said, json.loads(report.read_text()) if report.exists() else None

    def isas(self):
        """Of the machine."""
        found = []
        for isa in ISAS:
            done, _, _ = self.start(isa, "exact", 0, 0, "--only", "0")
            if "this machine runs" not in done.stderr:
                found.append(isa)
        return found

    def turn(self, isa, preset, seed, seconds, *options):
        """What one process counted; the plug-in's own report must say the same."""
        done, said, report = self.start(isa, preset, seed, seconds, *options)
        where = f"--isa {isa} --preset {preset} --seed {seed}"
        if "failure" in said:
            raise Failure(f"{where} --only {said['failed']}: {said['failure']}")
        if done.returncode or report is None:
            raise Failure(f"{where}: exit {done.returncode}: {done.stderr}")
        counts = {name: int(said.get(name, 0)) for name in ("taken", "delegated", "declined")}
        reported = {"taken": report["calls"], "delegated": sum(report["delegated"].values()),
                    "declined": sum(report["asked"]["declined"].values())}
        if counts != reported or (report["isa"], report["preset"]) != (isa, preset):
            raise Failure(f"{where}: counted {counts}, the plug-in reports {reported} on {report['isa']}")
        return said


def add(sums, said):
    for name, value in said.items():
        if name.startswith("worst_"):
            sums[name] = max(sums[name], float(value))
        else:
            sums[name] += int(value)


def run(args, soak):
    isas = [args.isa] if args.isa else soak.isas()
    modes = [(isa, args.preset) for isa in isas] if args.preset else [(isa, "exact") for isa in isas]
    if not args.preset:
        modes.append((isas[-1], SPARSE))
    if args.only is not None:
        modes, options = modes[:1], ("--only", str(args.only))
    else:
        options = ()
    rounds = 1 if options else math.ceil(args.seconds / len(modes) / LONGEST_TURN)
    turn = args.seconds / len(modes) / rounds
    sums, seed = collections.Counter(), args.seed
    for number in range(rounds):
        for isa, preset in modes:
            add(sums, soak.turn(isa, preset, seed, turn, *options))
            seed += 1
        if number + 1 < rounds:
            print(f"soak: round {number + 1} of {rounds}, {sums['taken']} calls taken, no difference",
                  file=sys.stderr, flush=True)
    print(f"soak: ggml {soak.host.ggml}, {', '.join(f'{isa} {preset}' for isa, preset in modes)}, seeds {args.seed} to "
          f"{seed - 1}: no difference. Counts, and the worst distances as parts of what is allowed:")
    print("\n".join(f"{name} {value:g}" for name, value in sorted(sums.items())))
    if args.only is None and not sums["taken"]:
        raise Failure("the plug-in computed nothing")


def parse_args():
    parser = argparse.ArgumentParser(prog="./dev soak", usage="%(prog)s [options]", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for given_by_whoever_starts_it in ("plugin", "compiler", "host"):
        parser.add_argument(given_by_whoever_starts_it, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=12, help="default: 12, of ./dev soak 1800")
    parser.add_argument("--seed", type=int, default=1, help="of the first turn; every turn has the next; default: 1")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="only this call of the seed")
    parser.add_argument("--isa", choices=ISAS, help="only this instruction set")
    parser.add_argument("--preset", choices=("exact", SPARSE), help="only this preset")
    return parser.parse_args()


def main():
    args = parse_args()
    packages.need_host("plugins_soak", host_list.find(args.host))
    with tempfile.TemporaryDirectory() as folder:
        run(args, Soak(args, folder))


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"soak: {failure}")
