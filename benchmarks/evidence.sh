#!/usr/bin/env bash
# Makes all of results/ anew, from one commit. `make evidence` calls it; stopped, it continues.
#
#   benchmarks/evidence.sh [PART...]     mini, mini_seeds, mini_frameworks, mini_thresholds, camvid, camvid_tables,
#                                        camvid_length, camvid_frameworks, rehearsal, benchmarks (all, in this order)
#
# Runs and what they give are collected in runs/evidence/COMMIT; when all parts are complete they go to results/ and take
# the place of what was there: no folder holds runs of two commits. The benchmarks that are there now were made one by one,
# and each file names its commit. On two idle cores: mini 25 minutes, mini_seeds and mini_frameworks 10 each, mini_thresholds 5, camvid three to
# five hours, camvid_tables one to two behind it, camvid_length two, camvid_frameworks two to three (CamVid must be in
# $DATA/camvid), rehearsal two and 22 GB of free memory (LISTS: a folder of public split lists), benchmarks 80 minutes, and
# 120 where the CPU only emulates bf16. Benchmarks and rehearsal measure time: leave the machine alone meanwhile.
set -euo pipefail
cd "$(dirname "$0")/.."
BIN=${BIN:-.venv/bin}
DATA=${DATA:-data}

if [ -n "$(git status --porcelain --untracked-files=no)" ]; then
    echo "error: files differ from the commit, and the results would be of neither: commit or stash them first" >&2
    exit 2
fi
commit=$(git rev-parse --short=12 HEAD)
work=runs/evidence/$commit
made=$work/results
export OMP_NUM_THREADS=1
fpl() { "$BIN/python" -m fpl "$@"; }
csv() { # NAME COMMAND...: a benchmark's table, once
    local name=$1
    shift
    [ -f "$made/benchmarks/$name.csv" ] && return
    "$BIN/python" "$@" --csv "$work/$name.csv"
    mkdir -p "$made/benchmarks"
    "$BIN/python" benchmarks/stamp.py "$work/$name.csv" "$made/benchmarks/$name.csv"
}
replace() { # PART: results/PART becomes what was made
    rm -rf "results/$1"
    cp -r "$made/$1" "results/$1"
    rm -rf "results/$1/figures/.drawn"
    echo "results/$1 is of commit $commit"
}

mini() {
    fpl reproduce --rows all --scale mini --data-root "$DATA" --out "$work/mini" --publish "$made/mini"
    for name in joint threshold; do
        fpl search $name --scale mini --data-root "$DATA" --out "$work/mini" --publish "$made/mini"
    done
    fpl report --scale mini --results "$made/mini"
}

# In folders of their own: beside several seeds, one in each other cell looks as if the others were missing.
mini_seeds() {
    some_seeds mini_seeds 5 table{1,2}.{supervised,cps,cps_half,weight_only,fpl_cps}.r50_1_{16,8,4} \
        table{1,2}.{cps_cutmix,cps_cutmix_half,cutmix_weight_only,fpl_cps_cutmix}.r50_1_{16,8,4} \
        table{1,2}.{ael,fpl_ael}.r50_1_{16,8,4} table2.{ael_ungated,fpl_ael_ungated}.r50_1_{16,8,4}
}

mini_frameworks() {
    some_seeds mini_frameworks 3 frameworks
}

mini_thresholds() {
    some_seeds mini_thresholds 3 thresholds table_a5.fpl_cps.n_1 table_a5.fpl_cps_soft.n_1
}

some_seeds() { # PART SEEDS CELLS...
    local part=$1 seeds=$2
    shift 2
    fpl reproduce "$@" --seeds "$seeds" --scale mini --data-root "$DATA" --out "$work/mini" --publish "$made/$part"
    without_page "$made/$part"
    fpl figures --scale mini --results "$made/$part"
}

# The comparison of docs/camvid.md, one seed more in each call. Stopped at any time, the next call goes on, also in a
# worktree of the commit whose results/camvid was copied to runs/evidence/COMMIT/camvid (in commits before 97e977e, as one
# file a run).
camvid() {
    local main=(table1.{supervised,cps,cps_half,weight_only,fpl_cps,ael,fpl_ael}.r50_1_{16,8,4}
        table1.{cps_cutmix,cps_cutmix_half,cutmix_weight_only,fpl_cps_cutmix}.r50_1_{16,8,4})
    for seeds in 1 2 3; do
        on_camvid camvid --seeds $seeds "${main[@]}"
    done
}

# All tables of the paper with one seed, and a cell of each system that they cite. In a folder of its own, as above.
camvid_tables() {
    on_camvid camvid_tables --seeds 1
    on_camvid camvid_tables --seeds 1 table2.{mt,cct,cutmix_seg,gct,cac}.r101_1_8 \
        table3.{vat,advsemseg,pseudoseg,pc2seg,u2pl}.n183 table1.{supervised.r50_1_8,u2pl.r101_1_8}
    fpl report --scale camvid --results "$made/camvid_tables"
}

camvid_frameworks() {
    on_camvid camvid_frameworks frameworks
}

camvid_length() {
    SCALE=benchmarks/camvid_short.toml on_camvid camvid_length length
}

without_page() { # FOLDER: page and tables would be of few runs
    rm -rf "$1/index.html" "$1/costs.parquet" "$1/tables" "$1"/tables.*
}

on_camvid() { # PART ARGUMENTS...
    local part=$1
    shift
    fpl reproduce "$@" --scale "${SCALE:-camvid}" --data-root "$DATA" --out "$work/camvid" --publish "$made/$part"
    without_page "$made/$part"
    # Pictures are CamVid's images, which are not ours to give away.
    rm -rf "$made/$part/examples"
    fpl figures --scale camvid --results "$made/$part"
}

# What lacks memory in float32 is tried in bf16, and its rows take the others' places.
rehearsal() {
    local asked=(--out "$work/rehearsal" --publish "$made/rehearsal" --data-root "$DATA")
    [ -z "${LISTS:-}" ] || asked+=(--lists "$LISTS")
    local code=0
    fpl rehearse "${asked[@]}" || code=$?
    if [ $code -eq 1 ] && grep -q "^no memory: " "$work/rehearsal/rehearsal.txt"; then
        fpl rehearse table1.{cps,cps_cutmix,fpl_cps_cutmix,ael,fpl_ael}.r101_1_8 train.precision=bf16 --no-ray "${asked[@]}"
    elif [ $code -ne 0 ]; then
        exit $code
    fi
}

benchmarks() {
    csv loss benchmarks/loss.py time
    csv loss_memory benchmarks/loss.py memory
    csv train_step benchmarks/train_step.py
    csv methods benchmarks/methods.py
    csv diagnostics benchmarks/diagnostics.py
    csv loader benchmarks/loader.py
    csv weights benchmarks/weights.py --data-root "$DATA"
    csv proposals benchmarks/proposals.py
    csv nodes benchmarks/nodes.py --nodes 8 16 32
    csv store benchmarks/store.py
    csv object_storage benchmarks/object_storage.py
    csv chaos benchmarks/chaos.py --out "$work/benchmark_chaos"
    csv search benchmarks/search.py --out "$work/benchmark_search"
}

parts=${*:-mini mini_seeds mini_frameworks mini_thresholds camvid camvid_tables camvid_length camvid_frameworks rehearsal benchmarks}
for part in $parts; do
    "$part"
done
# Only now: a run says whether files differ from its commit, and these do from here on.
for part in $parts; do
    replace "$part"
done
