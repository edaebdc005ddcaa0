#!/bin/bash
# Runs the test suites, each one even if another failed. The last lines say what ran, what failed and what was skipped.
#
#   scripts/test.sh                    install what the tests need and run all suites
#   scripts/test.sh e2e                run one suite
#   scripts/test.sh e2e -k websocket   with arguments for pytest or cargo test
#
# `unit` is the crates' own tests; every directory of tests/ is a suite as well. Because tests wait more than they compute, three
# rows of suites run at once: `unit`; docs and e2e; the others. The output of the first and the last row follows at the end. The
# exit code is 1 if a suite failed.
set -uo pipefail
cd "$(dirname "$0")/.."

cargo=${CARGO:-cargo}
mkdir -p "${CARGO_TARGET_DIR:-target}/test-logs"
target=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)
logs=$target/test-logs
rm -f "$logs"/*.result
# A small machine that is busy with other work gives the compiler more of its time if it has more processes.
cores=$(nproc)
export CARGO_BUILD_JOBS=${CARGO_BUILD_JOBS:-$((cores > 4 ? cores : 4))}
# Without its cache each of pytest's processes compiles all tests, and each Python program that they start all of its packages.
unset PYTHONDONTWRITEBYTECODE
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

# The crates that are tested in a simulated network run apart from the others: that network is a feature of crates/net, and with
# it everything above would be compiled anew. (`-p balanza` gives the dependencies the features that they have in the program.)
run_unit() {
    local simulated=(balanza-{http2,net,proxy,resolver}) status=0
    if [ $# -gt 0 ]; then
        "$cargo" test --locked --no-fail-fast --workspace "$@"
        return
    fi
    # While one part runs the other is compiled or runs as well, in a process group of its own for the trap.
    set -m
    "$cargo" test --locked --no-fail-fast --workspace "${simulated[@]/#/--exclude=}" </dev/null >"$logs/unit-others.log" 2>&1 &
    local others=$!
    set +m
    # The number is in the text, because the local variable no longer exists when the shell ends.
    trap "kill -- -$others 2>/dev/null" EXIT
    "$cargo" test --locked --no-fail-fast -p balanza "${simulated[@]/#/-p}" --lib --test tls || status=1
    wait $others || status=1
    trap - EXIT
    cat "$logs/unit-others.log"
    return $status
}

run_suite() {
    local suite=$1 status=0
    shift
    case $suite in
        tools) install_tools ;;
        # A copy, because the unit tests' build may replace the program while others use it.
        build) "$cargo" build --locked -p balanza && cp "$target/debug/balanza" "$logs/balanza" ;;
        unit) run_unit "$@" ;;
        nginx-module)
            scripts/build-nginx-module.sh || status=1
            run_pytest "$suite" "$@" || status=1
            return $status
            ;;
        *)
            if [ "$(result build)" = FAILED ]; then
                echo "not run: balanza does not compile"
                return 1
            fi
            BALANZA=$logs/balanza run_pytest "$suite" "$@"
            ;;
    esac
}

# Runs a suite with its output in its log as well, and keeps its result and its seconds.
run() {
    local suite=$1 start=$SECONDS result=passed
    run_suite "$@" 2>&1 | tee "$logs/$suite.log" || result=FAILED
    echo "$result $((SECONDS - start))" >"$logs/$suite.result"
}

result() {
    cut -d ' ' -f 1 "$logs/$1.result"
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
        lines=$(grep -aE "$pattern" "$logs/$suite.log" | sort -u | cut -c 1-200 | sed "s/^/  $suite: /")
        if [ -n "$lines" ]; then
            [ -z "$heading" ] || printf '\n%s\n' "$heading"
            heading=
            printf '%s\n' "$lines"
        fi
    done
}

front=(tools build)
rest=()
for directory in tests/*/; do
    suite=$(basename "$directory")
    if [ -e "$directory/run.sh" ] || [ -e "$directory/pytest.ini" ]; then
        case $suite in
            docs | e2e) front+=("$suite") ;;
            *) rest+=("$suite") ;;
        esac
    fi
done
case ${1:-} in
    '') ;;
    unit | nginx-module) front=("$1") ;;
    *) front=(build "$1") ;;
esac

# Runs suites one after the other in the background: in a process group of their own, so that all of it ends when this script is
# interrupted, and with ports of their own.
beside() {
    local first=$((21000 + 5000 * ${#background[@]}))
    set -m
    WORKERS=${WORKERS:-2} TEST_PORTS=$first-$((first + 4999)) run_all "$@" </dev/null >/dev/null &
    background+=($!)
    set +m
    printf '\n== run beside the others: %s\n' "$*"
}

run_all() {
    local suite
    for suite in "$@"; do
        run "$suite"
    done
}

background=()
trap 'for pid in "${background[@]}"; do kill -- "-$pid" 2>/dev/null; done' EXIT
suites=("${front[@]}")
for suite in "${front[@]}"; do
    printf '\n== %s\n' "$suite"
    run "$suite" "${@:2}"
    if [ "$suite" = build ] && [ $# = 0 ]; then
        beside unit
        beside "${rest[@]}"
        suites+=(unit "${rest[@]}")
    fi
done
wait "${background[@]}"
background=()
for suite in "${suites[@]:${#front[@]}}"; do
    printf '\n== %s\n' "$suite"
    cat "$logs/$suite.log"
done

listed "Skipped:" '^(SKIPPED \[|test .* \.\.\. ignored)'
listed "Failed:" '^((FAILED|ERROR) [^ ]|test .* \.\.\. FAILED$|error(\[E[0-9]+\])?: |not run: )'
printf '\nSuites (logs in %s):\n' "$logs"
failed=0
for suite in "${suites[@]}"; do
    read -r result seconds <"$logs/$suite.result"
    [ "$result" = passed ] || failed=$((failed + 1))
    detail=
    [[ $suite = tools || $suite = build ]] || detail=$(counts "$logs/$suite.log")
    printf '  %-14s %-8s %5d s   %s\n' "$suite" "$result" "$seconds" "$detail"
done
if [ $failed -gt 0 ]; then
    echo "$failed of ${#suites[@]} steps failed after $SECONDS s."
    exit 1
fi
echo "All ${#suites[@]} steps passed in $SECONDS s."
