# SPDX-License-Identifier: Apache-2.0
"""Dense attention side by side: the flash attention of stock llama.cpp's CPU back end, and RouteRelay's engine.

Both compute the same node in the same memory with as many threads, in one process and in turns: a micro-batch of a
prompt, the last `queries` of `keys` causal tokens. Their results are compared before anything is timed. The fastest
run of each counts; GFLOP/s are 4 head_dim for every visible pair of query and key.
"""

import argparse
import os
import pathlib
import sys
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import demo_llama  # noqa: E402
import results  # noqa: E402

import engine as routerelay  # noqa: E402
import flash_attention  # noqa: E402

DEFAULT_LIBRARY = ROOT / "build" / "release" / "lib" / "librouterelay.so"
# Of the output's own root mean square: bf16 tiles round to 8 bits, stock sums f16 values in f16 and rounds queries to 8
# bits over q8_0 keys.
ALLOWED_ERROR = 0.02
REST_SECONDS = 0.01  # the host's OpenMP threads spin for a while after each call, on the cores that the next one needs


def timed(call):
    time.sleep(REST_SECONDS)
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure(host_cpu, engine, args, dtype, head_dim, group):
    kv_heads = args.q_heads // group
    node = flash_attention.FlashAttention(host_cpu, dtype, args.queries, args.keys, args.q_heads, kv_heads, head_dim)
    out = np.empty(node.out_shape, np.float32)
    q, k, v, ours = (routerelay.tensor(node.q, "f32", args.queries, args.q_heads, head_dim),
                     routerelay.tensor(node.k, dtype, args.keys, kv_heads, head_dim),
                     routerelay.tensor(node.v, dtype, args.keys, kv_heads, head_dim),
                     routerelay.tensor(out.ctypes.data, "f32", args.queries, args.q_heads, head_dim))
    calls = {"stock": node.compute, "routerelay": lambda: engine.attend(q, k, v, ours, node.scale)}
    for call in calls.values():
        call()
    off, size = out - node.output(), np.sqrt(np.mean(node.output().astype(np.float64) ** 2))
    error = float(np.sqrt(np.mean(off.astype(np.float64) ** 2)) / size)
    if not error <= ALLOWED_ERROR:
        raise SystemExit(f"bench stock: {dtype}, head_dim {head_dim}, group {group}: the outputs differ by {error:.3g} "
                         f"of their size; allowed {ALLOWED_ERROR}")
    seconds = {name: [] for name in calls}
    for turn in range(args.rounds):
        for name in list(calls)[::1 if turn % 2 else -1]:
            seconds[name].append(timed(calls[name]))
    node.close()
    pairs = args.q_heads * sum(range(args.keys - args.queries + 1, args.keys + 1))
    return {"gflops": {name: 4 * head_dim * pairs / min(times) / 1e9 for name, times in seconds.items()},
            "error": error, "max_error": float(np.abs(off).max())}


def records_of(measured, params):
    out = [results.record("gflops", value, "GFLOP/s", engine=name, **params)
           for name, value in measured["gflops"].items()]
    out.append(results.record("ratio", ratio_of(measured), "x", **params))
    out.append(results.record("difference", measured["error"], "of the output's rms", **params))
    return out + [results.record("max_difference", measured["max_error"], "", **params)]


def ratio_of(measured):
    return measured["gflops"]["routerelay"] / measured["gflops"]["stock"]


def run(args):
    host = demo_llama.Host(library=args.llama)
    flash_attention.declare(host.lib)
    engine = routerelay.Engine(args.library, args.threads, args.isa)
    cpu = flash_attention.CpuBackend(host.lib, args.threads)
    records, rows = [], []
    for dtype in args.dtypes:
        for head_dim in args.head_dims:
            for group in args.groups:
                measured = measure(cpu, engine, args, dtype, head_dim, group)
                records += records_of(measured, {"dtype": dtype, "head_dim": head_dim, "keys": args.keys,
                                                 "queries": args.queries, "q_heads": args.q_heads,
                                                 "kv_heads": args.q_heads // group, "isa": engine.isa,
                                                 "threads": args.threads})
                rows.append([dtype, str(head_dim), str(group), f"{measured['gflops']['stock']:.1f}",
                             f"{measured['gflops']['routerelay']:.1f}", f"{ratio_of(measured):.2f}",
                             f"{measured['error']:.1e}"])
    cpu.close()
    where = results.machine(args.threads, engine.isa, host.version)
    if args.json:
        results.print_json("bench stock", engine.version, where, records)
        return
    results.print_plain(f"Dense attention, the last {args.queries} queries of {args.keys} keys, {args.q_heads} heads, "
                        f"{args.threads} threads: ggml {host.version} and {engine.isa} on {where['cpu']}",
                        ["K and V", "head_dim", "group", "stock GFLOP/s", "ours", "ratio", "difference"], rows)


def parse_args():
    words = lambda text: text.split(",")
    numbers = lambda text: [int(word) for word in text.split(",")]
    parser = argparse.ArgumentParser(prog="./dev bench stock", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtypes", type=words, default=["f16", "q8_0", "f32", "bf16"],
                        help="K and V; default: f16,q8_0,f32,bf16")
    parser.add_argument("--head-dims", type=numbers, default=[64, 128], help="default: 64,128")
    parser.add_argument("--groups", type=numbers, default=[1, 4], help="query heads per KV head; default: 1,4")
    parser.add_argument("--keys", type=int, default=8192)
    parser.add_argument("--queries", type=int, default=512, help="default: 512, llama.cpp's micro-batch")
    parser.add_argument("--q-heads", type=int, default=8)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all cores")
    parser.add_argument("--rounds", type=int, default=5, help="timed runs of each; the fastest counts")
    parser.add_argument("--isa", help="ours; the best when not given")
    parser.add_argument("--library", type=pathlib.Path, default=DEFAULT_LIBRARY, help="librouterelay.so to load")
    parser.add_argument("--llama", type=pathlib.Path, help="libllama.so of another build than the wheel's")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    args = parser.parse_args()
    for dtype in args.dtypes:
        if dtype not in flash_attention.TYPES:
            parser.error(f"--dtypes holds {dtype}; legal: {', '.join(flash_attention.TYPES)}")
    if min(args.queries, args.threads, args.rounds, args.q_heads) < 1 or args.keys < args.queries:
        parser.error("--queries, --threads, --rounds and --q-heads are at least 1, --keys no less than --queries")
    for group in args.groups:
        if group < 1 or args.q_heads % group:
            parser.error(f"--groups holds {group}, which does not divide --q-heads {args.q_heads}")
    return args


if __name__ == "__main__":
    try:
        run(parse_args())
    except (demo_llama.HostError, routerelay.EngineError) as error:
        sys.exit(f"bench stock: {error}")
