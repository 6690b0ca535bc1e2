#!/usr/bin/env bash
# The software bill of materials (CycloneDX 1.6, JSON) of the images' Python packages: deploy/image/sbom.sh PYTHON
# PYTHON is an interpreter with cyclonedx-bom. Where the wheelhouse is filled its wheels are named, with their digests;
# else the pinned versions. The file lies in the wheelhouse, and travels with it. Each image holds a bill of its
# own, with Debian's packages, which its build writes (bill.py): `docker run --rm --entrypoint cat IMAGE
# /usr/local/share/kernfed/sbom.cdx.json`.
set -euo pipefail
cd "$(dirname "$0")/../.."
wheelhouse=deploy/wheelhouse
list=$(mktemp)
trap 'rm -f "$list"' EXIT
if compgen -G "$wheelhouse/*.whl" >/dev/null; then
  (cd $wheelhouse && sha256sum -- *.whl) | sed -E 's/^([0-9a-f]+)  ([^-]+)-([^-]+)-.*$/\2==\3 --hash=sha256:\1/' >"$list"
else
  grep -hE '^[a-z].*==' constraints.txt deploy/constraints.txt | sort -u >"$list"
fi
"$1" -m cyclonedx_py requirements "$list" --pyproject pyproject.toml --mc-type application --output-reproducible \
  --spec-version 1.6 -o $wheelhouse/sbom.cdx.json
echo "$wheelhouse/sbom.cdx.json: $(wc -l <"$list") packages"
