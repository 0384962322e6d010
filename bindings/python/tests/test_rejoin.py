"""Against a real manager and real servers, which the test of `rejoin-cli` starts: it sets the variables."""

import os
import socket
import ssl
import threading
import unittest

import rejoin

MANAGER = os.environ["REJOIN_TEST_MANAGER"]
PORT = int(os.environ["REJOIN_TEST_PORT"])
AUTHORITY = os.environ["REJOIN_TEST_AUTHORITY"]
# A server whose certificate is valid for another name.
OTHER_PORT = int(os.environ["REJOIN_TEST_OTHER_PORT"])
WISHES = {"manager": MANAGER}
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def ask(**wishes):
    with rejoin.connect("localhost", PORT, **{**WISHES, **wishes}) as connection:
        connection.sendall(REQUEST)
        return connection.makefile("rb").read(), connection.session


class Connect(unittest.TestCase):
    def test_the_second_connection_resumes(self):
        label = {"label": "python-connect"}
        sessions = []
        for _ in range(3):
            answer, session = ask(**label)
            self.assertTrue(answer.startswith(b"HTTP/1.1 200"), answer[:100])
            sessions.append(session)
        self.assertEqual([session.resumed for session in sessions], [False, True, True])
        self.assertEqual([session.why for session in sessions], ["no_session", "resumed", "resumed"])
        self.assertEqual(sessions[0].chain, sessions[1].chain)

    def test_a_request_may_go_with_the_question(self):
        with rejoin.connect("localhost", PORT, first=REQUEST, **WISHES) as connection:
            self.assertTrue(connection.makefile("rb").read().startswith(b"HTTP/1.1 200"))
        for wrong in [{"first": REQUEST, "early_data": REQUEST}, {"first": bytes(16 * 1024 + 1)}]:
            with self.assertRaises(ValueError):
                rejoin.connect("localhost", PORT, **wrong, **WISHES)

    def test_trust_is_as_the_program_says(self):
        with open(AUTHORITY) as file:
            bundle = file.read()
        ask(trust={"bundle": bundle})
        _, session = ask(trust="none")
        self.assertEqual(session.why, "not_verified")
        fingerprint, der = session.chain[0]
        ask(trust={"pins": [fingerprint]})
        with self.assertRaises(rejoin.Error) as refused:
            ask(trust={"pins": ["0" * 64]})
        self.assertEqual(refused.exception.kind, "certificate_pin_mismatch")
        _, session = ask(known=[fingerprint])
        self.assertEqual(session.chain[0], (fingerprint, None))
        self.assertEqual(ssl.DER_cert_to_PEM_cert(der)[:11], "-----BEGIN ")

    def test_a_socket_can_be_brought(self):
        tcp = socket.create_connection(("127.0.0.1", PORT))
        own = "%s:%d" % tcp.getpeername()
        answer, session = ask(sock=tcp)
        self.assertTrue(answer.startswith(b"HTTP/1.1 200"))
        self.assertEqual(session.peer, own)

    def test_a_wrong_name_is_told(self):
        with self.assertRaises(rejoin.Error) as refused:
            rejoin.connect("localhost", OTHER_PORT, **WISHES)
        self.assertEqual(refused.exception.kind, "certificate_wrong_name")
        self.assertFalse(refused.exception.is_the_managers)

    def test_without_a_manager_the_error_says_so(self):
        with self.assertRaises(rejoin.NotRunning) as refused:
            rejoin.connect("localhost", PORT, manager="/nowhere/manager.sock")
        self.assertIn("`rejoin manager` is not running", str(refused.exception))
        self.assertTrue(refused.exception.is_the_managers)

    def test_a_wrong_request_is_told(self):
        with self.assertRaises(rejoin.Error) as refused:
            ask(label="x" * 65)
        self.assertEqual(refused.exception.kind, "bad_request")
        with self.assertRaises(rejoin.Error) as refused:
            ask(trust={"bundle": "x" * 300_000})
        self.assertEqual(refused.exception.kind, "too_large")

    def test_a_connection_that_breaks_off_is_told_from_one_that_ends(self):
        for cut, told in ((True, True), (False, False)):
            port, done = one_answer(cut)
            connection = rejoin.connect("localhost", port, **WISHES)
            done.set()
            with connection:
                self.assertEqual(connection.recv(100), b"half of it")
                if told:
                    self.assertRaises(rejoin.Truncated, connection.recv, 100)
                else:
                    self.assertEqual(connection.recv(100), b"")
                    self.assertEqual(connection.recv(100), b"")

    def test_what_the_manager_counted_can_be_read(self):
        ask()
        handshakes = rejoin.stats(MANAGER)["handshakes"]
        self.assertGreaterEqual(handshakes["full"] + handshakes["resumed"], 1)


def one_answer(cut):
    """A server of Python's own ssl that says a few words, and then ends well or not."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(os.environ["REJOIN_TEST_CERTIFICATE"], os.environ["REJOIN_TEST_KEY"])
    listener = socket.create_server(("127.0.0.1", 0))
    done = threading.Event()

    def serve():
        with listener:
            tcp, _ = listener.accept()
        tls = context.wrap_socket(tcp, server_side=True)
        done.wait(10)
        tls.sendall(b"half of it")
        if cut:
            os.close(tls.detach())
        else:
            tls.unwrap().close()

    threading.Thread(target=serve, daemon=True).start()
    return listener.getsockname()[1], done


class WithRequests(unittest.TestCase):
    def setUp(self):
        try:
            import requests

            import rejoin.requests
        except ImportError as error:
            self.skipTest(f"requests is not installed: {error}")
        self.requests = requests

    def session(self, **more):
        session = self.requests.Session()
        wishes = {"manager": MANAGER, "label": self.id()[-60:]}
        session.mount("https://", rejoin.requests.Adapter(wishes=wishes, **more))
        return session

    def test_sessions_of_their_own_resume_each_others(self):
        before = rejoin.stats(MANAGER)["handshakes"]
        for _ in range(3):
            with self.session() as session:
                answer = session.get(f"https://localhost:{PORT}/")
                self.assertEqual(answer.status_code, 200)
        after = rejoin.stats(MANAGER)["handshakes"]
        counts = [after[kind] - before[kind] for kind in ("full", "resumed")]
        self.assertEqual(counts, [1, 2])

    def test_one_connection_serves_many_requests(self):
        before = rejoin.stats(MANAGER)["handshakes"]
        with self.session() as session:
            for _ in range(5):
                self.assertEqual(session.get(f"https://localhost:{PORT}/").status_code, 200)
        after = rejoin.stats(MANAGER)["handshakes"]
        self.assertEqual(sum(after[k] - before[k] for k in ("full", "resumed")), 1)

    def test_verify_is_what_is_trusted(self):
        url = f"https://localhost:{OTHER_PORT}/"
        with self.session() as session:
            self.assertRaises(self.requests.exceptions.SSLError, session.get, url)
            self.assertEqual(session.get(url, verify=False).status_code, 200)
            answer = session.get(f"https://localhost:{PORT}/", verify=AUTHORITY)
            self.assertEqual(answer.status_code, 200)

    def test_without_a_manager_it_connects_directly(self):
        url = f"https://localhost:{PORT}/"
        for direct in (True, False):
            adapter = rejoin.requests.Adapter(direct=direct, wishes={"manager": "/nowhere"})
            with self.requests.Session() as session:
                session.mount("https://", adapter)
                if direct:
                    self.assertEqual(session.get(url, verify=AUTHORITY).status_code, 200)
                else:
                    error = self.requests.exceptions.ConnectionError
                    self.assertRaises(error, session.get, url, verify=AUTHORITY)


class WithHttpx(unittest.TestCase):
    def setUp(self):
        try:
            import httpx

            import rejoin.httpx
        except ImportError as error:
            self.skipTest(f"httpx is not installed: {error}")
        self.httpx = httpx

    def client(self, **more):
        wishes = {"manager": MANAGER, "label": self.id()[-60:]}
        return self.httpx.Client(transport=rejoin.httpx.Transport(wishes=wishes, **more))

    def test_clients_resume_each_others_sessions(self):
        before = rejoin.stats(MANAGER)["handshakes"]
        for _ in range(3):
            with self.client() as client:
                answer = client.get(f"https://localhost:{PORT}/")
                self.assertEqual((answer.status_code, answer.http_version), (200, "HTTP/1.1"))
        after = rejoin.stats(MANAGER)["handshakes"]
        counts = [after[kind] - before[kind] for kind in ("full", "resumed")]
        self.assertEqual(counts, [1, 2])

    def test_http2_is_negotiated_where_the_server_has_it(self):
        port = os.environ.get("REJOIN_TEST_HTTP2_PORT")
        if not port:
            self.skipTest("nginx is not installed")
        with self.client(http2=True) as client:
            answer = client.get(f"https://localhost:{port}/")
            self.assertEqual((answer.status_code, answer.http_version), (200, "HTTP/2"))

    def test_a_wrong_name_is_told(self):
        with self.client() as client, self.assertRaises(self.httpx.ConnectError) as refused:
            client.get(f"https://localhost:{OTHER_PORT}/")
        self.assertIn("name", str(refused.exception))

    def test_without_a_manager_it_connects_directly(self):
        url = f"https://localhost:{PORT}/"
        for direct in (True, False):
            transport = rejoin.httpx.Transport(
                direct=direct,
                wishes={"manager": "/nowhere"},
                verify=ssl.create_default_context(cafile=AUTHORITY),
            )
            with self.httpx.Client(transport=transport) as client:
                if direct:
                    self.assertEqual(client.get(url).status_code, 200)
                else:
                    self.assertRaises(self.httpx.ConnectError, client.get, url)


if __name__ == "__main__":
    unittest.main()
