#!/usr/bin/env bash
# What the action does, for any CI: it reads RETINUE_ACTION_*, writes reports to a folder and ends with the exit code
# of the program. Agents change nothing: without a person to ask, every change is denied, unless a rule allows it.
set -euo pipefail

mode=${RETINUE_ACTION_MODE:-test}
report=${RETINUE_ACTION_OUTPUT:-retinue-report}
mkdir -p "$report"
if [[ -n ${GITHUB_OUTPUT:-} ]]; then
  echo "report=$report" >>"$GITHUB_OUTPUT"
fi

# The text of a pull request is a stranger's: with this event it would run beside the repository's secrets.
if [[ ${GITHUB_EVENT_NAME:-} == pull_request_target ]]; then
  echo "Retinue does not run on pull_request_target. Use pull_request." >&2
  exit 2
fi

lines() { # NAME TEXT: an array of the lines of a text, without empty ones
  local -n into=$1
  into=()
  local line
  while IFS= read -r line; do
    [[ -n $line ]] && into+=("$line")
  done <<<"$2"
  return 0
}
lines further "${RETINUE_ACTION_ARGS:-}"

summarize() { # Show a text below the job.
  if [[ -n ${GITHUB_STEP_SUMMARY:-} ]]; then
    cat >>"$GITHUB_STEP_SUMMARY"
  else
    cat >/dev/null
  fi
}

run_agent() { # AGENT, the task on standard input
  local options=(--mode json --budget "usd=${RETINUE_ACTION_MAX_USD:-1}")
  if [[ -n ${RETINUE_ACTION_MODEL:-} ]]; then
    options+=(--model "$RETINUE_ACTION_MODEL")
  fi
  local code=0
  retinue run "$1" - "${options[@]}" "${further[@]}" >"$report/transcript.jsonl" || code=$?
  python3 - "$report/transcript.jsonl" >"$report/answer.md" <<'PYTHON'
import json
import sys

outcome = {}
for line in open(sys.argv[1], encoding="utf-8"):
    event = json.loads(line)
    outcome = event.get("outcome") or (event if event.get("type") == "outcome" else outcome)
print(outcome.get("text") or (outcome.get("failure") or {}).get("message", "There is no answer."))
PYTHON
  { echo "### $1"; cat "$report/answer.md"; } | summarize
  return "$code"
}

case $mode in
  test)
    lines paths "${RETINUE_ACTION_PATHS:-}"
    exec retinue test "${paths[@]}" --junit "$report/junit.xml" --github "${further[@]}"
    ;;
  run)
    if [[ -z ${RETINUE_ACTION_TASK:-} ]]; then
      echo "mode run needs a task." >&2
      exit 2
    fi
    run_agent "${RETINUE_ACTION_AGENT:-reviewer}" <<<"$RETINUE_ACTION_TASK"
    ;;
  review)
    base=${GITHUB_BASE_REF:-${CI_MERGE_REQUEST_TARGET_BRANCH_NAME:-}}
    if [[ -z $base ]]; then
      echo "mode review needs a pull request: GITHUB_BASE_REF is not set." >&2
      exit 2
    fi
    # The merge base needs history: check out with fetch-depth: 0.
    git diff "origin/$base...HEAD" >"$report/changes.diff"
    {
      echo "Review the changes below. Report each problem with path:line, the worst first. Say so if there is none."
      echo
      cat "$report/changes.diff"
    } | run_agent "${RETINUE_ACTION_AGENT:-reviewer}"
    ;;
  *)
    echo "There is no mode '$mode': run, test or review." >&2
    exit 2
    ;;
esac
