"""Many connections at once from one event loop: PORT, AUTHORITY, COUNT. Prints how many got the page, the reasons of the
others, and the CPU seconds of the connections."""

import asyncio
import collections
import ssl
import sys
import time

PORT, AUTHORITY, COUNT = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
REQUEST = b"GET /page HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
CONTEXT = ssl.create_default_context(cafile=AUTHORITY)


async def get():
    try:
        opened = asyncio.open_connection("localhost", PORT, ssl=CONTEXT, ssl_handshake_timeout=300)
        reader, writer = await opened
        writer.write(REQUEST)
        answer = await reader.read()
        writer.close()
        return "" if answer.endswith(b"\r\n\r\na page\n") else f"{len(answer)} bytes"
    except OSError as error:
        return f"{type(error).__name__}: {error}"


async def all_():
    return await asyncio.gather(*[get() for _ in range(COUNT)])


before = time.process_time()
since = time.monotonic()
outcomes = collections.Counter(asyncio.run(all_()))
used = time.process_time() - before
print(f"{outcomes.pop('', 0)} {used:.3f} {time.monotonic() - since:.3f} {dict(outcomes)}")
