#!/usr/bin/env bash
# Build the images where no image registry is reached, and with no network at all inside the build:
#   deploy/airgap/build.sh wheels   every Python package as a wheel, into deploy/wheelhouse (needs a package index)
#   deploy/airgap/build.sh base     the base image from Debian packages (needs a Debian mirror, root and mmdebstrap)
#   deploy/airgap/build.sh images   both images from these two (needs nothing)
#   deploy/airgap/build.sh          all three
# The first two may run on another machine: carry the folder deploy/ over, wheelhouse and airgap/out included.
#   KERNFED_BASE=kernfed-base:bookworm     the base image's tag
#   KERNFED_MIRROR=http://mirror.example/debian     unset: what mmdebstrap takes
#   KERNFED_CACHE=/path/to/folder     keeps wheels for as long as their versions stay, and the base for a week
# Arguments behind the word are passed to `docker build`.
set -euo pipefail
cd "$(dirname "$0")/../.."
base=${KERNFED_BASE:-kernfed-base:bookworm}
wheelhouse=deploy/wheelhouse
tarball=deploy/airgap/out/base.tar

fail() {
  echo "error: $*" >&2
  exit 2
}

# Where something of this kind and content is kept; nowhere without KERNFED_CACHE.
place() {
  local sum
  sum=$(sha256sum | cut -c1-16)
  [ -z "${KERNFED_CACHE:-}" ] || echo "$KERNFED_CACHE/$1-$sum"
}

# put KIND FILES... PLACE: keep files there, instead of what was kept of this kind before.
put() {
  local kind=$1 files=("${@:2:$#-2}") there=${!#}
  rm -rf "$KERNFED_CACHE/$kind"-*
  mkdir -p "$there.new"
  cp "${files[@]}" "$there.new"
  mv "$there.new" "$there"
}

# The base image's Python decides which wheels fit, so they are fetched for it and not for the Python that fetches.
wheels() {
  local python=${PYTHON:-}
  for candidate in ${python:-.venv/bin/python python3.11 python3}; do
    if "$candidate" -c 'import sys, pip; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
      python=$candidate
      break
    fi
  done
  [ -n "$python" ] || fail "wheels for Debian 12 are fetched by a Python 3.11 with pip: set PYTHON=/path/to/python3.11"
  find $wheelhouse -name '*.whl' -delete
  for image in coordinator client; do
    "$python" deploy/image/requirements.py $image
  done >$wheelhouse/.requirements
  sed -n 's/^requires = \["\(.*\)"\]$/\1/p' pyproject.toml >>$wheelhouse/.requirements
  local kept
  kept=$(cat $wheelhouse/.requirements constraints.txt deploy/constraints.txt | place wheels)
  if [ -d "$kept" ]; then
    echo "taking wheels of the same versions from $kept"
    rm $wheelhouse/.requirements
    cp "$kept"/* $wheelhouse
    return
  fi
  echo "fetching wheels into $wheelhouse"
  "$python" -m pip wheel -q --disable-pip-version-check -w $wheelhouse -r $wheelhouse/.requirements \
    -c constraints.txt -c deploy/constraints.txt
  rm $wheelhouse/.requirements
  (cd $wheelhouse && sha256sum -- *.whl >SHA256SUMS)
  [ -z "$kept" ] || put wheels $wheelhouse/*.whl $wheelhouse/SHA256SUMS "$kept"
  echo "$(find $wheelhouse -name '*.whl' | wc -l) wheels, $(du -sh $wheelhouse | cut -f1)"
}

# minbase plus Python. Manuals and translations are left out; licences stay.
base() {
  [ "$(id -u)" -eq 0 ] || fail "mmdebstrap needs root here: sudo $0 base"
  command -v mmdebstrap >/dev/null || fail "mmdebstrap is missing: apt-get install mmdebstrap"
  mkdir -p "$(dirname $tarball)"
  local kept
  kept=$( (declare -f base && date +%G-W%V && echo "${KERNFED_MIRROR:-}") | place base)
  if [ -d "$kept" ]; then
    echo "taking this week's base from $kept"
    cp "$kept/base.tar" $tarball
    return
  fi
  echo "making $base from Debian packages"
  mmdebstrap --quiet --variant=minbase --include=python3,python3-venv,ca-certificates,tini \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    bookworm $tarball ${KERNFED_MIRROR:+"$KERNFED_MIRROR"}
  [ -z "$kept" ] || put base $tarball "$kept"
}

load_base() {
  [ -e $tarball ] || fail "$tarball is missing: run $0 base, here or on a machine that reaches a Debian mirror"
  local sum
  sum=$(sha256sum $tarball | cut -d' ' -f1)
  # Imported once: each import is a new image, behind which nothing is taken from the build cache.
  if [ "$(docker image inspect -f '{{index .Config.Labels "kernfed.tarball"}}' "$base" 2>/dev/null)" != "$sum" ]; then
    docker import -c 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
      -c "LABEL kernfed.tarball=$sum" $tarball "$base" >/dev/null
  fi
}

images() {
  if [ -e $tarball ] || ! docker image inspect "$base" >/dev/null 2>&1; then
    load_base
  fi
  (cd $wheelhouse && sha256sum --quiet -c SHA256SUMS) || fail "$wheelhouse is not complete: run $0 wheels"
  deploy/build.sh --network none --build-arg BASE="$base" --build-arg PIP_NO_INDEX=1 "$@"
}

what=${1:-all}
[ $# -eq 0 ] || shift
case $what in
  wheels | base) "$what" ;;
  images) images "$@" ;;
  all)
    wheels
    base
    images "$@"
    ;;
  *) fail "unknown word $what: wheels, base, images or none" ;;
esac
