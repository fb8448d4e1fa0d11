#!/usr/bin/env bash
# Prints fovea(1), generated from the program's own help.
#   man_page.sh PROGRAM
set -euo pipefail
program=$1
# Text of roff: backslashes and hyphens are escaped, and no line begins with its control characters.
roff() { sed -e 's/\\/\\e/g; s/-/\\-/g' -e "s/^[.']/\\\\\&&/"; }
help=$("$program" --help)
cat <<END
.TH FOVEA 1 "" "$("$program" --version)" "User Commands"
.SH NAME
fovea \\- $(head -n 1 <<<"$help" | roff)
.SH SYNOPSIS
.B fovea
.I COMMAND
.RI [ OPTIONS ]
.SH DESCRIPTION
$(head -n 1 <<<"$help" | roff).
Models are folders in Hugging Face format; without one a demo model runs.
.B fovea
.I COMMAND
.B \\-\\-help
lists the options of a command.
.SH COMMANDS
END
# "  name      what it does"; groups have headings that end with a colon.
awk '/^[A-Za-z].*:$/ { commands = !/^(Options|Positionals)/ } commands && /^  [a-z]/' <<<"$help" | while read -r name text; do
  printf '.TP\n.B %s\n%s\n' "$(roff <<<"$name")" "$(roff <<<"$text")"
done
cat <<'END'
.SH FILES
.TP
.I /etc/default/fovea
What the service
.B fovea.service
serves.
.SH EXIT STATUS
0 if all went well, 2 for bad input, 1 for a fault of the program.
END
