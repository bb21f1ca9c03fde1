#!/bin/sh
# Reviews what a branch changes, and fails when the reviewer has found an error.
#   review.sh [BASE]      compares with BASE (origin/main)
# Exit codes: 0 nothing serious, 1 an error was found or the run failed, 2 it could not be started.
set -eu

base=${1:-origin/main}
here=$(dirname "$0")
git diff "$base"...HEAD |
    retinue run reviewer "Review this change" --schema "$here/findings.schema.json" \
        --disallowedTools Bash Edit Write --budget usd=1 --timeout 600 > review.json

python3 - <<'PYTHON'
import json, sys

findings = json.load(open("review.json"))["findings"]
for each in findings:
    # GitHub shows such lines beside the code.
    print(f"::{each['level']} file={each['file']},line={each['line']}::{each['text']}")
sys.exit(any(each["level"] == "error" for each in findings))
PYTHON
