"""The program's commands from Python. MXFP4_PACK names the program."""

import inspect
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import mxfp4_pack
from program import TINY, in_path, needs_program, no_program

FOR_VLLM = {"backend": "marlin", "engine": "vllm"}


def text_of(path):
    with open(path) as file:
        return file.read()


def wait_for(what, seconds=10):
    end = time.monotonic() + seconds
    while not (found := what()):
        if time.monotonic() > end:
            raise AssertionError("it did not come")
        time.sleep(0.01)
    return found


@needs_program
class Commands(unittest.TestCase):
    def setUp(self):
        self.parent = self.enterContext(tempfile.TemporaryDirectory())
        self.out = os.path.join(self.parent, "--out")  # no option
        in_path(self)

    def test_from_checkpoint_to_checkpoint(self):
        self.assertEqual(mxfp4_pack.inspect(TINY)["model_type"], "gpt_oss")
        planned = mxfp4_pack.plan(TINY, self.out, **FOR_VLLM, tp_size=2)
        self.assertFalse(os.path.exists(self.out))
        done = mxfp4_pack.convert(TINY, self.out, **FOR_VLLM, tp_size=2, link=True, threads=1, force=False)
        self.assertEqual(done["packed_bytes"], planned["packed_bytes"])
        self.assertEqual(done["moe_tp_size"], 2)
        self.assertTrue(mxfp4_pack.verify(self.out, source=TINY, tokens=[1, 16])["ok"])
        again = os.path.join(self.parent, "again")
        self.assertGreater(mxfp4_pack.unpack(self.out, again)["tensors"], 0)
        self.assertEqual(subprocess.run(["diff", "-r", TINY, again, "-x", "README.md", "-x", "LICENSE"]).returncode, 0)

    def test_the_reader(self):
        mxfp4_pack.convert(TINY, self.out, **FOR_VLLM)
        self.assertEqual(mxfp4_pack.open(self.out).kernel("auto", 1), "marlin")
        mxfp4_pack.convert(TINY, self.out, backend="marlin", engine="sglang", add=True)
        self.assertEqual(mxfp4_pack.open(self.out, "sglang").model_type, "gpt_oss")
        with self.assertRaisesRegex(mxfp4_pack.Refused, "sglang, vllm: name one with `engine`"):
            mxfp4_pack.open(self.out)
        manifest = mxfp4_pack.open(os.fsencode(self.out), "vllm")
        with self.assertRaisesRegex(mxfp4_pack.Refused, "rank 1 of 1; ranks are 0 to 0"):
            manifest.pick("auto", 1, 1)
        for path, engine, why in ((self.out, "foo", "no engine 'foo'; there are sglang, vllm"),
                                  (self.out + "-2", None, "no such directory"), (TINY, None, "no output of mxfp4-pack"),
                                  (os.path.join(self.out, "config.json"), None, "Not a directory")):
            with self.assertRaisesRegex(mxfp4_pack.Refused, why):
                mxfp4_pack.open(path, engine)
        with self.assertRaisesRegex(mxfp4_pack.Refused, "object is not an engine's model"):
            mxfp4_pack.update(object(), [], [])

    def test_what_is_wrong(self):
        mxfp4_pack.convert(TINY, self.out, **FOR_VLLM)
        with open(os.path.join(self.out, "config.json"), "a") as file:
            file.write(" ")
        verdict = mxfp4_pack.verify(self.out)
        self.assertFalse(verdict["ok"])
        self.assertIn("config.json", verdict["problems"][0])

    def test_what_fails_has_a_kind(self):
        for kind, options in (("usage", {"engine": "none"}), ("usage", {"engine": None}), ("usage", {"colour": 3}),
                              ("usage", {"add": True, "force": True}), ("usage", {"help": True})):
            with self.assertRaises(mxfp4_pack.Failed) as caught:
                mxfp4_pack.convert(TINY, self.out, **FOR_VLLM | options)
            self.assertEqual(caught.exception.kind, kind)
        with self.assertRaises(mxfp4_pack.Failed) as caught:
            mxfp4_pack.inspect(self.parent)
        self.assertEqual(caught.exception.kind, "input")
        self.assertIn(self.parent, caught.exception.lines[0])
        damaged = os.path.join(self.parent, "damaged")
        shutil.copytree(TINY, damaged)
        shard = os.path.join(damaged, "model-00000-of-00001.safetensors")
        os.truncate(shard, os.path.getsize(shard) - 5)
        with self.assertRaisesRegex(mxfp4_pack.Failed, "model-00000-of-00001") as caught:
            mxfp4_pack.inspect(damaged)
        again = pickle.loads(pickle.dumps(caught.exception))
        self.assertEqual((again.kind, again.lines), (caught.exception.kind, caught.exception.lines))
        with no_program(), self.assertRaisesRegex(mxfp4_pack.Failed, "was not found"):
            mxfp4_pack.inspect(TINY)

    def test_messages_go_to_the_log(self):
        with self.assertLogs("mxfp4_pack") as log:
            mxfp4_pack.convert(TINY, self.out, **FOR_VLLM | {"engine": "vllm==0.99.0"})
        self.assertRegex(log.output[0], "^WARNING:mxfp4_pack:vllm 0.99.0 is newer than ")
        self.assertTrue(any(line.startswith("INFO:mxfp4_pack:0x00 ") for line in log.output))

    def test_a_value_that_is_no_switch(self):
        with self.assertRaisesRegex(mxfp4_pack.Failed, "^tp_size=True: a value was expected$"):
            mxfp4_pack.convert(TINY, self.out, **FOR_VLLM, tp_size=True)

    def test_a_killed_python_ends_the_program(self):
        # Of an index of many files, which takes seconds to read.
        index = os.path.join(self.parent, "index")
        os.mkdir(index)
        shutil.copy(os.path.join(TINY, "config.json"), index)
        with open(os.path.join(index, "model.safetensors.index.json"), "w") as file:
            json.dump({"weight_map": {f"layers.{i}.weight": f"model-{i}.safetensors" for i in range(400_000)}}, file)
        package = os.path.dirname(os.path.dirname(mxfp4_pack.__file__))
        script = f"import mxfp4_pack; mxfp4_pack.inspect({index!r})"
        caller = subprocess.Popen([sys.executable, "-c", script], env=dict(os.environ, PYTHONPATH=package))
        program = wait_for(lambda: text_of(f"/proc/{caller.pid}/task/{caller.pid}/children").split())[0]
        wait_for(lambda: "mxfp4-pack" in text_of(f"/proc/{program}/cmdline"))
        caller.kill()
        caller.wait()
        wait_for(lambda: not os.path.exists(f"/proc/{program}") or ") Z " in text_of(f"/proc/{program}/stat"), 1.5)

    def test_what_is_public_says_its_types(self):
        public = [getattr(mxfp4_pack, name) for name in mxfp4_pack.__all__]
        public += [value for name, value in vars(mxfp4_pack.Manifest).items() if not name.startswith("_")]
        functions = [value.fget if isinstance(value, property) else value for value in public]
        functions = [f for f in functions if inspect.isfunction(f)]
        self.assertGreater(len(functions), 20)
        for function in functions:
            parameters = [name for name in inspect.signature(function).parameters if name != "self"]
            self.assertEqual(sorted({*parameters, "return"} - set(function.__annotations__)), [], function)

    def test_python_runs_the_program(self):
        package = os.path.dirname(os.path.dirname(mxfp4_pack.__file__))
        command = [sys.executable, "-m", "mxfp4_pack", "inspect", self.parent, "--json"]
        done = subprocess.run(command, env=dict(os.environ, PYTHONPATH=package), capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn('"kind":"input"', done.stdout)
        command[1:3] = ["-c", "import runpy, mxfp4_pack._program as p; p.candidates = tuple; runpy.run_module('mxfp4_pack')"]
        done = subprocess.run(command, env={"PYTHONPATH": package, "PATH": "/nowhere"}, capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("was not found", done.stderr)


if __name__ == "__main__":
    unittest.main()
