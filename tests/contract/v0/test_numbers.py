"""JSON has one type of number: an integer field takes 10, 10.0 and 1e1 alike (API 0.4)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.harness.answers import good, refused
from tests.harness.api import JSON, Api

U64_FIELDS = (
    "ttl_ms",
    "cap_records",
    "cap_bytes",
    "idempotency_window_ms",
    "lease_ms",
    "claim_jitter_ms",
    "max_deliveries",
)


def send(api: Api, method: str, path: str, body: str) -> Any:
    """Send a body as it is written here: a client library would rewrite its numbers."""
    return api.request(method, f"/v0/topics/{path}", content=body.encode(), headers=JSON)


@pytest.mark.parametrize("written", ["1000.0", "1e3", "1E+3", "10.00e2", "100000e-2"])
@pytest.mark.parametrize("field", U64_FIELDS)
def test_a_configuration_takes_whole_numbers_however_written(
    api: Api, topic: str, field: str, written: str
) -> None:
    """API 0.10: answered and kept as an integer."""
    answer = send(api, "PUT", topic, f'{{"{field}":{written}}}')
    assert f'"{field}":1000,' in answer.text.replace(" ", "") and good(answer, 201)
    assert f'"{field}":1000,' in api.state(topic).text.replace(" ", "")
    # The same number again is the same configuration.
    assert good(api.put(topic, {field: 1000}))["created"] is False


@pytest.mark.parametrize(
    ("written", "kept"), [("-7.0", -7), ("1e2", 100), ("-0.0", 0), ("5e3", 1000)]
)
def test_a_priority_takes_whole_numbers(api: Api, topic: str, written: str, kept: int) -> None:
    """API 0.10: i32, clamped to 1000."""
    found = good(send(api, "PUT", topic, f'{{"priority":{written}}}'), 201)["config"]["priority"]
    assert (kept, int) == (found, type(found))


@pytest.mark.parametrize(
    "written", ["1.5", "1e-1", "-1.0", "-1e3", "18446744073709551616.0", "1e20", "1e400"]
)
@pytest.mark.parametrize("field", ["cap_records", "lease_ms"])
def test_a_configuration_refuses_fractions_and_what_is_out_of_range(
    api: Api, topic: str, field: str, written: str
) -> None:
    """API 0.6: 400 naming the field, and nothing is created."""
    error = refused(send(api, "PUT", topic, f'{{"{field}":{written}}}'), 400, "invalid_request")
    assert error["detail"]["field"] == field
    refused(api.state(topic), 404, "topic_not_found")


def test_an_inline_configuration_takes_whole_numbers(api: Api, topic: str) -> None:
    """API 2: also in a write to several topics."""
    body = '{"records":[{"data":1.0},{"data":2}],"config":{"cap_records":1.0}}'
    good(send(api, "POST", topic, body), 201)
    assert good(api.state(topic))["count"] == 1
    part = f'{{"topic":"{topic}-2",' + body[1:]
    answer = api.request(
        "POST", "/v0/write", content=f'{{"writes":[{part}]}}'.encode(), headers=JSON
    )
    good(answer, 201)
    assert good(api.state(f"{topic}-2"))["config"]["cap_records"] == 1
    assert '"data":2}' in api.diff(topic).text


def test_a_diff_takes_whole_numbers(api: Api, topic: str) -> None:
    """API 3: cursor, limit and wait; members nobody knows stay unread."""
    api.append(topic, *range(5))
    body = '{"from_seq":1.0,"limit":2e0,"wait_ms":0.0,"node":"n","unknown":1e400}'
    page = good(send(api, "POST", f"{topic}/diff", body))
    assert [record["$seq"] for record in page["records"]] == [2, 3]
    assert '"next_from_seq":3,' in send(api, "POST", f"{topic}/diff", body).text
    assert len(good(send(api, "POST", f"{topic}/diff", '{"limit":1e300}'))["records"]) == 5


def test_a_delete_takes_whole_numbers(api: Api, topic: str) -> None:
    """API 5: before_seq, with and without a match."""
    api.append(topic, *range(5))
    assert good(send(api, "POST", f"{topic}/delete", '{"before_seq":3.0}'))["deleted"] == 2
    body = '{"before_seq":4e0,"match":"x"}'
    assert good(send(api, "POST", f"{topic}/delete", body))["deleted"] == 0


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("diff", {"from_seq": 1.5}, "from_seq"),
        ("diff", {"from_seq": 1.0, "limit": 2.5}, "limit"),
        ("diff", {"from_seq": 1.0, "limit": "2"}, "limit"),
        ("diff", {"from_seq": -1.0}, "from_seq"),
        ("diff", {"from_seq": 1e20}, "from_seq"),
        ("diff", {"from_seq": 1.0, "include_tags": 1.0}, "include_tags"),
        ("delete", {"before_seq": 2.5}, "before_seq"),
        ("delete", {"before_seq": -2.0}, "before_seq"),
        ("delete", {"before_seq": 1e20}, "before_seq"),
    ],
)
def test_fractions_and_other_types_stay_refused(
    api: Api, topic: str, path: str, body: dict[str, Any], field: str
) -> None:
    """API 0.6: 400 naming the field."""
    api.append(topic, 1)
    error = refused(send(api, "POST", f"{topic}/{path}", json.dumps(body)), 400, "invalid_request")
    assert error["detail"]["field"] == field
