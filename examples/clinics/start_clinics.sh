#!/bin/sh
# Starts the example clinics, each a process with a database of its own, until interrupted. Settings are read from `.env`
# beside this file, if there is one: see .env.example.
set -eu
cd "$(dirname "$0")"
if [ -f .env ]; then
    set -a
    . ./.env
    set +a
fi
: "${CALLBOARD:=callboard}" "${CLINICS:=cardiology dermatology neurology}" "${CLINICS_STATE:=state}"

processes=
trap 'trap - INT TERM; [ -z "$processes" ] || kill $processes 2>/dev/null || true; wait' EXIT
trap 'exit 0' INT TERM
for clinic in $CLINICS; do
    mkdir -p "$CLINICS_STATE/$clinic"
    "$CALLBOARD" serve "$clinic.toml" --state "$CLINICS_STATE/$clinic" &
    processes="$processes $!"
done
wait
