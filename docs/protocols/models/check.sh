#!/bin/sh
# Explores all states of lease.pml: as it is, then with each planted fault, which must be found.
# Options go to Spin, for larger bounds: check.sh -DTERMS=3 -DTIME=4
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

bounds="$*"

explore() { # options of the model; prints what Spin found
    spin -a $bounds "$@" "$here/lease.pml" >spin.txt || { cat spin.txt; exit 2; }
    cc -O2 -DSAFETY -DCOLLAPSE -DMEMLIM=8192 -o pan pan.c
    ./pan -E -m1000000 -w26 >pan.txt 2>&1 || true
    if grep -q 'max search depth too small\|out of memory\|exceeded' pan.txt; then
        cat pan.txt; echo "not all states were explored"; exit 2
    fi
    states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.txt)
    found=$(sed -n 's/.*\(assertion violated.*\) (at.*/\1/p' pan.txt)
}

for variant in "" -DFROZEN; do
    explore $variant
    test -z "$found" || { echo "as it is $variant: $found"; exit 1; }
    echo "as it is $variant: all $states states are good"
done
for fault in NO_TERM_CHECK LOCAL_CLOCK VOLATILE_PROMISE MISSED_COMMIT; do
    explore -D$fault
    test -n "$found" || { echo "planted $fault: not found in $states states"; exit 1; }
    echo "planted $fault: found, $found"
done
