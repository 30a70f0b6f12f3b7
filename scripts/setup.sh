#!/usr/bin/env bash
# Makes .venv ready for work: Python packages, and the native core built from source. Run it as often as you like: it
# does only what changed since the last time, by fingerprints kept in .venv. What the machine lacks it installs where it
# may (Debian and its kin, as root), and otherwise says what to run.
#
#   scripts/setup.sh           for running RockMQ
#   scripts/setup.sh checks    and what `make check` and `make test` need besides
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv
python_min=3.11
extras=dev,spark,delta,auth,speed,otel,otlp,taskiq,celery
rust_min=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' native/Cargo.toml)
PATH="$HOME/.cargo/bin:$PATH" # where rustup puts cargo, also for shells that don't know it

main() {
    if ! "$venv/bin/python" -c '' 2>/dev/null; then
        local python
        python=$(find_python) || { get_python && python=$(find_python); } || stop "no usable Python after installing it"
        say "creating $venv with $("$python" --version)"
        "$python" -m venv --clear $venv
    fi
    # Taken before the build: what changes during it is built the next time.
    local packages core
    packages="$extras $(fingerprint pyproject.toml)"
    core=$(fingerprint native/Cargo.toml native/Cargo.lock native/core)
    if [ "$packages" != "$(made packages)" ]; then
        have_toolchain
        say "installing Python packages and building the core; the first time this takes some minutes"
        quietly "$venv/bin/python" -m pip install --disable-pip-version-check 'maturin>=1.9,<2'
        # Also installs rockmq itself, editable, with everything the extras name.
        quietly build --extras "$extras"
    elif [ "$core" != "$(made core)" ] || [ ! -e rockmq/_core.abi3.so ]; then
        have_toolchain
        say "building the core"
        quietly build --skip-install
    fi
    printf '%s\n' "$packages" >$venv/.made-packages
    printf '%s\n' "$core" >$venv/.made-core
    [ "${1:-}" != checks ] || have_check_tools
}

build() {
    VIRTUAL_ENV="$PWD/$venv" "$venv/bin/maturin" develop --release "$@"
}

fingerprint() {
    find "$@" -type f -print0 | sort -z | xargs -0 cksum
}

made() {
    cat "$venv/.made-$1" 2>/dev/null || true
}

# Python

find_python() {
    local each
    # The system's own comes first: distributions build it with profile-guided optimisation, and it runs a fifth faster
    # than what version managers build by default. PYTHON=... picks another.
    for each in ${PYTHON:-} /usr/bin/python3 python3.13 python3.12 python3.11 python3; do
        # ensurepip is what Debian leaves out of python3 and python3-venv brings.
        if "$each" -c "import sys, venv, ensurepip; sys.exit(sys.version_info < (${python_min/./, }))" 2>/dev/null; then
            command -v "$each"
            return
        fi
    done
    return 1
}

get_python() {
    may_install python3 python3-venv || stop "Python $python_min or later with its venv module is missing." \
        "Debian, Ubuntu:  apt-get install python3 python3-venv" \
        "Fedora:          dnf install python3"
}

# C linker and Rust

have_toolchain() {
    command -v cc >/dev/null || may_install build-essential || stop "A C linker (cc) is missing." \
        "Debian, Ubuntu:  apt-get install build-essential" \
        "Fedora:          dnf install gcc"
    has_rust || get_rust || stop "Rust $rust_min or later (cargo) is missing$(old_rust)." \
        "Anywhere:        curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y" \
        "Debian 12:       apt-get install cargo-web rustfmt-web rust-web-clippy" \
        "Debian 13:       apt-get install cargo rustfmt rust-clippy" \
        "Fedora:          dnf install cargo rustfmt clippy"
    has_rust || stop "the Rust just installed is too old$(old_rust); this needs $rust_min"
}

have_check_tools() {
    has_lints || rustup component add rustfmt clippy >/dev/null 2>&1 || get_rust || true
    has_lints || stop \
        "rustfmt or clippy is missing." \
        "With rustup:     rustup component add rustfmt clippy" \
        "Debian 12:       apt-get install rustfmt-web rust-web-clippy" \
        "Debian 13:       apt-get install rustfmt rust-clippy" \
        "Fedora:          dnf install rustfmt clippy"
    # The core's Rust tests are programs that link Python in.
    has_python_library || { may_install python3-dev && has_python_library; } || stop \
        "The library of $("$venv/bin/python" --version) to link with is missing." \
        "Debian, Ubuntu:  apt-get install python3-dev (or python3.X-dev for another Python)" \
        "Fedora:          dnf install python3-devel"
}

has_lints() {
    cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1
}

has_python_library() {
    "$venv/bin/python" - <<'PYTHON'
import os, sys, sysconfig
variable = sysconfig.get_config_var
sys.exit(not os.path.exists(os.path.join(variable("LIBDIR"), variable("LDLIBRARY"))) and not variable("PYTHONFRAMEWORK"))
PYTHON
}

rust_version() {
    cargo --version 2>/dev/null | cut -d' ' -f2
}

has_rust() {
    at_least "$(rust_version)" "$rust_min"
}

old_rust() {
    local version
    version=$(rust_version)
    [ -z "$version" ] || printf ' (cargo is %s)' "$version"
}

# Debian 12's own cargo is from 2022; the compiler it keeps up to date is the one its browsers are built with, `-web`.
get_rust() {
    can_install || return 1
    local suffix version
    for suffix in "" -web; do
        version=$(apt-cache policy "cargo$suffix" | sed -n 's/^ *Candidate: *//p')
        if at_least "$version" "$rust_min"; then
            may_install "cargo$suffix" "rustc$suffix" "rustfmt$suffix" "rust$suffix-clippy"
            return
        fi
    done
    return 1
}

at_least() {
    [ -n "$1" ] && [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -1)" = "$2" ]
}

# Installing with Debian's package manager

can_install() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    if [ -z "${updated:-}" ]; then
        updated=yes
        quietly apt-get update
    fi
}

may_install() {
    can_install || return 1
    say "installing $*"
    DEBIAN_FRONTEND=noninteractive quietly apt-get install -y --no-install-recommends "$@"
}

# Saying

say() {
    printf 'setup: %s\n' "$*" >&2
}

stop() {
    printf 'setup: %s\n' "$1" >&2
    shift
    [ $# = 0 ] || printf '  %s\n' "$@" >&2
    exit 1
}

# Runs a command; its output is shown only when it fails.
quietly() {
    local output status=0
    output=$(mktemp)
    "$@" >"$output" 2>&1 || status=$?
    [ $status = 0 ] || { cat "$output" >&2; say "failed: $*"; }
    rm -f "$output"
    return $status
}

main "$@"
