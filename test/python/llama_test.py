# SPDX-License-Identifier: Apache-2.0
"""The Python loader in a fake llama-cpp-python and, where it is installed, in xllamacpp: what it says and refuses.

Called with the plug-in and the fake ggml libraries of a known and of an unknown version. Every case is a process of
its own, because a process loads the plug-in once.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "test" / "tools"), str(ROOT / "tools")]
import environment  # noqa: E402
import packages  # noqa: E402

PLUGIN, GGML, UNKNOWN_GGML = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:4])
FAKE_PACKAGE = """
class Llama:
    class context_params:
        flash_attn_type = 1
"""
FAKE_DOOR = "import ctypes, os; _lib = ctypes.CDLL(os.environ['FAKE_GGML'])"
IMPORTS = "import os\nfrom routerelay import llama\nfrom routerelay.llama import load\n"


class Loader(unittest.TestCase):
    """`run` sees only the fake llama_cpp: Python is started without site-packages."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        package = cls.folder / "site" / "llama_cpp"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(FAKE_PACKAGE)
        (package / "llama_cpp.py").write_text(FAKE_DOOR)

    def run_python(self, code, *options, sites=("site",), **variables):
        paths = [str(ROOT / "python"), *(str(self.folder / site) for site in sites)]
        variables = {"PYTHONPATH": os.pathsep.join(paths), "FAKE_GGML": GGML, "PLUGIN": PLUGIN} | variables
        return subprocess.run([sys.executable, *options, "-c", IMPORTS + code], env=environment.clean(**variables),
                              capture_output=True, text=True)

    def said(self, code, **how):
        done = self.run_python(code, "-S", **how)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def raised(self, code, error, **how):
        done = self.run_python(code, "-S", **how)
        self.assertEqual(done.returncode, 1, done.stdout)
        last = done.stderr.splitlines()[-1]
        self.assertRegex(last, rf"^(routerelay\.errors\.)?{error}: ")
        return last

    def test_it_says_what_it_did(self):
        done = self.run_python("l = load(plugin=os.environ['PLUGIN'], preset='balanced', min_kv=128); print(l); "
                               "print(l.active, l.ggml, l.preset, os.environ.get('ROUTERELAY_PRESET'), l.said)", "-S")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("routerelay in llama-cpp-python (ggml 0.26.0): preset balanced, " + PLUGIN, done.stdout)
        self.assertIn("flash_attn=True", done.stdout)
        self.assertIn("True 0.26.0 balanced None balanced in ggml 0.26.0 (API 3), ", done.stdout)
        self.assertIn("64 rows and 128 keys", done.stderr)  # the plug-in's line is passed on

    def test_the_plugin_is_found_by_variable(self):
        self.assertIn(PLUGIN, self.said("print(load('llama-cpp-python'))", ROUTERELAY_PLUGIN=PLUGIN))
        self.assertIn(PLUGIN, self.said("print(load('llama_cpp'))", GGML_BACKEND_PATH=PLUGIN))

    def test_variables_are_honoured_and_overridden(self):
        code = "print(load(plugin=os.environ['PLUGIN']{}).preset, os.environ['ROUTERELAY_PRESET'])"
        self.assertEqual(self.said(code.format(""), ROUTERELAY_PRESET="fast"), "fast fast\n")
        self.assertEqual(self.said(code.format(", preset='careful'"), ROUTERELAY_PRESET="fast"), "careful fast\n")

    def test_off_is_no_error(self):
        self.assertIn("routerelay off in llama-cpp-python", self.said("print(load(plugin=os.environ['PLUGIN'], "
                                                                      "preset='off'))"))

    def test_the_same_call_again_is_the_same_object(self):
        call = "load(plugin=os.environ['PLUGIN'], preset='exact')"
        self.assertEqual(self.said(f"print({call} is {call})"), "True\n")
        self.assertIn("reads them once a process", self.raised(f"{call}; load(plugin=os.environ['PLUGIN'])",
                                                             "AlreadyLoaded"))

    def test_options_are_written_as_the_plugin_reads_them(self):
        said = self.said("from routerelay._plugin import variables_of; print(variables_of(dict(options={'relay.wide': "
                         "4, 'selection.p': .9}, trace_layers=[0, 5], allow_untested=True, isa=None)))")
        self.assertEqual(said, "{'ROUTERELAY_OPTIONS': 'relay.wide=4;selection.p=0.9', 'ROUTERELAY_TRACE_LAYERS': "
                               "'0,5', 'ROUTERELAY_ALLOW_UNTESTED': '1'}\n")
        self.assertIn("legal: preset, options, ", self.raised("load(prest='fast')", "TypeError"))
        self.assertIn("relay.wide is '4;selection.p=1'; legal: no ';'", self.raised(
            "load(options={'relay.wide': '4;selection.p=1'})", "ValueError"))

    def test_values_that_no_variable_can_hold(self):
        for option, says in ((r"isa='avx2\0'", r"isa is 'avx2\x00'; legal: no zero byte, "),
                             (r"isa='\ud800'", r"isa is '\ud800'; legal: no zero byte, "),
                             (r"options={'k_block': '\0'}", r"options: k_block is '\x00'; legal: no zero byte, "),
                             ("preset=''", "preset is ''; legal: the name of a preset, or None")):
            said = self.said(f"try: load(plugin=os.environ['PLUGIN'], **({{'preset': 'fast'}} | dict({option})))\n"
                             "except ValueError as e: print(e)\nprint(load(plugin=os.environ['PLUGIN']).preset)")
            self.assertIn(says, said)
            self.assertTrue(said.endswith("\nexact\n"), said)

    def test_variables_are_restored_where_setting_them_fails(self):
        self.assertEqual(self.said("try:\n with llama._variables({'A': 'new', 'B': 'new', 'C': '\\0'}): pass\n"
                                   "except ValueError: print(*map(os.environ.get, 'ABC'))", A="old"), "old None None\n")

    def test_values_of_another_kind(self):
        for option, legal in (("trace=True", "a path"), ("trace=b't'", "a path"), ("report=b'r.json'", "a path, or 1"),
                              ("preset=b'exact'", "the name of a preset, "), ("preset=[]", "the name of a preset, "),
                              ("options=3", "'key=value;key=value' or a mapping"), ("isa=b'avx2'", "str"),
                              ("trace_layers=[b'1']", "str")):
            name, value = option.split("=")
            self.assertIn(f"{name} is {value.strip('[]') or value}; legal: {legal}",
                          self.raised(f"load({option})", "TypeError"))
        self.assertEqual(self.said("from routerelay._plugin import text_of; "
                                   "print(text_of('report', True), text_of('report', False))"), "1 0\n")

    def test_two_threads(self):
        said = self.said("""import threading
inode = os.fstat(2).st_ino
loaded = []
call = lambda: loaded.append(load(plugin=os.environ['PLUGIN'], preset='fast'))
threads = [threading.Thread(target=call) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(loaded), len(set(map(id, loaded))), os.fstat(2).st_ino == inode, os.environ.get('ROUTERELAY_PRESET'))""")
        self.assertEqual(said, "8 1 True None\n")

    def test_a_process_with_an_odd_stderr(self):
        call = "load(plugin=os.environ['PLUGIN'])"
        for stderr in ("None", "object()", "io.StringIO(); sys.stderr.close()"):
            self.assertIn("exact in ggml", self.said(f"import io, sys, tempfile; tempfile.tempdir = '/nowhere'; "
                                                     f"sys.stderr = {stderr}; print({call}.said); "
                                                     "sys.stderr = sys.__stderr__"))
        for closed in ((2,), (0, 2), (1, 2)):
            done = self.run_python(f"out = os.dup(1); [os.close(one) for one in {closed}]; said = {call}.said\n"
                                   "try: os.fstat(2)\nexcept OSError: os.write(out, said.encode())", "-S")
            self.assertIn("exact in ggml", done.stdout)

    def test_no_file_stays_open(self):
        self.assertEqual(self.said("""for preset in ('turbo', 'fast', 'fast'):
    before = os.listdir('/proc/self/fd')
    try: load(plugin=os.environ['PLUGIN'], preset=preset)
    except llama.PluginRefused: print(before == os.listdir('/proc/self/fd'))
print(before == os.listdir('/proc/self/fd'))"""), "True\nTrue\n")

    def test_a_plugin_that_something_else_loaded(self):
        self.assertIn("already loaded in this process by something else", self.raised(
            "import importlib; call = lambda preset: llama.load(plugin=os.environ['PLUGIN'], preset=preset)\n"
            "call('exact'); importlib.reload(llama); call('fast')", "AlreadyLoaded"))

    def test_report_and_preset_while_it_runs(self):
        said = self.said("l = load(plugin=os.environ['PLUGIN'], preset='fast'); print(l.report()['preset'], "
                         "l.report()['calls']); l.use('balanced', {'relay.auto_off': False, 'never_relay': [5, 9]})")
        self.assertEqual(said, "fast 0\n")
        said = self.said("l = load(plugin=os.environ['PLUGIN'], preset='fast', options={'relay.wide': 4}); print(l); "
                         "l.use('balanced'); print(l); l.use('careful', 'k_block=128'); print(l)").splitlines()
        for line, now in zip(said[::2], ("fast relay.wide=4", "balanced", "careful k_block=128"), strict=True):
            self.assertIn(f": preset {now}, ", line)
        self.assertIn("preset is None; legal: ", self.raised("load(plugin=os.environ['PLUGIN']).use(None)",
                                                             "TypeError"))
        load = "l = load(plugin=os.environ['PLUGIN']{}); l.{}"
        self.assertIn("preset is 'turbo'; legal: exact, careful, balanced, fast",
                      self.raised(load.format("", "use('turbo')"), "ValueError"))
        self.assertIn("legal: exact, careful, ", self.raised(load.format("", r"use('\udc80')"), "ValueError"))
        self.assertIn("legal: no zero byte", self.raised(load.format("", "use('exact\\0turbo')"), "ValueError"))
        self.assertIn("options is None; legal: 'key=value;key=value' or a mapping",
                      self.raised(load.format("", "use('exact', None)"), "TypeError"))
        for call in ("report()", "use('exact')"):
            self.assertIn("the plug-in is not active in llama-cpp-python: preset is 'off'",
                          self.raised(load.format(", preset='off'", call), "LoadError"))

    def test_a_forked_process_leaves_the_report_to_its_parent(self):
        report = self.folder / "fork.json"
        self.assertEqual(self.said(f"load(plugin=os.environ['PLUGIN'], report={str(report)!r}); child = os.fork()\n"
                                   "if child == 0: raise SystemExit\n"
                                   f"print(os.waitpid(child, 0)[1], os.path.exists({str(report)!r}))"), "0 False\n")
        self.assertTrue(report.exists())

    def test_a_gpu_is_noted(self):
        code = "print(load(plugin=os.environ['PLUGIN']))"
        self.assertNotIn("GPU", self.said(code))
        self.assertIn("note: the host has a GPU", self.said(code, RR_FAKE_GPU="1"))

    def test_a_model_that_is_already_loaded(self):
        code = "import llama_cpp; m = llama_cpp.Llama(); load(plugin=os.environ['PLUGIN']{})"
        self.assertIn("a llama_cpp.Llama exists: load the plug-in before", self.raised(code.format(""),
                                                                                      "ModelAlreadyLoaded"))
        self.said(code.format(", allow_loaded_model=True"))
        weights = self.folder / "some weights.gguf"
        weights.write_bytes(b"GGUF" * 1024)
        self.assertIn("some weights.gguf is mapped", self.raised(
            f"import mmap; f = open({str(weights)!r}, 'rb'); m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ); "
            "load(plugin=os.environ['PLUGIN'])", "ModelAlreadyLoaded"))

    def test_flash_attention_off_is_an_error(self):
        code = ("import llama_cpp; l = load(plugin=os.environ['PLUGIN']); m = llama_cpp.Llama(); l.check(m); "
                "m.context_params.flash_attn_type = {}; l.check(m)")
        self.said(code.format(-1))
        self.assertIn("pass flash_attn=True", self.raised(code.format(0), "FlashAttentionOff"))
        self.assertIn("model is a int", self.raised("load(plugin=os.environ['PLUGIN']).check(3)", "TypeError"))

    def test_hosts_that_are_not_there(self):
        self.assertIn("pip install llama-cpp-python or xllamacpp", self.raised("load(plugin=os.environ['PLUGIN'])",
                                                                               "HostMissing", sites=()))
        self.assertIn("pip install xllamacpp", self.raised("load('xllamacpp', os.environ['PLUGIN'])", "HostMissing"))
        for plugin in ("os.environ['PLUGIN']", "'/nowhere/x.so'"):
            self.assertIn("legal: llama_cpp, xllamacpp", self.raised(f"load('ollama', {plugin})", "ValueError"))
        self.assertIn("host is []; legal: llama_cpp, xllamacpp", self.raised("load([])", "TypeError"))
        by_hand = "import sys, types; sys.modules['xllamacpp'] = m = types.ModuleType('xllamacpp'); {}load({})"
        for arguments in ("plugin=os.environ['PLUGIN']", "'xllamacpp', os.environ['PLUGIN']"):
            self.assertIn("xllamacpp has no file xllamacpp*.so",
                          self.raised(by_hand.format("", arguments), "HostMissing"))
        (self.folder / "xllamacpp.so").symlink_to(GGML)
        self.said(by_hand.format(f"m.__path__ = [{str(self.folder)!r}]; ", "plugin=os.environ['PLUGIN']"))
        two = self.folder / "two" / "xllamacpp"
        two.mkdir(parents=True, exist_ok=True)
        (two / "__init__.py").touch()
        both = ("site", "two")
        self.assertIn('llama_cpp and xllamacpp; say which: load("llama_cpp") or load("xllamacpp")', self.raised(
            "load(plugin=os.environ['PLUGIN'])", "HostMissing", sites=both))
        self.said("import llama_cpp; load(plugin=os.environ['PLUGIN'])", sites=both)

    def test_plugins_that_are_not_there(self):
        self.assertIn("plugin is '/nowhere/x.so'", self.raised("load(plugin='/nowhere/x.so')", "PluginMissing"))
        self.assertIn("ROUTERELAY_PLUGIN is '/nowhere/x.so'", self.raised("load()", "PluginMissing",
                                                                         ROUTERELAY_PLUGIN="/nowhere/x.so"))
        for plugin in (3, b"x.so"):
            self.assertIn(f"plugin is {plugin!r}; legal: a path", self.raised(f"load(plugin={plugin!r})", "TypeError"))
        for plugin in ("a\0b", "\ud800"):
            self.assertIn(f"plugin is {plugin!r}; legal: no zero byte, ",
                          self.raised(f"load(plugin={plugin!r})", "ValueError"))

    def test_files_that_are_no_plugin_or_a_part_of_one(self):
        whole = pathlib.Path(PLUGIN).read_bytes()
        file = self.folder / "part.so"
        for content in (b"", b"a text", whole[:63], whole[:len(whole) // 2], whole[:-1]):
            file.write_bytes(content)
            self.assertIn("part.so', which is no shared object, or one cut off",
                          self.raised(f"load(plugin='{file}')", "PluginMissing"))
        file.write_bytes(whole)
        self.said(f"load(plugin='{file}')")
        file = file.rename(file.with_name(os.fsdecode(b"no UTF-8: \xff.so")))
        self.said(f"load(plugin={str(file)!r})")

    def test_a_refusal_can_be_mended_in_the_same_process(self):
        code = ("from routerelay.errors import PluginRefused\ntry: load(plugin=os.environ['PLUGIN']{})\n"
                "except PluginRefused as e: print(e)\nprint(load(plugin=os.environ['PLUGIN']{}).active)")
        said = self.said(code.format(", preset='turbo'", ", preset='balanced'"))
        self.assertIn("preset is 'turbo'", said)
        self.assertTrue(said.endswith("True\n"), said)
        said = self.said(code.format("", ", allow_untested=True"), FAKE_GGML=UNKNOWN_GGML)
        self.assertTrue(said.endswith("True\n"), said)

    def test_a_host_that_refuses_a_willing_plugin_is_quoted(self):
        said = ["routerelay: exact in ggml 0.28.0 (API 4)", "ggml_backend_load: incompatible API version"]
        self.assertEqual(self.said(f"print(llama._why({said}, active=False))"), f"{said[1]}\n")
        self.assertEqual(self.said(f"print(llama._why({said}, active=True))"), "exact in ggml 0.28.0 (API 4)\n")

    def test_a_refusal_carries_the_plugins_line(self):
        self.assertRegex(self.raised("load(plugin=os.environ['PLUGIN'])", "PluginRefused", FAKE_GGML=UNKNOWN_GGML),
                         "not used: the host's ggml is 0.10.0; accepted: .*; allow_untested=True tries it$")
        self.said("load(plugin=os.environ['PLUGIN'], allow_untested=True)", FAKE_GGML=UNKNOWN_GGML)

    def test_only_the_advice_that_is_a_keyword_is_made_one(self):
        said = self.said("from routerelay._plugin import in_keywords; print(in_keywords('ROUTERELAY_ALLOW_UNTESTED=1 "
                         "tries it; so does ROUTERELAY_THREADS=1', {'ROUTERELAY_THREADS': '2'}))")
        self.assertEqual(said, "allow_untested=True tries it; so does ROUTERELAY_THREADS=1\n")

    def test_what_was_said_before_an_exception_is_passed_on(self):
        done = self.run_python("from routerelay import _hosts\n"
                               "def fails(self, path): os.write(2, b'a word before\\n'); raise OSError('no more')\n"
                               "_hosts.Ggml.load = fails; load(plugin=os.environ['PLUGIN'])", "-S")
        self.assertIn("a word before\n", done.stderr)
        self.assertEqual(done.stderr.splitlines()[-1], "OSError: no more")

    def test_a_refusal_speaks_of_what_the_caller_wrote(self):
        code = "load(plugin=os.environ['PLUGIN']{})"
        self.assertIn("not used: preset is 'turbo'; legal: exact", self.raised(code.format(", preset='turbo'"),
                                                                               "PluginRefused"))
        self.assertIn("not used: min_kv is '-1'; legal: ", self.raised(code.format(", min_kv=-1"), "PluginRefused"))
        self.assertIn("not used: environment: ROUTERELAY_MIN_KV is '-1'; legal: ", self.raised(
            code.format(", preset='fast'"), "PluginRefused", ROUTERELAY_MIN_KV="-1"))

    def test_a_line_beside_the_one_at_load_speaks_of_it_too(self):
        code = "print(load(plugin=os.environ['PLUGIN'], report='/nowhere/r.json'))"
        done = self.run_python(code, "-S", ROUTERELAY_PRESETS="")
        self.assertIn("routerelay: report is '/nowhere/r.json', which cannot be written; legal: ", done.stderr)
        self.assertIn("ROUTERELAY_PRESETS is no variable; legal: ROUTERELAY_BACKEND, ", done.stderr)
        self.assertIn("  note: report is '/nowhere/r.json', which cannot be written; legal: ", done.stdout)
        self.assertIn("  note: environment: ROUTERELAY_PRESETS is no variable; ", done.stdout)

    def test_a_refusal_is_said_once(self):
        done = self.run_python("load(plugin=os.environ['PLUGIN'], preset='turbo')", "-S")
        self.assertEqual(done.stderr.count("turbo'; legal"), 1, done.stderr)


class Xllamacpp(unittest.TestCase):
    def test_it_loads_into_the_wheel(self):
        done = subprocess.run([sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT / 'python')!r})\n"
                               f"from routerelay.llama import load; l = load('xllamacpp', {PLUGIN!r}); print(l)\n"
                               "import xllamacpp; p = xllamacpp.CommonParams(); l.check(p); p.flash_attn_type = "
                               "xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED; l.check(p)"],
                              capture_output=True, text=True)
        self.assertIn("routerelay in xllamacpp 2026.10.11549 (ggml 0.26.0): preset exact, ", done.stdout)
        self.assertIn("FlashAttentionOff", done.stderr)

    def test_a_refusal_is_said_once(self):
        done = subprocess.run([sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT / 'python')!r})\n"
                               f"from routerelay.llama import load; load('xllamacpp', {PLUGIN!r}, min_kv=-1)"],
                              capture_output=True, text=True)
        self.assertEqual(done.stderr.count("min_kv is '-1'"), 1, done.stderr)
        self.assertNotIn("ROUTERELAY", done.stderr)
        self.assertNotIn("returned NULL", done.stderr)


if __name__ == "__main__":
    packages.need("python_llama", "xllamacpp")
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=2)
