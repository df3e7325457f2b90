# SPDX-License-Identifier: Apache-2.0
"""./dev by itself, in a folder that has nothing else: its help builds nothing, wrong words, and two builds at once."""

import fcntl
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
STUB = """#!/bin/sh
echo "cmake $*" >> "$CMAKE_LOG"
"""


class Dev(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.clone = pathlib.Path(folder.name) / "clone"
        self.stubs = pathlib.Path(folder.name) / "stubs"
        self.log = pathlib.Path(folder.name) / "log"
        (self.clone / "tools").mkdir(parents=True)
        self.stubs.mkdir()
        (self.clone / "tools" / "packages.txt").touch()
        for name in ("dev", "CMakePresets.json"):
            shutil.copy(ROOT / name, self.clone)
        (self.stubs / "cmake").write_text(STUB)
        (self.stubs / "cmake").chmod(0o755)
        self.environment = os.environ | {"PATH": f"{self.stubs}:{os.environ['PATH']}", "CMAKE_LOG": str(self.log)}

    def start(self, *words):
        return subprocess.Popen([str(self.clone / "dev"), *words], env=self.environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def dev(self, *words):
        process = self.start(*words)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def test_every_command_has_help_that_builds_nothing(self):
        _, page, _ = self.dev()
        commands = set(re.findall(r"^command_(\w+)\(\)", (ROOT / "dev").read_text(), re.MULTILINE))
        self.assertEqual(set(re.findall(r"^  (\w+) ", page, re.MULTILINE)), commands)
        for command in commands:
            code, out, _ = self.dev(command, "--help")
            self.assertEqual(code, 0, command)
            self.assertRegex(out, rf"\n  {command} ")
            self.assertEqual(len(re.findall(r"^  \w", out, re.MULTILINE)), 1, out)
        self.assertFalse((self.clone / "build").exists())
        self.assertFalse(self.log.exists())

    def test_a_script_lists_its_own_options(self):
        done = subprocess.run([ROOT / "dev", "demo", "--help"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("--tokens", done.stdout)

    def test_wrong_words_are_told_the_legal_ones(self):
        for words, said in ((("build", "relese"), "PRESET is 'relese'; legal: dev, release, asan, tsan, cuda\n"),
                            (("bench", "atend"), "bench is 'atend'; legal: peak, attend, layer, stock, "),
                            (("setup", "all"), "setup takes no 'all'\n"),
                            (("test", "--fast"), "unknown option '--fast' of test\n"),
                            (("fly",), "unknown command 'fly'\n")):
            code, _, err = self.dev(*words)
            self.assertEqual(code, 2, words)
            self.assertIn(f"dev: {said}", err)
        self.assertFalse(self.log.exists())

    def test_a_build_waits_for_another_and_says_so(self):
        (self.clone / "build").mkdir()
        with open(self.clone / "build" / ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            process = self.start("build", "dev")
            self.assertEqual(process.stderr.readline(), "dev: waiting for another ./dev, which builds in this clone\n")
            self.assertFalse(self.log.exists())
        _, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, err), (0, ""))
        self.assertIn("cmake --build --preset dev\n", self.log.read_text())

    def test_a_child_that_stays_behind_keeps_no_lock(self):
        pid = self.log.with_name("pid")
        (self.stubs / "cmake").write_text(f"#!/bin/sh\nsleep 60 >/dev/null 2>&1 &\necho $! > {pid}\n")
        self.assertEqual(self.dev("build", "dev")[0], 0)
        self.addCleanup(os.kill, int(pid.read_text()), signal.SIGKILL)
        with open(self.clone / "build" / ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def test_a_build_alone_says_nothing_of_waiting(self):
        self.assertEqual(self.dev("build", "dev")[::2], (0, ""))


if __name__ == "__main__":
    unittest.main()
