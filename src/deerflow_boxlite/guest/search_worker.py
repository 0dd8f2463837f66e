"""A program, not a module to import: matches lines for search_verify.py, which can kill it. Quick to start."""

import json
import re
import sys

given = json.load(sys.stdin)
pattern = re.compile(given["pattern"], given["flags"])
json.dump([index for index, line in enumerate(given["lines"]) if pattern.search(line)], sys.stdout)
