#!/bin/sh
# Take out of a virtual environment what no daemon runs: the installer, headers, tests of libraries.
set -eu
site=$(echo "$1"/lib/python3*/site-packages)
rm -rf "$site"/pip "$site"/pip-* "$site"/setuptools "$site"/setuptools-* "$1"/bin/pip* "$1"/include
rm -rf "$site"/torch/include "$site"/torch/bin/test_* "$site"/torch/share "$site"/torch/test "$site"/pyarrow/include
find "$site" -type d -name tests -prune -exec rm -rf {} +
find "$site" -name '*.a' -delete
