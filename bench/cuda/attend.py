# SPDX-License-Identifier: Apache-2.0
"""Block-sparse prefill attention on a GPU: RouteRelay's kernel and its peers in one process and in turns.

Every engine is checked against float32 attention on sampled rows first; one that fails is said and not timed. Rates
count visited blocks whole (4 head_dim q_block k_block each), dense ones the visible pairs. Sparse engines are timed in
two series: what differs by less than their spread is noise. Runs under the python3 that has PyTorch with CUDA.
`routerelay bench cuda-attend` (./dev build cuda) times our kernel alone on the same cases and needs no Python.
"""

import argparse
import contextlib
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))
import results  # noqa: E402

import cases  # noqa: E402
import report  # noqa: E402

DEFAULT_LIBRARY = ROOT / "build" / "cuda" / "lib" / "librouterelay-cuda.so"
PEERS = ("fa4", "cudnn-sparse", "flex", "fa3", "cudnn")


def print_case(case, readings):
    lines = []
    for ours in (reading for reading in readings if reading.ours and reading.case is case and reading.ms):
        found = report.ratios(ours, readings)
        lines += [f"{ours.engine}: {report.verdict_text(verdict)}" for verdict in report.verdicts(ours, found)]
    report.print_table(report.title_of(case, readings), report.rows_of(case, readings), lines)


def run(args, measure):
    bench, records = measure.Bench(args), []

    def put_json():
        where = measure.machine() | {"left_out": bench.left_out}
        results.print_json("bench cuda-attend", bench.ours[0].version, where, records)

    for case in args.case:
        measure.say(case.name)
        readings = bench.run(case)
        records += report.records_of(case, readings)
        if args.json != "-":
            print_case(case, readings)
        if args.json and args.json != "-":  # after every case: a run that is cut off has left what it knew
            with open(args.json, "w") as file, contextlib.redirect_stdout(file):
                put_json()
    if args.json == "-":
        put_json()
    return 1 if bench.failed else 0


def library(text):
    name, _, path = text.rpartition("=")
    return name or "routerelay", pathlib.Path(path)


def parse_args():
    words = lambda text: [word for word in text.split(",") if word]
    parser = argparse.ArgumentParser(prog="./dev bench cuda-attend", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", help="may be repeated; default: all of --list")
    parser.add_argument("--list", action="store_true", help="the cases, one a line")
    parser.add_argument("--peers", type=words, default=list(PEERS), help=f"default: {','.join(PEERS)}; '' for none")
    parser.add_argument("--library", type=library, action="append", metavar="[NAME=]PATH",
                        help="our library; several, with names, are timed against each other")
    parser.add_argument("--rounds", type=int, default=9, help="at most so many of each series; default: 9")
    parser.add_argument("--seconds", type=float, default=5, help="of timing, for each case, about; default: 5")
    parser.add_argument("--check", action="store_true", help="check the engines and time nothing")
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE",
                        help="one JSON object instead of the tables, or beside them in a file")
    args = parser.parse_args()
    args.library = args.library or [("routerelay", DEFAULT_LIBRARY)]
    for name in args.peers:
        if name not in PEERS:
            parser.error(f"--peers holds {name}; legal: {', '.join(PEERS)}")
    if len({name for name, _ in args.library}) < len(args.library):
        parser.error("several --library need a NAME= of their own each")
    if args.rounds < 1 or not args.seconds > 0:
        parser.error("--rounds is at least 1, --seconds more than 0")
    try:
        args.case = cases.select(args.case)
    except ValueError as error:
        parser.error(str(error))
    return args


def main():
    args = parse_args()
    if args.list:
        print(*(case.name for case in args.case), sep="\n")
        return 0
    try:
        import measure
    except ImportError as error:
        sys.exit(f"bench cuda-attend: {error}; it runs under a python3 that has PyTorch with CUDA")
    try:
        return run(args, measure)
    except measure.EngineError as error:
        sys.exit(f"bench cuda-attend: {error}")


if __name__ == "__main__":
    sys.exit(main())
