# The commands a person needs; CI runs the same ones. `make` prints this help.
PY ?= .venv/bin/python
BIN := .venv/bin
PROTOS := $(wildcard proto/kernfed/v1/*.proto)

.DEFAULT_GOAL := help

help: ## print this help
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 20

PROTO_BIN := .tools/proto/bin

$(PROTO_BIN)/mypy-protobuf-marker: proto/requirements.txt
	python3 -m venv .tools/proto
	$(PROTO_BIN)/pip install -q -r proto/requirements.txt
	touch $@

proto: $(PROTO_BIN)/mypy-protobuf-marker ## generate common/kernfed/v1 from proto/
	rm -f common/kernfed/v1/*_pb2*.py common/kernfed/v1/*_pb2*.pyi
	PATH="$(CURDIR)/$(PROTO_BIN):$$PATH" $(PROTO_BIN)/python -m grpc_tools.protoc -Iproto --python_out=common \
	  --grpc_python_out=common --mypy_out=quiet:common $(PROTOS)
	find common/kernfed/v1 -name '*_pb2_grpc.py' -exec grep -L 'Servicer' {} + | xargs -r rm

.PHONY: help proto
