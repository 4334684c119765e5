"""The catalog: names, configurations, checkpointed state and segments, in SQLite by APSW.

`CatalogWriter` belongs to the engine, the only process that changes anything.
`CatalogReader` is a read-only connection for workers and for `topicsd check`. Nothing on
the append path waits for this database (architecture, law 3).

Invariants:

- ids of logs are never used twice; a recreated name gets a larger epoch than before
- one commit is one transaction: all of its changes or none
- the file is only ever opened by this package: a second SQLite library, or a plain open
  and close of the file in the same process, would drop the locks that protect it
"""

from topicsd.storage.catalog.changes import (
    AddWatch,
    Change,
    CreateLog,
    DropLog,
    DropSegment,
    DropWatches,
    ForgetKeys,
    InterruptWatches,
    MarkCold,
    OpenWatch,
    Quarantine,
    RecordGap,
    SaveKeys,
    SaveSegment,
    SaveState,
    SaveWatches,
    SetMeta,
    UpdateConfig,
)
from topicsd.storage.catalog.leases import SaveLeases
from topicsd.storage.catalog.reader import CatalogReader
from topicsd.storage.catalog.refusals import (
    CatalogChanged,
    CatalogError,
    CatalogMissing,
    CatalogTooNew,
)
from topicsd.storage.catalog.routers import DropRouter, RouterRecord, SaveRouter, SaveRoutes
from topicsd.storage.catalog.rows import (
    BOOT_COLUMNS,
    WATCH_IDLE,
    WATCH_INTERRUPTED,
    WATCH_OPEN,
    BoardState,
    Gap,
    KeyRecord,
    LogRecord,
    LogState,
    QuarantinedBytes,
    QueueRecord,
    Segment,
    WatchRecord,
)
from topicsd.storage.catalog.streams import (
    AddStream,
    KeepForForks,
    SavedProducer,
    SavedState,
    SaveStreams,
)
from topicsd.storage.catalog.subscriptions import (
    DropLinks,
    DropSubscription,
    LinkRecord,
    SaveLinks,
    SaveSubscription,
    SubscriptionRecord,
)
from topicsd.storage.catalog.writer import CatalogWriter

__all__ = [
    "BOOT_COLUMNS",
    "WATCH_IDLE",
    "WATCH_INTERRUPTED",
    "WATCH_OPEN",
    "AddStream",
    "AddWatch",
    "BoardState",
    "CatalogChanged",
    "CatalogError",
    "CatalogMissing",
    "CatalogReader",
    "CatalogTooNew",
    "CatalogWriter",
    "Change",
    "CreateLog",
    "DropLinks",
    "DropLog",
    "DropRouter",
    "DropSegment",
    "DropSubscription",
    "DropWatches",
    "ForgetKeys",
    "Gap",
    "InterruptWatches",
    "KeepForForks",
    "KeyRecord",
    "LinkRecord",
    "LogRecord",
    "LogState",
    "MarkCold",
    "OpenWatch",
    "Quarantine",
    "QuarantinedBytes",
    "QueueRecord",
    "RecordGap",
    "RouterRecord",
    "SaveKeys",
    "SaveLeases",
    "SaveLinks",
    "SaveRouter",
    "SaveRoutes",
    "SaveSegment",
    "SaveState",
    "SaveStreams",
    "SaveSubscription",
    "SaveWatches",
    "SavedProducer",
    "SavedState",
    "Segment",
    "SetMeta",
    "SubscriptionRecord",
    "UpdateConfig",
    "WatchRecord",
]
