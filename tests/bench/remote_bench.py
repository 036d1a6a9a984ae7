#!/usr/bin/env python3
"""Time of a conversion from a server, beside curl and beside download, then convert.

usage: remote_bench.py MXFP4-PACK CHECKPOINT FOLDER [--rounds N] [--links DELAY:RATE ..]

Needs nginx, openssl and curl. nginx serves CHECKPOINT by the hub's protocol with TLS. DELAY is the round trip in ms, RATE
in Mbit/s, or 0 for no limit; far_proxy.py makes both. Everything is written to FOLDER, and removed. The page cache is
not dropped: the server reads from memory.
"""

import argparse
import hashlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

NGINX = """
daemon off; pid {work}/nginx.pid; error_log {work}/error.log; worker_processes 2;
events {{ worker_connections 1024; }}
http {{
  access_log {work}/access.log; sendfile on; keepalive_requests 100000; client_body_temp_path {work}/body;
  proxy_temp_path {work}/proxy; fastcgi_temp_path {work}/fastcgi; uwsgi_temp_path {work}/uwsgi; scgi_temp_path {work}/scgi;
  server {{
    listen 127.0.0.1:8443 ssl; server_name localhost; absolute_redirect off;
    ssl_certificate {work}/ca.pem; ssl_certificate_key {work}/key.pem; ssl_session_cache shared:s:1m;
    location /api/ {{ root {work}/www; default_type application/json; }}
    location ~ ^/own/model/resolve/[^/]+/(.*)$ {{ return 302 /cdn/$1?signature=1; }}
    location /cdn/ {{ alias {checkpoint}/; }}
  }}
}}
"""
SERVER, NEAR = 8443, 8444
OPTIONS = ["--backend", "marlin", "--engine", "vllm", "--device", "cpu", "--no-loader", "-q"]


def entry(folder, path):
    digest, git = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % path.stat().st_size)
    with open(path, "rb") as f:
        while part := f.read(1 << 24):
            digest.update(part)
            git.update(part)
    size = path.stat().st_size
    made = {"type": "file", "path": str(path.relative_to(folder)), "size": size, "oid": git.hexdigest()}
    if path.suffix == ".safetensors":
        made["lfs"] = {"oid": digest.hexdigest(), "size": size}
    return made


def prepare(work, checkpoint):
    commit = "1" * 40
    api = work / "www/api/models/own/model"
    for name, content in (("revision/main", {"sha": commit}),
                          (f"tree/{commit}", [entry(checkpoint, p) for p in sorted(checkpoint.rglob("*")) if p.is_file()])):
        (api / name).parent.mkdir(parents=True)
        (api / name).write_text(json.dumps(content))
    (work / "nginx.conf").write_text(NGINX.format(work=work, checkpoint=checkpoint))
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost", "-keyout", work / "key.pem", "-out", work / "ca.pem"],
                   check=True, capture_output=True)


class Bench:
    def __init__(self, options, work):
        self.program, self.checkpoint, self.work = options.program, options.checkpoint, work
        self.environment = dict(os.environ, HF_HOME=str(work / "home"), XDG_CACHE_HOME=str(work / "cache"),
                                CURL_CA_BUNDLE=str(work / "ca.pem"), TMPDIR=str(work))
        self.address = ""
        self.names = [str(p.relative_to(self.checkpoint)) for p in sorted(self.checkpoint.rglob("*")) if p.is_file()]

    def run(self, *command):
        subprocess.run([str(c) for c in command], check=True, stderr=subprocess.DEVNULL if command[0] == "curl" else None, env=dict(self.environment, HF_ENDPOINT=self.address))

    def curl(self, to):
        arguments = ["curl", "-s", "--cacert", self.work / "ca.pem", "-L", "-Z", "--parallel-max", "32"]
        for name in self.names:
            arguments += ["-o", str(to / name) if to else "/dev/null", f"{self.address}/own/model/resolve/{'1' * 40}/{name}"]
        self.run(*arguments)
        if to:
            self.run("sync", "-f", to)

    def fetch(self):
        self.curl(None)

    def download(self):
        (self.work / "copy").mkdir()
        self.curl(self.work / "copy")

    def convert(self, source, *more):
        self.run(self.program, "convert", source, self.work / "out", *OPTIONS, *more)

    def remote(self):
        self.convert("hf://own/model", "--no-published")

    def proved(self):
        self.convert("hf://own/model")

    def both(self):
        self.download()
        self.convert(self.work / "copy")

    def time(self, what):
        start = time.monotonic()
        what()
        seconds = time.monotonic() - start
        for name in ("copy", "out", "cache"):
            shutil.rmtree(self.work / name, ignore_errors=True)
        return seconds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--links", nargs="+", default=["0:0", "20:0", "100:0", "0:1000", "20:1000", "100:1000"])
    options = parser.parse_args()
    options.program, options.checkpoint = options.program.resolve(), options.checkpoint.resolve()
    work = options.folder.resolve() / f"remote-bench-{os.getpid()}"
    work.mkdir(mode=0o755)
    prepare(work, options.checkpoint)
    nginx = subprocess.Popen(["nginx", "-c", work / "nginx.conf"])
    try:
        time.sleep(1)
        bench = Bench(options, work)
        size = sum(p.stat().st_size for p in options.checkpoint.rglob("*") if p.is_file())
        print(f"{size / 1e9:.2f} GB, {os.cpu_count()} cores; seconds, median of {options.rounds}\n")
        print("| round trip, ms | Mbit/s | curl to /dev/null | curl to disk | convert, not proved | convert | download, then convert | "
              "convert / curl to disk |")
        print("|---|---|---|---|---|---|---|---|", flush=True)
        ways = [bench.fetch, bench.download, bench.remote, bench.proved, bench.both]
        for link in options.links:
            delay, rate = link.split(":")
            proxy = pathlib.Path(__file__).with_name("far_proxy.py")
            far = subprocess.Popen([sys.executable, proxy, str(NEAR), str(SERVER), delay, str(float(rate) * 125e3)])
            bench.address = f"https://localhost:{SERVER if link == '0:0' else NEAR}"
            time.sleep(1)
            try:
                times = [[bench.time(w) for w in ways] for _ in range(options.rounds)]
            finally:
                far.terminate()
                far.wait()
            row = [f"{statistics.median(column):.2f}" for column in zip(*times)]
            ratios = sorted(t[3] / t[1] for t in times)
            row.append(f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
            print(f"| {delay} | {rate if rate != '0' else 'no limit'} | {' | '.join(row)} |", flush=True)
    finally:
        nginx.terminate()
        nginx.wait()
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
