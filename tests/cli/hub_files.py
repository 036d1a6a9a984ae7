"""What the Hugging Face hub and its tools write about a checkpoint's files.

hub_files.py cache CKPT REPOSITORY    a repository in the cache: snapshots/REV/NAME are links to blobs/HASH
hub_files.py local CKPT DEST          a download into a folder: .cache/huggingface/download/NAME.metadata
hub_files.py tree CKPT                the hub's list of files, on stdout
"""

import hashlib
import json
import shutil
import sys
from pathlib import Path

REVISION = "0123456789abcdef0123456789abcdef01234567"


def files_of(checkpoint):
    return sorted(p.relative_to(checkpoint) for p in checkpoint.rglob("*") if p.is_file())


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def etag(path):
    """The hub keeps shards in LFS, and other files in Git."""
    data = path.read_bytes()
    return hashlib.sha256(data).hexdigest() if path.suffix == ".safetensors" else git_sha1(data)


def cache(checkpoint, repository):
    blobs = repository / "blobs"
    blobs.mkdir(parents=True)
    for name in files_of(checkpoint):
        blob = blobs / etag(checkpoint / name)
        shutil.copyfile(checkpoint / name, blob)
        link = repository / "snapshots" / REVISION / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(Path(*[".."] * (len(name.parts) + 1), "blobs", blob.name))
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text(REVISION)


def local(checkpoint, dest):
    for name in files_of(checkpoint):
        (dest / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(checkpoint / name, dest / name)
        metadata = dest / ".cache/huggingface/download" / f"{name}.metadata"
        metadata.parent.mkdir(parents=True, exist_ok=True)
        metadata.write_text(f"{REVISION}\n{etag(checkpoint / name)}\n1764172800.5\n")


def tree(checkpoint):
    entries = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": "original"}]
    for name in files_of(checkpoint):
        data = (checkpoint / name).read_bytes()
        entry = {"type": "file", "oid": git_sha1(data), "size": len(data), "path": str(name)}
        if name.suffix == ".safetensors":
            pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{etag(checkpoint / name)}\nsize {len(data)}\n"
            entry["oid"] = git_sha1(pointer.encode())
            entry["lfs"] = {"oid": etag(checkpoint / name), "size": len(data), "pointerSize": len(pointer)}
        entries.append(entry)
    print(json.dumps(entries))


{"cache": cache, "local": local, "tree": tree}[sys.argv[1]](*map(Path, sys.argv[2:]))
