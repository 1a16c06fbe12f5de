"""Tries all doors in place of a data job, and prints the state of each.

Copy-paste, for the place that you are in: ``python -m verification.reach.probe --site "$(python -c
'from verification.reach.site import Site; print(Site.of().to_json())')"``
"""

from __future__ import annotations

import argparse
import json

from verification.reach.doors import DOORS
from verification.reach.site import Site


def main() -> None:
    """Print a JSON object with the state of each door, by name."""
    parser = argparse.ArgumentParser(prog="python -m verification.reach.probe", description=__doc__)
    parser.add_argument("--site", type=Site.from_json, required=True, help="where things are, JSON")
    site = parser.parse_args().site
    print(json.dumps({door.name: door.attempt(site) for door in DOORS}))


if __name__ == "__main__":
    main()
