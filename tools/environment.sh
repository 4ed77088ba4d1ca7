# shellcheck shell=bash disable=SC2034
# Shared by tools/run, tools/test, tools/lint, tools/fuzz and .ci/run, which source it.
#
# Each function provides something if it is missing: packages of Debian or Ubuntu, a Python with
# PyTorch, a build directory. A second run takes no time and needs no network.

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

build_packages=(g++ meson:meson ninja-build:ninja pkg-config libfuse3-dev fuse3 libfmt-dev
  libsodium-dev zlib1g-dev libbz2-dev liblzma-dev libcurl4-openssl-dev libpugixml-dev
  libxxhash-dev libcli11-dev nlohmann-json3-dev libgtest-dev libgmock-dev)
# Chromium opens the page of ckpt report. The last are servers: nginx, Redis, and Ceph's, which speaks S3.
test_packages=(python3-venv rsync attr jq zip util-linux openssl chromium nginx-light:nginx
  redis-server:redis-server radosgw ceph-mon ceph-osd ceph-common)
lint_packages=(shellcheck mandoc)

say() { printf '\n== %s\n' "$*" >&2; }

die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# need PACKAGE[:COMMAND]...: installs the packages that are missing. A package with a COMMAND is not
# missing if the command exists.
need() {
  local package missing=()
  for package in "$@"; do
    if [[ $package == *:* ]] && command -v "${package#*:}" >/dev/null; then continue; fi
    package=${package%:*}
    # shellcheck disable=SC2016
    if [[ $(dpkg-query -W -f '${Status}' "$package" 2>/dev/null) != *" installed" ]]; then
      missing+=("$package")
    fi
  done
  if ((${#missing[@]} == 0)); then return; fi
  command -v apt-get >/dev/null || die "missing packages: ${missing[*]} (Debian's names): install them"
  local sudo=()
  if ((EUID != 0)); then sudo=(sudo); fi
  say "installing ${missing[*]}"
  # Without the package lists of a fresh machine, or with old ones, the first try fails.
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends "${missing[@]}" >&2 ||
    { "${sudo[@]}" apt-get update >&2 &&
      "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends "${missing[@]}" >&2; }
}

# need_llvm: installs clang, clang-format and clang-tidy and sets $clang, $clangxx, $clang_format and
# $clang_tidy. Version 14 if the distribution has it, because another one formats differently.
need_llvm() {
  local suffix=''
  if command -v clang++-14 >/dev/null || apt-cache show clang-14 >/dev/null 2>&1; then suffix=-14; fi
  if [[ -z $suffix ]] && ! command -v clang++ >/dev/null; then
    # Package lists may be missing altogether: fetch them before settling for another version.
    local sudo=()
    if ((EUID != 0)); then sudo=(sudo); fi
    "${sudo[@]}" apt-get update >&2
    if apt-cache show clang-14 >/dev/null 2>&1; then suffix=-14; fi
  fi
  need "clang$suffix" "clang-format$suffix" "clang-tidy$suffix"
  local version
  version=$("clang++$suffix" -dumpversion)
  need "libclang-rt-${version%%.*}-dev"
  clang=clang$suffix clangxx=clang++$suffix clang_format=clang-format$suffix clang_tidy=clang-tidy$suffix
}

# need_python: sets and exports $CKPTFS_PYTHON, a Python with what tests/requirements.txt lists, and
# $CKPTFS_OLD_TENSORDICT, a folder with the older tensordict. They live in the user's cache, in a
# folder whose name is a hash of the lists.
need_python() {
  if [[ -n ${CKPTFS_PYTHON:-} ]]; then
    export CKPTFS_PYTHON
    return
  fi
  local lists=("$root/tests/requirements.txt" "$root/tests/requirements-old.txt") key folder
  key=$({ python3 --version && cat "${lists[@]}"; } | sha256sum | cut -c1-12)
  folder=${XDG_CACHE_HOME:-$HOME/.cache}/ckptfs/python-$key
  if [[ ! -e $folder/complete ]]; then
    say "installing PyTorch and tensordict in $folder"
    rm -rf "$folder"
    python3 -m venv "$folder"
    "$folder/bin/pip" install --quiet --requirement "${lists[0]}" >&2
    "$folder/bin/pip" install --quiet --no-deps --target "$folder/old" \
      --requirement "${lists[1]}" >&2
    touch "$folder/complete"
  fi
  export CKPTFS_PYTHON=$folder/bin/python CKPTFS_OLD_TENSORDICT=$folder/old
}

# need_peers: installs what the remote benchmark compares ckptfs with, and exports $CKPTFS_PEERS, a
# folder with Python packages that use those of $CKPTFS_PYTHON.
need_peers() {
  local packages=(s3torchconnector==1.5.0 s3torchconnectorclient==1.5.0
    runai-model-streamer==0.17.0 runai-model-streamer-s3==0.17.1 humanize==4.14.0)
  need "${test_packages[@]}" rclone s3fs curl
  CKPTFS_PEERS=${XDG_CACHE_HOME:-$HOME/.cache}/ckptfs/peers-$(cksum <<<"${packages[*]}" | cut -d' ' -f1)
  if [[ ! -e $CKPTFS_PEERS/complete ]]; then
    say "installing ${packages[*]} in $CKPTFS_PEERS"
    "$CKPTFS_PYTHON" -m pip install --quiet --no-deps --target "$CKPTFS_PEERS" "${packages[@]}" >&2
    touch "$CKPTFS_PEERS/complete"
  fi
  export CKPTFS_PEERS
}

# need_ruff: sets $ruff to the linter of the Python files, which lives in the user's cache.
need_ruff() {
  local version=0.17.6 folder
  folder=${XDG_CACHE_HOME:-$HOME/.cache}/ckptfs/ruff-$version
  ruff=$folder/bin/ruff
  if [[ -x $ruff ]]; then return; fi
  need python3-venv
  say "installing ruff in $folder"
  python3 -m venv "$folder"
  "$folder/bin/pip" install --quiet "ruff==$version" >&2
}

# configure DIRECTORY [OPTION...]: sets up a build directory, unless it exists.
configure() {
  local directory=$root/$1
  shift
  if [[ ! -e $directory/build.ninja ]]; then meson setup "$directory" "$root" "$@" >&2; fi
}

# build DIRECTORY [TARGET...]: builds these targets, or all. A terminal gets ninja's progress.
build() {
  local directory=$1 quiet=(--quiet)
  shift
  if [[ -t 2 ]]; then quiet=(); fi
  ninja "${quiet[@]}" -C "$root/$directory" "$@" >&2
}

# release [TARGET...]: builds the program in build/release and sets $ckptfs to it. A warning of an
# unknown compiler is no error for users.
release() {
  need "${build_packages[@]}"
  configure build/release --buildtype=release "-Dwerror=${CI:-false}"
  build build/release "$@"
  ckptfs=$root/build/release/fs/ckptfs
}
