# SPDX-License-Identifier: Apache-2.0
"""bpf_skeleton: one CO-RE BPF program to an object and a libbpf skeleton.

The build does not look at the kernel of the build machine: kernel types come
from hand-written CO-RE declarations among hdrs, and are relocated at load time.
"""

def bpf_skeleton(name, src, hdrs = [], mcpu = "v3", copts = [], clang = "clang", **kwargs):
    """Compiles src and wraps it for C and C++.

    Makes NAME.bpf.o, NAME.skel.h (functions are called NAME__open and so on)
    and a cc_library NAME that offers the skeleton as
    "<package>/NAME.skel.h" and brings libbpf along.

    Args:
      name: a C identifier.
      src: the .bpf.c file.
      hdrs: every header it includes from this repository, by path from the root.
      mcpu: BPF instruction set; v2 is understood by every kernel since 4.14,
        v3 (32-bit jumps) since 5.1.
      copts: further compiler options, such as -D.
      clang: the compiler to use.
      **kwargs: passed on to the cc_library (visibility, tags, ...).
    """
    native.genrule(
        name = name + "_bpf_object",
        srcs = [src] + hdrs,
        outs = [name + ".bpf.o"],
        cmd = "\n".join([
            "set -e",
            "case $$(uname -m) in",
            "  x86_64) arch=x86 ;;",
            "  aarch64) arch=arm64 ;;",
            "  *) echo \"BPF is built on x86_64 and aarch64 only\" >&2; exit 1 ;;",
            "esac",
            clang + " -target bpf -g -O2 -mcpu=" + mcpu +
            " -Wall -Wextra -Werror -Wno-unused-parameter -Wno-missing-field-initializers" +
            " -D__TARGET_ARCH_$$arch -I. -I$(GENDIR)" +
            # For <asm/types.h>, which is in no directory that -target bpf searches.
            " -idirafter /usr/include/$$(uname -m)-linux-gnu" +
            # Paths in debug information must not depend on where the tree is.
            " -fdebug-compilation-dir=. " +
            " ".join(copts) +
            " -c $(location %s) -o $@" % src,
            # Drops DWARF and keeps BTF, which is what the loader reads.
            "llvm-strip -g $@",
        ]),
        message = "Compiling BPF",
        visibility = ["//visibility:private"],
    )
    native.genrule(
        name = name + "_bpf_skeleton",
        srcs = [name + ".bpf.o"],
        outs = [name + ".skel.h"],
        # bpftool stands in /usr/sbin, which is not on Bazel's PATH.
        cmd = "PATH=$$PATH:/usr/sbin:/sbin bpftool gen skeleton $< name " + name + " > $@",
        message = "Generating BPF skeleton",
        visibility = ["//visibility:private"],
    )
    native.cc_library(
        name = name,
        hdrs = [name + ".skel.h"],
        deps = ["//third_party:libbpf"],
        **kwargs
    )
