# SPDX-License-Identifier: Apache-2.0
"""Tests that run the tracer on the kernel of this machine, with the writers of known IO."""

def kernel_test(name, srcs, args = [], deps = [], manual = False, **more):
    """A ground-truth test. It needs root and BPF, runs alone, and skips with a reason.

    Args:
      name: of the target.
      srcs: its sources.
      args: its arguments besides the path of the writers' program.
      deps: libraries besides those that every such test uses.
      manual: it runs only when asked for by name.
      **more: whatever else a cc_test takes.
    """
    native.cc_test(
        name = name,
        size = "large",
        srcs = srcs,
        args = args + ["--writer=$(location :writer)"],
        data = [":writer"],
        tags = [
            "exclusive",
            "local",
            "privileged",
        ] + (["manual"] if manual else []),
        deps = deps + [
            ":scratch_disk",
            ":test_main",
            "//tests/testing:child_process",
            "//third_party:absl",
            "//third_party:gtest",
        ],
        **more
    )
