"""The /v0 API as a test calls it: one method an endpoint, answers returned untouched.

Requests rotate over several connections, so that a server of two workers has to agree with
itself in every test, not only in the tests about workers.
"""

from __future__ import annotations

import itertools
from typing import Any

import httpx

from tests.harness.server import Server

JSON = {"Content-Type": "application/json"}


class Api:
    """A client of one server; `token` is sent as a bearer token when given."""

    def __init__(self, server: Server, token: str = "", connections: int = 4) -> None:
        self.server = server
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._clients = [
            httpx.Client(headers=headers, timeout=10, trust_env=False, verify=False)
            for _ in range(connections)
        ]
        self._next = itertools.cycle(self._clients)

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        return next(self._next).request(method, self.server.url + path, **options)

    def put(self, topic: str, config: dict[str, Any] | None = None) -> httpx.Response:
        return self.request("PUT", f"/v0/topics/{topic}", json=config or {})

    def state(self, topic: str, touch: bool = False) -> httpx.Response:
        query = {} if touch else {"touch": "false"}
        return self.request("GET", f"/v0/topics/{topic}", params=query)

    def list(self, **query: Any) -> httpx.Response:
        return self.request("GET", "/v0/topics", params=query)

    def delete(self, topic: str, **query: Any) -> httpx.Response:
        return self.request("DELETE", f"/v0/topics/{topic}", params=query)

    def append(self, topic: str, *payloads: Any, **fields: Any) -> httpx.Response:
        """Write one record for each payload; `fields` go beside `records`."""
        return self.write(topic, [{"data": data} for data in payloads], **fields)

    def write(self, topic: str, records: Any, **fields: Any) -> httpx.Response:
        return self.request("POST", f"/v0/topics/{topic}", json={"records": records, **fields})

    def write_bytes(self, topic: str, body: bytes, **headers: str) -> httpx.Response:
        """Write a body exactly as given."""
        path = f"/v0/topics/{topic}"
        return self.request("POST", path, content=body, headers={**JSON, **headers})

    def diff(self, topic: str, from_seq: Any = 0, **fields: Any) -> httpx.Response:
        body = {"from_seq": from_seq, **fields}
        return self.request("POST", f"/v0/topics/{topic}/diff", json=body)

    def watch(
        self, topics: Any = None, query: dict[str, str] | None = None, **fields: Any
    ) -> httpx.Response:
        """Make a watch session; without `topics` the body has none."""
        body = fields if topics is None else {"topics": topics, **fields}
        return self.request("POST", "/v0/watch", json=body, params=query)

    def queue(self, topic: str, *payloads: Any, **config: Any) -> None:
        """Make a queue that holds these jobs."""
        assert self.put(topic, {"type": "queue", **config}).status_code == 201
        if payloads:
            assert self.append(topic, *payloads).status_code == 200

    def claim(self, topic: str, node: Any = "w1", **fields: Any) -> httpx.Response:
        return self.post_jobs(topic, "claim", node=node, **fields)

    def ack(self, topic: str, seqs: Any, node: Any = "w1", **fields: Any) -> httpx.Response:
        return self.post_jobs(topic, "ack", node=node, seqs=seqs, **fields)

    def nack(self, topic: str, seqs: Any, node: Any = "w1", **fields: Any) -> httpx.Response:
        return self.post_jobs(topic, "nack", node=node, seqs=seqs, **fields)

    def extend(self, topic: str, seqs: Any, node: Any = "w1", **fields: Any) -> httpx.Response:
        return self.post_jobs(topic, "extend", node=node, seqs=seqs, **fields)

    def post_jobs(self, topic: str, verb: str, **body: Any) -> httpx.Response:
        return self.request("POST", f"/v0/topics/{topic}/{verb}", json=body)

    def jobs(self, topic: str, **query: Any) -> httpx.Response:
        return self.request("GET", f"/v0/topics/{topic}/jobs", params=query)

    def counts(self, topic: str) -> tuple[int, int, int]:
        """Ready, in flight and dead-lettered jobs of a queue."""
        queue = self.state(topic).json()["queue"]
        return queue["ready"], queue["in_flight"], queue["dead_lettered"]

    def put_router(self, router: str, source: Any, dest: Any, **fields: Any) -> httpx.Response:
        body = {"source": source, "dest": dest, **fields}
        return self.request("PUT", f"/v0/routers/{router}", json=body)

    def router(self, router: str) -> httpx.Response:
        return self.request("GET", f"/v0/routers/{router}")

    def routers(self, **query: Any) -> httpx.Response:
        return self.request("GET", "/v0/routers", params=query)

    def delete_router(self, router: str) -> httpx.Response:
        return self.request("DELETE", f"/v0/routers/{router}")

    def metrics(self) -> dict[str, Any]:
        """The JSON metrics."""
        answer = self.request("GET", "/v0/metrics", headers={"Accept": "application/json"})
        assert answer.status_code == 200, answer.content
        return dict(answer.json())
