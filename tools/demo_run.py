# SPDX-License-Identifier: Apache-2.0
"""One run of the demo in a process of its own: a prompt through llama.cpp, its speed, loss and next tokens as JSON.

A process each, because ggml registers a plug-in once and for all and the preset is an environment variable.
"""

import argparse
import json
import pydoc_data.topics
import sys
import time

import numpy as np

import demo_llama

UBATCH = 512         # llama.cpp's default micro-batch
LOSS_TOKENS = 1000   # the prompt's last tokens, whose loss is compared
NEXT_TOKENS = 32
WARM_UP_TOKENS = 32  # pages the weights in and starts the host's threads; below the plug-in's 64 rows
BEHIND = 1.1         # a run that has taken, and would take, this many times its rival's seconds has lost
MIN_CHUNKS = 4       # micro-batches before which nothing is decided


def prompt_tokens(model, n):
    """The first n tokens of Python's own documentation text, which every Python carries."""
    topics = pydoc_data.topics.topics
    text = "\n\n".join(topics[name] for name in sorted(topics))
    # Six bytes a token and more have never been seen missing; the whole text is the last resort.
    for length in (8 * n, len(text)):
        tokens = model.tokenize(text[:length])
        if len(tokens) >= n:
            return tokens[:n]
    raise demo_llama.HostError(f"Python's documentation has {len(tokens)} tokens; {n} are wanted")


def timed_decode(session, tokens, position, wanted=()):
    start = time.perf_counter()
    session.decode(tokens, position, wanted)
    return time.perf_counter() - start


def nats(logits, target):
    row = logits.astype(np.float64)
    top = row.max()
    return top + np.log(np.exp(row - top).sum()) - row[target]


def has_lost(chunks, rival):
    """Whether a run with these seconds per micro-batch is behind the rival's and would end behind it.

    A micro-batch costs a constant and something per earlier token, so a line through the ones seen tells the rest.
    """
    n = len(chunks)
    if n < MIN_CHUNKS or n >= len(rival) or sum(chunks) <= BEHIND * sum(rival[:n]):
        return False
    line = np.polyfit(range(n), chunks, 1)
    return sum(chunks) + np.polyval(line, range(n, len(rival))).sum() > BEHIND * sum(rival)


def prompt(session, tokens, loss_tokens, rival):
    """Decodes the prompt, or as much of it as decides against `rival` (seconds per micro-batch of another run).

    Returns seconds inside llama.cpp per micro-batch, nats of each of the last tokens, and the next token or None.
    """
    chunks, losses, n = [], [], len(tokens)
    first = n - 1 - loss_tokens  # the token after this one is the first whose loss counts
    for begin in range(0, n, UBATCH):
        chunk = tokens[begin:begin + UBATCH]
        wanted = range(max(0, first - begin), len(chunk))
        chunks.append(timed_decode(session, chunk, begin, wanted))
        if has_lost(chunks, rival):
            return chunks, losses, None
        for i in wanted:
            if begin + i + 1 < n:
                losses.append(nats(np.asarray(session.logits(i)), tokens[begin + i + 1]))
    return chunks, losses, int(np.argmax(session.logits(len(chunk) - 1)))


def greedy(session, token, position, n=NEXT_TOKENS):
    """`token`, which belongs at `position`, and the n - 1 most likely ones after it."""
    out = [token]
    while len(out) < n:
        session.decode(out[-1:], position + len(out) - 1, wanted=(0,))
        out.append(int(np.argmax(session.logits(0))))
    return out


def free_attention(session, tokens):
    """Seconds per prompt token and per row of logits at depth 0, where attention costs next to nothing."""
    chunk = tokens[:UBATCH]

    def best(wanted):
        times = []
        for _ in range(3):  # one micro-batch is short: a single reading has come out below what a preset reached
            session.clear()
            times.append(timed_decode(session, chunk, 0, wanted))
        return min(times)

    plain, with_logits = best(()), best(range(len(chunk)))
    session.clear()
    return plain / len(chunk), max(0.0, with_logits - plain) / len(chunk)


def run(args):
    host = demo_llama.Host()
    if args.plugin and not host.load_plugin(args.plugin):
        raise demo_llama.HostError(f"llama.cpp did not take {args.plugin}")
    model = host.load_model(demo_llama.model_file())
    tokens = prompt_tokens(model, args.tokens)
    loss_tokens = min(LOSS_TOKENS, args.tokens - 1)
    session = model.context(args.tokens + NEXT_TOKENS, args.threads, demo_llama.FLASH_ON if args.flash == "on"
                            else demo_llama.FLASH_OFF, UBATCH)
    session.decode(tokens[:WARM_UP_TOKENS], 0)
    result = {"ggml": host.version}
    if args.free:
        result["free_seconds_per_token"], result["seconds_per_logits_row"] = free_attention(session, tokens)
    session.clear()
    chunks, losses, next_token = prompt(session, tokens, loss_tokens, json.loads(args.rival))
    done = min(len(chunks) * UBATCH, args.tokens)
    result |= {"chunk_seconds": chunks, "seconds": sum(chunks), "tokens": done, "tokens_per_second": done / sum(chunks)}
    if next_token is not None:
        following = greedy(session, next_token, args.tokens)
        result |= {"loss": float(np.mean(losses)), "loss_tokens": loss_tokens, "next_tokens": following,
                   "next_text": model.text(following)}
    session.close()  # the plug-in writes its report when its last backend is freed
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plugin", default="")
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--flash", choices=("on", "off"), default="on")
    parser.add_argument("--rival", default="[]", help="stop when behind a run with these seconds per micro-batch")
    parser.add_argument("--free", action="store_true", help="also time micro-batches at depth 0")
    try:
        print(json.dumps(run(parser.parse_args())))
    except demo_llama.HostError as error:
        sys.exit(f"demo: {error}")


if __name__ == "__main__":
    main()
