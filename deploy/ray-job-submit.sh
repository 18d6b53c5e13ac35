#!/usr/bin/env bash
# All tables at the paper's scale on a Ray cluster that runs already, as a job of its own.
#
#   RAY_ADDRESS=http://HEAD:8265 FPL_DATA=/shared/data FPL_OUT=/shared/runs/paper deploy/ray-job-submit.sh [TABLES ...]
#
# Run it in the checkout, which is uploaded and used by all nodes; Ray leaves out what .gitignore names. The packages it
# needs must be on the nodes, here and there with the extra "cluster". FPL_DATA and FPL_OUT are folders of the nodes.
#
# It follows the job's output. Ctrl-C ends the following, not the job: `ray job stop ID` does. The same command submits
# a new job that continues. The exit code is 0 or 1: Ray gives 1 for whatever code of `fpl reproduce` is not 0.

set -euo pipefail

: "${RAY_ADDRESS:?address of the dashboard, for example http://HEAD:8265}"
: "${FPL_DATA:?folder that holds the data sets, seen by all nodes}"
: "${FPL_OUT:?folder of the store, seen by all nodes}"
# As the cluster was started: `token` needs RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH here, too.
export RAY_AUTH_MODE="${RAY_AUTH_MODE:-token}"
given="${RAY_AUTH_TOKEN:-}${RAY_AUTH_TOKEN_PATH:-}"
if [[ "$RAY_AUTH_MODE" == token && -z "$given" && ! -e "$HOME/.ray/auth_token" ]]; then
    echo "RAY_AUTH_MODE=token, but no token: set RAY_AUTH_TOKEN, or RAY_AUTH_MODE=disabled for a cluster without" >&2
    exit 2
fi

# `python -m fpl` takes the uploaded package; the command `fpl` would take the one installed on the node.
exec ray job submit \
    --address "$RAY_ADDRESS" \
    --working-dir . \
    --runtime-env-json '{"env_vars": {"RAY_USAGE_STATS_ENABLED": "0"}, "excludes": [".git", "results", "tests"]}' \
    -- \
    python -m fpl reproduce --scale paper --out "$FPL_OUT" --data-root "$FPL_DATA" \
    --weights "${FPL_WEIGHTS:-$FPL_DATA/weights}" --splits "${FPL_SPLITS:-$FPL_DATA/splits}" \
    --address auto --seeds "${FPL_SEEDS:-1}" "$@"
