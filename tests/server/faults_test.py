"""What strangers, broken clients and crowds do to a worker: it stays up, answers the others, and holds no more memory."""

import json
import pathlib
import random
import resource
import select
import socket
import struct
import sys
import tempfile
import time
import unittest

from worker import PATIENCE_S, Worker, check_order, forge, in_threads, text_of

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
JOBS = int(sys.argv.pop(1)) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 1000
HAIKU = "GPU haiku with word seven: "


def setUpModule():
    global WORKER, SLOW, FOLDER, IDLE
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    files = 4096 if most == resource.RLIM_INFINITY else min(most, 4096)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
    IDLE = min(1000, files - 400)
    FOLDER = tempfile.TemporaryDirectory()
    slow = forge(PROGRAM, pathlib.Path(FOLDER.name) / "slow.gguf", "--layers", "8", "--width", "512", "--heads", "8",
                 "--kv-heads", "2", "--feed-forward", "1024", "--type", "q8_0")
    WORKER = Worker(PROGRAM, "--request-timeout", "1.5")
    SLOW = Worker(PROGRAM, model=slow)


def tearDownModule():
    WORKER.kill()
    SLOW.kill()
    FOLDER.cleanup()


def exchange(worker, data, most=1 << 20):
    """Everything that comes back until the connection ends."""
    with worker.connect() as connection:
        try:
            connection.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused before all was sent; the answer is there all the same
        return read_all(connection, most)


def read_all(connection, most=1 << 20):
    answer = b""
    while len(answer) < most:
        try:
            piece = connection.recv(65536)
        except ConnectionResetError:
            break
        if not piece:
            break
        answer += piece
    return answer


def post(path, body, *headers):
    head = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(head).encode() + body


def reset(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


class Broken(unittest.TestCase):
    def tearDown(self):
        self.assertIsNone(WORKER.process.poll(), WORKER.log_text()[-2000:])
        self.assertEqual(check_order(WORKER.run("after", HAIKU))[0], "end")

    def status(self, data):
        answer = exchange(WORKER, data)
        self.assertRegex(answer, rb"^HTTP/1\.1 \d\d\d ", data[:60])
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head[9:12]), json.loads(body)["error"]["code"]

    def test_no_http(self):
        for data in (b"nonsense\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET / FTP/1.0\r\n\r\n", b"GET  /  HTTP/1.1\r\n\r\n",
                     b"GET / HTTP/1.1\r\nHost: localhost\r\nno colon\r\n\r\n", b"GET / HTTP/1.1\r\n : x\r\nHost: localhost\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                     post("/execute", b"", "Content-Length: 5"), b"POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
                     b"POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
                     b"POST /execute HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"):
            with self.subTest(data=data[:40]):
                self.assertEqual(self.status(data), (400, "BAD_REQUEST"))

    def test_oversized(self):
        self.assertEqual(self.status(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000 + b"\r\n\r\n"), (431, "HEADERS_TOO_LARGE"))
        self.assertEqual(self.status(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 10_000 + b"\r\n"), (431, "HEADERS_TOO_LARGE"))
        self.assertEqual(self.status(b"GET /" + b"x" * 50_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"), (431, "HEADERS_TOO_LARGE"))
        self.assertEqual(self.status(post("/execute", b"x" * (2 << 20))), (413, "BODY_TOO_LARGE"))
        self.assertEqual(self.status(b"POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n"), (413, "BODY_TOO_LARGE"))
        chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
        self.assertEqual(self.status(b"POST /execute HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk * 40), (413, "BODY_TOO_LARGE"))
        fits = json.dumps({"job_id": "a", "prompt": "x", "y": "z" * (1_048_576 - 42)}).encode()
        status, _, body = WORKER.request("POST", "/execute", fits[:-2].ljust(1_048_574, b"z") + b'"}')
        self.assertEqual((status, json.loads(body)["error"]["code"]), (400, "UNKNOWN_FIELD"))

    def test_half_requests_time_out(self):
        halves = [b"G", b"POST /execute HTTP/1.1\r\nHost: localhost\r\n", b"POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n12345"]
        began = time.monotonic()
        for answer in in_threads(len(halves), lambda i: exchange(WORKER, halves[i])):
            self.assertIn(b"408", answer[:20])
            self.assertIn(b"REQUEST_TIMEOUT", answer)
        self.assertGreater(time.monotonic() - began, 1.2)
        # A byte now and then does not help.
        with WORKER.connect() as drip:
            try:
                for byte in b"POST /execute HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 1000:
                    drip.sendall(bytes([byte]))
                    if select.select([drip], [], [], 0.02)[0]:
                        break
            except OSError:
                pass
            self.assertIn(b"408", read_all(drip)[:20])

    def test_half_requests_that_leave(self):
        for data in (b"", b"GE", post("/execute", b"x" * 100)[:-50]):
            with WORKER.connect() as connection:
                connection.sendall(data)
            connection = WORKER.connect()
            connection.sendall(data)
            reset(connection)

    def test_pipelining(self):
        job = json.dumps({"job_id": "p", "prompt": HAIKU}).encode()
        get = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        last = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        answer = exchange(WORKER, get + post("/execute", job) + get + post("/execute", b"{}") + post("/v1/completions", b'{"prompt": "x"}') + last)
        statuses = [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]]
        self.assertEqual(statuses, [200, 200, 200, 400, 200, 200])
        self.assertEqual(answer.count(b"event: end"), 1)
        many = exchange(WORKER, get * 3000 + last, most=1 << 30)
        self.assertEqual(many.count(b"HTTP/1.1 200 OK"), 3001)

    def test_empty_lines_between_requests(self):
        get = b"\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        last = b"\r\nGET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        self.assertEqual(exchange(WORKER, get + post("/execute", b"{}") + get + last).count(b"HTTP/1.1 200 OK"), 3)
        with WORKER.connect() as connection:
            for byte in b"\r\n" + last:
                connection.sendall(bytes([byte]))
                time.sleep(0.001)
            self.assertIn(b"200 OK", read_all(connection))

    def test_clients_that_only_close_their_side(self):
        job = json.dumps({"job_id": "half", "prompt": HAIKU}).encode()
        for data, end in ((post("/execute", job), b"event: end"), (post("/v1/completions", b'{"prompt": "x", "stream": true}'), b"[DONE]"),
                          (post("/v1/completions", b'{"prompt": "x"}'), b'"total_tokens"'), (b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", b'"ok"')):
            with WORKER.connect() as connection:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                answer = read_all(connection)
            self.assertIn(end, answer)
            self.assertIn(b"HTTP/1.1 200 OK", answer)

    def test_chunked_bodies(self):
        body = json.dumps({"job_id": "chunks", "prompt": "é" + HAIKU}).encode()
        rng = random.Random(seed := random.randrange(1 << 30))
        with self.subTest(seed=seed), WORKER.connect() as connection:
            connection.sendall(b"POST /execute HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
            while body:
                size = rng.randrange(1, 9)
                connection.sendall(b"%x;ext=1\r\n%s\r\n" % (len(body[:size]), body[:size]))
                body = body[size:]
            connection.sendall(b"0\r\nTrailer: x\r\n\r\n")
            self.assertIn(b"event: end", read_all(connection))

    def test_old_clients(self):
        body = json.dumps({"job_id": "old", "prompt": HAIKU}).encode()
        answer = exchange(WORKER, b"POST /execute HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        head, _, events = answer.partition(b"\r\n\r\n")
        self.assertNotIn(b"chunked", head)
        self.assertTrue(events.startswith(b"event: started\n") and events.endswith(b"\n\n"), events)
        self.assertIn(b"200 OK", exchange(WORKER, b"GET /health HTTP/1.0\r\n\r\n"))

    def test_resets(self):
        rng = random.Random(seed := random.randrange(1 << 30))
        job = post("/execute", json.dumps({"job_id": "r", "prompt": HAIKU}).encode())
        with self.subTest(seed=seed):
            for _ in range(200):
                connection = WORKER.connect()
                connection.sendall(job[: rng.randrange(len(job) + 1)])
                if rng.random() < 0.3:
                    connection.settimeout(0.002)
                    try:
                        connection.recv(rng.randrange(1, 300))
                    except OSError:
                        pass
                reset(connection)
            WORKER.wait_idle()

    def test_floods_of_bad_requests(self):
        rng = random.Random(seed := random.randrange(1 << 30))
        pieces = [b"GET ", b"POST ", b"/execute", b" HTTP/1.1", b"\r\n", b"\r\n\r\n", b"Content-Length: 5", b"{", b'"prompt"', b":", b"\x00", b"\xff", b"x" * 3000]
        before = WORKER.get("/health")["memory_used_bytes"]

        def flood(_):
            mine = random.Random(rng.random())
            for _ in range(100):
                with WORKER.connect() as connection:
                    try:
                        connection.sendall(b"".join(mine.choices(pieces, k=mine.randrange(1, 12))))
                        connection.shutdown(socket.SHUT_WR)
                        read_all(connection)
                    except OSError:
                        pass

        with self.subTest(seed=seed):
            in_threads(8, flood)
            self.assertLess(WORKER.get("/health")["memory_used_bytes"] - before, 64 << 20)


class Crowd(unittest.TestCase):
    def test_idle_connections_and_slow_readers(self):
        # Alone, for comparison; a fixed seed gives the same work.
        job = {"prompt": "rain", "max_tokens": 600, "ignore_eos": True, "temperature": 1, "seed": 7}
        alone = SLOW.run("alone", **job)
        idle = [SLOW.connect() for _ in range(IDLE)]
        readers = []
        for i in range(200):
            reader = socket.socket()
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            reader.connect((SLOW.host, SLOW.port))
            reader.settimeout(PATIENCE_S)
            # Answers that do not fit the socket's buffers, asked for again and again, and not read.
            reader.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
            readers.append(reader)
        crowded = SLOW.run("crowded", **job)
        name, end = check_order(crowded)
        self.assertEqual((name, text_of(crowded)), ("end", text_of(alone)))
        print(f"600 tokens: {alone[-1][1]['decode_time_ms']:.0f} ms alone, {end['decode_time_ms']:.0f} ms with a crowd", end="; ")
        self.assertLess(end["decode_time_ms"], 5 * alone[-1][1]["decode_time_ms"] + 2000)
        self.assertGreaterEqual(SLOW.metric("lockstep_connections"), IDLE + 200)
        for reader in readers[:3]:  # whoever reads at last gets everything
            reader.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            self.assertEqual(read_all(reader, 1 << 30).count(b"HTTP/1.1 200 OK"), 101)
        idle[-1].sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.assertIn(b"200 OK", idle[-1].recv(1000))
        for connection in idle + readers:
            connection.close()
        deadline = time.monotonic() + PATIENCE_S
        while SLOW.metric("lockstep_connections") > 5:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)

    def test_a_slow_reader_does_not_hold_up_the_next_job(self):
        reader = socket.socket()
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        reader.connect((SLOW.host, SLOW.port))
        reader.settimeout(PATIENCE_S)
        fields = {"job_id": "slow", "prompt": "rain", "max_tokens": 3000, "ignore_eos": True, "temperature": 1, "stop": ["never" * 9]}
        reader.sendall(post("/execute", json.dumps(fields).encode(), "Connection: close"))
        SLOW.wait_for(lambda h: h["active_job"] == "slow", "it has begun")
        self.assertEqual(check_order(SLOW.run("next", max_tokens=5))[0], "end")
        # It is all there for the slow one, too.
        answer = read_all(reader, 1 << 30)
        reader.close()
        self.assertEqual((answer.count(b"event: started"), answer.count(b"event: token"), answer.count(b"event: end")), (1, 3000, 1))

    def test_memory_stays_flat(self):
        """Short jobs of all kinds, some cancelled, some left by their clients."""
        rng = random.Random(seed := random.randrange(1 << 30))

        def some(count):
            for i in range(count):
                kind = rng.randrange(10)
                if kind == 0:
                    with WORKER.execute(job_id="m", prompt=HAIKU, ignore_eos=True) as stream:
                        stream.next()  # and leaves
                elif kind == 1:
                    WORKER.post("/v1/chat/completions", {"messages": [{"role": "user", "content": f"Write a haiku about {i}"}], "logprobs": True, "top_logprobs": 5})
                elif kind == 2:
                    WORKER.post("/execute", {"job_id": "m", "prompt": ""})
                else:
                    check_order(WORKER.run(f"m{i}", f"GPU haiku with word {i}: ", max_tokens=rng.randrange(1, 20)))
            return WORKER.get("/health")["memory_used_bytes"]

        with self.subTest(seed=seed):
            before = some(max(200, JOBS // 10))
            began = time.monotonic()
            after = some(JOBS)
            print(f"{JOBS} jobs in {time.monotonic() - began:.1f} s: {before / 1e6:.1f} MB before, {after / 1e6:.1f} MB after", end="; ")
            self.assertLess(after - before, 4 << 20)


if __name__ == "__main__":
    unittest.main()
