# SPDX-License-Identifier: Apache-2.0
"""What the scripts print: one JSON object in the form of `routerelay --json`, or a plain table; and the CPU's name."""

import json
import os
import pathlib
import platform


def cpu_name():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def machine(threads, isa, ggml):
    return {"cpu": cpu_name(), "cores": os.cpu_count(), "threads": threads, "isa": isa, "ggml": ggml}


def record(name, value, unit, **params):
    return {"name": name, "value": value, "unit": unit, "params": params}


def print_json(command, version, where, records):
    print(json.dumps({"command": command, "version": version, "machine": where, "results": records}))


def print_plain(title, heads, rows):
    """The first column to the left, numbers to the right."""
    heads = [head.replace("\n", " ") for head in heads]
    widths = [max(len(row[i]) for row in [heads] + rows) for i in range(len(heads))]
    print(title)
    for row in [heads] + rows:
        print("  ".join(f"{cell:>{w}}" if i else f"{cell:<{w}}" for i, (cell, w) in enumerate(zip(row, widths))))
