"""Writes a list of components (CycloneDX) in an order of its own, without the time and the number of its making."""

import json
import sys


def ordered(value):
    if isinstance(value, dict):
        return {name: ordered(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return sorted((ordered(item) for item in value), key=lambda item: json.dumps(item, sort_keys=True))
    return value


bill = ordered(json.load(sys.stdin))
del bill["serialNumber"], bill["metadata"]["timestamp"]
json.dump(bill, sys.stdout, indent=1)
