#!/usr/bin/env bash
# Build kernfed-coordinator and kernfed-client from this checkout: deploy/build.sh [OPTIONS OF docker build]
#   KERNFED_TAG=local   the images' tag
#   deploy/build.sh --build-arg PIP_EXTRA_INDEX_URL=URL     torch from that index, e.g. that of CPU builds; unset: CUDA
# Without an image registry or a package index: deploy/airgap/build.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
tag=${KERNFED_TAG:-local}
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
revision=$(git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)

if ! docker version >/dev/null 2>&1; then
  echo "no Docker engine answers here. On Debian or Ubuntu: apt-get install docker.io docker-compose; then start it" \
    "(systemctl start docker, or dockerd)" >&2
  exit 2
fi
for image in coordinator client; do
  echo "building kernfed-$image:$tag"
  id=$(docker build -q -f deploy/Dockerfile --target "$image" \
    --build-arg VERSION="$version" --build-arg REVISION="$revision" "$@" .)
  docker tag "$id" "kernfed-$image:$tag"
done
docker image ls --filter "reference=kernfed-*:$tag" --format 'table {{.Repository}}:{{.Tag}}\t{{.Size}}'
