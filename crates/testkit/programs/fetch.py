"""Fetches a URL with one of Python's clients, and writes what it gets. `fetch.py WHAT URL AUTHORITY`"""

import asyncio
import ssl
import sys
import urllib.parse

URL, AUTHORITY = sys.argv[2], sys.argv[3]
OUT = sys.stdout.buffer


def context():
    return ssl.create_default_context(cafile=AUTHORITY)


def urllib_():
    import urllib.request

    OUT.write(urllib.request.urlopen(URL, context=context()).read())


def requests_():
    import requests

    with requests.get(URL, verify=AUTHORITY, stream=True) as answer:
        answer.raise_for_status()
        for piece in answer.iter_content(10_000):
            OUT.write(piece)


def httpx_():
    import httpx

    with httpx.Client(verify=context()) as client:
        OUT.write(client.get(URL).raise_for_status().content)


def aiohttp_():
    import aiohttp

    async def get():
        async with aiohttp.ClientSession() as client, client.get(URL, ssl=context()) as answer:
            OUT.write(await answer.read())

    asyncio.run(get())


def asyncio_():
    async def get():
        to = urllib.parse.urlsplit(URL)
        reader, writer = await asyncio.open_connection(to.hostname, to.port, ssl=context())
        writer.write(f"GET {to.path} HTTP/1.0\r\n\r\n".encode())
        while piece := await reader.read(65536):
            OUT.write(piece)
        writer.close()
        await writer.wait_closed()

    asyncio.run(get())


def websockets_():
    import websockets

    async def get():
        async with websockets.connect(URL, ssl=context(), max_size=None) as client:
            async for message in client:
                OUT.write(message)

    asyncio.run(get())


try:
    globals()[sys.argv[1] + "_"]()
except Exception as error:  # What a program says, and its exit code, are what is compared.
    print(type(error).__name__, error, file=sys.stderr)
    sys.exit(1)
