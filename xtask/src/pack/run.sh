#!/bin/sh
# Runs the programs of this folder on the GPU of this machine. `./run --help` says how.
set -u
here=$(cd "$(dirname "$0")" && pwd)

usage() {
    cat <<'END'
Usage: ./run [doctor] [tests] [benches] [peers] [options]

Without a part, runs all of them. Writes what the programs print to results/DATE-TIME.

  doctor    Describe the GPU and its driver, and test and time it in short
  tests     Run the tests on it
  benches   Measure the kernels
  peers     Compare with burn-flex, with PyTorch where Python has it, and with the backends packed
            besides

Options:
  --only NAME      Only the tests or the benches whose names contain NAME, or the workloads of
                   peers whose names start with it
  --limit SECONDS  Stop a program after this time; the results so far remain [default: 3600]

If the driver's manifest is in an unusual place, as in some containers, set VK_DRIVER_FILES.
END
}

parts=
only=
limit=3600
while [ $# -gt 0 ]; do
    case $1 in
        doctor | tests | benches | peers) parts="$parts $1" ;;
        --only | --limit)
            if [ $# -lt 2 ]; then
                echo "error: $1 needs a value" >&2
                exit 2
            fi
            if [ "$1" = --only ]; then only=$2; else limit=$2; fi
            shift
            ;;
        -h | --help)
            usage
            exit 0
            ;;
        *)
            echo "error: unknown argument $1" >&2
            usage >&2
            exit 2
            ;;
    esac
    shift
done
case $limit in
    '' | *[!0-9]*)
        echo "error: --limit $limit: expected a number of seconds" >&2
        exit 2
        ;;
esac
parts=${parts:-doctor tests benches peers}

# The loader of this folder serves systems without one.
if ! { ldconfig -p || /sbin/ldconfig -p; } 2>/dev/null | grep -q 'libvulkan\.so\.1'; then
    export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi
results=$here/results/$(date +%Y-%m-%d-%H%M%S)
mkdir -p "$results" || exit 1
cp "$here/about.txt" "$results"
"$here/bin/burn-wgsl" devices >"$results/devices.txt" 2>&1
if ! grep -q '^gpu:0' "$results/devices.txt"; then
    echo "error: no GPU was found: $results/devices.txt; the doctor says why:" >&2
    "$here/bin/burn-wgsl" doctor 2>&1 | tee "$results/doctor.txt"
    exit 1
fi
# A GPU that cannot be opened fails the tests; they are not skipped.
export BURN_WGSL_TEST_REQUIRE=gpu:0 BURN_WGSL_DEVICE=gpu:0
failed=0
if ! command -v timeout >/dev/null; then
    echo "without a time limit: there is no command \`timeout\`"
    timeout() {
        shift
        "$@"
    }
fi

# Runs a program with a time limit, and prints one line.
run() {
    name=$1
    shift
    start=$(date +%s)
    timeout "$limit" "$@" >"$results/$name.txt" 2>&1
    code=$?
    seconds=$(($(date +%s) - start))
    outcome=passed
    if [ $code -ne 0 ]; then
        outcome=FAILED
        [ $code -eq 124 ] && outcome='timed out'
        failed=1
    fi
    printf '%-24s %-10s %5d s\n' "$name" "$outcome" "$seconds" | tee -a "$results/summary.txt"
}

for part in $parts; do
    case $part in
        doctor) run doctor "$here/bin/burn-wgsl" doctor --report "$results/doctor.json" ;;
        tests)
            found=no
            for program in "$here"/tests/*; do
                name=$(basename "$program")
                case $name in
                    *"$only"*)
                        found=yes
                        BURN_WGSL_TUNING=off run "$name" "$program"
                        ;;
                esac
            done
            if [ $found = no ]; then
                echo "error: no test has \`$only\` in its name" >&2
                failed=1
            fi
            ;;
        benches) run benches "$here/bin/kernels" --bench $only ;;
        peers)
            run peers "$here/peers/peers" --device gpu --no-build --out "$results/peers.md" \
                ${only:+--workloads "$only"}
            ;;
    esac
done
echo "results: $results"
exit $failed
