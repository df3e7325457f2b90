# SPDX-License-Identifier: Apache-2.0
"""What does a preset forget? Facts hidden in long texts, each asked for over the cache that the text left.

A haystack is real text with a fact in each eighth of it: the secret code of an animal. It goes through llama.cpp once
per contestant, stock and the presets, whole micro-batches only, so that no short last one is dense. Its cache is saved,
and every question is decoded greedily over a copy of it; too short for the plug-in, questions are the host's own dense
attention. Counted: codes that the answer begins with. Beside it, against the dense contestant: the loss of the right
codes after their questions, which says more than a count, and that of the haystack's last tokens. Even haystacks are
Python's documentation, which the presets were tuned on, odd ones sources of its library.
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
ANIMALS = ("bear", "camel", "cat", "cow", "crab", "deer", "dog", "dolphin", "duck", "eagle", "fox", "frog", "goat",
           "horse", "lion", "monkey", "rabbit", "spider", "tiger", "whale")
FACT = "\nThe secret code of the {} is {}.\n"
QUESTION = "\n\nQuestion: What is the secret code of the {}?\nAnswer: The secret code of the {} is"
ANSWER_TOKENS = 12  # a code of six digits takes seven of a tokeniser that knows single digits
ROOM = 128          # of the context, for a question and its answer


# --- The haystack.


def facts_of(haystack, n):
    """n pairs (animal, code) and where each stands, as a share of the text: somewhere in its n-th part."""
    chance = random.Random(f"haystack {haystack}")
    animals = chance.sample(ANIMALS, n)
    return ([(animal, f"{chance.randrange(10**6):06}") for animal in animals],
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


# --- In the child: one haystack, one preset, and where it is asked for stock before it.


def ask(session, state, question, code, position):
    """Of tokens: what follows the question most likely, and the mean loss of the right code after it."""
    session.clear()
    session.restore(state)
    whole, last = question + code, len(question) - 1
    session.decode(whole, position, range(last, len(whole) - 1))
    rows = [np.array(session.logits(i)) for i in range(last, len(whole) - 1)]
    losses = [demo_run.nats(row, token) for row, token in zip(rows, code)]
    session.forget_from(position + len(question))
    answer = demo_run.greedy(session, int(np.argmax(rows[0])), position + len(question), ANSWER_TOKENS)
    return answer, float(np.mean(losses))


def is_recalled(answer, code):
    return answer.strip().startswith(code)


def contestant(name, model, tokens, facts, args):
    session = model.context(args.tokens + ROOM, args.threads, ubatch=CHUNK, cache=args.cache)
    session.decode(tokens[:demo_run.WARM_UP_TOKENS], 0)
    session.clear()
    seconds, losses, _ = demo_run.prompt(session, tokens, args.loss_tokens, ())
    state = session.state()
    found = {"name": name, "seconds": sum(seconds), "loss": float(np.mean(losses)), "answers": [], "recalled": [],
             "code_losses": []}
    for animal, code in facts:
        question = model.tokenize(QUESTION.format(animal, animal), start=False)
        answer, loss = ask(session, state, question, model.tokenize(f" {code}", start=False), len(tokens))
        found["answers"].append(model.text(answer))
        found["recalled"].append(is_recalled(found["answers"][-1], code))
        found["code_losses"].append(loss)
    session.close()
    print(json.dumps(found), flush=True)


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
    """What every contestant printed, and the density of its routed rows."""
    options = ["--file", str(models.fetch(args.model)), "--cache", args.cache, "--tokens", str(args.tokens),
               "--loss-tokens", str(args.loss_tokens), "--questions", str(args.questions), "--haystack", str(haystack)]
    options += ["--library", str(args.library)] if args.library else []
    found, report = {}, {}
    for i, preset in enumerate(name for name in contestants_of(args) if name != "stock"):
        stock = ["--stock"] if i == 0 and args.dense == "stock" else []
        lines, report = beside.run_child(__file__, preset, args, *options, *stock)
        for line in lines:
            found[line.pop("name")] = line
        found[preset] |= {"density": report["density"], "model_density": report["model_density"]}
    return {"haystack": haystack, "found": found, "version": report["version"], "isa": report["isa"],
            "ggml": report["host"]["ggml"]}


def contestants_of(args):
    return list(dict.fromkeys([args.dense, *args.presets]))


def run_haystacks(args):
    """Every haystack's results; with --keep those that an earlier call finished are taken from the file."""
    settings, done = settings_of(args), {}
    if args.keep and args.keep.exists():
        entries = [json.loads(line) for line in args.keep.read_text().splitlines()]
        done = {entry["result"]["haystack"]: entry["result"] for entry in entries
                if entry["settings"] == settings and set(contestants_of(args)) <= set(entry["result"]["found"])}
    for haystack in args.haystacks:
        if haystack not in done:
            done[haystack] = run_haystack(haystack, args)
            if args.keep:
                with open(args.keep, "a") as file:
                    file.write(json.dumps({"settings": settings, "result": done[haystack]}) + "\n")
    return [done[haystack] for haystack in args.haystacks]


UNITS = {"recalled": "codes", "recalled_of_dense": "share", "code_loss": "nats/token", "added_code_loss": "nats/token",
         "loss": "nats/token", "added_loss": "nats/token", "added_loss_error": "nats/token", "density": "share",
         "model_density": "share", "prefill_seconds": "s"}


def summary_of(name, dense, haystacks):
    """Of one contestant over all haystacks, against the dense one."""
    runs, beside_it = ([h["found"][which] for h in haystacks] for which in (name, dense))
    recalled, of = (sum(sum(run["recalled"]) for run in which) for which in (runs, beside_it))
    code_loss, dense_code_loss = (statistics.mean(loss for run in which for loss in run["code_losses"])
                                  for which in (runs, beside_it))
    added = [run["loss"] - other["loss"] for run, other in zip(runs, beside_it)]
    out = {"recalled": recalled, "code_loss": code_loss, "loss": statistics.mean(run["loss"] for run in runs),
           "prefill_seconds": statistics.median(run["seconds"] for run in runs)}
    if name == dense:
        return out
    return out | {"recalled_of_dense": recalled / of if of else 0.0, "added_code_loss": code_loss - dense_code_loss,
                  "added_loss": statistics.mean(added),
                  "added_loss_error": statistics.stdev(added) / len(added) ** 0.5 if len(added) > 1 else 0.0,
                  "density": statistics.mean(run["density"] for run in runs),
                  "model_density": statistics.mean(run["model_density"] for run in runs)}


def records_of(haystacks, contestants, **shared):
    """Sums, then haystack by haystack. The first contestant is the dense one."""
    dense, out = contestants[0], []
    for name in contestants:
        out += [results.record(key, value, UNITS[key], preset=name, dense=dense, haystacks=len(haystacks), **shared)
                for key, value in summary_of(name, dense, haystacks).items()]
        for h in haystacks:
            params = {"preset": name, "dense": dense, "haystack": h["haystack"], **shared}
            run, beside_it = h["found"][name], h["found"][dense]
            out += [results.record("haystack_recalled", sum(run["recalled"]), "codes", **params),
                    results.record("haystack_added_loss", run["loss"] - beside_it["loss"], "nats/token", **params)]
    return out


def cells_of(name, found, asked):
    added = ["", "", "", ""]
    if "added_loss" in found:
        added = [f"{100 * found['recalled_of_dense']:.0f} %", f"{found['added_code_loss']:+.3f}",
                 f"{found['added_loss']:+.4f} +- {found['added_loss_error']:.4f}", f"{found['density']:.3f}"]
    return [name, f"{found['recalled']} of {asked}", added[0], f"{found['code_loss']:.3f}", added[1],
            f"{found['loss']:.4f}", *added[2:], f"{found['prefill_seconds']:.0f}"]


def run(args):
    haystacks, contestants = run_haystacks(args), contestants_of(args)
    last = haystacks[-1]
    where = results.machine(args.threads, last["isa"], last["ggml"])
    if args.json:
        results.print_json("bench haystacks", last["version"], where,
                           records_of(haystacks, contestants, **settings_of(args)))
        return
    asked = len(haystacks) * args.questions
    title = (f"{args.model}, {args.cache} cache, {len(haystacks)} haystacks of {args.tokens} tokens with "
             f"{args.questions} facts each, llama.cpp with ggml {where['ggml']}, {where['isa']} on {where['cpu']}; "
             f"text: the last {args.loss_tokens} tokens")
    results.print_plain(title, ["", "recalled", "of dense", "loss of codes", "added", "of text", "added", "density",
                                "seconds"],
                        [cells_of(name, summary_of(name, contestants[0], haystacks), asked) for name in contestants])


def parse_args():
    def listed(kind):
        return lambda text: [kind(item) for item in text.split(",")]
    parser = beside.parser_of(__file__, __doc__)
    parser.add_argument("--presets", type=listed(str), default=["exact", "balanced"])
    parser.add_argument("--dense", choices=("stock", "exact"), default="stock",
                        help="what presets are compared with; `exact` takes half of stock's time")
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
    if min(args.haystacks) < 0 or args.threads < 1 or not 1 <= args.questions <= len(ANIMALS):
        parser.error(f"--haystacks are at least 0, --threads at least 1, --questions 1 to {len(ANIMALS)}")
    if args.tokens < CHUNK or args.tokens % CHUNK or not 1 <= args.loss_tokens < args.tokens:
        parser.error(f"--tokens is {args.tokens}; legal: multiples of {CHUNK}; --loss-tokens: from 1, fewer than that")
    return args


if __name__ == "__main__":
    beside.main(__file__, parse_args(), child, run)
