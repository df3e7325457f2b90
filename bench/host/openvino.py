# SPDX-License-Identifier: Apache-2.0
"""Time to the first token of one long prompt: stock llama.cpp, our presets in it, and OpenVINO GenAI's XAttention.

The same GGUF file and the same tokens, each contestant in a process that loaded the model before, in turns. OpenVINO
runs with its own defaults (its precisions are in the records), dense and sparse, with the whole prompt in one forward
pass and in parts of 512 tokens as llama.cpp has it. `attention_seconds` is what a token costs beyond one of a prompt of
512 tokens: the part that sparse attention can save. `same_next` counts the tokens after the prompt that are those of
the same engine's dense run, `same_again` those that every run of a contestant has. OpenVINO comes from pip into the
user's cache folder, 90 MB, once; it is no part of ours.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import beside  # first: it puts tools/ on the path
import demo_llama
import demo_run
import demo_table
import host_list
import models
import results

CHUNK = demo_run.UBATCH
FOLLOWING = 16
WHOLE = 8192      # tokens in one pass: more than --tokens may be
THRESHOLD = 0.8   # of XAttention, its default
PACKAGES = ("openvino-genai==2026.4.1.0", "openvino==2026.4.1", "openvino-tokenizers==2026.4.1.0", "numpy==2.4.6")


def openvino_python():
    """The Python that has OpenVINO, made if need be."""
    folder = host_list.cache() / PACKAGES[0].replace("==", "-")
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists():
        print(f"bench openvino: {PACKAGES[0]} into {folder}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", "--no-deps", "--only-binary=:all:",
                        "--disable-pip-version-check", *PACKAGES], check=True)
        ready.touch()
    return python


# --- In the child: llama.cpp, one preset, and stock too where it is asked for.


def take_prompt(session, tokens):
    session.clear()
    seconds = 0.0
    for begin in range(0, len(tokens), CHUNK):
        chunk = tokens[begin:begin + CHUNK]
        last = (len(chunk) - 1,) if begin + len(chunk) == len(tokens) else ()
        seconds += demo_run.timed_decode(session, chunk, begin, last)
    first = int(np.argmax(session.logits(len(chunk) - 1)))
    return {"seconds": seconds, "next": demo_run.greedy(session, first, len(tokens), FOLLOWING)}


def child(args):
    host = demo_llama.Host(library=args.library)
    model = host.load_model(args.file)
    tokens = demo_run.prompt_tokens(model, args.tokens)
    make = lambda: model.context(args.tokens + FOLLOWING, args.threads, ubatch=CHUNK)
    sessions = {"stock": make()} if args.stock else {}
    if not host.load_plugin(args.plugin):
        raise demo_llama.HostError(f"llama.cpp did not take {args.plugin}")
    sessions[os.environ["ROUTERELAY_PRESET"]] = make()  # contexts take the devices that exist when they are made
    print(json.dumps({"tokens": tokens}), flush=True)
    for line in sys.stdin:
        wanted = json.loads(line)
        print(json.dumps(take_prompt(sessions[wanted["name"]], tokens[:wanted["tokens"]])), flush=True)
    for session in sessions.values():
        session.close()


# --- In the parent.


class Process:
    """A child that answers a line with a line."""

    def __init__(self, name, command, environment=None):
        self.name, self.errors = name, tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True)
        self.ready = self.answer()

    def answer(self):
        for line in self.process.stdout:
            if line.startswith("{"):  # libraries may speak too
                return json.loads(line)
        self.process.wait()
        self.errors.seek(0)
        raise demo_llama.HostError(f"{self.name} failed\n{self.errors.read().strip()}")

    def ask(self, **question):
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def start_llama(args, folder):
    """{contestant: process} and the prompt; stock and the first preset share one."""
    contestants, tokens = {}, []
    options = ["--file", str(models.fetch(args.model)), "--tokens", str(args.tokens)]
    options += ["--library", str(args.library)] if args.library else []
    for i, preset in enumerate(args.presets):
        command = beside.command_of(__file__, args, *options, *["--stock"] * (i == 0))
        contestants[preset] = Process(preset, command, beside.environment_of(preset, folder / f"{preset}.json"))
        tokens = contestants[preset].ready["tokens"]
        if i == 0:
            contestants["stock"] = contestants[preset]
    return contestants, tokens


def start_openvino(args, tokens, folder):
    prompt = folder / "prompt.json"
    prompt.write_text(json.dumps(tokens))
    command = [str(openvino_python()), "-I", str(pathlib.Path(__file__).with_name("openvino_child.py")), "--file",
               str(models.fetch(args.model)), "--prompt", str(prompt), "--threads", str(args.threads),
               "--following", str(FOLLOWING)]
    return {f"openvino_{kind}_{batch}": Process(f"openvino_{kind}_{batch}", [
                *command, "--batch", str(batch), "--threshold", str(threshold)])
            for batch in args.batches for kind, threshold in (("dense", 0), ("sparse", THRESHOLD))}


def take_turns(contestants, args):
    """{contestant: {tokens: [answers]}}; a short prompt first: it warms up and says what tokens cost by themselves."""
    names = sorted(contestants)
    found = {name: {CHUNK: [], args.tokens: []} for name in names}
    for length, runs in ((CHUNK, args.runs + 1), (args.tokens, args.runs)):
        for run in range(runs):
            for k in range(len(names)):
                name = names[(run + k) % len(names)]
                found[name][length].append(contestants[name].ask(name=name, tokens=length))
    return found


def dense_of(name):
    """The dense contestant of the same engine."""
    return name.replace("sparse", "dense") if name.startswith("openvino") else "stock"


def summary_of(name, found, tokens):
    def seconds(of, length):
        return min(run["seconds"] for run in found[of][length])
    def least_same(other):
        return min(demo_table.same_tokens({"next_tokens": run["next"]}, {"next_tokens": other["next"]}) for run in runs)
    runs, whole = found[name][tokens], seconds(name, tokens)
    return {"first_token_seconds": whole, "slowest_seconds": max(run["seconds"] for run in runs),
            "attention_seconds": whole - tokens / CHUNK * seconds(name, CHUNK),
            "speedup": seconds(dense_of(name), tokens) / whole,
            "same_next": least_same(found[dense_of(name)][tokens][0]), "same_again": least_same(runs[0])}


UNITS = {"first_token_seconds": "s", "slowest_seconds": "s", "attention_seconds": "s", "speedup": "x",
         "same_next": "tokens", "same_again": "tokens"}


def records_of(contestants, found, tokens, **shared):
    return [results.record(key, value, UNITS[key], contestant=name, dense=dense_of(name), tokens=tokens, **shared)
            for name in contestants for key, value in summary_of(name, found, tokens).items()]


def run(args):
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        contestants, tokens = start_llama(args, folder)
        peers = start_openvino(args, tokens, folder)
        print("bench openvino: every model is loaded", file=sys.stderr, flush=True)
        found = take_turns(contestants | peers, args)
        for process in {*contestants.values(), *peers.values()}:
            process.close()
        report = json.loads((folder / f"{args.presets[0]}.json").read_text())
    names = ["stock", *args.presets, *peers]
    where = results.machine(args.threads, report["isa"], report["host"]["ggml"])
    said = next(iter(peers.values())).ready
    records = records_of(names, found, args.tokens, model=args.model, runs=args.runs,
                         llama="built" if args.library else "wheel")
    if args.json:
        results.print_json("bench openvino", report["version"], where | {"openvino": said["version"],
                           **{name.lower(): value for name, value in said["properties"].items()}}, records)
        return
    rows = [[name, *(f"{summary_of(name, found, args.tokens)[key]:.{digits}f}"
                     for key, digits in zip(UNITS, (1, 1, 1, 2, 0, 0)))] for name in names]
    title = (f"{args.model}, {args.tokens} tokens, {args.threads} threads on {where['cpu']}; llama.cpp with ggml "
             f"{where['ggml']}, {where['isa']}; OpenVINO GenAI {said['version']}, {said['properties']}; fastest of "
             f"{args.runs}")
    results.print_plain(title, ["", "first token, s", "slowest", "attention, s", "speed-up", f"same of {FOLLOWING}",
                               "again"], rows)


def parse_args():
    def listed(kind):
        return lambda text: [kind(item) for item in text.split(",")]
    parser = beside.parser_of(__file__, __doc__)
    parser.add_argument("--presets", type=listed(str), default=["exact", "balanced"])
    parser.add_argument("--model", choices=list(models.MODELS), default="smollm2")
    parser.add_argument("--tokens", type=int, default=8000)
    parser.add_argument("--batches", type=listed(int), default=[WHOLE, CHUNK],
                        help=f"tokens in one forward pass of OpenVINO; default: {WHOLE},{CHUNK}")
    parser.add_argument("--runs", type=int, default=2, help="of each, in turns; the fastest counts")
    parser.add_argument("--library", type=pathlib.Path, help="libllama.so of another build than the wheel's")
    parser.add_argument("--file", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--stock", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not CHUNK < args.tokens <= WHOLE or min(args.runs, args.threads, *args.batches) < 1:
        parser.error(f"--tokens is {args.tokens}; legal: {CHUNK + 1} to {WHOLE}; --runs, --threads, --batches: from 1")
    return args


if __name__ == "__main__":
    beside.main(__file__, parse_args(), child, run)
