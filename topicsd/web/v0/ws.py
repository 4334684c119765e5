"""`GET /v0/ws`: subscribe and publish over one WebSocket (API 7, spec 2.13).

Commands are taken in order. A publish is not waited for before the next one is sent to the
engine, within bounds; a subscribe is, so that what follows it finds it done. Publishes to one
topic are answered in order, and each ack comes before the records it causes.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from topicsd.model import errors, names
from topicsd.model.errors import TopicsError
from topicsd.web import auth
from topicsd.web.context import Context
from topicsd.web.drive import Drive
from topicsd.web.live import frames
from topicsd.web.live.socket import Socket, shake_hands
from topicsd.web.live.tunnel import Opening
from topicsd.web.request import Request
from topicsd.web.v0 import records
from topicsd.web.v0.messages import Ping, Publish, Subscribe, Unsubscribe, read_message
from topicsd.web.v0.subscriptions import Subscriptions

if TYPE_CHECKING:
    from websockets.server import ServerProtocol

    from topicsd.model.keys import Key

# Publishes of one socket that may wait for the engine at the same time.
IN_FLIGHT_MAX = 256
IN_FLIGHT_BYTES_MAX = 4 * 1024 * 1024

_log = logging.getLogger("topicsd.web")


async def get_ws(request: Request, context: Context) -> Opening:
    """Turn the connection into a WebSocket; what a key may do is asked for each command."""
    if request.key is None:
        _check_origin(request)
    protocol, head = shake_hands(request, context.settings.max_body_bytes)
    gate, key = context.gate, request.key
    gate.open_stream(key)
    conversation = Conversation(context, protocol, head, key)
    conversation.closed.add_done_callback(lambda done: gate.close_stream(key))
    return Opening(conversation, status=101)


def _check_origin(request: Request) -> None:
    """Without keys, keep out the pages of other sites: a browser lets them open sockets here."""
    origin = request.header("origin")
    if origin is not None and urlsplit(origin).netloc != (request.header("host") or ""):
        raise errors.forbidden(
            "a page of another origin needs a server with keys", origin=origin[:300]
        )


class Answer(NamedTuple):
    """A frame for the client, and the last seq that it acknowledges."""

    frame: bytes
    last_seq: int = 0


class Conversation(Socket):
    """The commands of one socket."""

    def __init__(
        self, context: Context, protocol: ServerProtocol, head: bytes, key: Key | None
    ) -> None:
        super().__init__(context, protocol, head)
        self._key = key
        self._subscriptions = Subscriptions(context, self.feed)
        self._numbers = itertools.count()
        self._drives: dict[int, Drive[Answer]] = {}
        self._bytes = 0
        # Commands under way that the next one must wait for.
        self._blocking = 0

    @property
    def is_free(self) -> bool:
        if self._blocking or len(self._drives) >= IN_FLIGHT_MAX:
            return False
        return self._bytes < IN_FLIGHT_BYTES_MAX

    @property
    def is_idle(self) -> bool:
        return not self._drives

    def stop(self) -> None:
        super().stop()
        self._subscriptions.close()
        for drive in list(self._drives.values()):
            drive.cancel()

    def hear(self, text: bytes | None) -> None:
        if text is None:
            self.say(frames.error(errors.unsupported_message()))
            return
        message = read_message(text)
        command = message.command
        if isinstance(command, Ping):
            self.say(frames.message("pong", message.request_id))
        elif isinstance(command, records.Envelope):
            self._start_publish(command, message.request_id, len(text))
        elif isinstance(command, Subscribe):
            self._start_subscribe(command, message.request_id)
        elif isinstance(command, Unsubscribe):
            self._unsubscribe(command, message.request_id)
        else:
            self.say(frames.error(command, message.request_id))

    def _start_publish(self, envelope: records.Envelope, request_id: bytes, size: int) -> None:
        command = envelope.asked
        assert isinstance(command, Publish)
        hold = self.feed.hold(command.topic)
        self._bytes += size
        # In line nobody may overtake: the engine numbers writes in the order they reach it.
        blocks = int(self._context.throttle.pressed)
        self._blocking += blocks

        def done(answer: Answer | None) -> None:
            self._bytes -= size
            self._blocking -= blocks
            self.feed.let_go(hold, *(answer or Answer(b"")))

        self._start(self._publish(command, envelope, request_id), done)

    def _start_subscribe(self, command: Subscribe, request_id: bytes) -> None:
        self._blocking += 1

        def done(answer: Answer | None) -> None:
            self._blocking -= 1
            if answer is not None:
                self.say(answer.frame)

        self._start(self._subscribe(command, request_id), done)

    def _unsubscribe(self, command: Unsubscribe, request_id: bytes) -> None:
        try:
            topics = self._subscriptions.unsubscribe(command)
        except TopicsError as error:
            self.say(frames.error(error, request_id))
        else:
            self.say(frames.message("unsubscribed", request_id, topics=topics))

    async def _publish(
        self, command: Publish, envelope: records.Envelope, request_id: bytes
    ) -> Answer:
        async def work(request: Request) -> Answer:
            auth.require_scope(self._key, "write")
            auth.require_name(self._key, command.topic)
            request.name = names.check_topic_name(command.topic)
            config = records.inline_config(command, request, request.name)
            key = records.body_key(envelope)
            reply, members = await records.append(
                request, self._context, envelope, config, key, with_seqs=command.return_seqs
            )
            return Answer(frames.answer("ack", request_id, members), reply.last_seq)

        return await self._attempt(work, request_id)

    async def _subscribe(self, command: Subscribe, request_id: bytes) -> Answer:
        async def work(request: Request) -> Answer:
            auth.require_scope(self._key, "read")
            topics = await self._subscriptions.subscribe(command, request)
            return Answer(frames.message("subscribed", request_id, topics=topics))

        return await self._attempt(work, request_id)

    async def _attempt(
        self, work: Callable[[Request], Coroutine[Any, Any, Answer]], request_id: bytes
    ) -> Answer:
        """Do what a request would do, counted like one; a refusal is an answer, too."""
        context, gate = self._context, self._context.gate
        request = Request("GET", "/v0/ws", "", {}, context.clock.monotonic_us())
        request.key = self._key
        try:
            if gate.draining:
                raise errors.shutting_down()
            gate.enter(self._key)
            try:
                return await work(request)
            finally:
                gate.leave(self._key)
        except TopicsError as error:
            return Answer(frames.error(error, request_id))
        except Exception:
            _log.exception("command failed")
            return Answer(frames.error(errors.internal(), request_id))

    def _start(
        self, coroutine: Coroutine[Any, Any, Answer], done: Callable[[Answer | None], None]
    ) -> None:
        """Run until it must wait; then go on when it can."""
        number = next(self._numbers)

        def finished(answer: Answer | None) -> None:
            del self._drives[number]
            done(answer)
            self.serve()

        try:
            future = coroutine.send(None)
        except StopIteration as stop:
            done(stop.value)
        else:
            self._drives[number] = Drive(coroutine, future, finished)
