"""A queue as a dict of jobs: what every command must answer, by looking at all of them."""

from __future__ import annotations

from dataclasses import dataclass

MAX_DELIVERIES = 3


@dataclass
class OracleJob:
    """One job that is not done."""

    tag: str
    free_at: int = 0
    holder: str = ""
    deliveries: int = 0
    # Whether it was ever leased or put off.
    known: bool = False


class OracleQueue:
    """All jobs by seq; time is an argument."""

    def __init__(self) -> None:
        self.jobs: dict[int, OracleJob] = {}
        self.head = 0
        self.dead: list[int] = []

    def produce(self, delays: list[int], now: int) -> None:
        for delay in delays:
            self.head += 1
            job = OracleJob(f"t{self.head % 3}", known=delay > 0)
            job.free_at = now + delay if delay else 0
            self.jobs[self.head] = job

    def claim(self, node: str, limit: int, lease_ms: int, now: int) -> list[tuple[int, int]]:
        """Seq and deliveries of what a claim must get."""
        for seq in [seq for seq in self.jobs if self._is_spent(seq, now)]:
            del self.jobs[seq]
            self.dead.append(seq)
        free = [seq for seq, job in self.jobs.items() if job.known and job.free_at <= now]
        fresh = [seq for seq, job in self.jobs.items() if not job.known]
        taken = sorted([*sorted(free), *sorted(fresh)][:limit])
        for seq in taken:
            job = self.jobs[seq]
            job.free_at, job.holder, job.known = now + lease_ms + 1, node, True
            job.deliveries += 1
        return [(seq, self.jobs[seq].deliveries) for seq in taken]

    def held(self, node: str, seqs: list[int], now: int) -> list[int]:
        return [seq for seq in seqs if self._is_held(seq, now) and self.jobs[seq].holder == node]

    def ack(self, seqs: list[int]) -> None:
        for seq in seqs:
            del self.jobs[seq]

    def set_free_at(self, seqs: list[int], moment: int, *, release: bool) -> None:
        for seq in seqs:
            self.jobs[seq].free_at = moment
            if release:
                self.jobs[seq].holder = ""

    def delete(self, before_seq: int | None, tag: str | None) -> None:
        for seq, job in list(self.jobs.items()):
            if (before_seq is None or seq < before_seq) and (tag is None or job.tag == tag):
                del self.jobs[seq]

    def counts(self, now: int) -> tuple[int, int, int, int]:
        """Ready, in flight, delayed, dead-lettered."""
        held = sum(self._is_held(seq, now) for seq in self.jobs)
        delayed = sum(job.free_at > now and not job.holder for job in self.jobs.values())
        return len(self.jobs) - held - delayed, held, delayed, len(self.dead)

    def _is_held(self, seq: int, now: int) -> bool:
        job = self.jobs.get(seq)
        return job is not None and bool(job.holder) and job.free_at > now

    def _is_spent(self, seq: int, now: int) -> bool:
        job = self.jobs[seq]
        return job.known and job.free_at <= now and job.deliveries >= MAX_DELIVERIES
