#!/usr/bin/env bash
# Makes everything under results/ anew, from one commit. `make evidence` calls it; stopped, it continues.
#
#   benchmarks/evidence.sh [mini] [camvid_main] [camvid_length] [camvid_seeds] [camvid_systems] [benchmarks]     (all, in this order)
#
# Runs and what they give are collected in runs/evidence/COMMIT; when all parts are complete they go to results/ and take
# the place of what was there: no folder of results holds numbers of two commits. On two idle cores: mini 20 minutes,
# camvid_systems 30, benchmarks 55, and 95 where the CPU only emulates bf16; the three others of CamVid (in $DATA/camvid)
# an hour, an hour and two. They fill one folder, results/camvid, and go on from what is published of the same commit:
# `git worktree add ../evidence COMMIT` is where a later sitting continues. Benchmarks measure time: leave the machine
# alone meanwhile.
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
replace() { # PART: its folder of results/ becomes what was made
    local folder=$1
    case $folder in camvid_main | camvid_length | camvid_seeds) folder=camvid ;; esac
    rm -rf "results/$folder"
    cp -r "$made/$folder" "results/$folder"
    rm -rf "results/$folder/figures/.drawn"
    echo "results/$folder is of commit $commit"
}

mini() {
    fpl reproduce --rows all --scale mini --data-root "$DATA" --out "$work/mini" --publish "$made/mini"
    for name in joint threshold; do
        fpl search $name --scale mini --data-root "$DATA" --out "$work/mini" --publish "$made/mini"
    done
    fpl report --scale mini --results "$made/mini"
}

# Rows of Table 1 that FPL is held against, at 1/16, 1/8 and 1/4.
main_rows() {
    local row
    for row in supervised cps fpl_cps cps_half weight_only cps_cutmix fpl_cps_cutmix cps_cutmix_half cutmix_weight_only ael fpl_ael; do
        echo "table1.$row.r50_1_[1684]*"
    done
}
camvid_main() { mapfile -t cells < <(main_rows) && on_camvid camvid "${cells[@]}"; }
camvid_length() { on_camvid camvid length; }
camvid_seeds() { mapfile -t cells < <(main_rows) && on_camvid camvid "${cells[@]}" --seeds 3; }

# What the table of docs/camvid.md shows: the cells that `experiments/base/camvid_*.toml` are, AEL's two left out.
camvid_systems() {
    on_camvid camvid_systems table2.{supervised,cps_cutmix,fpl_cps_cutmix,mt,cct,cutmix_seg,gct,cac}.r101_1_8 \
        table3.{vat,advsemseg,pseudoseg,pc2seg,u2pl}.n183 table1.u2pl.r101_1_8
}

on_camvid() { # PART CELLS...
    local part=$1
    shift
    if [ ! -d "$work/camvid" ] && grep -qx "commit: $commit" "results/$part/ENVIRONMENT"; then
        mkdir -p "$work" "$made"
        cp -r "results/$part" "$work/camvid"
        cp -r "results/$part" "$made/$part"
    fi
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

parts=${*:-mini camvid_main camvid_length camvid_seeds camvid_systems benchmarks}
for part in $parts; do
    "$part"
done
# Only now: a run says whether files differ from its commit, and these do from here on.
for part in $parts; do
    replace "$part"
done
