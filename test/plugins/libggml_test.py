# SPDX-License-Identifier: Apache-2.0
"""The plug-in in real ggml libraries that need no build: a C program against one version of the libggml wheels.

Called with the plug-in, a C compiler and the host's name in tools/host_list.py. Every case is a process of its own.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "tools"), str(HERE.parent / "tools")]
import environment  # noqa: E402
import host_list  # noqa: E402
import packages  # noqa: E402

PLUGIN, COMPILER, NAME = sys.argv[1:4]
HOST = host_list.find(NAME)
FLASH_ATTENTION = {"0.9.11": 73}.get(HOST.ggml, 74)
# Largest difference and normalised square error. Both sum in f32 over the same f16 keys and values: what is left is the
# order of the sums, and on AMX the rounding of the weights to bf16, at most 2^-8 of the largest value, which is 6.
BOUNDS, AMX_BOUNDS = (1e-3, 1e-9), (6 / 256, 1e-5)
OTHER_VERSION = "0.99.9"  # as long as the real ones: it is written over them


class Libggml(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.libraries = next(HOST.folder.glob("libggml/lib*/libggml.so.0")).parent
        cls.program = cls.folder / "attention_host"
        includes = [f"-I{path}" for path in (HOST.folder / "libggml" / "include", HERE.parents[1] / "include")]
        subprocess.run([COMPILER, "-std=c11", "-O1", *includes, str(HERE / "attention_host.c"), "-o", str(cls.program),
                        f"-L{cls.libraries}", "-l:libggml.so.0", "-l:libggml-base.so.0", "-l:libggml-cpu.so.0", "-lm"],
                       check=True)

    def run_host(self, argument="env", libraries=None, **variables):
        """What the program said, as a dictionary, and its stderr."""
        variables = {"LD_LIBRARY_PATH": str(libraries or self.libraries), "GGML_BACKEND_PATH": PLUGIN} | variables
        done = subprocess.run([str(self.program), argument], env=environment.clean(**variables), capture_output=True,
                              text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        said = dict(line.split(" ", 1) for line in done.stdout.splitlines())
        self.assertEqual(said["flash_attn_ext"], str(FLASH_ATTENTION))
        # Rows that may see nothing are zeros in every version here, and ours with them.
        self.assertEqual((said["empty_row_of_cpu"], said["empty_row"]), ("0", "0"))
        return said, done.stderr

    def assert_taken(self, said, errors):
        self.assertEqual((said["backends"], said["attention_on"], said["scale_on"]), ("2", "RouteRelay", "CPU"))
        self.assertIn(f"routerelay: exact in ggml {said['version']} (API {HOST.api}), ", errors)
        largest, nmse = AMX_BOUNDS if "cpu on amx" in errors else BOUNDS
        self.assertLess(float(said["largest_difference"]), largest)
        self.assertLess(float(said["nmse"]), nmse)
        self.assertGreater(float(said["nmse"]), 0, "two kernels that agree to the last bit are one")

    def assert_untouched(self, said):
        self.assertEqual((said["attention_on"], said["scale_on"]), ("CPU", "CPU"))
        self.assertEqual(float(said["largest_difference"]), 0)

    def test_the_variable_loads_it_and_the_node_is_taken(self):
        said, errors = self.run_host(ROUTERELAY_REPORT="1")
        self.assertEqual(said["version"], HOST.ggml)
        self.assert_taken(said, errors)
        self.assertIn("routerelay: 2 attention calls taken", errors)
        self.assertEqual(json.loads(said["report"])["calls"], 2)

    def test_an_explicit_load_does_the_same(self):
        said, errors = self.run_host(PLUGIN, GGML_BACKEND_PATH="")
        self.assertEqual(said["loaded"], "1")
        self.assert_taken(said, errors)

    def test_f32_tiles_agree_but_for_the_order_of_sums(self):
        said, errors = self.run_host(ROUTERELAY_ISA="avx2")
        self.assertIn("cpu on avx2", errors)
        self.assert_taken(said, errors)

    def test_off_is_the_host_alone(self):
        said, errors = self.run_host(ROUTERELAY_PRESET="off")
        self.assertEqual(said["backends"], "1")
        self.assertNotIn("routerelay:", errors)
        self.assert_untouched(said)

    def test_a_threshold_leaves_the_node_to_the_host(self):
        said, _ = self.run_host(ROUTERELAY_MIN_KV="769")
        self.assertEqual(said["backends"], "2")
        self.assert_untouched(said)

    def test_an_unknown_version_is_refused_in_one_line(self):
        libraries = self.folder / "other"
        libraries.mkdir()
        for path in self.libraries.glob("libggml*.so.0"):
            (libraries / path.name).write_bytes(path.read_bytes())
        base = libraries / "libggml-base.so.0"
        old, new = (f"\0{version}\0".encode() for version in (HOST.ggml, OTHER_VERSION))
        self.assertEqual(len(old), len(new))
        self.assertIn(old, base.read_bytes())
        base.write_bytes(base.read_bytes().replace(old, new))
        said, errors = self.run_host(libraries=libraries)
        self.assertEqual(said["version"], OTHER_VERSION)
        self.assertEqual(errors.count("routerelay:"), 1, errors)
        self.assertIn(f"routerelay: not used: the host's ggml is {OTHER_VERSION}; accepted: ", errors)
        self.assertEqual(said["backends"], "1")
        self.assert_untouched(said)
        self.assert_taken(*self.run_host(libraries=libraries, ROUTERELAY_ALLOW_UNTESTED="1"))


if __name__ == "__main__":
    packages.need_host(f"plugins_{NAME}", HOST)
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=2)
