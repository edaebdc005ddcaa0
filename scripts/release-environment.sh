# Sourced by the scripts that build and pack a release: the same commit gives the same bytes.

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")
target=${CARGO_TARGET_DIR:-$root/target}
mkdir -p "$target"
target=$(cd "$target" && pwd)

# The time of everything in the packages: that of the commit.
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
    SOURCE_DATE_EPOCH=$(git -C "$root" log -1 --format=%ct 2>/dev/null || stat -c %Y "$root/Cargo.toml")
fi
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
umask 022

# A tar archive of the files of a directory, which depends on their names, modes and contents only.
archive() {
    tar -C "$1" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=gnu -cf - "${@:2}"
}

# Makes the directory that a package goes to, and prints its whole path.
package_directory() {
    mkdir -p "$1"
    (cd "$1" && pwd)
}

# What is compiled in this directory names neither the directory nor those of the sources.
hide_directories() {
    local build=$1 pair
    for pair in "$root=/balanza" "${CARGO_HOME:-$HOME/.cargo}=/cargo" "$build=/build"; do
        export RUSTFLAGS="${RUSTFLAGS:-} --remap-path-prefix=$pair"
        export CFLAGS="${CFLAGS:-} -ffile-prefix-map=$pair"
    done
}
