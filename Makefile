# The commands a person needs; CI runs the same ones. `make` prints this help.
PY ?= .venv/bin/python
BIN := .venv/bin
PROTOS := $(wildcard proto/kernfed/v1/*.proto)

.DEFAULT_GOAL := help

help: ## print this help
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 20

PROTO_BIN := .tools/proto/bin
PROTO_OUT := .tools/proto/out

$(PROTO_BIN)/mypy-protobuf-marker: proto/requirements.txt
	python3 -m venv .tools/proto
	$(PROTO_BIN)/pip install -q -r proto/requirements.txt
	touch $@

proto: $(PROTO_BIN)/mypy-protobuf-marker ## generate common/kernfed/v1 from proto/
	rm -rf $(PROTO_OUT) && mkdir -p $(PROTO_OUT)
	PATH="$(CURDIR)/$(PROTO_BIN):$$PATH" $(PROTO_BIN)/python -m grpc_tools.protoc -Iproto --python_out=$(PROTO_OUT) \
	  --grpc_python_out=$(PROTO_OUT) --mypy_out=quiet:$(PROTO_OUT) $(PROTOS)
	find $(PROTO_OUT) -name '*_pb2_grpc.py' -exec grep -L 'Servicer' {} + | xargs -r rm
	touch $(PROTO_OUT)/kernfed/v1/__init__.py
	mkdir -p common/kernfed/v1
	cd $(PROTO_OUT)/kernfed/v1 && cp -f * $(CURDIR)/common/kernfed/v1/
	cd common/kernfed/v1 && for f in *.py*; do test -e $(CURDIR)/$(PROTO_OUT)/kernfed/v1/$$f || rm $$f; done

.PHONY: help proto
