"""What a worker does not let anyone do to it: names that are not its own, memory without bounds, all places taken."""

import json
import pathlib
import resource
import socket
import sys
import tempfile
import unittest

from worker import Stream, Worker, check_order, forge

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
HAIKU = "GPU haiku with word seven: "


def setUpModule():
    global WORKER, FILES
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    FILES = 6000 if most == resource.RLIM_INFINITY else min(most, 6000)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, most))
    WORKER = Worker(PROGRAM)


def tearDownModule():
    WORKER.kill()


def answer_to(worker, *pieces):
    """(status, code of the error or None) of what is sent, piece by piece."""
    answer = b""
    with worker.connect() as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused before all was sent
        try:
            while piece := connection.recv(65536):
                answer += piece
        except ConnectionResetError:
            pass
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head[9:12]), json.loads(body)["error"]["code"] if b'{"error"' in body else None


def get(path, *headers, version="1.1"):
    return "\r\n".join([f"GET {path} HTTP/{version}", *headers, "Connection: close", "", ""]).encode()


class Requests(unittest.TestCase):
    def tearDown(self):
        self.assertEqual(check_order(WORKER.run("after", HAIKU))[0], "end")

    def test_names_that_are_not_its_own(self):
        for host in ("localhost", f"LocalHost:{WORKER.port}", "127.0.0.1", f"127.0.0.2:{WORKER.port}", "[::1]:1"):
            self.assertEqual(answer_to(WORKER, get("/health", f"Host: {host}")), (200, None), host)
        for host in ("evil.example", f"evil.example:{WORKER.port}", "localhost.evil.example", "0.0.0.0", "192.0.2.1", "", "localhost, evil.example"):
            for path in ("/health", "/", "/metrics", "/nothing"):
                self.assertEqual(answer_to(WORKER, get(path, f"Host: {host}")), (403, "HOST_NOT_ALLOWED"), (host, path))
            # A page of that name: to its browser, the server is of its own origin.
            head = f"POST /shutdown HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nContent-Length: 2\r\n\r\n{{}}"
            self.assertEqual(answer_to(WORKER, head.encode()), (403, "HOST_NOT_ALLOWED"), host)
        self.assertEqual(WORKER.get("/health")["status"], "ok")

    def test_names_that_were_allowed(self):
        with Worker(PROGRAM, "--allow-host", "box.example", "--allow-host", "192.0.2.7") as worker:
            for host, status in (("box.example:80", 200), ("192.0.2.7", 200), ("localhost", 200), ("a.box.example", 403), ("192.0.2.8", 403)):
                self.assertEqual(answer_to(worker, get("/health", f"Host: {host}"))[0], status, host)
        with Worker(PROGRAM, "--host", "0.0.0.0") as worker:
            worker.host = "127.0.0.1"
            self.assertEqual(answer_to(worker, get("/health", "Host: any.example"))[0], 200)
        with Worker(PROGRAM, "--host", "0.0.0.0", "--allow-host", "box.example") as worker:
            worker.host = "127.0.0.1"
            for host, status in (("box.example", 200), ("192.0.2.7", 200), ("any.example", 403)):
                self.assertEqual(answer_to(worker, get("/health", f"Host: {host}"))[0], status, host)

    def test_requests_that_can_be_read_in_two_ways(self):
        self.assertEqual(answer_to(WORKER, get("/health")), (400, "BAD_REQUEST"))
        self.assertEqual(answer_to(WORKER, get("/health", version="1.0")), (200, None))
        for version in ("1.0", "1.1"):
            for second in ("localhost", "evil.example"):
                self.assertEqual(answer_to(WORKER, get("/health", "Host: localhost", f"Host: {second}", version=version)), (400, "BAD_REQUEST"))
        for coding in ("gzip", "identity", "gzip, chunked", "chunked, chunked", "xchunked", "", "chunked\r\nTransfer-Encoding: chunked",
                       "chunked\r\nContent-Length: 5", "gzip\r\nTransfer-Encoding: chunked"):
            head = f"POST /cancel HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: {coding}\r\n\r\n"
            body = b'10\r\n{"job_id": "abc"}\r\n0\r\n\r\n'
            self.assertEqual(answer_to(WORKER, head.encode() + body), (400, "BAD_REQUEST"), coding)
        head = b"POST /cancel HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"
        self.assertEqual(answer_to(WORKER, head + b"0\r\n\r\n"), (400, "BAD_REQUEST"))

    def test_chunks_that_are_mostly_heads(self):
        head = b"POST /cancel HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        before = WORKER.get("/health")["memory_used_bytes"]
        piece = b"x" * (1 << 20)
        for start in (b"1;e=", b"1;e=\"", b"0\r\nTrailer: ", b"0\r\n"):
            fill = piece if start != b"0\r\n" else b"A: b\r\n" * 200_000
            self.assertEqual(answer_to(WORKER, head + start, *([fill] * 100)), (431, "HEADERS_TOO_LARGE"), start)
        # Each is small enough, but there is no end to them.
        self.assertEqual(answer_to(WORKER, head, *([b"1;e=%s\r\nx\r\n" % piece[:50_000]] * 2000)), (413, "BODY_TOO_LARGE"))
        self.assertLess(WORKER.get("/health")["memory_used_bytes"] - before, 64 << 20)
        fits = b'1;e=%s\r\n{\r\n11\r\n"job_id": "abcd"}\r\n0\r\nTrailer: %s\r\n\r\n' % (piece[:50_000], piece[:10_000])
        self.assertEqual(answer_to(WORKER, head.replace(b"Host", b"Connection: close\r\nHost") + fits), (202, None))


class Crowds(unittest.TestCase):
    def test_thousands_of_silent_connections(self):
        silent = [WORKER.connect() for _ in range(FILES - 500)]
        half = [WORKER.connect() for _ in range(200)]
        for connection in half:
            connection.sendall(b"GET /health HTT")
        for _ in range(20):
            self.assertEqual(WORKER.get("/health")["status"], "ok")
        self.assertEqual(check_order(WORKER.run("among them", HAIKU))[0], "end")
        self.assertLessEqual(WORKER.metric("lockstep_connections"), 2048)
        # The oldest gave way; the newest are still there.
        if len(silent) > 2048:
            self.assertEqual(silent[0].recv(1), b"")
        silent[-1].sendall(get("/health", "Host: localhost"))
        self.assertIn(b"200 OK", silent[-1].recv(1000))
        for connection in silent + half:
            connection.close()

    def test_jobs_keep_their_places(self):
        def unread(worker):
            reader = socket.socket()
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            reader.connect((worker.host, worker.port))
            reader.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500)
            return reader

        with Worker(PROGRAM, "--connections", "64", "--queue", "16") as worker:
            endless = {"prompt": HAIKU, "ignore_eos": True, "temperature": 1, "max_tokens": 200}
            streams = [worker.execute(job_id=f"job {i}", **endless) for i in range(8)]
            crowd = [worker.connect() for _ in range(100)] + [unread(worker) for _ in range(100)] + [worker.connect() for _ in range(100)]
            for _ in range(20):
                self.assertEqual(worker.get("/health")["status"], "ok")
            for stream in streams:
                self.assertEqual(check_order(stream.rest())[0], "end")
                stream.close()
            for connection in crowd:
                connection.close()

    def test_bodies_that_never_end(self):
        head = b"POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"
        before = WORKER.get("/health")["memory_used_bytes"]
        crowd = []
        for _ in range(300):
            crowd.append(WORKER.connect())
            crowd[-1].sendall(head + b"x" * 999_000)
        self.assertLess(WORKER.get("/health")["memory_used_bytes"] - before, 160 << 20)
        self.assertEqual(check_order(WORKER.run("among them", HAIKU))[0], "end")
        for connection in crowd:
            connection.close()

    def test_more_jobs_than_places(self):
        with self.assertRaisesRegex(RuntimeError, "--connections"):
            Worker(PROGRAM, "--connections", "64", "--queue", "17")


class Answers(unittest.TestCase):
    def test_log_probabilities_are_streamed_or_bounded(self):
        with tempfile.TemporaryDirectory() as folder:
            tiny = forge(PROGRAM, pathlib.Path(folder) / "tiny.gguf", "--layers", "1", "--width", "32", "--heads", "2", "--feed-forward", "32")
            with Worker(PROGRAM, model=tiny) as worker:
                fields = {"prompt": "rain", "ignore_eos": True, "temperature": 1, "seed": 7, "logprobs": 20}
                before = worker.get("/health")["memory_used_bytes"]
                status, answer = worker.post("/v1/completions", {**fields, "max_tokens": 30_000})
                self.assertEqual((status, answer["error"]["code"], answer["error"]["field"]), (400, "ANSWER_TOO_LARGE", "stream"))
                self.assertLess(worker.get("/health")["memory_used_bytes"] - before, 96 << 20)
                worker.wait_idle()
                # As much as fits, whole and streamed; and what does not fit, streamed.
                status, whole = worker.post("/v1/completions", {**fields, "max_tokens": 100})
                self.assertEqual(status, 200)
                whole = whole["choices"][0]["logprobs"]
                with Stream(worker, {**fields, "max_tokens": 5000, "stream": True}, "/v1/completions") as stream:
                    events = [data for _, data in stream.rest()]
                self.assertEqual(events.pop(), "[DONE]")
                parts = [event["choices"][0]["logprobs"] for event in events if event["choices"][0]["logprobs"]]
                self.assertEqual(len(parts), 5000)
                for field, values in whole.items():
                    self.assertEqual(sum((part[field] for part in parts[:100]), []), values, field)


if __name__ == "__main__":
    unittest.main()
