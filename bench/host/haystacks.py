# SPDX-License-Identifier: Apache-2.0
"""What does a preset forget? Facts hidden in long texts, each asked for over the cache that the text left.

A haystack is real text with a fact in each eighth of it: the entry code of an archive. It goes through llama.cpp once
per contestant, stock and the presets, whole micro-batches only, so that no short last one is dense. Its cache is saved,
and every question is decoded greedily over a copy of it; too short for the plug-in, questions are the host's own dense
attention. Counted: codes that the answer begins with. Beside it: the loss of the haystack's last tokens against stock.
Even haystacks are Python's documentation, which the presets were tuned on, odd ones sources of its library.
"""

import argparse
import json
import os
import pathlib
import pydoc_data.topics
import random
import statistics

import numpy as np

import beside  # first: it puts tools/ on the path
import demo_llama
import demo_run
import models
import results

CHUNK = demo_run.UBATCH
ARCHIVES = ("avocet", "bittern", "curlew", "dunlin", "egret", "fulmar", "gannet", "heron", "ibis", "jackdaw", "kestrel",
            "lapwing", "magpie", "nightjar", "osprey", "plover", "quail", "redstart", "siskin", "turnstone")
FACT = "\nThe entry code of the {} archive is {}.\n"
QUESTION = "\n\nQuestion: What is the entry code of the {} archive?\nAnswer: The entry code of the {} archive is"
ANSWER_TOKENS = 12  # a code of six digits takes seven of a tokeniser that knows single digits
ROOM = 128          # of the context, for a question and its answer


# --- The haystack.


def facts_of(haystack, n):
    """n pairs (archive, code) and where each stands, as a share of the text: somewhere in its n-th part."""
    chance = random.Random(f"haystack {haystack}")
    archives = chance.sample(ARCHIVES, n)
    return ([(archive, f"{chance.randrange(10**6):06}") for archive in archives],
            [(i + chance.random()) / n for i in range(n)])


def hide(filler, needles, depths):
    """`filler` with every needle (lists of tokens) at its depth, a share of the filler; depths ascend."""
    out, begin = [], 0
    for needle, depth in zip(needles, depths):
        end = int(depth * len(filler))
        out += filler[begin:end] + needle
        begin = end
    return out + filler[begin:]


def text_of(haystack, characters):
    """The kind of text of a haystack, from its beginning."""
    if haystack % 2 == 0:
        return "\n\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))[:characters]
    text = ""
    for path in sorted(pathlib.Path(os.__file__).parent.glob("*.py")):
        if len(text) >= characters:
            break
        text += path.read_text(errors="replace")
    return text[:characters]


def filler_of(model, haystack, n, room):
    """n tokens; haystacks of one kind take texts of up to `room` tokens that follow each other."""
    begin = haystack // 2 * room
    for characters in (8 * (begin + room), 1 << 24):  # see demo_run.prompt_tokens
        tokens = model.tokenize(text_of(haystack, characters), start=False)
        if len(tokens) >= begin + room:
            return tokens[begin:begin + n]
    raise demo_llama.HostError(f"haystack {haystack} is of tokens {begin} to {begin + room} of a text that has "
                               f"{len(tokens)}; ask for fewer or shorter ones")


def haystack_tokens(model, haystack, n_tokens, facts, depths):
    needles = [model.tokenize(FACT.format(*fact), start=False) for fact in facts]
    start = model.tokenize("")
    filler = filler_of(model, haystack, n_tokens - len(start) - sum(map(len, needles)), n_tokens)
    return start + hide(filler, needles, depths)


# --- In the child: one haystack, one preset, and for the first preset stock before it.


def ask(session, state, question, position):
    """The tokens that follow the question most likely."""
    session.clear()
    session.restore(state)
    session.decode(question, position, (len(question) - 1,))
    first = int(np.argmax(session.logits(len(question) - 1)))
    return demo_run.greedy(session, first, position + len(question), ANSWER_TOKENS)


def is_recalled(answer, code):
    return answer.strip().startswith(code)


def contestant(name, model, tokens, facts, args):
    session = model.context(args.tokens + ROOM, args.threads, ubatch=CHUNK, cache=args.cache)
    session.decode(tokens[:demo_run.WARM_UP_TOKENS], 0)
    session.clear()
    seconds, losses, _ = demo_run.prompt(session, tokens, args.loss_tokens, ())
    state = session.state()
    questions = [model.tokenize(QUESTION.format(archive, archive), start=False) for archive, _ in facts]
    answers = [model.text(ask(session, state, question, len(tokens))) for question in questions]
    session.close()
    recalled = [is_recalled(answer, code) for answer, (_, code) in zip(answers, facts)]
    print(json.dumps({"name": name, "seconds": sum(seconds), "loss": float(np.mean(losses)), "answers": answers,
                      "recalled": recalled}), flush=True)


def child(args):
    host = demo_llama.Host(library=args.library)
    model = host.load_model(args.file)
    facts, depths = facts_of(args.haystack, args.questions)
    tokens = haystack_tokens(model, args.haystack, args.tokens, facts, depths)
    if args.stock:
        contestant("stock", model, tokens, facts, args)
    if not host.load_plugin(args.plugin):
        raise demo_llama.HostError(f"llama.cpp did not take {args.plugin}")
    contestant(os.environ["ROUTERELAY_PRESET"], model, tokens, facts, args)


# --- In the parent.


def settings_of(args):
    """What makes a result another one."""
    kept = {name: os.environ[name] for name in beside.KEPT if name in os.environ}
    return {"model": args.model, "cache": args.cache, "tokens": args.tokens, "loss_tokens": args.loss_tokens,
            "questions": args.questions, **kept}


def run_haystack(haystack, args):
    """{contestant: what it printed, and the density of its routed rows}, with the last report."""
    options = ["--file", str(models.fetch(args.model)), "--cache", args.cache, "--tokens", str(args.tokens),
               "--loss-tokens", str(args.loss_tokens), "--questions", str(args.questions), "--haystack", str(haystack)]
    options += ["--library", str(args.library)] if args.library else []
    found, report = {}, {}
    for i, preset in enumerate(args.presets):
        lines, report = beside.run_child(__file__, preset, args, *options, *["--stock"] * (i == 0))
        for line in lines:
            found[line.pop("name")] = line
        found[preset] |= {"density": report["density"], "model_density": report["model_density"]}
    return {"haystack": haystack, "found": found, "version": report["version"], "isa": report["isa"],
            "ggml": report["host"]["ggml"]}


def run_haystacks(args):
    """Every haystack's results; with --keep those that an earlier call finished are taken from the file."""
    settings, done = settings_of(args), {}
    if args.keep and args.keep.exists():
        entries = [json.loads(line) for line in args.keep.read_text().splitlines()]
        done = {entry["result"]["haystack"]: entry["result"] for entry in entries
                if entry["settings"] == settings and set(args.presets) <= set(entry["result"]["found"])}
    for haystack in args.haystacks:
        if haystack not in done:
            done[haystack] = run_haystack(haystack, args)
            if args.keep:
                with open(args.keep, "a") as file:
                    file.write(json.dumps({"settings": settings, "result": done[haystack]}) + "\n")
    return [done[haystack] for haystack in args.haystacks]


def summary_of(name, haystacks):
    """Of one contestant over all haystacks."""
    runs, stock = [h["found"][name] for h in haystacks], [h["found"]["stock"] for h in haystacks]
    recalled, of = (sum(sum(run["recalled"]) for run in which) for which in (runs, stock))
    added = [run["loss"] - beside_it["loss"] for run, beside_it in zip(runs, stock)]
    out = {"recalled": recalled, "prefill_seconds": statistics.mean(run["seconds"] for run in runs),
           "loss": statistics.mean(run["loss"] for run in runs)}
    if name == "stock":
        return out
    error = statistics.stdev(added) / len(added) ** 0.5 if len(added) > 1 else 0.0
    return out | {"recalled_of_stock": recalled / of if of else 0.0, "added_loss": statistics.mean(added),
                  "added_loss_error": error, "density": statistics.mean(run["density"] for run in runs),
                  "model_density": statistics.mean(run["model_density"] for run in runs)}


UNITS = {"recalled": "codes", "recalled_of_stock": "share", "loss": "nats/token", "added_loss": "nats/token",
         "added_loss_error": "nats/token", "density": "share", "model_density": "share", "prefill_seconds": "s"}


def records_of(haystacks, contestants, **shared):
    out = []
    for name in contestants:
        out += [results.record(key, value, UNITS[key], preset=name, haystacks=len(haystacks), **shared)
                for key, value in summary_of(name, haystacks).items()]
        for h in haystacks:
            run, stock = h["found"][name], h["found"]["stock"]
            out += [results.record("haystack_recalled", sum(run["recalled"]), "codes", preset=name,
                                   haystack=h["haystack"], **shared),
                    results.record("haystack_added_loss", run["loss"] - stock["loss"], "nats/token", preset=name,
                                   haystack=h["haystack"], **shared)]
    return out


def cells_of(name, found, asked):
    cells = [name, f"{found['recalled']} of {asked}"]
    if name == "stock":
        return [*cells, "", f"{found['loss']:.4f}", "", "", f"{found['prefill_seconds']:.0f}"]
    return [*cells, f"{100 * found['recalled_of_stock']:.0f} %", f"{found['loss']:.4f}",
            f"{found['added_loss']:+.4f} +- {found['added_loss_error']:.4f}", f"{found['density']:.3f}",
            f"{found['prefill_seconds']:.0f}"]


def run(args):
    haystacks = run_haystacks(args)
    contestants = ["stock", *args.presets]
    last = haystacks[-1]
    where = results.machine(args.threads, last["isa"], last["ggml"])
    if args.json:
        results.print_json("bench haystacks", last["version"], where,
                           records_of(haystacks, contestants, **settings_of(args)))
        return
    asked = len(haystacks) * args.questions
    results.print_plain(f"{args.model}, {args.cache} cache, {len(haystacks)} haystacks of {args.tokens} tokens with "
                        f"{args.questions} facts each, llama.cpp with ggml {where['ggml']}, {where['isa']} on "
                        f"{where['cpu']}; loss of the last {args.loss_tokens} tokens",
                        ["", "recalled", "of stock", "loss", "added", "density", "seconds"],
                        [cells_of(name, summary_of(name, haystacks), asked) for name in contestants])


def parse_args():
    def listed(kind):
        return lambda text: [kind(item) for item in text.split(",")]
    parser = beside.parser_of(__file__, __doc__)
    parser.add_argument("--presets", type=listed(str), default=["exact", "balanced"])
    parser.add_argument("--model", choices=list(models.MODELS), default="qwen-0.5b")
    parser.add_argument("--cache", choices=list(demo_llama.CACHE_TYPES), default="f16")
    parser.add_argument("--haystacks", type=listed(int), default=list(range(6)), help="by number; default: 0,1,2,3,4,5")
    parser.add_argument("--questions", type=int, default=8, help="of each haystack")
    parser.add_argument("--tokens", type=int, default=16384, help="of a haystack, whole micro-batches of 512")
    parser.add_argument("--loss-tokens", type=int, default=2048, help="of a haystack's end whose loss is compared")
    parser.add_argument("--keep", type=pathlib.Path, metavar="FILE",
                        help="add every finished haystack to this file, and take from it what is there already")
    parser.add_argument("--library", type=pathlib.Path, help="libllama.so of another build than the wheel's")
    for hidden, kind in (("--file", pathlib.Path), ("--haystack", int)):
        parser.add_argument(hidden, type=kind, help=argparse.SUPPRESS)
    parser.add_argument("--stock", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if min(args.haystacks) < 0 or args.threads < 1 or not 1 <= args.questions <= len(ARCHIVES):
        parser.error(f"--haystacks are at least 0, --threads at least 1, --questions 1 to {len(ARCHIVES)}")
    if args.tokens < CHUNK or args.tokens % CHUNK or not 1 <= args.loss_tokens < args.tokens:
        parser.error(f"--tokens is {args.tokens}; legal: multiples of {CHUNK}; --loss-tokens: from 1, fewer than that")
    return args


if __name__ == "__main__":
    beside.main(__file__, parse_args(), child, run)
