# SPDX-License-Identifier: Apache-2.0
"""proto_grpc_library: .proto files to a cc_library, with Debian's protoc.

Headers are included by their path from the root of the project:

    #include "proto/fleetblame/v1/types.pb.h"
    #include "proto/fleetblame/v1/collector.grpc.pb.h"
"""

def proto_grpc_library(name, srcs, grpc_srcs = [], imports = [], deps = [], **kwargs):
    """Compiles .proto files of this package for C++.

    Args:
      name: the cc_library to make.
      srcs: .proto files without a service.
      grpc_srcs: .proto files with services; their stubs are made too.
      imports: labels of .proto files of other packages that srcs import.
      deps: the proto_grpc_libraries of those imports.
      **kwargs: passed on to the cc_library (visibility, testonly, ...).
    """
    hdrs = []
    ccs = []
    for src in srcs + grpc_srcs:
        stem = src[:-len(".proto")]
        hdrs.append(stem + ".pb.h")
        ccs.append(stem + ".pb.cc")
    for src in grpc_srcs:
        stem = src[:-len(".proto")]
        hdrs.append(stem + ".grpc.pb.h")
        ccs.append(stem + ".grpc.pb.cc")

    cmd = [
        "set -e",
        # $(GENDIR) is the root that mirrors the source tree.
        "protoc -I. --cpp_out=$(GENDIR) " +
        " ".join(["$(location %s)" % s for s in srcs + grpc_srcs]),
    ]
    if grpc_srcs:
        cmd.append(
            "protoc -I. --plugin=protoc-gen-grpc=$$(command -v grpc_cpp_plugin)" +
            " --grpc_out=generate_mock_code=false:$(GENDIR) " +
            " ".join(["$(location %s)" % s for s in grpc_srcs]),
        )
    native.genrule(
        name = name + "_protoc",
        srcs = srcs + grpc_srcs + imports,
        outs = hdrs + ccs,
        cmd = "\n".join(cmd),
        message = "Compiling protos of",
        visibility = ["//visibility:private"],
    )
    native.cc_library(
        name = name,
        srcs = ccs,
        hdrs = hdrs,
        copts = ["-w"],
        deps = deps + [
            "//third_party:grpc++" if grpc_srcs else "//third_party:protobuf",
        ],
        **kwargs
    )
