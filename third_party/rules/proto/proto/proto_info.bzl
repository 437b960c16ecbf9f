# SPDX-License-Identifier: Apache-2.0
"""Bazel's built-in ProtoInfo under a name that defs.bzl can re-export."""

BUILTIN_PROTO_INFO = ProtoInfo
