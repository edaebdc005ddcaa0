#!/bin/bash
# Runs the test suites, each one even if another failed. The last lines say what ran, what failed and what was skipped.
#
#   scripts/test.sh                    install what the tests need and run all suites
#   scripts/test.sh e2e                run one suite
#   scripts/test.sh e2e -k websocket   with arguments for pytest or cargo test
#
# `unit` is the crates' own tests; every directory of tests/ is a suite as well. The exit code is 1 if a suite failed.
set -uo pipefail
cd "$(dirname "$0")/.."

cargo=${CARGO:-cargo}
mkdir -p "${CARGO_TARGET_DIR:-target}/test-logs"
target=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)
# A small machine that is busy with other work gives the compiler more of its time if it has more processes.
cores=$(nproc)
export CARGO_BUILD_JOBS=${CARGO_BUILD_JOBS:-$((cores > 4 ? cores : 4))}
# pytest lists failed and skipped tests with their reasons.
export PYTEST_ADDOPTS="-rfEs ${PYTEST_ADDOPTS:-}"

install_tools() {
    scripts/install-test-tools.sh && scripts/install-lab-tools.sh
}

# A suite without a run.sh of its own uses that of the end-to-end tests.
run_pytest() {
    local suite=$1
    shift
    if [ -x "tests/$suite/run.sh" ]; then
        "tests/$suite/run.sh" "$@"
    else
        TESTS="$PWD/tests/$suite" tests/e2e/run.sh "$@"
    fi
}

run_suite() {
    local suite=$1 status=0
    shift
    case $suite in
        tools) install_tools ;;
        unit) "$cargo" test --workspace --locked --no-fail-fast "$@" ;;
        nginx-module)
            scripts/build-nginx-module.sh || status=1
            "$cargo" test --locked --no-fail-fast --manifest-path crates/nginx-module/Cargo.toml \
                --target-dir "$target/nginx-module/library" || status=1
            run_pytest "$suite" "$@" || status=1
            return $status
            ;;
        *) "$cargo" build --locked -p balanza && BALANZA=$target/debug/balanza run_pytest "$suite" "$@" ;;
    esac
}

# Adds up the summary lines of cargo and pytest.
counts() {
    awk '
        function add(count, word) {
            sub(/[;,]$/, "", word)
            sub(/^errors$/, "error", word)
            sum[word == "ignored" ? "skipped" : word] += count
        }
        /^test result: |(passed|failed|skipped|errors?).* in [0-9.]+s/ {
            for (i = 1; i < NF; i++) if ($i ~ /^[0-9]+$/) add($i, $(i + 1))
        }
        END { printf "%d passed, %d failed, %d skipped", sum["passed"], sum["failed"] + sum["error"], sum["skipped"] }
    ' "$1"
}

# The lines of the logs that match, each with the name of its suite; a long reason is cut.
listed() {
    local heading=$1 pattern=$2 suite lines
    for suite in "${suites[@]}"; do
        lines=$(grep -aE "$pattern" "$target/test-logs/$suite.log" | sort -u | cut -c 1-200 | sed "s/^/  $suite: /")
        if [ -n "$lines" ]; then
            [ -z "$heading" ] || printf '\n%s\n' "$heading"
            heading=
            printf '%s\n' "$lines"
        fi
    done
}

suites=(tools unit)
for directory in tests/*/; do
    if [ -e "$directory/run.sh" ] || [ -e "$directory/pytest.ini" ]; then
        suites+=("$(basename "$directory")")
    fi
done
if [ $# -gt 0 ]; then
    suites=("$1")
    shift
fi

table=
failed=0
for suite in "${suites[@]}"; do
    printf '\n== %s\n' "$suite"
    log=$target/test-logs/$suite.log
    start=$SECONDS
    if run_suite "$suite" "$@" 2>&1 | tee "$log"; then
        result=passed
    else
        result=FAILED
        failed=$((failed + 1))
    fi
    detail=
    [ "$suite" = tools ] || detail=$(counts "$log")
    table+=$(printf '  %-14s %-8s %5d s   %s' "$suite" "$result" $((SECONDS - start)) "$detail")$'\n'
done

listed "Skipped:" '^(SKIPPED \[|test .* \.\.\. ignored)'
listed "Failed:" '^((FAILED|ERROR) |test .* \.\.\. FAILED$|error(\[E[0-9]+\])?: )'
printf '\nSuites (logs in %s):\n%s' "$target/test-logs" "$table"
if [ $failed -gt 0 ]; then
    echo "$failed of ${#suites[@]} suites failed after $SECONDS s."
    exit 1
fi
echo "All ${#suites[@]} suites passed in $SECONDS s."
