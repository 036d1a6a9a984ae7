#!/usr/bin/env python3
"""A small server of remote checkpoints, which can also fail in many ways.

usage: server.py FOLDER [--port-file FILE] [--log FILE] [--fault KIND] [--at N] [--cert PEM] [--token TOKEN] [--keys KEY:SECRET]

FOLDER has checkpoints as OWNER/NAME. The server answers with
- the hub's protocol for each, at revision main: /api/models/OWNER/NAME/revision/main, ../tree/COMMIT, and
  /OWNER/NAME/resolve/COMMIT/FILE, which redirects a file of weights to /cdn/OWNER/NAME/FILE?signature=..;
- plain files: /plain/OWNER/NAME/FILE;
- S3: the bucket OWNER, /s3/OWNER?list-type=2&.. and /s3/OWNER/KEY, with a checked signature if --keys is given.

The log has a line for each request: its number, status, path, range, bytes sent, and whether a token came with it.
With --fault, request number N (0: every third) fails in one of the ways of FAULTS; --at -N: all from N on.
"""

import argparse
import datetime
import email.utils
import hashlib
import hmac
import html
import http.server
import json
import pathlib
import re
import select
import socket
import ssl
import struct
import threading
import time
import urllib.parse

# Faults that pass: the program asks again. Faults that stay: it ends with one line, unless the answer has no such
# property. "flip" changes a byte, which only a published hash can show; "changed" changes the ETag as well.
PASSING = ["cut", "reset", "500", "503", "429", "stall"]
STAYING = ["date", "short", "changed", "wrong-range", "larger", "403", "404", "416", "flip"]
FAULTS = PASSING + STAYING
ODD = ["no-version", "other-commit", "cut-list", "key-count", "no-keys", "same-keys", "same-token", "entities", "no-length", "drip",
       "forbidden", "long-name", "no-total"]
WEIGHTS = (".safetensors", ".bin", ".pt")
PAGE = 3  # entries of a list


def etag_of(path):
    s = path.stat()
    return f'"{s.st_mtime_ns:x}-{s.st_size:x}"'


def commit_of(folder):
    names = sorted(str(p.relative_to(folder)) + etag_of(p) for p in folder.rglob("*") if p.is_file())
    return hashlib.sha1("\n".join(names).encode()).hexdigest()


def entry_of(folder, path):
    """An entry of the hub's tree."""
    data = path.read_bytes()
    entry = {"type": "file", "path": str(path.relative_to(folder)), "size": len(data)}
    entry["oid"] = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    if path.name.endswith(WEIGHTS):
        entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
    return entry


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, options):
        super().__init__((options.address, 0), Handler)
        self.options = options
        self.folder = pathlib.Path(options.folder).resolve()
        self.lock = threading.Lock()
        self.number = 0
        self.trees = {}
        self.bytes = 0  # of files' ranges, in all
        self.log = open(options.log, "a", buffering=1) if options.log else None
        if options.cert:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(options.cert)
            self.socket = context.wrap_socket(self.socket, server_side=True)

    def begin(self, fault=None, at=0):
        """Counts requests and bytes from here, with another fault."""
        with self.lock:
            self.options.fault, self.options.at = fault, at
            self.number = self.bytes = 0

    def tree(self, folder):
        commit = commit_of(folder)
        with self.lock:
            if commit not in self.trees:
                files = sorted(p for p in folder.rglob("*") if p.is_file())
                self.trees[commit] = [entry_of(folder, p) for p in files]
            return commit, self.trees[commit]

    def fault(self):
        """The number of this request, and how it is to fail."""
        with self.lock:
            self.number += 1
            at, number = self.options.at, self.number
        hit = number % 3 == 2 if at == 0 else number == at if at > 0 else number >= -at
        return number, self.options.fault if hit else None

    def handle_error(self, request, client_address):
        pass


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "test"

    def log_message(self, *args):
        pass

    def setup(self):
        super().setup()
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def do_GET(self):
        self.number, self.how = self.server.fault()
        self.sent, self.status = 0, 0
        try:
            self.route()
        finally:
            if self.server.log:
                token = "token" if self.headers.get("Authorization") else "-"
                self.server.log.write(
                    f"{self.number} {self.status} {self.path.split('?')[0]} {self.headers.get('Range', '-')} {self.sent} {token}\n")

    def route(self):
        url = urllib.parse.urlsplit(self.path)
        parts = [urllib.parse.unquote(p) for p in url.path.split("/")[1:]]
        if self.how and self.how.isdigit():
            return self.refuse(int(self.how))
        if self.how == "stall":
            time.sleep(40)
        if self.how == "date":
            until = email.utils.formatdate(time.time() + 1200, usegmt=True)
            return self.send(503, b"", {"Retry-After": until})
        if self.how == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            self.close_connection = True
            return None
        root = self.server.folder
        if parts[:2] == ["api", "models"]:
            return self.hub(root / parts[2] / parts[3], parts[4:], urllib.parse.parse_qs(url.query))
        if len(parts) > 4 and parts[2] == "resolve":
            return self.resolve(root / parts[0] / parts[1], parts[3], "/".join(parts[4:]))
        if parts[0] == "cdn":
            return self.file(root.joinpath(*parts[1:])) if "signature=" in url.query else self.refuse(403)
        if parts[0] == "plain":
            return self.file(root.joinpath(*parts[1:]))
        if parts[0] == "s3":
            return self.store(parts[1:], url)
        if parts[0] == "elsewhere":  # /elsewhere/URL in percent encoding: a redirect
            return self.send(302, b"", {"Location": parts[1]})
        return self.refuse(404)

    def hub(self, folder, what, query):
        token = self.server.options.token
        if token and self.headers.get("Authorization") != f"Bearer {token}":
            return self.refuse(401)
        if not folder.is_dir():
            return self.refuse(404)
        commit, tree = self.server.tree(folder)
        if self.server.options.odd == "long-name":
            tree = tree + [dict(tree[0], path=300 * "x")]
        if what[0] == "revision":
            known = what[1] in ("main", commit)
            if self.server.options.odd == "other-commit":
                known, commit = True, commit[::-1]
            answer = {"sha": commit, "lastModified": "2025-08-26T17:25:47.000Z"}
            return self.send(200, json.dumps(answer).encode()) if known else self.refuse(404)
        if what[0] != "tree" or what[1] != commit:
            return self.refuse(404)
        start = int(query.get("cursor", ["0"])[0])
        more = {}
        if start + PAGE < len(tree):
            url = f"http://x{self.path.split('?')[0]}?recursive=true&expand=false&cursor={start + PAGE}"
            more = {"Link": f'<{urllib.parse.urlsplit(url)._replace(scheme="", netloc="").geturl()}>; rel="next"'}
        return self.send(200, json.dumps(tree[start : start + PAGE]).encode(), more)

    def resolve(self, folder, commit, name):
        if self.server.options.token and self.headers.get("Authorization") != f"Bearer {self.server.options.token}":
            return self.refuse(401)
        if commit != self.server.tree(folder)[0]:
            return self.refuse(404)
        if not name.endswith(WEIGHTS):
            return self.file(folder / name)
        to = self.server.options.cdn or ""
        path = urllib.parse.quote(f"/cdn/{folder.parent.name}/{folder.name}/{name}")
        return self.send(302, b"", {"Location": f"{to}{path}?signature=1", "X-Linked-Size": "1"})

    def file(self, path):
        if not path.is_file() or self.server.folder not in path.resolve().parents:
            return self.refuse(404)
        size = path.stat().st_size
        headers = {"ETag": etag_of(path), "Last-Modified": email.utils.formatdate(path.stat().st_mtime, usegmt=True)}
        if self.server.options.odd == "no-version":
            headers = {}
        if self.how == "changed":
            headers["ETag"] = '"another"'
        if self.how == "larger":
            size += 1
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not wanted:
            return self.send(200, path.read_bytes(), headers)
        first, last = int(wanted[1]), min(int(wanted[2]), size - 1)
        if first >= size:
            return self.send(416, b"", {"Content-Range": f"bytes */{size}"})
        if self.how == "wrong-range":
            first, last = first + 1, last + 1
        with open(path, "rb") as f:
            f.seek(first)
            data = f.read(last + 1 - first)
        if self.how in ("flip", "changed"):
            data = data[:-1] + bytes([data[-1] ^ 1]) if data else data
        headers["Content-Range"] = f"bytes {first}-{last}/{'*' if self.server.options.odd == 'no-total' else size}"
        with self.server.lock:
            self.server.bytes += len(data)
        return self.send(206, data, headers)

    def store(self, parts, url):
        if self.server.options.keys and not self.signature_is_right(url):
            return self.refuse(403)
        bucket = self.server.folder / parts[0]
        if not bucket.is_dir():
            return self.refuse(404)
        if len(parts) > 1 and parts[1]:
            return self.file(bucket.joinpath(*parts[1:]))
        query = urllib.parse.parse_qs(url.query)
        prefix, start = query.get("prefix", [""])[0], int(query.get("continuation-token", ["0"])[0])
        keys = sorted(k for k in (str(p.relative_to(bucket)) for p in bucket.rglob("*") if p.is_file()) if k.startswith(prefix))
        is_encoded = self.server.options.odd != "entities"
        xml = '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult>' + is_encoded * "<EncodingType>url</EncodingType>"
        for key in keys[start : start + PAGE]:
            path = bucket / key
            when = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.timezone.utc)
            xml += (f"<Contents><Key>{urllib.parse.quote(key) if is_encoded else html.escape(key)}</Key><LastModified>{when:%Y-%m-%dT%H:%M:%S.000Z}</LastModified>"
                    f"<ETag>{etag_of(path).replace(chr(34), '&quot;')}</ETag><Size>{path.stat().st_size}</Size></Contents>")
        is_more = start + PAGE < len(keys)
        xml += f"<IsTruncated>{str(is_more).lower()}</IsTruncated>"
        odd = self.server.options.odd
        if odd == "no-keys":
            xml = re.sub("<Contents>.*</Contents>", "", xml).replace("false", "true")
        if odd == "same-keys":
            is_more, xml = True, xml.replace("false", "true")
            start = start + 1 if start >= PAGE else start
        if odd == "same-token":
            start = 0
        if odd == "key-count":
            xml += "<KeyCount>9</KeyCount>"
        if odd == "cut-list" and (start > 0 or not is_more):
            return self.send(200, xml[: xml.rfind("<Contents>")].encode(), {"Retry-After": "0"})
        if is_more or odd == "no-keys":
            xml += f"<NextContinuationToken>{start + PAGE}</NextContinuationToken>"
        return self.send(200, (xml + "</ListBucketResult>").encode())

    def do_CONNECT(self):
        """As a proxy, it takes every name for the server of --tunnel."""
        if self.server.log:
            self.server.log.write(f"CONNECT {self.path}\n")
        self.send_response(200)
        self.end_headers()
        with socket.create_connection(("127.0.0.1", self.server.options.tunnel)) as to:
            pairs = {self.connection: to, to: self.connection}
            while True:
                for ready in select.select(list(pairs), [], [])[0]:
                    data = ready.recv(65536)
                    if not data:
                        self.close_connection = True
                        return
                    pairs[ready].sendall(data)

    def signature_is_right(self, url):
        """AWS Signature Version 4, computed from Amazon's description of it."""
        key, secret = self.server.options.keys.split(":")
        given = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^,]+), ?SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})",
                             self.headers.get("Authorization", ""))
        if not given or not given[1].startswith(key + "/"):
            return False
        scope, names = given[1].split("/", 1)[1], given[2].split(";")
        if "host" not in names or "x-amz-date" not in names or "x-amz-content-sha256" not in names:
            return False
        pairs = sorted(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        query = "&".join(f"{urllib.parse.quote(k, safe='-_.~')}={urllib.parse.quote(v, safe='-_.~')}" for k, v in pairs)
        lines = "".join(f"{n}:{' '.join(self.headers[n].split())}\n" for n in names)
        request = f"GET\n{url.path}\n{query}\n{lines}\n{given[2]}\n{self.headers['x-amz-content-sha256']}"
        text = "\n".join(["AWS4-HMAC-SHA256", self.headers["x-amz-date"], scope, hashlib.sha256(request.encode()).hexdigest()])
        signing = ("AWS4" + secret).encode()
        for part in scope.split("/"):
            signing = hmac.new(signing, part.encode(), hashlib.sha256).digest()
        return hmac.compare_digest(hmac.new(signing, text.encode(), hashlib.sha256).hexdigest(), given[3])

    def refuse(self, status):
        codes = {403: "AccessDenied", 404: "NoSuchBucket"}
        text = f"<Error><Code>{codes[status]}</Code></Error>".encode() if status in codes else b"no\n"
        self.send(status, text, {"Retry-After": str(self.server.options.pause)} if status == 429 else {})

    do_HEAD = do_GET

    def send(self, status, data, headers=None):
        if status == 404 and self.server.options.odd == "forbidden":
            status = 403
        self.status = status
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        part = data
        if self.how in ("cut", "short"):
            part = data[: len(data) // 2]
        if self.server.options.odd == "drip" and status == 206:
            part = data[:1]
            self.send_header("Retry-After", "0")
        if self.server.options.odd == "no-length" and status == 200:
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(len(part) if self.how == "short" else len(data)))
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(part)
        self.sent = len(part)
        if len(part) < len(data):
            self.close_connection = self.close_connection or self.how != "short"


def parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--port-file")
    parser.add_argument("--log")
    parser.add_argument("--fault", choices=FAULTS)
    parser.add_argument("--at", type=int, default=0)
    parser.add_argument("--cert")
    parser.add_argument("--cdn", help="the origin that /cdn is on")
    parser.add_argument("--token")
    parser.add_argument("--keys")
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--odd", choices=ODD, help="what every answer lacks or has")
    parser.add_argument("--tunnel", type=int, help="the port that CONNECT leads to")
    parser.add_argument("--pause", type=int, default=0, help="Retry-After of 429, seconds")
    return parser


def main():
    server = Server(parser().parse_args())
    if server.options.port_file:
        path = pathlib.Path(server.options.port_file)
        path.with_suffix(".new").write_text(str(server.server_address[1]))
        path.with_suffix(".new").rename(path)
    server.serve_forever()


if __name__ == "__main__":
    main()
