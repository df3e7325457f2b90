# SPDX-License-Identifier: Apache-2.0
"""A trace of a real model: one prompt through an unmodified llama.cpp, whose plug-in writes q, k and v to a file.

The prompt is Python's own documentation, or the beginning of --text. Attention is exact, so that the trace is the
model's and no preset's. docs/trace.md has the format.
"""

import argparse
import os
import pathlib
import sys

import demo
import demo_llama
import demo_run
import models
import routerelay.llama

LAYERS = 8  # by default, from the first on: two dense ones, and neighbours for the relay
MAX_TOKENS = 32768


def layer_list(text):
    """0,7,12 or 0-7. None at all would be every layer to the plug-in."""
    first, dash, last = text.partition("-")
    layers = list(range(int(first), int(last) + 1)) if dash else [int(n) for n in text.split(",")]
    if not layers or len(set(layers)) < len(layers):
        raise argparse.ArgumentTypeError(f"'{text}' names {'a layer twice' if layers else 'no layer'}; "
                                         "legal: such as 0,7,12 or 0-7")
    return layers


def parse_args(words=None):
    parser = argparse.ArgumentParser(prog="./dev trace", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path, metavar="FILE", help="to write, such as smollm2.safetensors")
    parser.add_argument("--tokens", type=int, default=4096, help="length of the prompt; default: 4096")
    parser.add_argument("--layers", type=layer_list, default=list(range(LAYERS)), help="0,7,12 or 0-7, the default")
    parser.add_argument("--model", choices=list(models.MODELS), default="smollm2", help="./dev models fetches them")
    parser.add_argument("--text", type=pathlib.Path, help="a text file to read instead")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all cores")
    parser.add_argument("--plugin", type=pathlib.Path, default=demo.DEFAULT_PLUGIN, help="its shared object")
    args = parser.parse_args(words)
    last = models.MODELS[args.model].layers - 1
    if wrong := [layer for layer in args.layers if not 0 <= layer <= last]:
        parser.error(f"--layers has {wrong[0]}; legal for {args.model}: 0 to {last}")
    # A prompt of less than one micro-batch has nothing to route.
    if not demo_run.UBATCH <= args.tokens <= MAX_TOKENS:
        parser.error(f"--tokens is {args.tokens}; legal: {demo_run.UBATCH} to {MAX_TOKENS}")
    if not models.path_of(args.model).exists():
        parser.error(f"--model is {args.model}, which is not fetched; ./dev models {args.model} fetches it")
    return args


def tokens_of(args, model):
    if args.text is None:
        return demo_run.prompt_tokens(model, args.tokens)
    tokens = model.tokenize(args.text.read_text(errors="replace"))[:args.tokens]
    if len(tokens) < args.tokens:
        raise demo_llama.HostError(f"{args.text} has {len(tokens)} tokens; --tokens is {args.tokens}")
    return tokens


def main():
    args = parse_args()
    host = demo_llama.Host()
    # Every micro-batch is claimed, also a short last one and the first keys: a trace has no holes.
    routerelay.llama.load("xllamacpp", args.plugin, preset="exact", trace=args.file, trace_layers=args.layers,
                          min_rows=1, min_kv=0)
    model = host.load_model(models.path_of(args.model))
    tokens = tokens_of(args, model)
    args.file.unlink(missing_ok=True)  # an old one must not pass for this one
    session = model.context(len(tokens), args.threads, ubatch=demo_run.UBATCH)
    for begin in range(0, len(tokens), demo_run.UBATCH):
        session.decode(tokens[begin:begin + demo_run.UBATCH], begin)
        done = min(begin + demo_run.UBATCH, len(tokens))
        print(f"trace: {done} of {len(tokens)} tokens", file=sys.stderr, flush=True)
    session.close()  # the plug-in completes the file
    if not args.file.exists():
        raise demo_llama.HostError(f"{args.file} was not written; the lines above say why")
    print(f"{args.file}: {args.file.stat().st_size / 2 ** 20:.0f} MiB, {len(args.layers)} layers of {args.model}\n"
          f"next: ./dev run run {args.file}; ./dev run compare {args.file}")


if __name__ == "__main__":
    try:
        main()
    except (demo_llama.HostError, routerelay.llama.LoadError, OSError) as error:
        sys.exit(f"trace: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
