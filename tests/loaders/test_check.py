"""python3 -m mxfp4_pack.check, on what mxfp4-pack itself writes (MXFP4_PACK names the program), with stand-ins of engines."""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import sglang_stand_in
import vllm_stand_in
from golden import TESTDATA
from mxfp4_pack import _xxh3, check
from packed_dir import write_manifest
from test_tool import PROGRAM, VERSIONS


def checked(directory, *options):
    """(exit code, the JSON object)"""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        code = check.main([directory, "--json", *options])
    return code, json.loads(output.getvalue())


@unittest.skipUnless(PROGRAM, "MXFP4_PACK names no mxfp4-pack: its output is not tested here")
class Check(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.whole = os.path.join(cls.temporary.name, "whole")
        for number, (engine, backend) in enumerate([(e, b) for e in ("vllm", "sglang") for b in VERSIONS]):
            cls.convert("gpt-oss", cls.whole, engine, backend, *VERSIONS[backend], *(["--add"] if number else []))

    @staticmethod
    def convert(model, out, engine, backend, *options):
        subprocess.run([PROGRAM, "convert", os.path.join(TESTDATA, "tiny", model), out, "--engine", engine, "--backend",
                        backend, *options, "-q"], check=True)

    def setUp(self):
        self.directory = os.path.join(self.temporary.name, "copy")
        shutil.copytree(self.whole, self.directory)
        self.addCleanup(shutil.rmtree, self.directory)

    def canaries(self, directory):
        code, report = checked(directory)
        self.assertEqual((code, report["problems"], report["unchecked"]), (0, [], []))
        return {(s["engine"], s["backend"]): s["canary"] for s in report["sets"]}

    def test_every_set_is_right(self):
        self.assertEqual(self.canaries(self.directory), {(e, b): "equal" for e in ("vllm", "sglang") for b in VERSIONS})
        self.assertEqual(checked(self.directory, "--engine", "vllm", "--engine", "sglang")[0], 0)
        out = os.path.join(self.temporary.name, "deepseek")
        self.addCleanup(shutil.rmtree, out)
        self.convert("deepseek-v4", out, "vllm", "marlin")
        self.convert("deepseek-v4", out, "sglang", "marlin", "--add")
        self.assertEqual(set(self.canaries(out).values()), {"equal"})

    def test_without_the_xxhash_module(self):
        with mock.patch.object(_xxh3, "xxhash", None):
            self.assertEqual(checked(self.directory)[0], 0)

    def test_without_the_engines_and_torch(self):
        """As a user without them runs it."""
        program = ("import sys, runpy; sys.modules.update(torch=None, vllm=None, sglang=None)\n"
                   "sys.argv[1:] = [sys.argv[1]]; runpy.run_module('mxfp4_pack.check', run_name='__main__')")
        done = subprocess.run([sys.executable, "-c", program, self.directory], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout.count("canary not compared: "), 6)
        self.assertRegex(done.stdout, r"^\d+ files have their sizes and checksums\n")

    def test_another_conversion(self):
        for engine in (vllm_stand_in, sglang_stand_in):
            self.addCleanup(setattr, engine.converter_bug, "value", False)
            engine.converter_bug.value = True
            code, report = checked(self.directory)
            self.assertEqual(code, 1)
            self.assertEqual([s["canary"] for s in report["sets"]].count("differs"), 3)
            self.assertIn("it makes other bytes of the canary", report["problems"][0])
            engine.converter_bug.value = False

    def test_a_conversion_that_fails_compares_nothing(self):
        with mock.patch.object(vllm_stand_in.formats, "converted", side_effect=RuntimeError("no GPU")):
            code, report = checked(self.directory)
            self.assertEqual((code, report["problems"]), (0, []))
            self.assertRegex(report["sets"][0]["canary"], "(?s)not compared: .*no GPU")
            self.assertEqual(checked(self.directory, "--engine", "vllm")[0], 2)

    def test_no_output(self):
        with contextlib.redirect_stderr(io.StringIO()) as error:
            self.assertEqual(check.main([self.temporary.name]), 2)
        self.assertIn("has no mxfp4-pack.json", error.getvalue())

    def wrong(self, *messages):
        code, report = checked(self.directory)
        self.assertEqual(code, 1)
        for message in messages:
            self.assertTrue([p for p in report["problems"] if message in p], (message, report["problems"]))

    def flip(self, name, at, mask=1):
        path = os.path.join(self.directory, name)
        with open(path, "r+b") as file:
            file.seek(at, os.SEEK_SET if at >= 0 else os.SEEK_END)
            byte = file.read(1)[0]
            file.seek(at, os.SEEK_SET if at >= 0 else os.SEEK_END)
            file.write(bytes([byte ^ mask]))

    def test_damaged_files(self):
        self.flip("packed/canary-0.safetensors", -1)
        self.wrong("canary-0.safetensors: it does not have the manifest's checksum")
        self.flip("config.json", -2)
        self.wrong("config.json: it does not have the manifest's checksum")
        self.flip("packed/packed-00001.safetensors", 4095, ord(" ") ^ ord("\t"))  # the last byte of the header's padding
        self.wrong("packed-00001.safetensors: its header does not have the manifest's checksum")
        with open(os.path.join(self.directory, "rest-00001.safetensors"), "ab") as file:
            file.write(b"x")
        self.wrong("rest-00001.safetensors has ")
        os.remove(os.path.join(self.directory, "generation_config.json"))
        self.wrong("generation_config.json: No such file or directory")
        self.flip("mxfp4-pack.json", 1, ord("\n") ^ ord(" "))
        self.wrong("does not have its own checksum")

    def test_a_manifest_that_says_otherwise(self):
        with open(os.path.join(self.directory, "mxfp4-pack.json")) as file:
            good = file.read()

        def files(manifest):
            return next(f for f in manifest["files"] if f["name"].startswith("packed/packed"))

        for change, message in (
                (lambda m: m["sets"][0]["tensors"][0].update(dtype="U8", torch_dtype="uint8"), "manifest: U8"),
                (lambda m: m["sets"][0]["tensors"][0].update(shape=[3, 7]), "manifest: I32 (3, 7)"),
                (lambda m: m["sets"][0]["tensors"][0].update(name="other"), "has no other"),
                (lambda m: m["sets"][0]["tensors"].pop(0), "the manifest does not know "),
                (lambda m: m["copied"].pop(0), "the manifest does not know "),
                (lambda m: m["copied"][0].update(dtype="F32"), "manifest: F32"),
                (lambda m: files(m).update(name="../x"), "unsafe file name '../x'"),
                (lambda m: files(m).update(bytes=1), "manifest: 1"),
                (lambda m: m["sets"][0].pop("tensors"), "the manifest is damaged (KeyError('tensors'))")):
            manifest = json.loads(good)
            change(manifest)
            write_manifest(self.directory, manifest)
            with self.subTest(message=message):
                self.wrong(message)


if __name__ == "__main__":
    unittest.main()
