"""Webhooks leave from here: a worker asks the engine for one, sends it, and says what came.

One `NextDelivery` is open at all times, up to `SENDING_MAX` webhooks are on their way. What a
worker was sending when it is lost, the engine gives to another one.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import msgspec

from topicsd.bridge.port import Port
from topicsd.model.clock import Clock
from topicsd.model.errors import TopicsError
from topicsd.model.subscription import Delivery, DeliveryDone, NextDelivery
from topicsd.rules.webhooks import parse_target
from topicsd.web.live import outbound
from topicsd.web.reply import encode
from topicsd.web.v1.signing import get_signer
from topicsd.web.v1.subscriptions import describe_link

SENDING_MAX: Final = 64
RETRY_S: Final = 0.1

_log = logging.getLogger("topicsd.web")


class Answered(msgspec.Struct):
    """What a receiver may say; anything else is merely a receipt."""

    done: bool = False


_ANSWERED = msgspec.json.Decoder(Answered)


class Deliveries:
    """The webhooks that one worker sends."""

    def __init__(self, port: Port, clock: Clock) -> None:
        self._port = port
        self._clock = clock
        self._slots = asyncio.Semaphore(SENDING_MAX)
        self._sending: set[asyncio.Task[None]] = set()
        self._asking: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._asking = asyncio.get_running_loop().create_task(self._ask())

    async def close(self) -> None:
        """Stop sending; what was under way is sent again after the next start."""
        tasks = [*self._sending, *([] if self._asking is None else [self._asking])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _ask(self) -> None:
        while True:
            await self._slots.acquire()
            delivery = await self._next()
            task = asyncio.get_running_loop().create_task(self._deliver(delivery))
            self._sending.add(task)
            task.add_done_callback(self._sent)

    async def _next(self) -> Delivery:
        while True:
            try:
                reply = await self._port.submit(NextDelivery(self._port.worker))
            except TopicsError:
                # No engine at the moment.
                await asyncio.sleep(RETRY_S)
                continue
            assert isinstance(reply, Delivery)
            return reply

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        self._slots.release()

    async def _deliver(self, delivery: Delivery) -> None:
        ok, done = await self._post(delivery)
        try:
            await self._port.submit(DeliveryDone(delivery.id, delivery.wake_id, ok, done))
        except TopicsError:
            # The engine is gone; the next one sends it again.
            return

    async def _post(self, delivery: Delivery) -> tuple[bool, bool]:
        """Whether the webhook was taken, and whether its work is done."""
        target = parse_target(delivery.url)
        if target is None:
            return False, False
        content = build_body(delivery)
        unix_s = self._clock.now_ms() // 1000
        headers = {
            "Content-Type": "application/json",
            "Webhook-Signature": get_signer(delivery.seed).sign(content, unix_s),
        }
        try:
            status, answer = await outbound.post(target, content, headers)
        except (OSError, TimeoutError, ValueError, outbound.Refused) as error:
            _log.info("webhook failed subscription=%s error=%s", delivery.id, error)
            return False, False
        if not 200 <= status < 300:
            return False, False
        try:
            return True, _ANSWERED.decode(answer).done
        except msgspec.DecodeError:
            return True, False


def build_body(delivery: Delivery) -> bytes:
    place = delivery.place
    return encode(
        {
            "subscription_id": delivery.id,
            "wake_id": delivery.wake_id,
            "generation": delivery.generation,
            "streams": [describe_link(each, place.spelling) for each in delivery.links],
            "callback_url": f"{place.url}/__ds/subscriptions/{delivery.id}/callback",
            "callback_token": delivery.token,
        }
    )
