"""What a client offers to take: `Accept` and `Accept-Encoding`, with weights (RFC 9110, 12)."""

from __future__ import annotations


def read_offers(header: str) -> dict[str, float]:
    """The weight of every offer by its lower-case name; 1 when it gives none we can read."""
    offers: dict[str, float] = {}
    for offer in header.lower().split(","):
        name, *parameters = (part.strip() for part in offer.split(";"))
        offers[name] = _weight(parameters)
    return offers


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        label, _, value = parameter.partition("=")
        if label.strip() == "q":
            try:
                return float(value)
            except ValueError:
                break
    return 1.0


def weigh_media(offers: dict[str, float], media: str) -> float:
    """How much a client wants `media`; the most specific offer decides, 0 without one."""
    kind = media.partition("/")[0]
    for name in (media, f"{kind}/*", "*/*"):
        if name in offers:
            return offers[name]
    return 0.0
