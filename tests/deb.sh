#!/usr/bin/env bash
# Builds the Debian package and mounts a sample with what it contains: tests/deb.sh
#
# Nothing is installed: the package is extracted, and apt checks its dependencies.

# shellcheck source-path=SCRIPTDIR source=../tools/environment.sh
source "$(dirname "$0")/../tools/environment.sh"
scratch=$(mktemp -d)
trap 'umount "$scratch/mnt" 2>/dev/null; rm -rf "$scratch"' EXIT
package=$("$root/packaging/deb" "$scratch")
apt-get install --simulate --no-install-recommends "$package" >"$scratch/apt"
grep -q '^Inst ckptfs ' "$scratch/apt"
dpkg-deb --extract "$package" "$scratch/root"
test "$(readlink "$scratch/root/usr/sbin/mount.ckptfs")" = /usr/bin/ckptfs
mkdir "$scratch/mnt"
"$scratch/root/usr/bin/ckptfs" "$root/tests/samples/demo.pth" "$scratch/mnt"
"$scratch/root/usr/bin/ckpt" ls --csv "$root/tests/samples/demo.pth" | cut -d, -f1 | sed 1d | sort >"$scratch/keys"
find "$scratch/mnt" -name '*.memmap' -printf '%P\n' | sed 's/\.memmap$//; s#/#.#g' | sort |
  diff "$scratch/keys" -
