"""The engine: the one owner of the data directory, and the table from command to function.

`apply` takes a batch of commands and returns the replies that wait for nothing; the others
come from `release` once a sync or the catalog has caught up. All methods are called from
one thread. An expected refusal is a `Failed` reply; any other exception means that memory
and disk may disagree, and the process must end and recover.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from topicsd.engine import (
    append,
    attach,
    catch_up,
    claims,
    connect,
    dead_letters,
    jobs,
    recover,
    removal,
    routers,
    stream_append,
    stream_lives,
    subscribing,
    tiering,
    topics,
    wakes,
    watches,
    work,
    write_many,
)
from topicsd.engine.checkpoint import Checkpoints
from topicsd.engine.clerk import Clerk
from topicsd.engine.commit import Commits
from topicsd.engine.forward import Forwarder
from topicsd.engine.held import HeldReplies
from topicsd.engine.keys import Keys
from topicsd.engine.log import Log
from topicsd.engine.queues import Queues
from topicsd.engine.recover import RecoverySummary
from topicsd.engine.registry import Registry
from topicsd.engine.report import Report
from topicsd.engine.retention import Retention
from topicsd.engine.routes import Routes
from topicsd.engine.sealing import Ages
from topicsd.engine.staging import Batch, Outcome
from topicsd.engine.stream_states import StreamStates
from topicsd.engine.subscriptions import Subscriptions
from topicsd.model.clock import Clock
from topicsd.model.commands import (
    Append,
    AttachWatch,
    AwaitSynced,
    CatchUp,
    Command,
    CreateWatch,
    DeleteRecords,
    DeleteRouter,
    DeleteTopic,
    DetachWatch,
    Failed,
    FindTopic,
    GetRouter,
    HoldWatch,
    Join,
    Leave,
    ListRouters,
    PutRouter,
    PutTopic,
    Reply,
    SaveCursors,
    WriteMany,
)
from topicsd.model.errors import TopicsError
from topicsd.model.jobs import (
    AckJobs,
    ClaimJobs,
    CloseWork,
    ExtendJobs,
    ListJobs,
    NackJobs,
    NextWork,
    OpenWork,
    QueueState,
    Redrive,
)
from topicsd.model.settings import Settings
from topicsd.model.stream import AppendStream
from topicsd.storage import paths, place
from topicsd.storage.catalog import CatalogWriter, InterruptWatches, SetMeta
from topicsd.storage.figures import Figures
from topicsd.storage.fs import Files
from topicsd.storage.shelf import Shelf
from topicsd.storage.tag_indexes import TagIndexes
from topicsd.storage.volume import Limits, Volume
from topicsd.storage.wal import Wal

Ticket = Any

# A function that returns None answers later, by an outcome of its own, or never.
COMMANDS: dict[type, Callable[..., Reply | None]] = {
    PutTopic: topics.apply_put,
    DeleteTopic: topics.apply_delete,
    FindTopic: topics.apply_find,
    Append: append.apply_append,
    WriteMany: write_many.apply_write_many,
    DeleteRecords: removal.apply_delete,
    AwaitSynced: topics.apply_await_synced,
    CreateWatch: watches.apply_create,
    AttachWatch: attach.apply_attach,
    HoldWatch: attach.apply_hold,
    DetachWatch: attach.apply_detach,
    SaveCursors: attach.apply_save,
    Join: attach.apply_join,
    Leave: attach.apply_leave,
    ClaimJobs: claims.apply_claim,
    AckJobs: jobs.apply_ack,
    NackJobs: jobs.apply_nack,
    ExtendJobs: jobs.apply_extend,
    QueueState: jobs.apply_state,
    ListJobs: jobs.apply_list,
    Redrive: dead_letters.apply_redrive,
    OpenWork: work.apply_open,
    NextWork: work.apply_next,
    CloseWork: work.apply_close,
    PutRouter: routers.apply_put,
    DeleteRouter: routers.apply_delete,
    ListRouters: routers.apply_list,
    GetRouter: catch_up.apply_get,
    CatchUp: catch_up.apply_catch_up,
    **stream_append.STREAM_COMMANDS,
    **subscribing.SUBSCRIPTION_COMMANDS,
}

# What was staged before one of these is committed first: a delete looks into segments, a
# write to several topics (a redrive is one) is a commit of its own, a wait is for frames that
# exist, the end of a stream or of a worker names no queue, the rest looks at heads of logs.
_ALONE = (
    DeleteRecords,
    WriteMany,
    AwaitSynced,
    Redrive,
    CloseWork,
    Leave,
    PutRouter,
    DeleteRouter,
    GetRouter,
    CatchUp,
    *subscribing.SUBSCRIPTION_COMMANDS,
)
# These see what others of them have staged; a whole batch of them is one frame.
_LEASING = (ClaimJobs, AckJobs, NackJobs, ExtendJobs, QueueState, ListJobs)


def _needs_commit(work: Batch, command: Command) -> bool:
    """Whether what is staged must be committed before a command.

    An append sees the records staged before it, lease commands the leases. Whatever else
    looks at a topic finds it committed: its floors are then in the WAL's order, and it does
    not vanish when the write that created it finds no room.
    """
    if isinstance(command, Append | AppendStream):
        return command.topic in work.leased and command.topic not in work.names
    if isinstance(command, _LEASING):
        return command.topic in work.names
    if isinstance(command, _ALONE):
        return bool(work.outcomes)
    topic = getattr(command, "topic", None)
    return topic in work.names or topic in work.leased


class Engine:
    """One data directory, open for writing."""

    def __init__(
        self, settings: Settings, files: Files, clock: Clock, notify: Callable[[], None]
    ) -> None:
        self.settings = settings
        self.files = files
        self.clock = clock
        self.notify = notify
        self.moved: set[int] = set()
        self.dirty: dict[int, int] = {}
        self.total_bytes = 0
        self.first_lsn = 0
        # How many batches of commands were applied; others see by it that commands come.
        self.turns = 0
        self._lock_fd = -1

    def recover(self) -> RecoverySummary:
        """Take the data directory and bring it up to date; raises when that cannot be done."""
        data_dir = self.settings.data_dir
        self.files.make_directory(data_dir)
        self._lock_fd = self.files.lock(paths.lock(data_dir))
        self.catalog = CatalogWriter(paths.catalog(data_dir))
        self.board, usable = recover.open_board(self.files, self.catalog, paths.board(data_dir))
        same_boot = self.catalog.meta("boot") == self.files.boot_id()
        self.board.state = "starting" if usable else "replaying"
        self.board.mark_dirty()
        self.board.replay_progress = 0.0
        self.board.engine_pid = os.getpid()
        self.board.figures = Figures()
        self.roots = paths.roots(self.settings, self.board.instance)
        tiering.require_cold_root(self)
        self._open_storage()
        self.board.session = time.time_ns()
        session, cache_max = self.board.session, self.settings.topic_cache
        self.registry = Registry(self.catalog, self.board, session=session, cache_max=cache_max)
        self.keys = Keys(self.catalog)
        self.queues = Queues(self)
        self.stream_states = StreamStates(self.catalog)
        self.routes = Routes(self.catalog)
        self.retention = Retention(self)
        self.checkpoints = Checkpoints(self)
        self.tiering = tiering.Tiering(self)
        self.ages = Ages(self)
        summary = RecoverySummary(True, 0, 0, 0, 0, 0, 0)
        if not usable:
            summary = recover.replay(self, same_boot)
            self.checkpoints.ask()
        recover.empty_ephemeral(self)
        self.total_bytes = self.board.total_payload_bytes()
        self._start(data_dir)
        return summary

    def apply(self, batch: Sequence[tuple[Ticket, Command]]) -> list[tuple[Ticket, Reply]]:
        """Apply commands in order as one commit; return the replies that are ready."""
        self.turns += 1
        ready: list[tuple[Ticket, Reply]] = []
        work = Batch()
        for ticket, command in batch:
            outcome = Outcome(ticket)
            spent = claims.find_spent(self, command)
            if spent or _needs_commit(work, command):
                ready += self.commits.commit(work)
                work = Batch()
            if spent:
                dead_letters.bury(self, spent)
            work.outcomes.append(outcome)
            try:
                outcome.reply = COMMANDS[type(command)](self, work, outcome, command)
            except TopicsError as error:
                outcome.reply = Failed.of(error)
            if work.together:
                ready += self.commits.commit(work)
                work = Batch()
        ready += self.commits.commit(work)
        if self.queues.moved:
            ready += self.claims.push()
        ready += wakes.step(self)
        self.registry.trim()
        self.queues.trim()
        self.report.publish()
        return ready

    def release(self) -> list[tuple[Ticket, Reply]]:
        """Replies whose sync or catalog commit has finished since."""
        self.wal.check()
        self.clerk.check()
        synced = [shard.synced_lsn for shard in self.wal.shards]
        ready = self.held.release(synced, self.clerk.done, self.clock.monotonic_us())
        ready += self._poll()
        self.report.publish()
        return ready

    @property
    def forwarding(self) -> bool:
        """Whether `forward` has something to do."""
        return self.forwarder.due

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for what `forward` does."""
        return bool(self.waiters)

    def forward(self) -> list[tuple[Ticket, Reply]]:
        """Copy some records for routers; replies to those who waited for them."""
        self.forwarder.step()
        self.registry.trim()
        self.report.publish()
        return self.waiters.answer()

    def _poll(self) -> list[tuple[Ticket, Reply]]:
        """What goes on when a sync or a checkpoint is done, or time has passed."""
        self.checkpoints.poll()
        self.forwarder.poll()
        ready = self.waiters.answer()
        parked = self.parking.take_due()
        return ready + self.apply(parked) if parked else ready

    def take_moved(self) -> list[int]:
        """Board rows that changed since the last call."""
        moved = list(self.moved)
        self.moved.clear()
        return moved

    def tick(self) -> list[tuple[Ticket, Reply]]:
        """Chores, and the replies that come of them; called about ten times a second."""
        self.ages.roll_old(self.clock.now_ms())
        ready = self._poll()
        self.tiering.poll()
        work = Batch()
        attach.poll(self, work)
        stream_lives.poll(self, work)
        wakes.poll(self, work)
        ready += self.commits.commit(work) + wakes.step(self)
        self.queues.poll(self.clock.now_ms())
        ready += self.claims.poll()
        self.report.publish()
        return ready

    def wants_tick_us(self) -> int | None:
        """In how many microseconds `tick` is wanted at the latest, if that matters."""
        found = (self.claims.next_end_us(), self.streams.next_due_us())
        moment = min((each for each in found if each is not None), default=None)
        return None if moment is None else max(moment - self.clock.monotonic_us(), 0)

    def volume_of(self, log: Log) -> Volume:
        return self.volumes[log.resident]

    def volumes_of(self, *, resident: bool) -> tuple[Volume, ...]:
        """Every volume that may hold segments of such a log, the hot one first."""
        return tuple(
            volume for tier, volume in enumerate(self.volumes) if (tier == place.RAM) == resident
        )

    def close(self) -> None:
        """Take a last checkpoint, so that the next start has nothing to do."""
        self.board.state = "draining"
        self.tiering.close()
        self.checkpoints.run_last()
        self.wal.close()
        self.clerk.close()
        self.catalog.commit(
            [SetMeta("stopped", str(self.board.session)), SetMeta("boot", self.files.boot_id())]
        )
        self.board.mark_clean()
        self.board.state = "stopped"
        self.board.flush()
        for volume in self.volumes:
            volume.close()
        self.files.remove_tree(self.roots[place.RAM])
        self.board.close()
        self.catalog.close()
        self.files.close(self._lock_fd)

    def _open_storage(self) -> None:
        settings = self.settings
        limits = Limits(settings.segment_max_events, settings.segment_max_bytes)
        # What an ephemeral topic left behind in another life is not read again.
        self.files.remove_tree(self.roots[place.RAM])
        self.volumes = tuple(
            Volume(self.files, root, handles_max=settings.open_segments, limits=limits)
            for root in self.roots
        )
        self.volumes[place.DISK].packs.restore(self.catalog.used_locations())
        self.shelf = Shelf(self.files, self.roots, maps_max=settings.open_segments)
        self.tag_indexes = TagIndexes(self.files, self.roots, settings.open_segments)

    def _start(self, data_dir: paths.Path) -> None:
        settings = self.settings
        self.catalog.commit(
            [
                SetMeta("boot", self.files.boot_id()),
                SetMeta("stopped", ""),
                InterruptWatches(self.clock.now_ms()),
            ]
        )
        self.clerk = Clerk(self.catalog, self.notify)
        self.wal = Wal(
            self.files,
            paths.wal(data_dir),
            shards=settings.wal_shards,
            file_bytes=settings.wal_file_bytes,
            sync_interval_ms=settings.wal_sync_interval_ms,
            first_lsn=max(self.first_lsn, recover.checkpoint_lsn(self.catalog)),
            notify=self.notify,
        )
        self.held = HeldReplies(settings.wal_shards)
        self.commits = Commits(self)
        self.forwarder = Forwarder(self)
        self.waiters = catch_up.Waiters(self)
        self.parking = routers.Parking(self)
        connect.show_all(self)
        self.watches = watches.Watches(self.catalog, settings.watch_session_ttl_ms)
        self.lives = stream_lives.Lives(self.catalog)
        self.subscriptions = Subscriptions(self)
        self.claims = claims.Claims(self)
        self.streams = work.Streams(self)
        self.report = Report(self)
        self.board.replay_progress = 1.0
        self.board.state = "ready"
