"""Against a real manager and real servers, which the test of `rejoin-cli` starts: it sets the variables."""

import functools
import hashlib
import json
import os
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
import time
import unittest
import unittest.mock
import warnings

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

    def test_a_connection_can_be_had_twice(self):
        port, done = one_answer(True)
        done.set()
        with rejoin.connect("localhost", port, **WISHES) as connection:
            connection.settimeout(20)
            again = connection.dup()
        with again:
            self.assertEqual((again.gettimeout(), again.session.version), (20, "TLSv1.3"))
            self.assertEqual(again.recv(100), b"half of it")
            self.assertRaises(rejoin.Truncated, again.recv, 100)

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


def patient(adapter):
    """Has an adapter wait for less than ten seconds."""
    return unittest.mock.patch.object(adapter, "_TIMEOUT_S", 0.2)


def greeting(change=lambda context: None, after_s=0):
    """A server of Python's own ssl, with a context that ``change`` changes, which answers each request alike. Its
    handshakes begin so late."""
    begun = time.monotonic()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(os.environ["REJOIN_TEST_CERTIFICATE"], os.environ["REJOIN_TEST_KEY"])
    change(context)
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(tcp):
        time.sleep(max(begun + after_s - time.monotonic(), 0))
        try:
            tls = context.wrap_socket(tcp, server_side=True)
            tls.recv(4096)
            tls.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
            tls.unwrap().close()
        except OSError:
            # The client has refused it.
            pass
        finally:
            tcp.close()

    def serve():
        while True:
            threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    return listener.getsockname()[1]


def proxy(scheme):
    """A proxy that makes tunnels."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(os.environ["REJOIN_TEST_CERTIFICATE"], os.environ["REJOIN_TEST_KEY"])
    listener = socket.create_server(("127.0.0.1", 0))

    def pump(source, sink):
        try:
            while piece := source.recv(65536):
                sink.sendall(piece)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            # One side has gone.
            pass

    def tunnel(tcp):
        with context.wrap_socket(tcp, server_side=True) if scheme == "https" else tcp as near:
            asked = b""
            while not asked.endswith(b"\r\n\r\n"):
                asked += near.recv(4096)
            host, port = asked.split()[1].decode().rsplit(":", 1)
            with socket.create_connection((host, int(port))) as far:
                near.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                back = threading.Thread(target=pump, args=(far, near), daemon=True)
                back.start()
                pump(near, far)
                back.join(5)

    def serve():
        while True:
            threading.Thread(target=tunnel, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    return listener.getsockname()[1]


def refusing_manager(test, kind):
    """The socket of a manager that refuses each request so, or answers nothing if the kind is ``silent``."""
    folder = tempfile.TemporaryDirectory()
    test.addCleanup(folder.cleanup)
    path = os.path.join(folder.name, "m.sock")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen()
    test.addCleanup(listener.close)
    problem = {"kind": kind, "detail": f"it is {kind}", "remedy": "connect directly"}
    answer = json.dumps({"rejoin": 1, "error": problem}).encode()

    def serve():
        kept = []
        while True:
            try:
                program, _ = listener.accept()
            except OSError:
                return
            # What is passed, too, is closed here.
            program.recv(1 << 20)
            if kind == "silent":
                kept.append(program)
                continue
            program.sendall(struct.pack(">I", len(answer)) + answer)
            program.close()

    threading.Thread(target=serve, daemon=True).start()
    return path


def fingerprint(algorithm, pem=None):
    """That of a certificate; by default, of the servers'."""
    if pem is None:
        with open(os.environ["REJOIN_TEST_CERTIFICATE"], encoding="ascii") as file:
            pem = file.read()
    return hashlib.new(algorithm, ssl.PEM_cert_to_DER_cert(pem)).hexdigest()


def long_bundle():
    """A file with the servers' authority that no request has room for."""
    file = tempfile.NamedTemporaryFile("w")
    with open(AUTHORITY, encoding="ascii") as own:
        file.write(own.read() + "#" * 300_000)
    file.flush()
    return file


def authority(name):
    """The certificate of an authority that signs nothing, in PEM."""
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "/dev/null"]
    return subprocess.check_output([*command, "-subj", f"/CN={name}"], stderr=subprocess.DEVNULL, text=True)


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

    def test_without_a_timeout_a_server_may_be_slow(self):
        with patient(rejoin.requests), self.session() as session:
            url = f"https://localhost:{greeting(after_s=0.5)}/"
            self.assertEqual(session.get(url, verify=AUTHORITY).text, "hi")
        with self.session() as session:
            url = f"https://localhost:{greeting(after_s=0.5)}/"
            timeout = self.requests.exceptions.ConnectTimeout
            self.assertRaises(timeout, session.get, url, verify=AUTHORITY, timeout=0.1)
        with patient(rejoin.requests), self.session(direct=False) as session:
            url = f"https://localhost:{greeting(after_s=0.5)}/"
            self.assertEqual(session.get(url, verify=AUTHORITY).text, "hi")

    def test_bundles_that_are_too_long_for_the_manager_are_the_programs_own(self):
        with long_bundle() as file, self.session() as session:
            answer = session.get(f"https://localhost:{PORT}/", verify=file.name)
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

    def test_what_only_the_wishes_know_is_not_lost(self):
        url = f"https://localhost:{PORT}/"
        error = self.requests.exceptions.ConnectionError
        for manager in ("/nowhere", refusing_manager(self, "busy"), MANAGER):
            for wish in ({"trust": {"pins": ["0" * 64]}}, {"trust": {"bundle": authority("x")}}):
                # urllib3's own setting is not for the manager.
                for source in (None, ("127.0.0.1", 0)):
                    adapter = rejoin.requests.Adapter(wishes={"manager": manager, **wish})
                    adapter.poolmanager.connection_pool_kw["source_address"] = source
                    with self.subTest(manager=manager, wish=wish, source=source):
                        with self.requests.Session() as session:
                            session.mount("https://", adapter)
                            self.assertRaises(error, session.get, url, verify=AUTHORITY)
        pair = tuple(open(os.environ[name]).read() for name in ("REJOIN_TEST_CERTIFICATE", "REJOIN_TEST_KEY"))
        for wishes, verify in (({"identity": pair}, AUTHORITY), ({"trust": "system"}, False)):
            adapter = rejoin.requests.Adapter(wishes={"manager": "/nowhere", **wishes})
            with self.subTest(wishes=wishes), self.requests.Session() as session:
                session.mount("https://", adapter)
                self.assertRaises(error, session.get, url, verify=verify)


    def test_trust_that_the_manager_cannot_have_is_the_programs_own(self):
        """The server's authority is the manager's, and not the program's, or the other way round."""
        import urllib3

        other = authority("other")
        with open(AUTHORITY, encoding="ascii") as file:
            own = file.read()
        with tempfile.TemporaryDirectory() as folder:
            with self.session() as session:
                url = f"https://localhost:{PORT}/"
                self.assertRaises(self.requests.exceptions.SSLError, session.get, url, verify=folder)
            other_file = os.path.join(folder, "other.pem")
            with open(other_file, "w", encoding="ascii") as file:
                file.write(other)
            tls13 = ssl.TLSVersion.TLSv1_3
            for host, settings, is_accepted in (
                ("localhost", {"ca_cert_data": other}, False),
                ("localhost", {"ca_cert_data": own}, True),
                ("localhost", {"ca_cert_dir": folder}, False),
                ("localhost", {"ssl_context": ssl.create_default_context(cafile=other_file)}, False),
                ("localhost", {"ssl_context": ssl.create_default_context(cafile=AUTHORITY)}, True),
                ("localhost", {"ca_certs": AUTHORITY, "assert_hostname": "other.test"}, False),
                ("127.0.0.1", {"ca_certs": AUTHORITY, "assert_hostname": "localhost"}, True),
                ("localhost", {"ca_certs": AUTHORITY, "server_hostname": "other.test"}, False),
                ("localhost", {"ca_certs": AUTHORITY, "ssl_minimum_version": tls13}, True),
                ("localhost", {"ca_certs": AUTHORITY, "assert_fingerprint": fingerprint("sha1")}, True),
                ("localhost", {"ca_certs": AUTHORITY, "assert_fingerprint": fingerprint("sha256")}, True),
                ("localhost", {"ca_certs": AUTHORITY, "assert_fingerprint": "00" * 32}, False),
                # It is the authority's, and not the server's.
                (
                    "localhost",
                    {"ca_certs": AUTHORITY, "assert_fingerprint": fingerprint("sha256", own)},
                    False,
                ),
            ):
                with self.subTest(settings=settings):
                    for direct in (True, False):
                        pools = urllib3.PoolManager(retries=False, **settings)
                        rejoin.requests.use(pools, direct=direct, wishes=WISHES)
                        ask = functools.partial(pools.request, "GET", f"https://{host}:{PORT}/")
                        if not direct:
                            with self.assertRaises(urllib3.exceptions.NewConnectionError) as refused:
                                ask()
                            self.assertIn(list(settings)[-1], str(refused.exception))
                        elif is_accepted:
                            self.assertEqual(ask().status, 200)
                        else:
                            self.assertRaises(urllib3.exceptions.SSLError, ask)

    def test_authorities_of_the_environment_are_urllib3s_own(self):
        import urllib3

        with tempfile.TemporaryDirectory() as folder:
            own, key = os.path.join(folder, "own.pem"), os.path.join(folder, "own.key")
            # A key of the same kind as the test's own, in whose place it is used.
            command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
            command += ["-keyout", key, "-out", own, "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
            strange = greeting(lambda context: context.load_cert_chain(own, key))
            for setting, named, port, is_trusted in (
                ("SSL_CERT_FILE", own, strange, True),
                ("SSL_CERT_FILE", own, PORT, False),
                ("SSL_CERT_DIR", folder, PORT, False),
                ("SSL_CERT_FILE", "", PORT, True),
            ):
                usual = {name: value for name, value in os.environ.items() if not name.startswith("SSL_CERT_")}
                changed = unittest.mock.patch.dict(os.environ, {**usual, setting: named}, clear=True)
                for direct in (True, False):
                    with self.subTest(setting=setting, named=named, port=port, direct=direct), changed:
                        pools = urllib3.PoolManager(retries=False)
                        rejoin.requests.use(pools, direct=direct, wishes=WISHES)
                        ask = functools.partial(pools.request, "GET", f"https://localhost:{port}/")
                        if named and not direct:
                            with self.assertRaises(urllib3.exceptions.NewConnectionError) as refused:
                                ask()
                            self.assertIn(setting, str(refused.exception))
                        elif is_trusted:
                            self.assertEqual(ask().status, 200)
                        else:
                            self.assertRaises(urllib3.exceptions.SSLError, ask)

    def test_tls_1_2_is_refused_where_the_program_refuses_it(self):
        import urllib3

        port = greeting(lambda context: setattr(context, "maximum_version", ssl.TLSVersion.TLSv1_2))
        pools = urllib3.PoolManager(
            retries=False, ca_certs=AUTHORITY, ssl_minimum_version=ssl.TLSVersion.TLSv1_3
        )
        rejoin.requests.use(pools, wishes=WISHES)
        with self.assertRaises(urllib3.exceptions.SSLError):
            pools.request("GET", f"https://localhost:{port}/")


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
                wishes={"manager": "/nowhere", "trust": "system"},
                verify=ssl.create_default_context(cafile=AUTHORITY),
            )
            with self.httpx.Client(transport=transport) as client:
                if direct:
                    self.assertEqual(client.get(url).status_code, 200)
                else:
                    self.assertRaises(self.httpx.ConnectError, client.get, url)

    def test_what_only_the_wishes_know_is_not_lost(self):
        pair = tuple(open(os.environ[name]).read() for name in ("REJOIN_TEST_CERTIFICATE", "REJOIN_TEST_KEY"))
        verify = ssl.create_default_context(cafile=AUTHORITY)
        for wish, how in (
            ({"trust": {"pins": ["0" * 64]}}, verify),
            ({"trust": {"bundle": authority("x")}}, verify),
            ({"trust": "system", "identity": pair}, verify),
            ({"trust": "system"}, False),
        ):
            for manager in ("/nowhere", refusing_manager(self, "busy")):
                transport = rejoin.httpx.Transport(wishes={"manager": manager, **wish}, verify=how)
                with self.subTest(wish=wish, manager=manager):
                    with self.httpx.Client(transport=transport) as client:
                        self.assertRaises(self.httpx.ConnectError, client.get, f"https://localhost:{PORT}/")
        with self.assertRaises(ValueError):
            rejoin.httpx.Transport(wishes={"identity": pair}, verify=verify)

    def test_trust_that_the_manager_cannot_have_is_the_programs_own(self):
        other = authority("other")
        with tempfile.TemporaryDirectory() as folder:
            other_file = os.path.join(folder, "other.pem")
            with open(other_file, "w", encoding="ascii") as file:
                file.write(other)
            url = f"https://localhost:{PORT}/"
            for verify, is_for_the_manager, is_accepted in (
                (AUTHORITY, True, True),
                (other_file, True, False),
                (folder, False, False),
                (ssl.create_default_context(cafile=other_file), False, False),
                (ssl.create_default_context(cafile=AUTHORITY), False, True),
            ):
                with self.subTest(verify=verify), warnings.catch_warnings():
                    # httpx warns of paths.
                    warnings.simplefilter("ignore")
                    if not is_for_the_manager:
                        self.assertRaises(ValueError, self.client, verify=verify, direct=False)
                    for direct in (True,) if not is_for_the_manager else (True, False):
                        with self.client(verify=verify, direct=direct) as client:
                            if is_accepted:
                                self.assertEqual(client.get(url).status_code, 200)
                            else:
                                self.assertRaises(self.httpx.ConnectError, client.get, url)

    def test_a_certificate_of_the_programs_is_presented(self):
        def asks(context):
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(AUTHORITY)

        pair = (os.environ["REJOIN_TEST_CERTIFICATE"], os.environ["REJOIN_TEST_KEY"])
        url = f"https://localhost:{greeting(asks)}/"
        context = ssl.create_default_context(cafile=AUTHORITY)
        context.load_cert_chain(*pair)
        with self.client(verify=context) as client:
            self.assertEqual(client.get(url).text, "hi")
        with warnings.catch_warnings():
            # httpx warns of `cert`.
            warnings.simplefilter("ignore")
            more = {"wishes": {**WISHES, "trust": "system"}, "cert": pair}
            verify = ssl.create_default_context(cafile=AUTHORITY)
            transport = rejoin.httpx.Transport(verify=verify, **more)
        with self.httpx.Client(transport=transport) as client:
            self.assertEqual(client.get(url).text, "hi")

    def test_a_manager_that_cannot_serve_is_left(self):
        context = ssl.create_default_context(cafile=AUTHORITY)
        for kind in ("busy", "not_permitted", "shutting_down", "silent"):
            manager = refusing_manager(self, kind)
            for direct in (True, False):
                # The trust is named, so that the manager is asked.
                wishes = {"manager": manager, "trust": "system"}
                transport = rejoin.httpx.Transport(direct=direct, wishes=wishes, verify=context)
                timeout = self.httpx.Timeout(5, connect=0.2)
                with self.subTest(kind=kind, direct=direct):
                    with self.httpx.Client(transport=transport, timeout=timeout) as client:
                        if direct:
                            answer = client.get(f"https://localhost:{PORT}/")
                            self.assertEqual(answer.status_code, 200)
                        else:
                            with self.assertRaises(self.httpx.ConnectError) as refused:
                                client.get(f"https://localhost:{PORT}/")
                            self.assertIn("manager" if kind == "silent" else kind, str(refused.exception))

    def test_without_a_timeout_a_server_may_be_slow(self):
        context = ssl.create_default_context(cafile=AUTHORITY)
        for direct, timeout in ((True, None), (False, None), (True, 0.1)):
            wishes = {"manager": MANAGER, "trust": "system"}
            transport = rejoin.httpx.Transport(direct=direct, wishes=wishes, verify=context)
            url = f"https://localhost:{greeting(after_s=0.5)}/"
            with patient(rejoin.httpx), self.subTest(direct=direct, timeout=timeout):
                with self.httpx.Client(transport=transport, timeout=timeout) as client:
                    if timeout is None:
                        self.assertEqual(client.get(url).text, "hi")
                    else:
                        self.assertRaises(self.httpx.ConnectTimeout, client.get, url)

    def test_bundles_that_are_too_long_for_the_manager_are_the_programs_own(self):
        with long_bundle() as file:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                client = self.client(verify=file.name)
            with client:
                self.assertEqual(client.get(f"https://localhost:{PORT}/").status_code, 200)

    def test_authorities_of_the_environment_are_the_only_ones(self):
        url = f"https://localhost:{PORT}/"
        other = os.environ["REJOIN_TEST_CERTIFICATE"]
        for setting, named, is_trusted in (
            ("SSL_CERT_FILE", AUTHORITY, True),
            ("SSL_CERT_FILE", other, False),
            ("SSL_CERT_DIR", os.path.dirname(os.__file__), False),
        ):
            usual = {name: value for name, value in os.environ.items() if not name.startswith("SSL_CERT_")}
            changed = unittest.mock.patch.dict(os.environ, {**usual, setting: named}, clear=True)
            with self.subTest(setting=setting, named=named), changed, self.client() as client:
                if is_trusted:
                    self.assertEqual(client.get(url).status_code, 200)
                else:
                    self.assertRaises(self.httpx.ConnectError, client.get, url)

    def test_proxies_are_httpxs_own(self):
        context = ssl.create_default_context(cafile=AUTHORITY)
        for scheme in ("http", "https"):
            more = {"ssl_context": context} if scheme == "https" else {}
            try:
                address = self.httpx.Proxy(f"{scheme}://localhost:{proxy(scheme)}", **more)
            except TypeError:
                # httpx before 0.26 has no trust for proxies.
                continue
            wishes = {"manager": MANAGER, "trust": "system"}
            for direct in (True, False):
                with self.subTest(scheme=scheme, direct=direct):
                    make = functools.partial(
                        rejoin.httpx.Transport, direct=direct, wishes=wishes, verify=context, proxy=address
                    )
                    if not direct:
                        self.assertRaises(ValueError, make)
                        continue
                    with self.httpx.Client(transport=make()) as client:
                        self.assertEqual(client.get(f"https://localhost:{PORT}/").status_code, 200)


if __name__ == "__main__":
    unittest.main()
