"""Clients in Python, each of which prints what it sees. `programs.py WHAT HOST PORT AUTHORITY`"""

import asyncio
import hashlib
import os
import select
import socket
import ssl
import sys

HOST, PORT, AUTHORITY = sys.argv[2], int(sys.argv[3]), sys.argv[4]
URL = f"https://{HOST}:{PORT}/page"
REQUEST = f"GET /page HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode()


def body(answer):
    """An answer without the parts that change with the time."""
    return hashlib.sha256(answer.partition(b"\r\n\r\n")[2]).hexdigest()[:16]


def context():
    return ssl.create_default_context(cafile=AUTHORITY)


def connected(using=None, name=HOST):
    plain = socket.create_connection(("127.0.0.1", PORT))
    return (using or context()).wrap_socket(plain, server_hostname=name)


def read_all(stream):
    pieces = []
    while piece := stream.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


def tell(stream):
    """Everything about a connection that a program may ask for."""
    subject = dict(pair for names in stream.getpeercert()["subject"] for pair in names)
    digest = hashlib.sha256(stream.getpeercert(binary_form=True)).hexdigest()[:16]
    print(stream.version(), stream.cipher(), subject, digest, stream.selected_alpn_protocol())


def sockets():
    using = context()
    using.set_alpn_protocols(["http/1.1"])
    with connected(using) as stream:
        tell(stream)
        print(stream.getpeername(), stream.getsockname()[0], stream.family, stream.type)
        kind = [stream.getsockopt(socket.SOL_SOCKET, what) for what in (socket.SO_DOMAIN, socket.SO_PROTOCOL)]
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        print(kind, stream.gettimeout())
        stream.sendall(REQUEST)
        print(body(read_all(stream)))


def urllib_():
    import urllib.request

    with urllib.request.urlopen(URL, context=context()) as answer:
        print(answer.status, hashlib.sha256(answer.read()).hexdigest()[:16])


def requests_():
    import requests

    with requests.Session() as session:
        for _ in range(2):
            answer = session.get(URL, verify=AUTHORITY)
            print(answer.status_code, hashlib.sha256(answer.content).hexdigest()[:16])


def httpx_():
    import httpx

    with httpx.Client(verify=context(), http2=True) as client:
        answer = client.get(URL)
        print(answer.status_code, answer.http_version, hashlib.sha256(answer.content).hexdigest()[:16])


def httpx_asyncio():
    import httpx

    async def get():
        async with httpx.AsyncClient(verify=context()) as client:
            answers = await asyncio.gather(*[client.get(URL) for _ in range(4)])
            print([(answer.status_code, len(answer.content) > 0) for answer in answers])

    asyncio.run(get())


def aiohttp_():
    import aiohttp

    async def get(client):
        async with client.get(URL, ssl=context()) as answer:
            return answer.status, hashlib.sha256(await answer.read()).hexdigest()[:16]

    async def all_():
        async with aiohttp.ClientSession() as client:
            print(await get(client))
            print({status for status, _ in await asyncio.gather(*[get(client) for _ in range(8)])})

    asyncio.run(all_())


def asyncio_():
    async def get():
        reader, writer = await asyncio.open_connection(HOST, PORT, ssl=context())
        seen = writer.get_extra_info("ssl_object")
        print(seen.version(), seen.cipher(), writer.get_extra_info("peername"))
        writer.write(REQUEST)
        await writer.drain()
        answer = await reader.read()
        writer.close()
        return body(answer)

    async def all_():
        return [await get() for _ in range(2)]

    print(asyncio.run(all_()))


def asyncio_wrong_ca():
    async def get():
        await asyncio.open_connection(HOST, PORT, ssl=ssl.create_default_context())

    asyncio.run(get())


def nonblocking():
    plain = socket.create_connection(("127.0.0.1", PORT))
    plain.setblocking(False)
    stream = context().wrap_socket(plain, server_hostname=HOST, do_handshake_on_connect=False)
    waiter = select.epoll()
    # Registered before the handshake, as event loops do.
    waiter.register(stream, select.EPOLLIN | select.EPOLLOUT)

    def wait_for(step):
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                waiter.modify(stream, select.EPOLLIN)
            except ssl.SSLWantWriteError:
                waiter.modify(stream, select.EPOLLOUT)
            if not waiter.poll(10):
                sys.exit("nothing happens")

    wait_for(stream.do_handshake)
    tell(stream)
    wait_for(lambda: stream.send(REQUEST))
    pieces = []
    while piece := wait_for(lambda: stream.recv(65536)):
        pieces.append(piece)
    print(body(b"".join(pieces)))


def timeout():
    plain = socket.create_connection(("127.0.0.1", PORT), timeout=20)
    with context().wrap_socket(plain, server_hostname=HOST) as stream:
        stream.settimeout(0.3)
        try:
            stream.recv(1)
        except TimeoutError as error:
            print("nothing was sent, and nothing came:", error)


def fork():
    stream = connected()
    child = os.fork()
    if child == 0:
        stream.sendall(REQUEST)
        print(body(read_all(stream)), flush=True)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print(status)


def threads():
    from concurrent.futures import ThreadPoolExecutor

    def get(_):
        with connected() as stream:
            stream.sendall(REQUEST)
            return read_all(stream).startswith(b"HTTP/1.")

    with ThreadPoolExecutor(8) as pool:
        print(all(pool.map(get, range(24))))


def memory():
    """Its own memory BIOs, and its own `send`."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    stream = context().wrap_bio(incoming, outgoing, server_hostname=HOST)
    plain = socket.create_connection(("127.0.0.1", PORT))

    def wait_for(step):
        while True:
            try:
                done = step()
                break
            except ssl.SSLWantReadError:
                plain.sendall(outgoing.read())
                read = plain.recv(65536)
                incoming.write(read) if read else incoming.write_eof()
        plain.sendall(outgoing.read())
        return done

    wait_for(stream.do_handshake)
    tell(stream)
    wait_for(lambda: stream.write(REQUEST))
    pieces = []
    while True:
        try:
            piece = wait_for(lambda: stream.read(65536))
        except ssl.SSLZeroReturnError:
            break
        if not piece:
            break
        pieces.append(piece)
    print(body(b"".join(pieces)))


def dlsym():
    """libssl's functions, by name in libssl alone (dlsym(3)), as Qt finds them, and as the loader binds the
    extensions of PHP (RTLD_DEEPBIND): nobody interposes these calls. Steps after the first are `SSL_do_handshake`."""
    from ctypes import CDLL, byref, c_char_p, c_void_p, create_string_buffer

    libssl = CDLL("libssl.so.3")
    for name in ("TLS_client_method", "SSL_CTX_new", "SSL_new", "SSL_dup", "BIO_new_ssl", "SSL_get1_peer_certificate"):
        getattr(libssl, name).restype = c_void_p
    libssl.SSL_get_version.restype = c_char_p
    using = c_void_p(libssl.SSL_CTX_new(c_void_p(libssl.TLS_client_method())))
    libssl.SSL_CTX_load_verify_locations(using, AUTHORITY.encode(), None)
    libssl.SSL_CTX_set_verify(using, 1, None)
    stream = c_void_p(libssl.SSL_new(using))
    if "SSL_dup" in sys.argv:
        stream = c_void_p(libssl.SSL_dup(stream))
    if "BIO_new_ssl" in sys.argv:
        BIO_C_GET_SSL = 110
        CDLL("libcrypto.so.3").BIO_ctrl(c_void_p(libssl.BIO_new_ssl(using, 1)), BIO_C_GET_SSL, 0, byref(stream))
    plain = socket.create_connection(("127.0.0.1", PORT))
    libssl.SSL_set_fd(stream, plain.fileno())
    libssl.SSL_set1_host(stream, HOST.encode())
    plain.setblocking(False)
    made = libssl.SSL_connect(stream)
    while made != 1 and libssl.SSL_get_error(stream, made) == ssl.SSL_ERROR_WANT_READ:
        select.select([plain], [], [])
        made = libssl.SSL_do_handshake(stream)
    plain.setblocking(True)
    print(made, libssl.SSL_get_version(stream))
    print(bool(libssl.SSL_get1_peer_certificate(stream)), libssl.SSL_get_verify_result(stream))
    libssl.SSL_write(stream, REQUEST, len(REQUEST))
    room, pieces = create_string_buffer(65536), []
    while (read := libssl.SSL_read(stream, room, len(room))) > 0:
        pieces.append(room.raw[:read])
    print(body(b"".join(pieces)))


def upgrade():
    """Says something before TLS, to who passes the rest on (see proxy.rs)."""
    plain = socket.create_connection(("127.0.0.1", int(sys.argv[5])))
    plain.sendall(f"CONNECT {HOST}:{PORT} HTTP/1.1\r\n\r\n".encode())
    print(plain.recv(1000).split(b"\r\n")[0])
    with context().wrap_socket(plain, server_hostname=HOST) as stream:
        tell(stream)
        stream.sendall(REQUEST)
        print(body(read_all(stream)))


def wrong_ca():
    connected(ssl.create_default_context())


def wrong_name():
    connected(name="other.test")


def no_hostname():
    using = context()
    using.check_hostname = False
    with connected(using, "other.test") as stream:
        tell(stream)


def unverified():
    using = context()
    using.check_hostname = False
    using.verify_mode = ssl.CERT_NONE
    with connected(using) as stream:
        print(stream.version(), stream.getpeercert())


def tls12_only():
    using = context()
    using.maximum_version = ssl.TLSVersion.TLSv1_2
    with connected(using) as stream:
        tell(stream)


def tls13_only():
    using = context()
    using.minimum_version = ssl.TLSVersion.TLSv1_3
    with connected(using) as stream:
        tell(stream)


def main():
    names = {name.rstrip("_"): what for name, what in globals().items()}
    try:
        names[sys.argv[1]]()
    except Exception as error:  # What a program says, and its exit code, are what is compared.
        print(type(error).__name__, error)
        sys.exit(1)


main()
