#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts what really ran, from Bazel's build events and each test.xml.

usage: count_results.py [--no-skips] [--allow-empty] [--privileged FILE]
                        [--gtest FILE] [--expect FILE] [--problem TEXT]
                        [--keep DIR] EVENTS...

EVENTS are files of `bazel --build_event_json_file`. FILE of --expect lists the
test targets that had to run, FILE of --privileged those of them that need root
or a kernel feature, FILE of --gtest those that write a test.xml of their own
(for others Bazel makes one, with one case that tells the exit code). Counted
are test cases, not targets:

* a case fails if its XML says so;
* a target that does not build, crashes, times out, writes no XML or runs no
  case (unless --allow-empty) counts as one failure, besides the failures its
  XML holds;
* a skipped case is printed with its reason; with --no-skips a skip in a
  privileged target is a failure, because then nothing was tested there;
* any other target that does not build is one failure, and so is each --problem.

Logs of targets that failed are copied to DIR of --keep. The last line is
`N passed, N failed, N skipped`; the exit code is 1 if anything failed.
"""

import argparse
import collections
import json
import os
import re
import shutil
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree

Case = collections.namedtuple("Case", "name outcome reason")
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


MOST_REASON_CHARS = 400  # what comes later is in the log


def reason_of(text):
    """The message in one line; gtest puts `file:line` before it."""
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    where = ""
    if len(lines) > 1 and re.fullmatch(r"\S+:\d+", lines[0]):
        where = " (%s)" % lines.pop(0)
    if not lines:
        return "no reason given"
    message = "; ".join(lines)
    if len(message) > MOST_REASON_CHARS:
        message = message[:MOST_REASON_CHARS] + "..."
    return message + where


def read_cases(xml_text):
    """The cases of one test.xml. Raises ParseError if it is not XML."""
    # gtest may write control characters that XML forbids.
    cleaned = re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", "?", xml_text)
    cases = []
    for element in ElementTree.fromstring(cleaned).iter("testcase"):
        name = ".".join(filter(None, [element.get("classname"), element.get("name")]))
        problem = element.find("failure")
        if problem is None:
            problem = element.find("error")
        skip = element.find("skipped")
        if problem is not None:
            cases.append(Case(name, FAILED, reason_of(problem.get("message") or problem.text)))
        elif skip is not None or element.get("result") == "skipped":
            message = "" if skip is None else skip.get("message") or skip.text
            cases.append(Case(name, SKIPPED, reason_of(message)))
        elif element.get("status") == "notrun":
            cases.append(Case(name, SKIPPED, "disabled in the source"))
        else:
            cases.append(Case(name, PASSED, ""))
    return cases


class Target:
    def __init__(self, label):
        self.label = label
        self.cases = []
        self.problems = []  # what the XML cannot tell: crash, timeout, no XML
        self.logs = []
        self.seconds = 0.0
        self.ran = False
        self.cases_by_bazel = False


def path_of(outputs, name):
    for output in outputs:
        if output.get("name") == name and output.get("uri", "").startswith("file://"):
            return urllib.parse.unquote(output["uri"][len("file://"):])
    return None


def add_result(target, result):
    """Adds one run (or shard) of a target."""
    target.ran = True
    outputs = result.get("testActionOutput", [])
    target.seconds += int(result.get("testAttemptDurationMillis", 0)) / 1000.0
    log = path_of(outputs, "test.log")
    if log:
        target.logs.append(log)
    cases = []
    xml = path_of(outputs, "test.xml")
    try:
        with open(xml or "", encoding="utf-8", errors="replace") as file:
            cases = read_cases(file.read())
    except OSError:
        target.problems.append("wrote no test.xml")
    except ElementTree.ParseError as error:
        target.problems.append("wrote a broken test.xml: %s" % error)
    status = result.get("status", "NO_STATUS")
    by_bazel = [case.name for case in cases] == [target.label.strip("/").replace(":", "/")]
    if by_bazel and status != "PASSED":
        # Its one case says in other words what the status says.
        how = "" if status == "TIMEOUT" else ": " + cases[0].reason
        cases = []
    else:
        how = ""
        target.cases_by_bazel |= by_bazel
    target.cases += cases
    if status == "TIMEOUT":
        target.problems.append("timed out after %.0f s" % target.seconds)
    elif status != "PASSED" and not any(case.outcome == FAILED for case in cases):
        target.problems.append("ended with status %s%s" % (status, how))


def read_events(paths):
    """Targets by label, and labels of other targets that did not build."""
    targets = {}
    broken = set()
    problems = []
    for path in paths:
        try:
            with open(path, encoding="utf-8") as file:
                lines = file.read().splitlines()
        except OSError as error:
            problems.append("Bazel wrote no events: %s" % error)
            continue
        finished = False
        for line in lines:
            event = json.loads(line)
            identity = event.get("id", {})
            if "testResult" in identity:
                label = identity["testResult"]["label"]
                target = targets.setdefault(label, Target(label))
                add_result(target, event.get("testResult", {}))
            elif "targetCompleted" in identity:
                if not event.get("completed", {}).get("success"):
                    broken.add(identity["targetCompleted"]["label"])
            elif "buildFinished" in identity:
                finished = True
                code = event.get("finished", {}).get("exitCode", {})
                # 3: tests failed, 1: something does not build, 4: no tests. Each
                # of these shows in the other events, or in what was expected.
                if code.get("code", 0) not in (0, 1, 3, 4):
                    problems.append("Bazel ended with %s" % code.get("name", code))
        if not finished:
            problems.append("Bazel ended before it was done (%s)" % os.path.basename(path))
    return targets, broken, problems


def read_labels(path):
    if not path:
        return []
    with open(path, encoding="utf-8") as file:
        return [line.strip() for line in file if line.strip()]


def keep_logs(target, directory):
    name = re.sub(r"[^\w.-]+", "_", target.label.strip("/"))
    for number, log in enumerate(target.logs):
        suffix = ".%d" % number if number else ""
        try:
            shutil.copyfile(log, os.path.join(directory, name + suffix + ".log"))
        except OSError as error:
            print("  (cannot keep the log of %s: %s)" % (target.label, error))


def main(argv):
    parser = argparse.ArgumentParser(description="Counts test results.")
    parser.add_argument("--no-skips", action="store_true")
    parser.add_argument("--allow-empty", action="store_true")
    parser.add_argument("--privileged")
    parser.add_argument("--gtest")
    parser.add_argument("--expect")
    parser.add_argument("--problem", action="append", default=[])
    parser.add_argument("--keep")
    parser.add_argument("events", nargs="+")
    args = parser.parse_args(argv)

    targets, broken, problems = read_events(args.events)
    privileged = set(read_labels(args.privileged))
    gtest = set(read_labels(args.gtest))
    for label in read_labels(args.expect):
        target = targets.setdefault(label, Target(label))
        if not target.ran:
            target.problems.append("does not build" if label in broken else "did not run")
    for target in targets.values():
        if not target.problems and not target.cases and not args.allow_empty:
            target.problems.append("ran no test case")
        if target.cases_by_bazel and target.label in gtest:
            target.problems.append("exited before its test program had reported")
            target.cases = []
    failures = args.problem + problems
    failures += ["%s does not build" % label for label in sorted(broken - set(targets))]

    passed = 0
    skips = []
    for label in sorted(targets):
        target = targets[label]
        bad = ["%s %s" % (label, problem) for problem in target.problems]
        counts = collections.Counter()
        for case in target.cases:
            outcome, reason = case.outcome, case.reason
            if outcome == SKIPPED and args.no_skips and label in privileged:
                outcome, reason = FAILED, "skipped, which is not allowed here: " + reason
            counts[outcome] += 1
            if outcome == FAILED:
                bad.append("%s %s: %s" % (label, case.name, reason))
            elif outcome == SKIPPED:
                skips.append("%s %s: %s" % (label, case.name, reason))
        passed += counts[PASSED]
        failures += bad
        print("  %-4s %s  %d passed%s%s  (%.1f s)" % (
            "FAIL" if bad else "ok", label, counts[PASSED],
            ", %d failed" % len(bad) if bad else "",
            ", %d skipped" % counts[SKIPPED] if counts[SKIPPED] else "", target.seconds))
        if bad and args.keep:
            keep_logs(target, args.keep)

    if skips:
        print("\nSkipped:")
        print("".join("  %s\n" % skip for skip in skips), end="")
    if failures:
        print("\nFailed:")
        print("".join("  %s\n" % failure for failure in failures), end="")
    print("\n%d passed, %d failed, %d skipped" % (passed, len(failures), len(skips)))
    return 1 if failures or not targets else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
