#!/usr/bin/env bash
# Make the virtual environment $1 with the first Python that is new enough. PYTHON=/path/to/python3 chooses another.
set -euo pipefail
folder=$1

python=
for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
  if command -v "$candidate" >/dev/null &&
    "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null; then
    python=$candidate
    break
  fi
done
if [ -z "$python" ]; then
  echo "kernfed needs Python 3.11 to 3.14, and none is on the path. On Debian or Ubuntu: apt-get install python3" \
    "python3-venv. Elsewhere installed: make setup PYTHON=/path/to/python3" >&2
  exit 2
fi

if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
  package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
  if "$python" -c 'import venv, pip' 2>/dev/null; then
    "$python" -m venv --without-pip "$folder"
    "$python" -m pip --python "$folder/bin/python" install -q pip
    exit
  fi
  if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "$python cannot make virtual environments. Install the package $package and try again:" \
      "sudo apt-get install $package" >&2
    exit 2
  fi
  echo "installing $package"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >/dev/null
fi
"$python" -m venv "$folder"
