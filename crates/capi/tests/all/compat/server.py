# Two processes on one port, each with a context of its own.
import os, signal, socket, ssl

parent = os.getpid()
child = os.fork()
if child:
    def end(*_):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os._exit(0)
    signal.signal(signal.SIGTERM, end)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('FOLDER/cert.pem', 'FOLDER/key.pem')
context.options |= @TICKETS@
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
listener.bind(('127.0.0.1', @PORT@))
listener.listen(64)
listener.settimeout(1)
while os.getpid() == parent or os.getppid() == parent:
    try:
        connection = listener.accept()[0]
        connection.settimeout(5)
        with context.wrap_socket(connection, server_side=True) as tls:
            tls.recv(4096)
            tls.sendall(b'HTTP/1.0 200 OK\r\n\r\n%d\n' % os.getpid())
    except OSError:
        pass
