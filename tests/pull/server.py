"""A server on this machine that does what servers do wrong, and a test case that pulls from it.

Tests are run as: x_test.py LOCKSTEP
"""

import hashlib
import http.server
import os
import pathlib
import random
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(1))
SEED = int(os.environ.get("LOCKSTEP_SEED", random.randrange(2**32)))


def gguf_file(n_values, rng):
    """A GGUF file with one F32 tensor of random bits."""

    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    header = b"GGUF" + struct.pack("<IQQ", 3, 1, 1)
    header += text("general.architecture") + struct.pack("<I", 8) + text("llama")
    header += text("weight") + struct.pack("<IQIQ", 1, n_values, 0, 0)
    header += bytes(-len(header) % 32)
    return header + rng.randbytes(4 * n_values)


class Handler(http.server.BaseHTTPRequestHandler):
    """The first part of the path says how to behave."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        state = self.server.state
        mode = self.path.split("/")[1]
        data = state["data"]
        etag = state.get("etag", '"one"')
        wanted = self.headers.get("Range")
        state["log"].append((mode, wanted, self.headers.get("If-Range")))
        if mode == "missing":
            return self.plain(404, b"no such file")
        if mode == "busy" and len(state["log"]) < 2:
            return self.plain(503, b"later")
        if mode == "redirect":
            self.send_response(302)
            self.send_header("Location", "/whole/model.gguf")
            self.send_header("ETag", '"of the redirect"')
            self.send_header("X-Linked-ETag", f'"{state["stated"].upper()}"')
            self.send_header("Content-Length", "0")
            return self.end_headers()
        if mode == "elsewhere":
            self.send_response(302)
            self.send_header("Location", state["elsewhere"])
            self.send_header("Content-Length", "0")
            return self.end_headers()
        if mode == "loop":
            self.send_response(302)
            self.send_header("Location", "/loop/model.gguf")
            self.send_header("Content-Length", "0")
            return self.end_headers()

        first = 0
        condition = self.headers.get("If-Range")
        if wanted and mode != "no-ranges" and condition in (None, etag):
            first = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if first >= len(data):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(data)}")
                self.send_header("Content-Length", "0")
                return self.end_headers()
        ranged = wanted and first > 0
        self.send_response(206 if ranged else 200)
        if ranged:
            begin = 0 if mode == "wrong-range" else first
            self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        if mode != "no-etag":
            self.send_header("ETag", etag)
        body = data[first:]
        if mode == "endless":
            self.send_header("Connection", "close")
            self.end_headers()
            while True:  # until the client has enough
                self.wfile.write(data)
        if mode == "drip":
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            for at in range(0, len(body), 10):
                self.wfile.write(body[at : at + 10])
                time.sleep(0.05)
        if mode == "no-length":
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        cut = state.get("cut")  # the connection ends when the file is sent up to here
        if cut is not None and first < cut:
            body = body[: cut - first]
            self.close_connection = True
        self.wfile.write(body)
        if mode == "no-length":
            self.close_connection = True

    def plain(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass  # clients that hang up are what is tested


class SlowServer:
    """Sends the headers and a third of the file, then nothing more."""

    def __init__(self, data):
        self.sent = len(data) // 3
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.connections = []

        def serve():
            while True:
                try:
                    connection, _ = self.socket.accept()
                except OSError:
                    return
                self.connections.append(connection)
                connection.recv(65536)
                head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(data)}\r\n\r\n"
                connection.sendall(head.encode() + data[: self.sent])

        threading.Thread(target=serve, daemon=True).start()

    def close(self):
        self.socket.close()
        for connection in self.connections:
            connection.close()


class PullTest(unittest.TestCase):
    """A fresh server and a fresh folder for models."""

    def setUp(self):
        rng = random.Random(f"{SEED} {self.id()}")
        self.data = gguf_file(rng.choice([60_001, 77_777, 100_255]), rng)
        self.sha256 = hashlib.sha256(self.data).hexdigest()
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.more_environment = {}
        self.models = pathlib.Path(self.folder.name, "lockstep/models")
        self.final = self.models / "m.gguf"
        self.part = self.models / "m.gguf.part"
        self.state = {"data": self.data, "log": [], "stated": self.sha256}
        self.base = f"http://127.0.0.1:{self.serve()}"

    def serve(self, certificate=None):
        """A server with this state, over https where it has a certificate; returns its port."""
        server = Server(("127.0.0.1", 0), Handler)
        server.state = self.state
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return server.server_port

    def environment(self):
        keep = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        return keep | {"XDG_CACHE_HOME": self.folder.name, "HF_ENDPOINT": self.base} | self.more_environment

    def command(self, mode, *flags):
        return [PROGRAM, "models", "pull", "m", "--url", f"{self.base}/{mode}/model.gguf",
                *flags]  # fmt: skip

    def run_it(self, command, **more):
        return subprocess.run(
            command, capture_output=True, text=True, timeout=60, env=self.environment(), **more
        )

    def pull(self, mode, *flags, **more):
        return self.run_it(self.command(mode, *flags), **more)

    def assert_complete(self, done):
        self.assertEqual(done.returncode, 0, f"seed {SEED}\n{done.stderr}")
        self.assertEqual(done.stdout, f"{self.final}\n")
        self.assertEqual(self.final.read_bytes(), self.data)
        # Nothing else stays behind: no part, no origin, no lock.
        self.assertEqual([path.name for path in self.models.iterdir()], ["m.gguf"])

    def assert_failed(self, done, *words):
        self.assertEqual(done.returncode, 2, f"seed {SEED}\n{done.stdout}{done.stderr}")
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertFalse(self.final.exists())

    def cut_off(self, mode="whole"):
        """A first try that breaks off; returns how many bytes came."""
        self.state["cut"] = cut = len(self.data) * 2 // 5
        self.assert_failed(self.pull(mode, "--retries", "0"), "are kept in")
        self.assertEqual(self.part.read_bytes(), self.data[:cut])
        self.state["cut"] = None
        self.state["log"].clear()
        return cut
