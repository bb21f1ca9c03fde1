#!/bin/sh
# Exit code 2 says no; what stands on standard error is the reason that the agent gets.
if grep -Eq '"(file_path|path)": ?"([^"]*/)?generated/'; then
  echo "Files in generated/ are made by a program: change their source instead." >&2
  exit 2
fi
