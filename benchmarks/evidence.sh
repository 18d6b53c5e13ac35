#!/usr/bin/env bash
# Makes everything under results/ anew, from one commit. `make evidence` calls it; stopped, it continues.
#
#   benchmarks/evidence.sh [mini] [camvid] [camvid_length] [camvid_systems] [benchmarks]     (all, in this order)
#
# Runs and what they give are collected in runs/evidence/COMMIT; when all parts are complete they go to results/ and take
# the place of what was there: no folder of results holds numbers of two commits. On two idle cores: mini 20 minutes,
# camvid and camvid_systems 17 each, camvid_length hours (CamVid must be in $DATA/camvid), benchmarks 55, and 95 where the
# CPU only emulates bf16. Benchmarks measure time: leave the machine alone meanwhile.
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

camvid() {
    on_camvid camvid 'table4.fpl_cps.t*' table1.cps.r50_1_16 'table2.fpl_cps_cutmix.r101_1_[18]*'
}

camvid_length() {
    on_camvid camvid_length length
}

# What the table of docs/camvid.md shows: the cells that `experiments/base/camvid_*.toml` are, AEL's two left out.
camvid_systems() {
    on_camvid camvid_systems table2.{supervised,cps_cutmix,fpl_cps_cutmix,mt,cct,cutmix_seg,gct,cac}.r101_1_8 \
        table3.{vat,advsemseg,pseudoseg,pc2seg,u2pl}.n183 table1.u2pl.r101_1_8
}

on_camvid() { # PART CELLS...
    local part=$1
    shift
    fpl reproduce "$@" --scale camvid --data-root "$DATA" --out "$work/camvid" --publish "$made/$part"
    # Pictures are CamVid's images, which are not ours to give away; the page would be of few runs.
    rm -rf "$made/$part/examples" "$made/$part/index.html" "$made/$part"/tables.*
    fpl figures --scale camvid --results "$made/$part"
}

benchmarks() {
    csv loss benchmarks/loss.py time
    csv loss_memory benchmarks/loss.py memory
    csv train_step benchmarks/train_step.py
    csv methods benchmarks/methods.py
    csv diagnostics benchmarks/diagnostics.py
    csv loader benchmarks/loader.py
    csv search benchmarks/search.py --out "$work/benchmark_search"
}

parts=${*:-mini camvid camvid_length camvid_systems benchmarks}
for part in $parts; do
    "$part"
done
# Only now: a run says whether files differ from its commit, and these do from here on.
for part in $parts; do
    replace "$part"
done
