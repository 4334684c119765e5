"""Jobs as claimers see them: the stored bytes of a record with its lease spliced in."""

from __future__ import annotations

from topicsd.model import errors
from topicsd.model.jobs import JobsClaimed
from topicsd.model.lease import lease_text
from topicsd.web.context import Context


def read_jobs(context: Context, name: str, claimed: JobsClaimed) -> list[tuple[int, bytes]]:
    """Seq and text of each leased job, the brace that opens it left out.

    What was deleted since it was leased, or is damaged, is not there.
    """
    topic = context.reader.find_topic(name)
    if topic is None:
        raise errors.topic_not_found(name)
    places = {seq: place for place, seq in enumerate(claimed.seqs)}
    jobs = []
    for picked in context.reader.pick(topic, claimed.seqs):
        seq, place = picked.seq, places[picked.seq]
        opening = b'{"$seq":%d,' % seq
        text = b'"$seq":%d,"lease_id":"%b","deadline":%d,"deliveries":%d,%b' % (
            seq,
            lease_text(claimed.lease + place).encode(),
            claimed.deadline,
            claimed.deliveries[place],
            picked.record[len(opening) :],
        )
        jobs.append((seq, text))
    return jobs
