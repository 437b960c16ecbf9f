# SPDX-License-Identifier: Apache-2.0
"""The rules that Bazel's own tool packages load from @rules_proto.

Bazel 4.2 still has these rules built in, so re-exporting them is enough and
nothing has to be downloaded.
"""

# Shadowing the built-in name needs this detour through another file.
load("//proto:proto_info.bzl", _ProtoInfo = "BUILTIN_PROTO_INFO")

proto_lang_toolchain = native.proto_lang_toolchain
proto_library = native.proto_library

ProtoInfo = _ProtoInfo
