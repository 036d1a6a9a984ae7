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
from types import SimpleNamespace
from unittest import mock

import torch

from golden import TESTDATA
from moe import gpt_oss_layer
from mxfp4_pack import UnpackedLayer, check
from packed_dir import read_whole, write_manifest
from program import SGLANG_VERSIONS, TINY, VERSIONS, convert, in_path, needs_program, no_program
from sglang_case import sglang
from vllm_case import vllm

DEEPSEEK = os.path.join(TESTDATA, "tiny", "deepseek-v4")


def checked(directory, *options):
    """(exit code, the JSON object)"""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        code = check.main([directory, "--json", *options])
    return code, json.loads(output.getvalue())


@needs_program
class Check(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.whole = os.path.join(cls.temporary.name, "whole")
        for number, (engine, backend) in enumerate([(e, b) for e in ("vllm", "sglang") for b in VERSIONS]):
            versions = VERSIONS if engine == "vllm" else SGLANG_VERSIONS
            convert(TINY, cls.whole, engine, backend, *versions[backend], *(["--add"] if number else []))

    def setUp(self):
        in_path(self)
        self.directory = os.path.join(self.temporary.name, "copy")
        shutil.copytree(self.whole, self.directory)
        self.addCleanup(shutil.rmtree, self.directory)

    def canaries(self, directory):
        code, report = checked(directory)
        self.assertEqual((code, report["problems"], report["unchecked"]), (0, [], []))
        return {(s["engine"], s["backend"]): s["canary"] for s in report["sets"]}

    def test_what_an_engine_prints_is_not_on_stdout(self):
        with mock.patch.object(check, "compare", lambda *given: print("INFO of an engine")), \
                contextlib.redirect_stderr(io.StringIO()) as error:
            checked(self.directory)
        self.assertIn("INFO of an engine", error.getvalue())

    def test_every_set_is_right(self):
        self.assertEqual(self.canaries(self.directory), {(e, b): "equal" for e in ("vllm", "sglang") for b in VERSIONS})
        self.assertEqual(checked(self.directory, "--engine", "vllm", "--engine", "sglang")[0], 0)
        out = os.path.join(self.temporary.name, "deepseek")
        self.addCleanup(shutil.rmtree, out)
        convert(DEEPSEEK, out, "vllm", "marlin", *VERSIONS["marlin"])
        convert(DEEPSEEK, out, "sglang", "marlin", "--add")
        self.assertEqual(set(self.canaries(out).values()), {"equal"})

    def test_without_the_engines_and_torch(self):
        """As a user without them runs it."""
        program = ("import sys, runpy; sys.modules.update(torch=None, vllm=None, sglang=None)\n"
                   "sys.argv[1:] = [sys.argv[1]]; runpy.run_module('mxfp4_pack.check', run_name='__main__')")
        done = subprocess.run([sys.executable, "-c", program, self.directory], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout.count("canary not compared: "), 6)
        self.assertRegex(done.stdout, "^mxfp4-pack verify: right at level files\n")

    def test_another_conversion(self):
        for engine in (vllm, sglang):
            self.addCleanup(setattr, engine.converter_bug, "value", False)
            engine.converter_bug.value = True
            code, report = checked(self.directory)
            self.assertEqual(code, 1)
            self.assertEqual([s["canary"] for s in report["sets"]].count("differs"), 3)
            self.assertIn("it makes other bytes of the canary", report["problems"][0])
            engine.converter_bug.value = False

    def test_a_conversion_that_fails_compares_nothing(self):
        with mock.patch.object(vllm.formats, "converted", side_effect=RuntimeError("no GPU")):
            code, report = checked(self.directory)
            self.assertEqual((code, report["problems"]), (0, []))
            self.assertRegex(report["sets"][0]["canary"], "(?s)not compared: .*no GPU")
            self.assertEqual(checked(self.directory, "--engine", "vllm")[0], 2)

    def test_without_the_library_nothing_is_checked(self):
        with mock.patch.dict(os.environ, {"MXFP4_PACK_LIBRARY": "/no/such.so"}):
            code, report = checked(self.directory)
        self.assertEqual((code, report["problems"], len(report["unchecked"])), (2, [], 1))
        self.assertIn("MXFP4_PACK_LIBRARY (/no/such.so: cannot open", report["unchecked"][0])

    def test_no_output(self):
        for directory, why in ((self.temporary.name, "has no mxfp4-pack.json"), (self.directory + "-2", "no such directory")):
            code, report = checked(directory)
            self.assertEqual((code, report["problems"]), (2, []))
            self.assertIn(why, report["unchecked"][0])

    def test_an_output_for_another_engine(self):
        out = os.path.join(self.temporary.name, "vllm-only")
        self.addCleanup(shutil.rmtree, out)
        convert(TINY, out, "vllm", "marlin", *VERSIONS["marlin"])
        code, report = checked(out, "--engine", "sglang")
        self.assertEqual((code, report["unchecked"]), (2, ["no set for sglang"]))

    def test_a_manifest_that_is_elsewhere(self):
        path = os.path.join(self.directory, "mxfp4-pack.json")
        other = os.path.join(self.temporary.name, "other.json")
        os.rename(path, other)
        self.addCleanup(os.rename, other, path)
        os.symlink(other, path)
        self.addCleanup(os.remove, path)
        self.wrong("is a link out of the directory")

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
        for name, at, mask in (("packed/canary-0.safetensors", -1, 1), ("config.json", -2, 1),
                               ("packed/packed-00001.safetensors", 4095, ord(" ") ^ ord("\t"))):  # in the header's padding
            self.flip(name, at, mask)
            self.wrong(f"mxfp4-pack verify: {name}")
            self.flip(name, at, mask)
        os.remove(os.path.join(self.directory, "generation_config.json"))
        self.wrong("generation_config.json")
        self.flip("mxfp4-pack.json", 1, ord("\n") ^ ord(" "))
        self.wrong("does not have its own checksum")

    def test_a_set_that_no_loader_can_read(self):
        manifest = read_whole(self.directory)
        manifest["sets"][0].pop("table")
        write_manifest(self.directory, manifest)
        self.wrong("sets[0].table: missing")

    # the engine's own kernel

    def kernels(self, kernel, *options, **changed):
        """(exit code, the report), with a GPU and with `kernel` as vLLM's kernel."""
        with mock.patch.dict(os.environ, changed), mock.patch.object(check, "gpu", lambda: torch.device("cpu")), \
                mock.patch.dict(sys.modules, {"mxfp4_pack.vllm.kernel": SimpleNamespace(Kernel=kernel)}), \
                mock.patch.object(check, "check_canary", lambda *given: "equal"):
            return checked(self.directory, "--source", TINY, *options)

    def test_right_on_the_engines_kernel(self):
        code, report = self.kernels(Exact)
        self.assertEqual((code, report["problems"]), (0, []))
        for set_ in report["sets"]:
            if set_["engine"] == "vllm":  # the reference is right to the last bits: so are inputs and routing
                self.assertRegex(set_["kernel"], r"^right: 4 batches, relative L2 error at most \d(\.\d)?e-(0[7-9]|1)")
            else:
                self.assertEqual(set_["kernel"], f"not run: this check has no kernel for {set_['backend']} of sglang")
        code, report = self.kernels(Exact, "--engine", "sglang")
        self.assertEqual((code, len(report["unchecked"])), (2, 3))

    def test_wrong_on_the_engines_kernel(self):
        for mistake in ("swapped", "nan", "scale"):
            with self.subTest(mistake=mistake):
                code, report = self.kernels(type("Wrong", (Exact,), {"mistake": mistake}))
                self.assertEqual((code, report["sets"][0]["kernel"][:6]), (1, "wrong:"))
                self.assertIn("1 token on vllm's own kernel: relative L2 error", report["problems"][0])
        code, report = self.kernels(type("Wrong", (Exact,), {"mistake": "scale"}), "--tolerance", "0.9")
        self.assertEqual((code, report["problems"]), (0, []))

    def test_this_packages_kernel_beside_the_engines(self):
        def said(scale):
            class Replaced(Exact):
                def engine(self, *batch):
                    return self(*batch) * scale
            code, report = self.kernels(Replaced)
            return code, report["problems"], report["sets"][0]["kernel"]
        code, problems, kernel = said(1.001)
        self.assertEqual((code, problems), (0, []))
        self.assertRegex(kernel, r"^right: 4 batches with MXFP4_PACK_KERNEL=1, .*at most 0.001 beside vllm's own kernel$")
        code, problems, _ = said(2)
        self.assertEqual((code, problems[0]), (1, "model.layers.0.mlp.experts, 1 token with MXFP4_PACK_KERNEL=1: relative L2 "
                                                  "0.5 beside vllm's own kernel, at most 0.01 expected"))

    def test_what_keeps_the_kernel_from_running(self):
        def fails(*given):
            raise RuntimeError("no such kernel")

        def said(*given, **changed):
            code, report = self.kernels(*given, **changed)
            self.assertEqual((code, report["problems"]), (0, []))
            return report["sets"][0]["kernel"]
        self.assertEqual(said(fails), "not run: vllm fails: RuntimeError('no such kernel')")
        with no_program():
            code, report = self.kernels(Exact, PATH="/nowhere")
            self.assertEqual((code, report["problems"], report["verify"]), (2, [], None))
            self.assertIn("the program mxfp4-pack was not found", report["unchecked"][0])
            self.assertEqual(report["sets"][0]["kernel"], "not run: mxfp4-pack verify computed no layer")
        self.assertIsNone(checked(self.directory)[1]["sets"][0]["kernel"])

    def test_verify_without_a_gpu(self):
        with mock.patch.object(check, "gpu", lambda: None), mock.patch.object(check, "check_canary", lambda *given: "equal"):
            code, report = checked(self.directory, "--source", TINY)
            self.assertEqual((code, report["verify"], report["unchecked"]), (0, "right at level kernels", []))
            self.assertEqual(report["sets"][0]["kernel"], "not run: there is no GPU")
            code, report = checked(self.directory, "--source", TINY, "--engine", "vllm")
            self.assertEqual((code, report["unchecked"][0]), (2, "kernel of marlin of vllm: there is no GPU"))
            code, report = checked(self.directory, "--source", "/no such")
            self.assertEqual((code, report["verify"]), (2, None))
            self.assertRegex(report["unchecked"][0], "^mxfp4-pack verify: /no such: no such directory")
            code, report = checked(self.directory, "--source", DEEPSEEK)
            self.assertEqual(code, 2)
            self.flip(next(f"packed/{n}" for n in os.listdir(os.path.join(self.directory, "packed")) if "packed-" in n), 5000, 1)
            code, report = checked(self.directory, "--source", TINY)
            self.assertEqual((code, report["verify"][:8]), (1, "wrong at"))
            self.assertIn("mxfp4-pack verify: ", report["problems"][0])


class Exact:
    """Stands for an engine's kernel: GPT-OSS in double precision, from the experts unpacked."""
    mistake = None

    def __init__(self, manifest, packed, key, top_k, device):
        self.raw = UnpackedLayer(packed, packed.layers[key]).tensors
        self.device = device

    def engine(self, *batch):
        return None

    def __call__(self, x, ids, weights):
        if self.mistake == "swapped":
            ids = (ids + 1) % 3
        if self.mistake == "scale":
            weights = weights * 0.5
        return gpt_oss_layer(self.raw, x, ids, weights) * (float("nan") if self.mistake == "nan" else 1)


if __name__ == "__main__":
    unittest.main()
