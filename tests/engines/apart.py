"""A start of an engine in a process of its own, which gives back what it saw."""

import os
import pickle
import subprocess
import sys
import tempfile

ENVIRONMENT = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",
               "VLLM_USE_FLASHINFER_SAMPLER": "0"}


def seen_by(script, *arguments, environment={}, log=None, seconds=None):
    """What `script` gave to keep(.., its --result); None where it failed or took longer. log: a file for what it prints."""
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
