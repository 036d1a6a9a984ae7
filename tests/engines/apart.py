"""Starts an engine in a process of its own, which returns its observations."""

import os
import pickle
import subprocess
import sys
import tempfile

ENVIRONMENT = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",
               "VLLM_USE_FLASHINFER_SAMPLER": "0"}


def seen_by(script, *arguments, environment={}, log=None, seconds=None):
    """The value that `script` passed to keep(.., its --result); None if the script failed or took too long. log: a file
    for its output."""
    with tempfile.TemporaryDirectory() as folder:
        result = os.path.join(folder, "seen")
        command = [sys.executable, script, *arguments, "--result", result]
        try:
            if subprocess.call(command, env=os.environ | ENVIRONMENT | environment, stdout=log, stderr=log, timeout=seconds):
                return None
        except subprocess.TimeoutExpired:
            return None
        with open(result, "rb") as file:
            return pickle.load(file)


def keep(seen, result):
    with open(result, "wb") as file:
        pickle.dump(seen, file)
