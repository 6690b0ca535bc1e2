#!/usr/bin/env bash
# Start the federation of docker-compose.yml, and leave the operator's identity in .cluster/operator: `make up`.
# The first time it makes the federation too. Where the operator's identity is left of one and its volume is gone, it
# makes no other: its clients would not know it.
#   KERNFED_UP_WAIT_S=600 seconds for which it waits for the coordinator and the clients
#   KERNFED_TAG=local KERNFED_PORT=8470 KERNFED_OPERATOR=operator KERNFED_PROJECT=kernfed KERNFED_CLUSTER=.cluster
# Arguments go to compose before `up`, e.g. -f docker-compose.yml -f deploy/compose.postgres.yml
set -euo pipefail
cd "$(dirname "$0")/../.."
tag=${KERNFED_TAG:-local}
port=${KERNFED_PORT:-8470}
operator=${KERNFED_OPERATOR:-operator}
compose=$(deploy/compose/which.sh)
cluster=${KERNFED_CLUSTER:-.cluster}
limit_s=${KERNFED_UP_WAIT_S:-600}

for image in kernfed-coordinator kernfed-client; do
  if ! docker image inspect "$image:$tag" >/dev/null 2>&1; then
    echo "$image:$tag is not built: run make images, or make images-airgap where no image registry is reached" >&2
    exit 2
  fi
done

volume=${KERNFED_PROJECT:-kernfed}_coordinator
if ! docker volume inspect "$volume" >/dev/null 2>&1; then
  if [ -e "$cluster/operator" ]; then
    echo "the volume $volume is gone, which held the federation of $cluster/operator. Restore it (docs/deploy.md)." >&2
    echo "To make another federation: make down ARGS=-v" >&2
    exit 3
  fi
  $compose "$@" run --rm coordinator init --federation hearts --host coordinator --host localhost --host 127.0.0.1 \
    --operator "$operator" || { docker volume rm "$volume" >/dev/null && exit 3; }
fi
$compose "$@" up -d --no-build

# The coordinator's folder is made whole or not at all, so what is copied is complete.
container=$($compose "$@" ps -q coordinator)
mkdir -p "$cluster"
chmod 700 "$cluster"
rm -rf "$cluster/operator"
deadline=$((SECONDS + limit_s))
echo "waiting up to $limit_s s (KERNFED_UP_WAIT_S) for the coordinator to make the identity of $operator"
until docker cp "$container:/var/lib/kernfed/pki/operator-$operator" "$cluster/operator" >/dev/null 2>&1; do
  if [ $SECONDS -ge $deadline ]; then
    echo "the coordinator made no identity for $operator in $limit_s s; see: make logs. A slow machine may need more:" >&2
    echo "KERNFED_UP_WAIT_S=$((2 * limit_s)) make up" >&2
    exit 1
  fi
  sleep 0.5
done
# In there the coordinator is dialled by its name among containers; from here by the published port.
sed -i "s/\"coordinator\": \"[^\"]*\"/\"coordinator\": \"localhost:$port\"/; s/\"enrolment\": \"[^\"]*\"/\"enrolment\": \"\"/" \
  "$cluster/operator/identity.json"

connected() {
  docker exec "$container" kernfed client list --identity "/var/lib/kernfed/pki/operator-$operator" --json 2>/dev/null |
    grep -c '"connected": true' || true
}
deadline=$((SECONDS + limit_s)) there=-1
while [ "$there" -lt 4 ]; do
  now=$(connected)
  if [ "$now" != "$there" ]; then
    there=$now
    echo "waiting up to $((deadline - SECONDS)) s for four clients: $there connected"
  fi
  if [ "$there" -lt 4 ] && [ $SECONDS -ge $deadline ]; then
    echo "$there of four clients connected in $limit_s s; see: make logs. A slow machine may need more:" >&2
    echo "KERNFED_UP_WAIT_S=$((2 * limit_s)) make up" >&2
    exit 1
  fi
  sleep 1
done
cat <<TEXT
Coordinator and four clients are up. As the operator, from here:

  export KERNFED_IDENTITY=$cluster/operator
  .venv/bin/kernfed client list
  .venv/bin/kernfed job submit examples/heart/newton.toml --watch
TEXT
