#!/bin/sh
# Asks each clinic of the host file over HTTP, then all of them through the orchestrator. Exit code 0 if all answered.
# The clinics must run: see start_clinics.sh. Settings are read from `.env` beside this file, if there is one.
set -eu
cd "$(dirname "$0")"
if [ -f .env ]; then
    set -a
    . ./.env
    set +a
fi
: "${CALLBOARD:=callboard}" "${CLINICS_HOST:=host-with-neurology.toml}"

call='{"jsonrpc":"2.0","id":"smoke","method":"tools/call","params":{"name":"list_patients","arguments":{}}}'
for url in $(sed -n 's/^url = "\(.*\)"$/\1/p' "$CLINICS_HOST"); do
    answer=$(curl --silent --show-error --fail --max-time 10 --retry 20 --retry-delay 1 --retry-connrefused \
        --header 'Content-Type: application/json' --data "$call" "$url")
    case $answer in
    *'"patients":['*'"error":null'*) echo "ok: $url" ;;
    *)
        echo "failed: $url answered $answer" >&2
        exit 1
        ;;
    esac
done

question='List all cardiology patients and check dermatology patients with psoriasis'
answer=$("$CALLBOARD" ask --topology "$CLINICS_HOST" "$question")
case $answer in
*CARD-001*DERM-001*) echo "ok: $question" ;;
*)
    echo "failed: $question: $answer" >&2
    exit 1
    ;;
esac
