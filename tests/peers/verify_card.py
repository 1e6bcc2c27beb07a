"""jwcrypto as a verifier of agent cards: `verify_card.py CARD_URL JWKS_URL`.

It asks for the card with and without `A2A-Version: 1.0`, takes the signatures out of the JSON as it came, writes the rest in
the canonical form, and prints for each of both, and for one that was altered, which of its signatures verify.
"""

import json
import sys
import urllib.request

from jwcrypto.common import base64url_decode, base64url_encode
from jwcrypto.jwk import JWKSet
from jwcrypto.jws import JWS, InvalidJWSSignature

LONGEST_SECONDS = 60
card_url, jwks_url = sys.argv[1:]


def fetch(url, **headers):
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=LONGEST_SECONDS) as response:
        return response.read().decode()


keys = JWKSet.from_json(fetch(jwks_url))


def without_empty(value):
    """What the Python SDK of A2A leaves of a card before it verifies that."""
    if isinstance(value, dict):
        members = ((name, without_empty(member)) for name, member in value.items())
        return {name: member for name, member in members if member not in ("", [], {})}
    if isinstance(value, list):
        return [entry for entry in map(without_empty, value) if entry not in ("", [], {})]
    return value


def canonical(value):
    """RFC 8785, for the strings, booleans and small whole numbers that a card has, under names of ASCII."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def verifies(card, signature):
    header = json.loads(base64url_decode(signature["protected"]))
    signed = {name: member for name, member in card.items() if name != "signatures"}
    if header.get("callboard/form") == "a2a-python":
        signed = without_empty(signed)
    token = JWS()
    token.deserialize(json.dumps({**signature, "payload": base64url_encode(canonical(signed))}))
    try:
        token.verify(keys.get_key(header["kid"]))
    except InvalidJWSSignature:
        return False
    return True


def signatures(card):
    return [verifies(card, signature) for signature in card.get("signatures", [])]


versioned = json.loads(fetch(card_url, **{"A2A-Version": "1.0"}))
found = {
    "versioned": signatures(versioned),
    "unversioned": signatures(json.loads(fetch(card_url))),
    "altered": signatures({**versioned, "description": "Talks to anybody"}),
}
print(json.dumps(found), flush=True)
