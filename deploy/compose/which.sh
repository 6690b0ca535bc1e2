#!/usr/bin/env bash
# Print the compose command of this machine: v2's plugin where it is there, else docker-compose.
project=${KERNFED_PROJECT:-kernfed}
if docker compose version >/dev/null 2>&1; then
  echo "docker compose -p $project"
elif command -v docker-compose >/dev/null; then
  echo "docker-compose -p $project"
else
  echo "neither docker compose nor docker-compose is here. On Debian or Ubuntu: apt-get install docker-compose" >&2
  exit 2
fi
