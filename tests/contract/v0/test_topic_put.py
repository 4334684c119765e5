"""PUT /v0/topics/:topic (API 1.1) and the configuration object (API 0.10)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.v0.config_defaults import DEFAULTS
from tests.harness.answers import good, refused
from tests.harness.api import Api
from tests.harness.server import Server

OTHER_VALUES: dict[str, Any] = {
    "type": "queue",
    "ttl_ms": 86_400_000,
    "cap_records": 7,
    "cap_bytes": 8,
    "discard": "reject",
    "durable": True,
    "durability": "fsync",
    "priority": -5,
    "auto_priority": False,
    "auto_create": False,
    "idempotency_window_ms": 9,
    "dedupe_node": False,
    "lease_ms": 1000,
    "claim_jitter_ms": 11,
    "max_deliveries": 12,
    "dead_letter": "jobs.dlq",
    "leases_durable": True,
}

U64_FIELDS = (
    "ttl_ms",
    "cap_records",
    "cap_bytes",
    "idempotency_window_ms",
    "lease_ms",
    "claim_jitter_ms",
    "max_deliveries",
)
BOOL_FIELDS = ("durable", "auto_priority", "auto_create", "dedupe_node", "leases_durable")


def test_an_empty_object_creates_a_topic_with_all_defaults(api: Api, topic: str) -> None:
    """API 0.10: omitted fields take the documented default, and all are echoed."""
    body = good(api.put(topic, {}), 201)
    assert body["topic"] == topic
    assert body["created"] is True
    assert body["config"] == DEFAULTS
    assert set(body) == {"topic", "created", "config", "performance"}


def test_the_config_is_echoed_in_the_documented_order(api: Api, topic: str) -> None:
    """API 0.10: seventeen fields, in the order of the table."""
    assert list(good(api.put(topic), 201)["config"]) == list(DEFAULTS)


def test_a_put_without_body_needs_no_content_type(api: Api, topic: str) -> None:
    """API 0.3: content type is required with a body; without one the defaults apply."""
    body = good(api.request("PUT", f"/v0/topics/{topic}"), 201)
    assert body["config"] == DEFAULTS


def test_every_field_is_accepted_and_echoed(api: Api, topic: str) -> None:
    """API 1.1: config echoes the full object, queue fields included."""
    assert good(api.put(topic, OTHER_VALUES), 201)["config"] == OTHER_VALUES
    assert good(api.state(topic))["config"] == OTHER_VALUES


def test_queue_fields_are_accepted_on_a_log(api: Api, topic: str) -> None:
    """API 0.10: queue fields are ignored, but accepted, on a log topic."""
    fields = {"lease_ms": 5000, "max_deliveries": 3, "dead_letter": "x.dlq"}
    assert good(api.put(topic, fields), 201)["config"] == {**DEFAULTS, **fields}


def test_an_identical_put_is_a_no_op(api: Api, topic: str) -> None:
    """API 1.1: identical config answers 200 and created false."""
    config = {"ttl_ms": 60_000, "priority": 3}
    good(api.put(topic, config), 201)
    body = good(api.put(topic, config))
    assert body["created"] is False
    assert body["config"] == {**DEFAULTS, **config}


def test_a_put_replaces_the_configuration(api: Api, topic: str) -> None:
    """Decision 2.1: omitted fields return to their defaults, a change answers 200."""
    good(api.put(topic, {"ttl_ms": 60_000, "cap_records": 5, "dedupe_node": False}), 201)
    body = good(api.put(topic, {"cap_records": 6}))
    assert body["created"] is False
    assert body["config"] == {**DEFAULTS, "cap_records": 6}
    assert good(api.state(topic))["config"] == {**DEFAULTS, "cap_records": 6}


def test_a_put_without_type_keeps_the_type(api: Api, topic: str) -> None:
    """Decision 2.1: type is the one field that an omission does not reset."""
    good(api.put(topic, {"type": "queue", "lease_ms": 1000}), 201)
    assert good(api.put(topic, {}))["config"] == {**DEFAULTS, "type": "queue"}


@pytest.mark.parametrize("first, second", [("log", "queue"), ("queue", "log")])
def test_the_type_cannot_change(api: Api, topic: str, first: str, second: str) -> None:
    """API 1.1: a changed type is 409 topic_exists_incompatible and changes nothing."""
    good(api.put(topic, {"type": first, "ttl_ms": 5}), 201)
    refused(api.put(topic, {"type": second, "ttl_ms": 6}), 409, "topic_exists_incompatible")
    config = good(api.state(topic))["config"]
    assert (config["type"], config["ttl_ms"]) == (first, 5)


def test_a_put_never_rewrites_stored_records(api: Api, topic: str) -> None:
    """API 1.1: changes apply going forward."""
    good(api.append(topic, "kept"), 201)
    good(api.put(topic, {"priority": 1, "durability": "fsync"}))
    assert good(api.diff(topic))["records"][0]["data"] == "kept"
    assert good(api.append(topic, "next"))["seqs"] == [2]


@pytest.mark.parametrize(
    "given, durability",
    [
        ({}, "disk"),
        ({"durable": False}, "disk"),
        ({"durable": True}, "fsync"),
        ({"durability": "ephemeral"}, "ephemeral"),
        ({"durability": "memory"}, "memory"),
        ({"durability": "disk"}, "disk"),
        ({"durability": "fsync"}, "fsync"),
        ({"durability": "disk", "durable": True}, "disk"),
        ({"durability": "memory", "durable": True}, "memory"),
        ({"durability": "fsync", "durable": False}, "fsync"),
    ],
)
def test_durability_resolves(api: Api, topic: str, given: dict[str, Any], durability: str) -> None:
    """API 0.10: an explicit durability wins; durable reports whether the class is fsync."""
    config = good(api.put(topic, given), 201)["config"]
    assert config["durability"] == durability
    assert config["durable"] is (durability == "fsync")


def test_the_durability_class_is_mutable_in_place(api: Api, topic: str) -> None:
    """API 0.10: the class is freely mutable, and records stay."""
    good(api.append(topic, 1), 201)
    for number, durability in enumerate(["fsync", "memory", "ephemeral", "disk"], start=2):
        config = good(api.put(topic, {"durability": durability}))["config"]
        assert config["durability"] == durability
        assert good(api.append(topic, number))["last_seq"] == number
    assert [record["data"] for record in good(api.diff(topic))["records"]] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "field, given, kept",
    [
        ("priority", 1000, 1000),
        ("priority", 1001, 1000),
        ("priority", 2**31 - 1, 1000),
        ("priority", -1000, -1000),
        ("priority", -1001, -1000),
        ("priority", 0, 0),
        ("priority", None, None),
        ("lease_ms", 99, 100),
        ("lease_ms", 0, 100),
        ("lease_ms", 86_400_000, 86_400_000),
        ("lease_ms", 86_400_001, 86_400_000),
        ("claim_jitter_ms", 5000, 5000),
        ("claim_jitter_ms", 5001, 5000),
        ("dead_letter", None, None),
    ],
)
def test_values_out_of_range_are_clamped(
    api: Api, topic: str, field: str, given: Any, kept: Any
) -> None:
    """API 0.10: priority, lease_ms and claim_jitter_ms are clamped, not refused."""
    assert good(api.put(topic, {field: given}), 201)["config"][field] == kept


@pytest.mark.parametrize("field", ["ttl_ms", "cap_records", "cap_bytes", "idempotency_window_ms"])
def test_the_largest_u64_is_kept_exactly(api: Api, topic: str, field: str) -> None:
    """API 0.10: these fields are u64."""
    assert good(api.put(topic, {field: 2**64 - 1}), 201)["config"][field] == 2**64 - 1


@pytest.mark.parametrize("value", ["100", -1, 1.5, True, None, [], {}, 2**64])
@pytest.mark.parametrize("field", U64_FIELDS)
def test_a_mistyped_number_is_refused(api: Api, topic: str, field: str, value: Any) -> None:
    """API 1.1: a bad field is 400 and creates nothing."""
    refused(api.put(topic, {field: value}), 400, "invalid_request")
    refused(api.state(topic), 404, "topic_not_found")


@pytest.mark.parametrize("value", ["true", 1, 0, None, []])
@pytest.mark.parametrize("field", BOOL_FIELDS)
def test_a_mistyped_flag_is_refused(api: Api, topic: str, field: str, value: Any) -> None:
    """API 1.1: a bad field is 400 and creates nothing."""
    refused(api.put(topic, {field: value}), 400, "invalid_request")
    refused(api.state(topic), 404, "topic_not_found")


@pytest.mark.parametrize(
    "field, value",
    [
        ("type", "stream"),
        ("type", "LOG"),
        ("type", 1),
        ("type", ["log"]),
        ("discard", "new"),
        ("discard", False),
        ("durability", "none"),
        ("durability", 3),
        ("durability", {"class": "disk"}),
        ("priority", "high"),
        ("priority", 1.5),
        ("priority", True),
        ("dead_letter", 5),
        ("dead_letter", ""),
        ("dead_letter", "no spaces"),
        ("dead_letter", "a/b"),
    ],
)
def test_an_unknown_choice_is_refused(api: Api, topic: str, field: str, value: Any) -> None:
    """Decision 2.9: unknown values of known enums and mistyped fields are 400."""
    refused(api.put(topic, {field: value}), 400, "invalid_request")


def test_a_refused_update_changes_nothing(api: Api, topic: str) -> None:
    """API 1.1: one bad field leaves the whole configuration as it was."""
    good(api.put(topic, {"ttl_ms": 5}), 201)
    refused(api.put(topic, {"ttl_ms": 6, "cap_records": "x"}), 400, "invalid_request")
    assert good(api.state(topic))["config"] == {**DEFAULTS, "ttl_ms": 5}


def test_dead_letter_must_differ_from_the_topic(api: Api, topic: str) -> None:
    """API 1.1: dead_letter naming the topic itself is 400."""
    refused(api.put(topic, {"dead_letter": topic}), 400, "invalid_request")


def test_unknown_fields_are_ignored(api: Api, topic: str) -> None:
    """Decision 2.9: unknown request fields are ignored and not echoed."""
    assert good(api.put(topic, {"color": "red", "ttl_ms": 1}), 201)["config"] == {
        **DEFAULTS,
        "ttl_ms": 1,
    }


@pytest.mark.parametrize("body", [b"[]", b"null", b'"log"', b"5", b"{", b"{} x"])
def test_a_body_that_is_not_one_object_is_refused(api: Api, topic: str, body: bytes) -> None:
    """API 1.1: the body is the configuration object."""
    headers = {"Content-Type": "application/json"}
    answer = api.request("PUT", f"/v0/topics/{topic}", content=body, headers=headers)
    refused(answer, 400, "invalid_request")


@pytest.mark.parametrize(
    "name", ["a", "0", "Z", "a.b_c:d-e", "render-queue:tenantA", "9" * 255, "a..", "x:"]
)
def test_names_of_the_documented_alphabet_are_accepted(api: Api, name: str) -> None:
    """API 1.1: 1 to 255 characters, starting with a letter or digit."""
    assert api.put(name).status_code in (200, 201)
    assert good(api.state(name))["topic"] == name
    good(api.delete(name))


@pytest.mark.parametrize(
    "name",
    [
        "_a",
        ".a",
        ":a",
        "-a",
        "a%20b",
        "a%2Fb",
        "a%5Cb",
        "a%00",
        "a%0A",
        "caf%C3%A9",
        "a@b",
        "a*",
        "%F0%9F%98%80",
        "a+b",
        "a" * 256,
        "a" * 1000,
        "a%FF",
        "a%3Eb",
        "%E2%84%AA",
    ],
)
@pytest.mark.parametrize("method", ["PUT", "GET", "DELETE", "POST"])
def test_other_names_are_refused(api: Api, method: str, name: str) -> None:
    """API 1.1: a name outside the alphabet is 400 invalid_request for every method."""
    body = {"json": {"records": [{"data": 1}]}} if method in ("PUT", "POST") else {}
    refused(api.request(method, f"/v0/topics/{name}", **body), 400, "invalid_request")


def test_names_are_case_sensitive(api: Api, topic: str) -> None:
    """API 1.1: names are compared byte for byte."""
    good(api.put(topic + "x"), 201)
    good(api.put(topic + "X"), 201)
    good(api.append(topic + "x", 1))
    assert good(api.state(topic + "X"))["head_seq"] == 0


def test_percent_encoded_letters_name_the_same_topic(api: Api, topic: str) -> None:
    """API 1.1: the path is percent-decoded before the name is read."""
    good(api.put(f"%74{topic[1:]}"), 201)
    assert good(api.state(topic))["topic"] == topic


@pytest.mark.parametrize("value", [2**63 - 1, 2**63, 2**64 - 1])
def test_the_largest_numbers_survive_restart_and_crash(
    mortal: Server, mortal_api: Api, topic: str, value: int
) -> None:
    """API 0.10: a u64 is a u64, also where what is stored counts to 2**63 only."""
    fields = ("ttl_ms", "cap_records", "cap_bytes", "idempotency_window_ms", "max_deliveries")
    config = dict.fromkeys(fields, value)
    good(mortal_api.put(topic, config), 201)
    good(mortal_api.append(topic, "kept", idempotency_key="key"))
    for again in (mortal.restart, mortal.crash, mortal.restart):
        again()
        found = good(mortal_api.state(topic))
        assert {field: found["config"][field] for field in fields} == config
        assert (found["count"], found["earliest_seq"]) == (1, 1)
        page = good(mortal_api.diff(topic))
        assert ([record["data"] for record in page["records"]], page["tombstone"]) == (
            ["kept"],
            None,
        )
        assert good(mortal_api.append(topic, 2, idempotency_key="key"))["deduped"] is True
