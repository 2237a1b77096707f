"""HTTP over streams of the SSH connection: no listening port here, no proxy, nothing from the environment."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import httpcore
import httpx

OpenTcp = Callable[[str, int], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
LONGEST_BODY = 4 << 20


class ChannelStream(httpcore.AsyncNetworkStream):
    """A stream of the connection as httpcore wants it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Bytes, b"" at the end."""
        try:
            async with asyncio.timeout(timeout):
                return await self._reader.read(max_bytes)
        except TimeoutError as error:
            raise httpcore.ReadTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.ReadError(str(error)) from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """All of the buffer."""
        try:
            self._writer.write(buffer)
            async with asyncio.timeout(timeout):
                await self._writer.drain()
        except TimeoutError as error:
            raise httpcore.WriteTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.WriteError(str(error)) from error

    async def aclose(self) -> None:
        """Closes the stream, never the connection."""
        self._writer.close()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        """Engines speak plain HTTP on their own machine."""
        raise httpcore.UnsupportedProtocol("TLS is not spoken to a service on its own host")

    def get_extra_info(self, info: str) -> Any:
        """Nothing is known of the other end."""
        return None


class ChannelBackend(httpcore.AsyncNetworkBackend):
    """Opens each TCP connection as a stream seen from the host."""

    def __init__(self, open_tcp: OpenTcp) -> None:
        self._open = open_tcp

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """A stream to host:port; TransportError passes through."""
        try:
            async with asyncio.timeout(timeout):
                return ChannelStream(*await self._open(host, port))
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error

    async def sleep(self, seconds: float) -> None:
        """Between retries, of which there are none."""
        await asyncio.sleep(seconds)


class ChannelTransport(httpx.AsyncBaseTransport):
    """httpx over a pool of such streams; a body above 4 MiB is an error."""

    def __init__(self, open_tcp: OpenTcp) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            max_connections=4, max_keepalive_connections=0, network_backend=ChannelBackend(open_tcp)
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The whole answer; httpcore's errors as httpx's."""
        core = httpcore.Request(
            method=request.method,
            url=httpcore.URL(
                scheme=request.url.raw_scheme,
                host=request.url.raw_host,
                port=request.url.port,
                target=request.url.raw_path,
            ),
            headers=request.headers.raw,
            content=await request.aread(),
            extensions=request.extensions,
        )
        try:
            answer = await self._pool.handle_async_request(core)
            body = bytearray()
            try:
                async for part in answer.aiter_stream():
                    body += part
                    if len(body) > LONGEST_BODY:
                        raise httpx.ReadError("the answer is longer than 4 MiB", request=request)
            finally:
                await answer.aclose()
        except httpcore.TimeoutException as error:
            raise httpx.ReadTimeout("no answer in time", request=request) from error
        except (httpcore.NetworkError, httpcore.ProtocolError) as error:
            raise httpx.ReadError(str(error) or "connection closed", request=request) from error
        return httpx.Response(answer.status, headers=answer.headers, content=bytes(body), request=request)

    async def aclose(self) -> None:
        """Ends idle streams."""
        await self._pool.aclose()


def client(open_tcp: OpenTcp) -> httpx.AsyncClient:
    """A client for services of one host: nothing from the environment, no redirects."""
    return httpx.AsyncClient(transport=ChannelTransport(open_tcp), trust_env=False, follow_redirects=False)
